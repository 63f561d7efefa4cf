"""What a machine draws at the wall at most, from its figures, the cap on its GPUs and its supplies' efficiency."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from coldiron.inventory.cluster import Node, SwitchUnit
from coldiron.inventory.hardware import Build
from coldiron.inventory.model import Power
from coldiron.inventory.source import KeyPath

# Least efficiency at a share of the rated load, by 80 PLUS grade. Source: Tom's Hardware, "80 PLUS PSU efficiency",
# table of the programme's levels: https://www.tomshardware.com/uk/reviews/80-plus-psu-efficiency,4848-2.html
_Curve = tuple[tuple[float, float], ...]
_115_VOLTS: dict[str, _Curve] = {
    "gold": ((0.2, 0.87), (0.5, 0.90), (1.0, 0.87)),
    "platinum": ((0.2, 0.90), (0.5, 0.92), (1.0, 0.89)),
    "titanium": ((0.1, 0.90), (0.2, 0.92), (0.5, 0.94), (1.0, 0.90)),
}
_230_VOLTS_REDUNDANT: dict[str, _Curve] = {
    "gold": ((0.2, 0.88), (0.5, 0.92), (1.0, 0.88)),
    "platinum": ((0.2, 0.90), (0.5, 0.94), (1.0, 0.91)),
    "titanium": ((0.1, 0.90), (0.2, 0.94), (0.5, 0.96), (1.0, 0.91)),
}
_230_VOLTS_SINGLE: dict[str, _Curve] = {
    "gold": ((0.2, 0.90), (0.5, 0.92), (1.0, 0.89)),
    "platinum": ((0.2, 0.92), (0.5, 0.94), (1.0, 0.90)),
    "titanium": ((0.1, 0.90), (0.2, 0.94), (0.5, 0.96), (1.0, 0.94)),
}
# From here the programme's 230 V tables hold; 200 to 240 V is one class of supplies.
_HIGH_VOLTS = 200


def efficiency(grade: str, load: float, volts: float | None, redundant: bool) -> float:
    """Least share of the wall's watts that a supply of an 80 PLUS ``grade`` gives on at ``load`` of its rating.

    Linear between the programme's points, flat outside them. Volts that nobody knows are taken for 115 V, where
    supplies waste most.
    """
    if volts is None or volts < _HIGH_VOLTS:
        curve = _115_VOLTS[grade]
    else:
        curve = (_230_VOLTS_REDUNDANT if redundant else _230_VOLTS_SINGLE)[grade]
    if load <= curve[0][0]:
        return curve[0][1]
    for (low, low_share), (high, high_share) in pairwise(curve):
        if load <= high:
            return low_share + (high_share - low_share) * (load - low) / (high - low)
    return curve[-1][1]


@dataclass(frozen=True, eq=False)
class Machine:
    """Nodes, or switches, that draw and plug alike. None is unknown.

    ``whole_watts`` is the most of the whole machine at the wall, ``base_watts`` that of all but the GPUs behind the
    supplies; one of them is enough. ``cap`` is the limit that cluster.yml sets each GPU, ``fit`` that the plan is to
    find it. ``pdus`` names the rack's PDU of each supply.
    """

    label: str
    path: KeyPath
    switch: bool = False
    whole_watts: float | None = None
    base_watts: float | None = None
    gpus: int = 0
    gpu: str = "gpu"
    tdp_watts: float | None = None
    cap_min_watts: float | None = None
    cap_max_watts: float | None = None
    cap: float | None = None
    fit: bool = False
    supplies: int | None = None
    supply_watts: float | None = None
    grade: str | None = None
    min_active: int | None = None
    inlet: str | None = None
    inrush_amps: float | None = None
    pdus: tuple[str, ...] | None = None
    liquid: float | None = 0.0
    _known: dict[tuple[float | None, float | None, int | None], float | None] = field(
        default_factory=dict, repr=False
    )

    @property
    def ceiling(self) -> float | None:
        """What one GPU draws at most as cluster.yml has it: its cap, else its rating."""
        return self.cap if self.cap is not None else self.tdp_watts

    @cached_property
    def plugs(self) -> int | None:
        """How many cords it has; 0 on a busbar."""
        if self.inlet == "busbar":
            return 0
        return self.supplies or (len(self.pdus) if self.pdus else None)

    def watts(self, cap: float | None, volts: float | None = None, live: int | None = None) -> float | None:
        """Most watts at the wall with each GPU held to ``cap`` and ``live`` of its supplies alive (all, if None)."""
        key = (cap, volts, live)
        if key not in self._known:
            self._known[key] = self._watts(cap, volts, live)
        return self._known[key]

    def _watts(self, cap: float | None, volts: float | None, live: int | None) -> float | None:
        each = cap if cap is not None else self.ceiling
        if self.whole_watts is not None:
            return self._of_whole(self.whole_watts, each, volts)
        if self.base_watts is None or (self.gpus and each is None):
            return None
        return self._at_the_wall(self.base_watts + self.gpus * (each or 0), volts, live)

    def _of_whole(self, whole: float, each: float | None, volts: float | None) -> float | None:
        if not self.gpus or each is None or self.tdp_watts is None:
            return whole
        change = self.gpus * (each - self.tdp_watts)
        if change > 0:
            if self.grade is None:
                return None
            # The least efficiency that the grade allows, as the load that the whole figure means is not known.
            return whole + change / min(efficiency(self.grade, load, volts, True) for load in (0.1, 1.0))
        # What the supplies waste less is not reckoned: a saving must not be promised that may not come.
        return min(whole, max(whole + change, self.gpus * each))

    def _at_the_wall(self, behind: float, volts: float | None, live: int | None) -> float | None:
        if self.grade is None or self.supply_watts is None or self.supplies is None:
            return None
        all_alive = self._lost(behind, volts, self.supplies)
        # Fewer supplies waste less where all together are hardly loaded: the most is asked for.
        return max(all_alive, self._lost(behind, volts, live)) if live else all_alive

    def _lost(self, behind: float, volts: float | None, live: int) -> float:
        assert self.grade is not None
        assert self.supply_watts is not None
        load = behind / (live * self.supply_watts)
        return behind / efficiency(self.grade, load, volts, (self.supplies or 1) > 1)

    def missing(self) -> Iterator[tuple[str, str]]:
        """Yield what its draw cannot be known without: of which thing, and the figure."""
        if self.watts(None) is not None:
            return
        if self.whole_watts is None and self.base_watts is None:
            yield self.label, "draw_max_watts" if self.switch else "hardware.draw_watts"
            return
        if self.gpus and self.ceiling is None:
            yield self.gpu, "tdp_watts"
        for name, value in (
            ("count", self.supplies),
            ("watts", self.supply_watts),
            ("efficiency", self.grade),
        ):
            if value is None and (self.whole_watts is None or name == "efficiency"):
                yield self.label, f"hardware.supplies.{name}"


def of_nodes(label: str, path: KeyPath, build: Build, power: Power) -> Machine:
    """The machine that nodes of one make and one power policy are."""
    hardware, supplies, gpu = build.hardware, build.supplies, build.gpu
    return Machine(
        label,
        path,
        whole_watts=hardware.draw_watts,
        base_watts=hardware.base_watts,
        gpus=build.gpu_count,
        gpu=(hardware.gpus.model or label) if hardware.gpus else "gpu",
        tdp_watts=gpu.tdp_watts if gpu else None,
        cap_min_watts=gpu.power_limit_min_watts if gpu else None,
        cap_max_watts=gpu.power_limit_max_watts if gpu else None,
        cap=power.gpu_cap_watts if build.gpu_count else None,
        fit=power.fit_circuit and build.gpu_count > 0,
        supplies=supplies.count,
        supply_watts=supplies.watts,
        grade=supplies.efficiency,
        min_active=supplies.min_active,
        inlet=supplies.inlet,
        inrush_amps=supplies.inrush_amps,
        pdus=tuple(power.pdus) if power.pdus else None,
        liquid=_liquid(hardware.cooling, hardware.liquid_share),
    )


def of_switch(switch: SwitchUnit) -> Machine:
    """The machine that a switch is; its heat goes into the air."""
    model = switch.model
    if model is None:
        return Machine(switch.group.model, switch.path, switch=True)
    supplies = model.supplies
    return Machine(
        switch.group.model,
        switch.path,
        switch=True,
        whole_watts=model.draw_max_watts,
        supplies=supplies.count,
        supply_watts=supplies.watts,
        grade=supplies.efficiency,
        min_active=supplies.min_active,
        inlet=supplies.inlet,
        inrush_amps=supplies.inrush_amps,
    )


def _liquid(cooling: str | None, share: float | None) -> float | None:
    """Share of the heat that goes into liquid; a machine that says nothing of liquid is cooled by air."""
    if share is not None:
        return share
    return {"liquid": 1.0, "both": None}.get(cooling or "air", 0.0)


class Machines:
    """The machines of a cluster: one object for all nodes, or switches, that are alike."""

    def __init__(self, labels: dict[KeyPath, str]) -> None:
        self._labels = labels
        self._found: dict[object, Machine] = {}

    def of_node(self, node: Node) -> Machine:
        """The machine that ``node`` is."""
        key = (node.path, id(node.build), id(node.power))
        if key not in self._found:
            self._found[key] = of_nodes(self._labels[node.path], node.path, node.build, node.power)
        return self._found[key]

    def of_switch(self, switch: SwitchUnit) -> Machine:
        """The machine that ``switch`` is."""
        if switch.path not in self._found:
            self._found[switch.path] = of_switch(switch)
        return self._found[switch.path]
