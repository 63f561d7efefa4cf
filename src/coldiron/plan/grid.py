"""The electricity of a whole design: its machines, kinds of racks, feeds and found caps, as the checks read them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from coldiron.plan.caps import FeedLimit, Solution, feed_load, over, solve
from coldiron.plan.circuits import FeedKey, Layout, RackKind
from coldiron.plan.design import Design
from coldiron.plan.draw import Machine, Machines
from coldiron.plan.energy import Heat, heat
from coldiron.plan.plugging import Plugging

_NO_CAPS: Mapping[Machine, float] = {}


class Grid:
    """``machines`` is what each node and switch is; ``kinds`` are the racks, those that are alike together."""

    def __init__(self, design: Design) -> None:
        self.design = design
        made = Machines({kind.path: kind.label for kind in design.kinds})
        self.machines: dict[str, Machine] = {node.name: made.of_node(node) for node in design.nodes.values()}
        self.machines |= {switch.name: made.of_switch(switch) for switch in design.switches.values()}
        self.kinds = self._kinds()
        self.feeds = [
            FeedLimit(
                ("feed", name),
                min(feed.limit_watts, feed.ups.watts) if feed.ups else feed.limit_watts,
            )
            for name, feed in design.cluster.feeds.items()
        ]

    @cached_property
    def fitted(self) -> Solution:
        """The caps of nodes with `fit_circuit`."""
        return solve(self.kinds, self.feeds, lambda machine: machine.fit)

    @cached_property
    def would_fit(self) -> Solution:
        """The caps on all GPUs at which everything holds; nothing is capped where everything does anyway."""
        return solve(self.kinds, self.feeds, lambda machine: True)

    def caps(self, kind: RackKind) -> Mapping[Machine, float]:
        """The caps that the plan found for a kind of rack."""
        return self.fitted.caps.get(kind, _NO_CAPS)

    @cached_property
    def overloaded(self) -> frozenset[RackKind]:
        """Kinds of racks with a breaker that carries too much, with all feeds alive or one lost."""
        return frozenset(kind for kind in self.kinds if over(kind, self.caps(kind)))

    def on_feed(self, key: FeedKey) -> tuple[float, float]:
        """Watts on a feed with all alive, and with the worst other one lost."""
        return feed_load(key, self.feeds, self.kinds, self.fitted.caps)

    @cached_property
    def placed(self) -> dict[str, tuple[RackKind, int]]:
        """The kind of its rack, and its number in there, of each machine that stands in a rack."""
        return {
            name: (kind, unit)
            for kind in self.kinds
            for names in kind.members
            for unit, name in enumerate(names)
        }

    @cached_property
    def watts(self) -> dict[str, float]:
        """Most draw of each node and switch, with caps; those that nobody knows are absent."""
        found: dict[str, float] = {}
        for kind in self.kinds:
            draws = [kind.watts(unit, self.caps(kind)) for unit in range(len(kind.machines))]
            for names in kind.members:
                for name, watts in zip(names, draws, strict=True):
                    if watts is not None:
                        found[name] = watts
        for name, machine in self.machines.items():
            if name not in self.placed and (watts := machine.watts(None)) is not None:
                found[name] = watts
        return found

    def dark(self, lost: FeedKey) -> list[str]:
        """What has no supply left, or fewer than it needs, with ``lost`` dead though its rack has another feed."""
        found = []
        for kind in self.kinds:
            if lost in kind.feeds and len(kind.feeds) > 1:
                units = {
                    unit
                    for unit, plugs in enumerate(kind.plugs)
                    if plugs and kind.live(kind.machines[unit], plugs, lost) == ()
                }
                found += kind.names(units)
        return found

    def heat(self, kind: RackKind) -> Heat:
        """The heat of one of its racks; of machines whose draw nobody knows there is none."""
        draws = [(machine, kind.watts(unit, self.caps(kind))) for unit, machine in enumerate(kind.machines)]
        return heat((machine, watts) for machine, watts in draws if watts is not None)

    def _kinds(self) -> list[RackKind]:
        inside: dict[str, list[str]] = {}
        for name in self.machines:
            inside.setdefault(self._rack(name), []).append(name)
        layouts: dict[object, Layout] = {}
        found: dict[object, RackKind] = {}
        for name, rack in self.design.racks.items():
            names = tuple(inside.get(name, ()))
            machines = tuple(self.machines[inner] for inner in names)
            key = (rack.path, tuple(map(id, machines)))
            if key not in found:
                layout = layouts.setdefault(rack.path, Layout(rack.group.pdus, rack.path))
                plugs, homeless = Plugging(layout).plug(machines)
                found[key] = RackKind(layout, rack, machines, plugs, homeless)
            found[key].racks.append(name)
            found[key].members.append(names)
        return list(found.values())

    def _rack(self, name: str) -> str:
        thing = self.design.nodes.get(name) or self.design.switches[name]
        return self.design.rack_of(thing) or ""
