"""The links of fabrics and networks: plugged as the file says, else by rule.

By rule a node's port n of a fabric goes to a leaf of rail n; where several serve it, the nodes are shared out among
them in blocks of their order. A node's port of a network goes to a switch in its own rack, else to the one with the
fewest links. Each leaf's links up are shared out evenly over its spines. Ports are filled in order: links to nodes,
then, from the next whole cage, links to spines.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coldiron.inventory.cluster import Node, SwitchUnit
from coldiron.inventory.source import KeyPath
from coldiron.plan.cabling import Claim, Faceplate, Fault, Plugged, faceplate, lower_first, read_plugs, shared
from coldiron.plan.design import Design
from coldiron.plan.fabric import Plane, planes
from coldiron.plan.place import run_length
from coldiron.plan.results import End, Link


@dataclass(frozen=True)
class Unserved:
    """Nodes whose port of this rail comes to no leaf."""

    plane: Plane
    rail: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Cabling:
    """All links, and what they are made of: what each switch holds (``faces``), what is on what (``planes``).

    ``down`` counts the links to nodes of each fabric and network, ``up`` those of each pair of switches, the lower one
    first; ``leaves`` are those that the links of a rail come to; ``faults`` are what `plugs` gets wrong.
    """

    planes: Mapping[KeyPath, Plane]
    faces: Mapping[str, Faceplate]
    links: tuple[Link, ...]
    down: Mapping[KeyPath, int]
    up: Mapping[tuple[str, str], int]
    leaves: Mapping[tuple[KeyPath, int], set[str]]
    faults: tuple[Fault, ...] = ()
    unserved: tuple[Unserved, ...] = ()


def links(design: Design) -> tuple[Link, ...]:
    """Every link of the fabrics, and of the networks that have switches; see the module."""
    return design.cabling.links


def cabling(design: Design) -> Cabling:
    """The links with what they are made of."""
    return _Draft(design).drawn()


@dataclass
class _Draft:
    design: Design
    faces: dict[str, Faceplate] = field(init=False)
    planes: dict[KeyPath, Plane] = field(init=False)
    plugged: Plugged = field(init=False)
    links: list[Link] = field(default_factory=list)
    unserved: list[Unserved] = field(default_factory=list)
    down: dict[KeyPath, int] = field(default_factory=dict)
    up: dict[tuple[str, str], int] = field(default_factory=dict)
    leaves: defaultdict[tuple[KeyPath, int], set[str]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        self.faces = {unit.name: faceplate(unit) for unit in self.design.cluster.switches}
        self.planes = planes(self.design)
        self.order = {name: index for index, name in enumerate(self.faces)}
        self.plugged = read_plugs(self.faces, self.planes)
        self._open: dict[KeyPath, list[SwitchUnit]] = {}
        # Leaves that the file plugs into a spine.
        self._joined: set[str] = set()
        self._turn = 0

    def drawn(self) -> Cabling:
        """Draw everything: what is plugged first, then down, then up."""
        for claim in self.plugged.claims:
            self._claimed(claim)
        by_hand = {(claim.plane.path, claim.face.unit.name) for claim in self.plugged.claims}
        for plane in self.planes.values():
            if not plane.carried:
                continue
            downward = self._by_rail(plane, by_hand) if plane.fabric else self._by_rack(plane, by_hand)
            for unit, ports in downward:
                self._down(plane, self.faces[unit.name], ports)
        self._plugged_switches()
        for face in self.faces.values():
            if face.unit.group.function != "spine":
                self._up(face)
        return Cabling(
            self.planes,
            self.faces,
            tuple(self.links),
            self.down,
            self.up,
            self.leaves,
            tuple(self.plugged.faults),
            tuple(self.unserved),
        )

    def _claimed(self, claim: Claim) -> None:
        face, plug = claim.face, claim.plug
        name = face.unit.name
        length = plug.length_m if plug.length_m is not None else run_length(self.design, claim.node, name)
        face.down += 1
        self._count(claim.plane, 1)
        self.leaves[claim.plane.path, claim.rail].add(name)
        self.links.append(
            Link(
                claim.plane.name,
                End(claim.node, claim.rail),
                End(name, claim.slot + 1, face.labels((claim.slot,))[0]),
                claim.plane.gbit_per_s,
                claim.rail if claim.plane.fabric else None,
                plug.cable,
                length,
                planned=False,
            )
        )

    def _count(self, plane: Plane, number: int) -> None:
        self.down[plane.path] = self.down.get(plane.path, 0) + number

    def _left(self, plane: Plane, rail: int) -> Sequence[Node]:
        """The nodes whose port of this rail is not plugged by hand."""
        taken = self.plugged.taken
        if not taken:
            return plane.nodes
        return [node for node in plane.nodes if (plane.path, node.name, rail) not in taken]

    def _by_rail(
        self, plane: Plane, by_hand: set[tuple[KeyPath, str]]
    ) -> Iterator[tuple[SwitchUnit, list[tuple[str, int]]]]:
        """Which ports of nodes come to which leaf of a fabric."""
        found: dict[str, list[tuple[str, int]]] = {}
        for rail, serving in plane.serving.items():
            nodes = self._left(plane, rail)
            leaves = [unit for unit in serving if (plane.path, unit.name) not in by_hand]
            if nodes and not leaves:
                self.unserved.append(Unserved(plane, rail, tuple(node.name for node in nodes)))
                continue
            for index, unit in enumerate(leaves):
                first, last = (len(nodes) * at // len(leaves) for at in (index, index + 1))
                found.setdefault(unit.name, []).extend((node.name, rail) for node in nodes[first:last])
                if last > first:
                    self.leaves[plane.path, rail].add(unit.name)
        for unit in plane.leaves:
            if unit.name in found:
                yield unit, found[unit.name]

    def _by_rack(
        self, plane: Plane, by_hand: set[tuple[KeyPath, str]]
    ) -> Iterator[tuple[SwitchUnit, list[tuple[str, int]]]]:
        """Which ports of nodes come to which switch of a network."""
        units = [unit for unit in plane.leaves if (plane.path, unit.name) not in by_hand]
        found: dict[str, list[tuple[str, int]]] = {unit.name: [] for unit in units}
        in_rack: dict[str, list[int]] = {}
        for index, unit in enumerate(units):
            rack = self.design.rack_of(unit)
            if rack is not None:
                in_rack.setdefault(rack, []).append(index)
        elsewhere: list[tuple[Node, int]] = []
        for rail in range(1, plane.rails + 1):
            turn = dict.fromkeys(in_rack, rail - 1)
            for node in self._left(plane, rail):
                rack = self.design.rack_of(node) if in_rack else None
                here = in_rack.get(rack) if rack is not None else None
                if not here or rack is None:
                    elsewhere.append((node, rail))
                    continue
                # The next switch of the rack, and for a node's second port another one than for its first.
                found[units[here[turn[rack] % len(here)]].name].append((node.name, rail))
                turn[rack] += 1
        if elsewhere and not units:
            nodes = tuple(dict.fromkeys(node.name for node, _ in elsewhere))
            self.unserved.append(Unserved(plane, 1, nodes))
            return
        heap = [(len(found[unit.name]), index) for index, unit in enumerate(units)]
        heapq.heapify(heap)
        for node, rail in elsewhere:
            number, index = heap[0]
            found[units[index].name].append((node.name, rail))
            heapq.heapreplace(heap, (number + 1, index))
        for unit in units:
            if found[unit.name]:
                self.leaves[plane.path, 1].add(unit.name)
                yield unit, found[unit.name]

    def _down(self, plane: Plane, face: Faceplate, ports: list[tuple[str, int]]) -> None:
        name, gbit = face.unit.name, plane.gbit_per_s
        rails = plane.fabric is not None
        design, slots = self.design, face.take(len(ports))
        face.down += len(ports)
        self._count(plane, len(ports))
        self.links.extend(
            Link(
                plane.name,
                End(node, rail),
                End(name, slot + 1, label),
                gbit,
                rail if rails else None,
                None,
                run_length(design, node, name),
            )
            for (node, rail), slot, label in zip(ports, slots, face.labels(slots), strict=True)
        )

    def _plugged_switches(self) -> None:
        """The links between switches that the file plugs, from either end or both."""
        for one, other in self.plugged.ends:
            lower = lower_first(self.faces[one].unit, self.faces[other].unit, self.order)
            a, b = (one, other) if lower else (other, one)
            if (a, b) in self.up:
                continue
            mine, theirs = self.plugged.ends.get((a, b)), self.plugged.ends.get((b, a))
            if mine and theirs and len(mine) != len(theirs):
                self._disagree(a, b, len(mine), len(theirs))
            number = min(len(slots) for slots in (mine, theirs) if slots)
            plugs = [plug for _, plug in (mine or theirs or ())][:number]
            ours = [slot for slot, _ in mine][:number] if mine else self.faces[a].take_up(number)
            yours = [slot for slot, _ in theirs][:number] if theirs else self.faces[b].take_up(number)
            path = shared(self.faces[a].unit, self.faces[b].unit)
            assert path is not None
            self._between(path, a, b, ours, yours)
            if self.faces[b].unit.group.function == "spine":
                self._joined.add(a)
            at = len(self.links) - number
            for index, plug in enumerate(plugs, at):
                self.links[index] = _by_hand(self.links[index], plug.cable, plug.length_m)

    def _disagree(self, a: str, b: str, here: int, there: int) -> None:
        path = (*self.faces[a].unit.path, "plugs")
        what = f"{a} has {here} links to {b}, whose plugs have {there} to {a}"
        self.plugged.faults.append(
            Fault("CL146", path, what, "write one of the two, or both alike", f"switch {a}")
        )

    def _up(self, face: Faceplate) -> None:
        """The links of a leaf to its spines, by rule: none where the file plugs any."""
        unit = face.unit
        if unit.name in self._joined:
            return
        plane = self.planes.get(("fabrics", unit.group.fabric)) if unit.group.fabric else None
        if plane is None or not plane.spines:
            plane = None
        spines = self._spines(("fabrics", plane.name) if plane else ("networks", *unit.group.networks))
        if not spines:
            return
        number = self._wanted_up(face, plane, spines)
        face.begin_cage(number)
        each, more = divmod(number, len(spines))
        # What does not divide goes to other spines from leaf to leaf; where there is no more than that, all leaves take
        # the same spines, so that they meet.
        turn = self._turn % len(spines) if each else 0
        self._turn += more
        further = {(turn + step) % len(spines) for step in range(more)}
        for index in range(len(spines)) if each else sorted(further):
            count = each + (index in further)
            other = self.faces[spines[index].name]
            path = plane.path if plane else shared(unit, other.unit)
            if path is not None:
                self._between(path, unit.name, other.unit.name, face.take_up(count), other.take_up(count))

    def _wanted_up(self, face: Faceplate, plane: Plane | None, spines: Sequence[SwitchUnit]) -> int:
        """How many links a leaf has to its spines: what the file says, else what the fabric's promise asks for.

        By rule as many to each spine, if leaf and spines have the ports.
        """
        if face.unit.group.uplinks is not None:
            return face.unit.group.uplinks
        if plane is None or plane.fabric is None:
            return len(spines)
        number = math.ceil(face.down / plane.fabric.oversubscription)
        each = -(-number // len(spines))
        room = face.free is None or each * len(spines) + plane.fabric.spare_ports <= face.free
        held = [ports for spine in spines if (ports := self.faces[spine.name].ports) is not None]
        return each * len(spines) if room and each * len(plane.leaves) <= min(held, default=0) else number

    def _spines(self, path: KeyPath) -> list[SwitchUnit]:
        """The spines of a fabric, or of some networks together, that the file does not plug."""
        if path not in self._open:
            names = path[1:]
            carried = [self.planes.get((path[0], name)) for name in names]
            found = dict.fromkeys(spine for plane in carried if plane for spine in plane.spines)
            self._open[path] = [spine for spine in found if not spine.group.plugs]
        return self._open[path]

    def _between(self, path: KeyPath, a: str, b: str, ours: Sequence[int], yours: Sequence[int]) -> None:
        """Links between two switches of the fabric or network at ``path``, ``a`` the lower one."""
        one, other = self.faces[a], self.faces[b]
        network, plane = str(path[-1]), self.planes.get(path)
        gbit = plane.gbit_per_s if plane and plane.fabric else _slower(one, ours, other, yours)
        length = run_length(self.design, a, b)
        one.up += len(ours)
        other.down += len(ours)
        self.up[a, b] = self.up.get((a, b), 0) + len(ours)
        self.links.extend(
            Link(
                network,
                End(a, here + 1, label),
                End(b, there + 1, other_label),
                gbit,
                None,
                None,
                length,
            )
            for here, there, label, other_label in zip(
                ours, yours, one.labels(ours), other.labels(yours), strict=True
            )
        )


def _slower(one: Faceplate, ours: Sequence[int], other: Faceplate, yours: Sequence[int]) -> float | None:
    """What a link between two switches of a network carries; None where the speed of either's port is not known."""
    speeds = [one.speed(ours[0]), other.speed(yours[0])] if ours and yours else []
    known = [speed for speed in speeds if speed is not None]
    return min(known) if len(known) == 2 else None


def _by_hand(link: Link, cable: str | None, length: float | None) -> Link:
    return Link(
        link.network,
        link.a,
        link.b,
        link.gbit_per_s,
        link.rail,
        cable,
        link.length_m if length is None else length,
        planned=False,
    )


def link_data(design: Design, every: bool = False) -> dict[str, Any]:
    """The links as JSON types: counts by fabric, network and switch; with ``every`` the list of them all too."""
    drawn = design.cabling
    data: dict[str, Any] = {
        "count": len(drawn.links),
        "fabrics": {},
        "networks": {},
        "switches": {
            name: {"ports": face.ports, "down": face.down, "up": face.up, "free": face.free}
            for name, face in drawn.faces.items()
        },
    }
    between: Counter[KeyPath | None] = Counter()
    for (a, b), number in drawn.up.items():
        between[shared(drawn.faces[a].unit, drawn.faces[b].unit)] += number
    for plane in drawn.planes.values():
        entry = {
            "nodes": len(plane.nodes),
            "gbit_per_s": plane.gbit_per_s,
            "leaves": len(plane.leaves),
            "spines": len(plane.spines),
            "down": drawn.down.get(plane.path, 0),
            "up": between[plane.path],
        }
        if plane.fabric is not None:
            entry["rails"] = plane.rails
        data["fabrics" if plane.fabric else "networks"][plane.name] = entry
    if every:
        data["list"] = [_as_data(link) for link in drawn.links]
    return data


def _as_data(link: Link) -> dict[str, Any]:
    # As dataclasses.asdict, which takes ten times as long, for a hundred thousand of them.
    return {
        "network": link.network,
        "a": {"device": link.a.device, "port": link.a.port, "cage": link.a.cage},
        "b": {"device": link.b.device, "port": link.b.port, "cage": link.b.cage},
        "gbit_per_s": link.gbit_per_s,
        "rail": link.rail,
        "cable": link.cable,
        "length_m": link.length_m,
        "planned": link.planned,
    }
