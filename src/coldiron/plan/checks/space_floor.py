"""What stands in the racks, gathered once for the checks of space, and the words they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coldiron.inventory.facility import RackGroup
from coldiron.inventory.ranges import expand_names, fold
from coldiron.inventory.source import KeyPath
from coldiron.inventory.table import KEY as TABLE
from coldiron.plan.design import Design
from coldiron.plan.place_shape import Shape, Thing, things
from coldiron.plan.results import Position


@dataclass(frozen=True)
class Standing:
    """A thing in its rack."""

    thing: Thing
    position: Position
    rack: RackGroup

    @property
    def units(self) -> str:
        """The units it takes, as ``U1-U8``; ``U1`` where it takes one, or its height is unknown."""
        u, height = self.position.u or 0, self.position.height_u or 1
        return f"U{u}" if height == 1 else f"U{u}-U{u + height - 1}"


@dataclass(frozen=True)
class Floor:
    """Everything that may stand in a rack, and what does, rack by rack."""

    things: tuple[Thing, ...]
    racks: dict[str, list[Standing]]


def floor(design: Design) -> Floor:
    """What stands where."""
    every = tuple(things(design))
    racks: dict[str, list[Standing]] = {name: [] for name in design.racks}
    groups = {name: rack.group for name, rack in design.racks.items()}
    positions = design.positions
    for thing in every:
        position = positions.get(thing.name)
        if position is not None:
            racks[position.rack].append(Standing(thing, position, groups[position.rack]))
    return Floor(every, racks)


def key_path(design: Design, thing: Thing, key: str) -> KeyPath:
    """Where the file says ``key`` of a thing: an override of its group, the group, else its row of the CSV file."""
    kind, index = thing.path[:2]
    if kind != "nodes" or not isinstance(index, int):
        return (*thing.path, key)
    group = design.cluster.node_groups[index]
    for text, own in group.overrides.items():
        if getattr(own, key) is not None and thing.name in expand_names(text).names:
            return (*thing.path, "overrides", text, key)
    row = (TABLE, thing.name)
    if getattr(group, key) is None and row in design.cluster.document.elsewhere:
        return row
    return (*thing.path, key)


def figure(shape: Shape, name: str) -> str:
    """What cluster.yml, or the catalog of a switch, calls the figure."""
    return name if shape.switch else f"hardware.{name}"


def alike_once(every: Iterable[Thing]) -> Iterator[Thing]:
    """The first of each group and shape."""
    seen: set[tuple[KeyPath, int]] = set()
    for thing in every:
        key = (thing.path, id(thing.shape))
        if key not in seen:
            seen.add(key)
            yield thing


def hosts_of(several: Iterable[Thing]) -> str:
    """The nodes among these, folded; empty where there are none."""
    names = list(dict.fromkeys(thing.name for thing in several if not thing.shape.switch))
    return fold(names) if names else ""


def rack_names(several: Iterable[Standing]) -> list[str]:
    """Their racks."""
    return list(dict.fromkeys(one.position.rack for one in several))


def racks_of(several: Iterable[Standing]) -> str:
    """Their racks as words of a sentence."""
    names = rack_names(several)
    return f"rack {names[0]}" if len(names) == 1 else f"racks {fold(names)}"


def count(number: int, what: str) -> str:
    """So many of something."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def so_do(number: int, what: str) -> str:
    """That so many more have the same fault; nothing where there are none."""
    if number == 0:
        return ""
    return f"; so does one more {what}" if number == 1 else f"; so do {number} more {what}s"
