"""A switch's ports and cages, and what `plugs` puts into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from coldiron.inventory.cluster import SwitchUnit
from coldiron.inventory.ranges import expand
from coldiron.inventory.source import KeyPath
from coldiron.inventory.wiring import Plug
from coldiron.plan.fabric import Plane

# Cages that hold one port by their standard (RJ45: IEC 60603-7, SFP: SFF-8432, QSFP: SFF-8665), unlike OSFP and
# QSFP-DD cages, which some switches divide in two.
ONE_PORT = ("rj45", "sfp28", "qsfp28", "qsfp56", "qsfp112")
# The lower end of a link between switches comes first.
_RANK = {"management": 0, "leaf": 0, "spine": 1}


@dataclass(slots=True, eq=False)
class Faceplate:
    """The ports of a switch. A slot is one link's place: (cage - 1) * ``width`` + its part of the cage, from 0.

    ``ports`` are all links that it holds, ``split`` how many of them a cage holds, ``cages`` how many cages there are;
    None is unknown. ``gbit_per_s`` is one link's. ``labelled``: whether the catalog says what is printed on the cages.
    ``plugged`` are the cages that the file fills, with the number of links in each; the others are filled in turn.
    ``uplinks`` are cages of another speed after the others, with one link to another switch each.
    """

    unit: SwitchUnit
    ports: int | None
    cages: int | None
    split: int
    gbit_per_s: float | None
    labelled: bool
    width: int
    uplinks: int = 0
    uplink_gbit_per_s: float | None = None
    plugged: dict[int, int] = field(default_factory=dict)
    links: int = 0
    down: int = 0
    up: int = 0
    _next: int = 0
    _up: set[int] = field(default_factory=set)

    @property
    def taken(self) -> int:
        """Ports that are gone: those of links by rule, and all of each cage that the file fills."""
        cages = self.plugged if self.cages is None else [cage for cage in self.plugged if cage <= self.cages]
        return self.links + self.split * len(cages)

    @property
    def free(self) -> int | None:
        """Ports that are left; below 0 where there are more links than ports."""
        return None if self.ports is None else self.ports - self.taken

    def take(self, number: int) -> Sequence[int]:
        """The next ``number`` slots that nothing is in."""
        self.links += number
        if self.width == self.split and not self.plugged:
            first = self._next
            self._next = first + number
            return range(first, first + number)
        found: list[int] = []
        while len(found) < number:
            cage, part = divmod(self._next, self.width)
            if part >= self.split or cage + 1 in self.plugged:
                self._next = (cage + 1) * self.width
                continue
            found.append(self._next)
            self._next += 1
        return found

    def take_up(self, number: int) -> Sequence[int]:
        """The next slots for links to another switch: cages for that if there are as many, else ports like others."""
        if self.uplinks and self.cages is not None:
            free = [
                cage
                for cage in range(self.cages + 1, self.cages + self.uplinks + 1)
                if cage not in self.plugged and cage not in self._up
            ]
            if len(free) >= number:
                self._up.update(free[:number])
                return [(cage - 1) * self.width for cage in free[:number]]
        return self.take(number)

    def speed(self, slot: int) -> float | None:
        """What a link in this slot carries, in Gbit/s."""
        beyond = self.cages is not None and slot // self.width >= self.cages
        return self.uplink_gbit_per_s if beyond and self.uplinks else self.gbit_per_s

    def begin_cage(self, wanted: int) -> None:
        """Leave the rest of a cage that is half full, so that ``wanted`` links fill whole cages, if there is room."""
        rest = -self._next % self.width
        if rest and self.ports is not None and self.ports - self.taken - wanted >= rest:
            self._next += rest

    def labels(self, slots: Sequence[int]) -> list[str | None]:
        """What is printed beside slots: the cage, and which of its links where it holds several."""
        if self.plugged or self.uplinks:
            return [self._label(slot) for slot in slots]
        if not self.labelled:
            return [None] * len(slots)
        width = self.width
        return [_label(slot // width + 1, slot % width + 1 if width > 1 else None) for slot in slots]

    def _label(self, slot: int) -> str | None:
        cage, part = divmod(slot, self.width)
        held = self.plugged.get(cage + 1) or (1 if cage + 1 in self._up else None)
        if held is None and not self.labelled:
            return None
        return _label(cage + 1, part + 1 if (held or self.split) > 1 else None)


@cache
def _label(cage: int, part: int | None) -> str:
    return str(cage) if part is None else f"{cage}/{part}"


def faceplate(unit: SwitchUnit) -> Faceplate:
    """The ports of a switch, by cluster.yml and the catalog."""
    group, model = unit.group, unit.model
    per_cage = model.ports_per_cage if model else None
    if per_cage is None and model and model.cage in ONE_PORT:
        per_cage = 1
    held = model.ports if model else None
    split = per_cage or 1
    cages = held // split if held else None
    ports = group.ports if group.ports is not None else held
    gbit = model.gbit_per_s if model else None
    if cages and ports and held and ports > held:
        if ports % cages == 0:
            # Its cages are split further, and each link has its share.
            split, before = ports // cages, split
            gbit = gbit * before / split if gbit else None
        else:
            # It has other ports than those that the catalog counts.
            cages = None
    widest = max((plug.breakout or split for plug in group.plugs or ()), default=split)
    return Faceplate(
        unit=unit,
        ports=ports,
        cages=cages,
        split=split,
        gbit_per_s=gbit,
        labelled=per_cage is not None,
        width=max(split, widest),
        uplinks=(model.uplink_ports or 0) if model and cages else 0,
        uplink_gbit_per_s=model.uplink_gbit_per_s if model else None,
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that `plugs` says and that cannot be: the finding's code, place and words."""

    code: str
    path: KeyPath
    what: str
    advice: str
    subject: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A node's port that a plug connects to a slot of a leaf."""

    plane: Plane
    face: Faceplate
    slot: int
    node: str
    rail: int
    plug: Plug


@dataclass(eq=False)
class Plugged:
    """What all `plugs` of the file say: the nodes' ``claims``, the slots of each pair of switches by either's plugs.

    ``ends`` maps (this switch, the other) to the slots of this one and the plug of each.
    """

    claims: list[Claim] = field(default_factory=list)
    ends: dict[tuple[str, str], list[tuple[int, Plug]]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    taken: set[tuple[KeyPath, str, int]] = field(default_factory=set)


def lower_first(one: SwitchUnit, other: SwitchUnit, order: Mapping[str, int]) -> bool:
    """Whether ``one`` is the lower end of a link to ``other``; ``order`` counts switches in the file."""
    mine, theirs = _RANK[one.group.function], _RANK[other.group.function]
    return (mine, order[one.name]) < (theirs, order[other.name])


def read_plugs(faces: Mapping[str, Faceplate], planes: Mapping[KeyPath, Plane]) -> Plugged:
    """What the `plugs` of all switches say; the cages are marked in ``faces``."""
    reader = _Reader(faces, planes)
    for face in faces.values():
        for index, plug in enumerate(face.unit.group.plugs or ()):
            reader.read(face, plug, (*face.unit.path, "plugs", index))
    return reader.found


class _Reader:
    def __init__(self, faces: Mapping[str, Faceplate], planes: Mapping[KeyPath, Plane]) -> None:
        self.faces = faces
        self.planes = planes
        self.found = Plugged()
        self._on: dict[KeyPath, set[str]] = {}
        self._targets: dict[str, tuple[str, ...]] = {}
        self._said: set[tuple[str, KeyPath]] = set()

    def read(self, face: Faceplate, plug: Plug, path: KeyPath) -> None:
        """Take in one plug of one switch."""
        if plug.to not in self._targets:
            self._targets[plug.to] = expand(plug.to)
        targets = self._targets[plug.to]
        slots = [
            (cage - 1) * face.width + part
            for cage in self._cages(face, plug, path)
            for part in range(face.plugged[cage])
        ]
        switches = sum(target in self.faces for target in targets)
        if switches == len(targets):
            self._to_switches(face, plug, path, targets, slots)
        elif switches:
            self._say(
                "CL144", path, face, f"{plug.to} are nodes and switches", "write a plug for each of the two"
            )
        else:
            self._to_nodes(face, plug, path, targets, slots)

    def _say(self, code: str, path: KeyPath, face: Faceplate, what: str, advice: str) -> None:
        """Note a fault once for all switches that are plugged alike."""
        if (code, path) not in self._said:
            self._said.add((code, path))
            name = face.unit.name
            self.found.faults.append(Fault(code, path, f"{name}: {what}", advice, f"switch {name}"))

    def _cages(self, face: Faceplate, plug: Plug, path: KeyPath) -> list[int]:
        """The cages of a plug that are there and empty."""
        last = None if face.cages is None else face.cages + face.uplinks
        beyond = [cage for cage in plug.cages if last is not None and cage > last]
        twice = [cage for cage in plug.cages if cage in face.plugged]
        if beyond:
            self._say(
                "CL142",
                (*path, "cages"),
                face,
                f"there is no cage {beyond[0]}; {face.unit.group.model} has {last}",
                f"write cages from 1 to {last}",
            )
        if twice:
            self._say(
                "CL141", (*path, "cages"), face, f"cage {twice[0]} is plugged twice", "write each cage once"
            )
        left = [cage for cage in plug.cages if cage not in beyond and cage not in face.plugged]
        for cage in left:
            beside = face.cages is not None and cage > face.cages
            face.plugged[cage] = plug.breakout or (1 if beside else face.split)
        return left

    def _plane(self, face: Faceplate, plug: Plug) -> Plane | None:
        group = face.unit.group
        if plug.network is None and group.fabric is not None:
            return self.planes.get(("fabrics", group.fabric))
        name = plug.network or group.networks[0]
        return self.planes.get(("networks", name))

    def _to_nodes(
        self, face: Faceplate, plug: Plug, path: KeyPath, targets: Sequence[str], slots: Sequence[int]
    ) -> None:
        plane = self._plane(face, plug)
        if plane is None:
            self._say(
                "CL144",
                path,
                face,
                "this network has no ports of its own",
                "write the network whose ports it shares, or take its `port_of` away",
            )
            return
        if plane.path not in self._on:
            self._on[plane.path] = {node.name for node in plane.nodes}
        on = self._on[plane.path]
        rails = (plug.port,) if plug.port else (plane.rails_of(face.unit) if plane.fabric else (1,))
        wanted = [(target, rail) for rail in rails for target in targets]
        if len(slots) < len(wanted):
            self._say(
                "CL143",
                (*path, "cages"),
                face,
                f"these cages hold {len(slots)} links, and {plug.to} want {len(wanted)}",
                "write more cages, or fewer nodes",
            )
        for slot, (target, rail) in zip(slots, wanted, strict=False):
            key = (plane.path, target, rail)
            if target not in on:
                self._say(
                    "CL144",
                    (*path, "to"),
                    face,
                    f"{target} is not on {plane.name}",
                    "plug only nodes that are",
                )
            elif rail > plane.rails:
                self._say(
                    "CL133",
                    (*path, "port"),
                    face,
                    f"{target} has no port {rail} on {plane.name}, which has {plane.rails}",
                    f"write one of 1 to {plane.rails}",
                )
            elif key in self.found.taken:
                self._say(
                    "CL145",
                    (*path, "to"),
                    face,
                    f"port {rail} of {target} on {plane.name} is plugged already",
                    "plug each port once",
                )
            else:
                self.found.taken.add(key)
                self.found.claims.append(Claim(plane, face, slot, target, rail, plug))

    def _to_switches(
        self, face: Faceplate, plug: Plug, path: KeyPath, targets: Sequence[str], slots: Sequence[int]
    ) -> None:
        if len(targets) > 1:
            # A range that is plugged to itself: each of it to the others.
            targets = [target for target in targets if target != face.unit.name]
        if len(slots) < len(targets):
            self._say(
                "CL143",
                (*path, "cages"),
                face,
                f"these cages hold {len(slots)} links, for {len(targets)} switches",
                "write more cages, or fewer switches",
            )
        # Whole cages to one switch after the other: a cable with two links at each end joins two cages.
        for index, target in enumerate(targets):
            other = self.faces[target].unit
            if other is face.unit or shared(face.unit, other) is None:
                what = (
                    "is this switch itself" if other is face.unit else "carries nothing that this one carries"
                )
                self._say(
                    "CL144", (*path, "to"), face, f"{target} {what}", "plug switches of one fabric or network"
                )
                continue
            here = slots[index * len(slots) // len(targets) : (index + 1) * len(slots) // len(targets)]
            if here:
                ends = self.found.ends.setdefault((face.unit.name, target), [])
                ends.extend((slot, plug) for slot in here)


def shared(one: SwitchUnit, other: SwitchUnit) -> KeyPath | None:
    """The fabric, else the first network, that two switches carry both."""
    if one.group.fabric is not None and one.group.fabric == other.group.fabric:
        return ("fabrics", one.group.fabric)
    return next((("networks", name) for name in one.group.networks if name in other.group.networks), None)
