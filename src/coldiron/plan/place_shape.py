"""What nodes and switches ask of a rack: units, depth, weight, watts. A figure that nobody gives is None."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from coldiron.catalog.model import Switch
from coldiron.inventory.hardware import Build
from coldiron.inventory.model import Power
from coldiron.inventory.source import KeyPath
from coldiron.plan.design import Design

# What one person should not lift above the chest: from here on a machine goes to the foot of the rack. One whose
# weight nobody gives is taken for heavy from so many units on.
HEAVY_KG = 25.0
HEAVY_U = 3


@dataclass(frozen=True)
class Shape:
    """``height_u`` in whole units, ``watts`` at the wall at most, ``liquid_share`` of the heat that liquid takes.

    ``aside``: a tower or desktop that takes no units of a rack and stands beside it, or on the floor of it.
    """

    height_u: int | None
    depth_mm: float | None
    weight_kg: float | None
    watts: float | None
    liquid_share: float | None = 0.0
    aside: bool = False
    switch: bool = False

    @cached_property
    def from_top(self) -> bool:
        """Whether it goes as high as it can: switches, and what is light."""
        if self.switch:
            return True
        if self.weight_kg is not None:
            return self.weight_kg < HEAVY_KG
        return (self.height_u or 1) < HEAVY_U


@dataclass(frozen=True, slots=True)
class Thing:
    """A node or a switch. ``rack`` and ``u`` as the file says, ``path`` leads to its group there.

    ``group`` is the range it was written in, ``label`` its model's name or else that range. Things of one ``apart``
    want different racks, so that one rack lost does not take them all; None of most.
    """

    name: str
    path: KeyPath
    group: str
    label: str
    shape: Shape
    rack: str | None
    u: int | None
    apart: str | None = None


def things(design: Design) -> Iterator[Thing]:
    """Every switch, then every node, in the file's order; nodes of a group that are alike follow each other."""
    of_model: dict[str, Shape] = {}
    for switch in design.cluster.switches:
        name = switch.group.model
        if name not in of_model:
            of_model[name] = _switch(switch.model)
        yield Thing(
            switch.name,
            switch.path,
            switch.group.name,
            name,
            of_model[name],
            switch.rack,
            switch.u,
            switch.group.name,
        )
    # Keyed by what they are made of and what caps them; both outlive this, so that the ids stay theirs.
    of_build: dict[tuple[int, int], Shape] = {}
    for kind in design.kinds:
        group, label, apart = kind.group.name, kind.label, "head" if kind.group.kind == "head" else None
        for node in kind.nodes:
            key = (id(node.build), id(node.power))
            shape = of_build.get(key)
            if shape is None:
                shape = of_build[key] = _node(node.build, node.power)
            yield Thing(node.name, node.path, group, label, shape, node.rack, node.u, apart)


def _switch(model: Switch | None) -> Shape:
    if model is None:
        return Shape(None, None, None, None, switch=True)
    height = None if model.height_u is None else int(-(-model.height_u // 1))
    return Shape(height, model.depth_mm, model.weight_kg, model.draw_max_watts, switch=True)


def _node(build: Build, power: Power) -> Shape:
    hardware = build.hardware
    height = build.height_u
    return Shape(
        height,
        hardware.depth_mm,
        hardware.weight_kg,
        watts(build, power),
        _liquid_share(build),
        aside=height is None and hardware.form in ("tower", "desktop"),
    )


def _liquid_share(build: Build) -> float | None:
    hardware = build.hardware
    if hardware.cooling in (None, "air"):
        return 0.0
    return 1.0 if hardware.cooling == "liquid" and hardware.liquid_share is None else hardware.liquid_share


def watts(build: Build, power: Power) -> float | None:
    """What a node draws at most, with its cap; near enough to find it a place, and no more than that.

    Of a node whose cap the plan finds (``fit_circuit``) it is what it draws at the least cap that its GPUs take.
    """
    hardware, count = build.hardware, build.gpu_count
    most = build.gpu.tdp_watts if build.gpu else None
    cap = power.gpu_cap_watts
    if power.fit_circuit and build.gpu:
        cap = build.gpu.power_limit_min_watts
    if hardware.draw_watts is not None:
        spared = max(0.0, most - cap) if most is not None and cap is not None else 0.0
        return max(0.0, hardware.draw_watts - count * spared)
    each = cap if cap is not None else most
    if hardware.base_watts is None or (count and each is None):
        return None
    return hardware.base_watts + count * (each or 0.0)
