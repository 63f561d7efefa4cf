"""Where nodes and switches stand: as the file says, else where they fit best; and how far it is between them.

What the file places stays there. The rest is placed in the file's order, each without a look at what comes after, so
that nodes written at the end of the file move nobody who was placed before: first what names its rack, then what
leaves the rack to the plan. Of the racks that a thing fits into it gets the emptiest, by watts, cooling or units,
whichever is scarcest, together with how full the rack's feeds are; like things stay in one rack as long as that is
hardly fuller. A rack's limit in watts is what its PDUs carry with one feed lost; where that leaves no rack at all, what
they carry with all feeds. Heavy machines stand from the foot of a rack upwards, light ones and switches from its head
downwards, so that the free units stay in one piece.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from coldiron.inventory.cluster import AUTO
from coldiron.plan.design import Design
from coldiron.plan.place_bay import Bay, FeedUse, bay
from coldiron.plan.place_shape import Shape, Thing, things
from coldiron.plan.results import Position

# How much fuller than the emptiest (of 1) a rack may get by the next of the things that stand in it.
TOGETHER = 0.1
# Of things that want different racks the first so many get them.
APART_AT_MOST = 16
# Feeds are looked at where racks have at most so many different sets of them; where each rack has feeds of its own
# there is nothing to balance.
FEED_SETS_AT_MOST = 64
# Heaps of racks, one for each shape, that are kept at once.
SHAPES_AT_MOST = 64


@dataclass(frozen=True)
class Misfit:
    """A thing that fits nowhere. ``why`` counts the racks by what keeps it out."""

    thing: Thing
    why: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Placement:
    """Where everything stands, by name, and what has no place though it should stand in a rack."""

    positions: Mapping[str, Position]
    misfits: tuple[Misfit, ...] = ()


def positions(design: Design) -> Mapping[str, Position]:
    """The position of everything that stands in a rack, by name, in the file's order: switches, then nodes."""
    return placement(design).positions


def placement(design: Design) -> Placement:
    """See the module. Things of unknown height have a rack where the file names it, and no unit."""
    everything = list(things(design))
    bays = bays_of(design)
    found: dict[str, Position] = {}
    bound: list[Thing] = []
    free: list[Thing] = []
    for thing in everything:
        if thing.rack is None:
            continue
        if thing.rack == AUTO:
            # Where it stands depends on its height.
            if thing.shape.height_u or thing.shape.aside:
                free.append(thing)
        elif thing.u is not None or not thing.shape.height_u:
            bays[thing.rack].put(thing.shape, thing.u)
            found[thing.name] = Position(thing.name, thing.rack, thing.u, thing.shape.height_u)
        else:
            bound.append(thing)
    misfits = list(_bound(bound, bays, found))
    used: dict[str, list[Bay]] = {}
    for thing in everything:
        if thing.apart and thing.name in found:
            used.setdefault(thing.apart, []).append(bays[found[thing.name].rack])
    misfits += _free(free, bays, found, used)
    return Placement(
        {thing.name: found[thing.name] for thing in everything if thing.name in found}, tuple(misfits)
    )


def bays_of(design: Design) -> dict[str, Bay]:
    """The racks by name, with nothing in them."""
    uses = {name: FeedUse(feed.limit_watts) for name, feed in design.cluster.feeds.items()}
    found = {rack.name: bay(rack, order, uses) for order, rack in enumerate(design.cluster.racks)}
    if len({one.feed_names for one in found.values()}) > FEED_SETS_AT_MOST:
        for one in found.values():
            one.feeds, one.feed_names = (), ()
    return found


def _bound(wanted: Sequence[Thing], bays: Mapping[str, Bay], found: dict[str, Position]) -> Iterator[Misfit]:
    """Find a unit in the rack that the file names; its other limits are the file's own business, and are checked."""
    for thing in wanted:
        assert thing.rack is not None
        rack = bays[thing.rack]
        unit = rack.unit(thing.shape)
        if unit is None:
            yield Misfit(thing, ((f"no {thing.shape.height_u} U free in one piece", 1),))
            continue
        rack.put(thing.shape, unit)
        found[thing.name] = Position(thing.name, thing.rack, unit, thing.shape.height_u, chosen=True)


class _Choice:
    """The racks that a shape may still fit into, the emptiest first: a heap for each set of feeds.

    A rack only fills, so that one that a shape does not fit into never comes back.
    """

    def __init__(self, shape: Shape, bays: Sequence[Bay], alive: bool) -> None:
        self.shape = shape
        self.alive = alive
        heaps: dict[tuple[str, ...], list[tuple[float, int, Bay]]] = {}
        for one in bays:
            heaps.setdefault(one.feed_names, []).append((one.share, one.order, one))
        self.heaps = list(heaps.values())
        for heap in self.heaps:
            heapq.heapify(heap)

    def fits(self, one: Bay) -> bool:
        """Whether the shape fits into this rack."""
        return one.hindrance(self.shape, self.alive) is None

    def best(self, but: Sequence[Bay] = ()) -> Bay | None:
        """The rack to take, ``but`` none of these if there is another; None where there is none."""
        if 0 < len(but) <= APART_AT_MOST:
            others = [one for heap in self.heaps for _, _, one in heap if one not in but and self.fits(one)]
            if others:
                return min(others, key=lambda one: (fullness(one), one.order))
        best: tuple[float, int, Bay] | None = None
        for heap in self.heaps:
            top = self._top(heap)
            if top is not None:
                key = (fullness(top), top.order, top)
                if best is None or key[:2] < best[:2]:
                    best = key
        return best[2] if best else None

    def _top(self, heap: list[tuple[float, int, Bay]]) -> Bay | None:
        while heap:
            share, order, one = heap[0]
            now = one.share
            if now > share:
                heapq.heapreplace(heap, (now, order, one))
            elif self.fits(one):
                return one
            else:
                heapq.heappop(heap)
        return None


def fullness(one: Bay) -> float:
    """How full a rack and the fullest of its feeds are, together."""
    return one.share + feeds_share(one)


def feeds_share(one: Bay) -> float:
    """How full the fullest of a rack's feeds is."""
    return max([feed.share for feed in one.feeds], default=0.0)


def _free(
    wanted: Sequence[Thing], bays: Mapping[str, Bay], found: dict[str, Position], used: dict[str, list[Bay]]
) -> Iterator[Misfit]:
    """Find a rack and a unit. ``used`` are the racks of things that want different ones."""
    choices: dict[tuple[Shape, bool], _Choice] = {}
    last: dict[object, Bay] = {}
    hopeless: dict[Shape, tuple[tuple[str, int], ...]] = {}
    everywhere = list(bays.values())
    for thing in wanted:
        shape = thing.shape
        if shape in hopeless:
            yield Misfit(thing, hopeless[shape])
            continue
        got: Bay | None = None
        for alive in (False, True):
            choice = choices.get((shape, alive))
            if choice is None:
                if len(choices) >= SHAPES_AT_MOST:
                    choices.clear()
                choice = choices[shape, alive] = _Choice(shape, everywhere, alive)
            got = choice.best(used.setdefault(thing.apart, [])) if thing.apart else choice.best()
            if got is not None:
                before = last.get(thing.path)
                if (
                    before is not None
                    and before is not got
                    and not thing.apart
                    and before.share_with(shape) + feeds_share(before) <= fullness(got) + TOGETHER
                    and choice.fits(before)
                ):
                    got = before
                break
        if got is None:
            hopeless[shape] = _why(shape, everywhere)
            yield Misfit(thing, hopeless[shape])
            continue
        unit = got.unit(shape)
        got.put(shape, unit)
        last[thing.path] = got
        if thing.apart:
            used[thing.apart].append(got)
        found[thing.name] = Position(thing.name, got.rack.name, unit, shape.height_u, chosen=True)


def _why(shape: Shape, bays: Sequence[Bay]) -> tuple[tuple[str, int], ...]:
    reasons = Counter(reason for one in bays if (reason := one.hindrance(shape, alive=True)) is not None)
    return tuple(reasons.most_common())


@dataclass(frozen=True)
class Route:
    """How cables run, in millimetres, from the middle of one device to the middle of the other.

    ``unit_mm`` is a rack unit's height (EIA-310, IEC 60297: 1.75 inches); ``rack_mm`` the width of a rack in its row
    (600 mm is the usual one; a row of wider ones wants lengths of its own in the file); ``tray_mm`` how far the tray
    lies above the highest unit; ``slack_mm`` what a cable needs beyond, at both ends together, to get from the port to
    the side of the rack, past bends, and out again with the device.
    """

    unit_mm: float = 44.45
    rack_mm: float = 600.0
    tray_mm: float = 300.0
    slack_mm: float = 500.0


ROUTE = Route()


def run_length(design: Design, device_a: str, device_b: str, route: Route = ROUTE) -> float | None:
    """Metres of cable from one node or switch to another, to the centimetre.

    Within a rack it runs up or down, between racks of a row up to the tray, along it, and down. None where either's
    place is unknown, or they stand in different rows or rooms, which the file says nothing of the way between.
    """
    a, b = design.positions.get(device_a), design.positions.get(device_b)
    if a is None or b is None or a.u is None or b.u is None:
        return None
    if a.rack == b.rack:
        return round((abs(_middle(a) - _middle(b)) * route.unit_mm + route.slack_mm) / 1000, 2)
    one, other = design.racks[a.rack], design.racks[b.rack]
    if one.group.row is None or (one.group.room, one.group.row) != (other.group.room, other.group.row):
        return None
    if one.position is None or other.position is None:
        return None
    up = sum(
        max(0.0, rack.group.units - _middle(position)) * route.unit_mm + route.tray_mm
        for rack, position in ((one, a), (other, b))
    )
    along = abs(one.position - other.position) * route.rack_mm
    return round((up + along + route.slack_mm) / 1000, 2)


def _middle(position: Position) -> float:
    """How many units its middle lies above the foot of the rack."""
    assert position.u is not None
    return position.u - 1 + (position.height_u or 1) / 2
