"""Whether a rack or a feed is tight while others have room, and which moves would even that out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from coldiron.inventory.cluster import Node
from coldiron.inventory.ranges import fold
from coldiron.plan.design import Design, Result
from coldiron.plan.place import bays_of
from coldiron.plan.place_bay import Bay
from coldiron.plan.place_shape import Shape, things
from coldiron.plan.results import CircuitLoad

# Below this share of what breakers carry for good nobody needs to move anything.
TIGHT = 0.8
# What moves must win, of the worst share, to be worth a word.
WORTH = 0.1
# Moves that are tried; whoever needs more wants another design.
MOVES_AT_MOST = 100


@dataclass(eq=False)
class _Load:
    """A rack's or a feed's share of what its breakers carry, which grows with its watts."""

    name: str
    watts: float
    share_of_watt: float

    @property
    def share(self) -> float:
        return self.watts * self.share_of_watt


@dataclass(eq=False)
class _Rack(_Load):
    """A rack. ``nodes`` are those that can be moved, with what they ask for and where they stand."""

    bay: Bay = field(kw_only=True)
    feeds: list[_Load] = field(default_factory=list)
    nodes: list[tuple[Node, Shape, int | None]] = field(default_factory=list)

    def add(self, watts: float) -> None:
        """Carry ``watts`` more, or less."""
        self.watts += watts
        for feed in self.feeds:
            feed.watts += watts / len(self.feeds)

    def with_more(self, watts: float) -> float:
        """The worst share of it and its feeds if it carried ``watts`` more."""
        each = watts / len(self.feeds) if self.feeds else 0.0
        return max(
            (self.watts + watts) * self.share_of_watt,
            *((feed.watts + each) * feed.share_of_watt for feed in self.feeds),
            0.0,
        )


@dataclass(frozen=True)
class Move:
    """A node that would stand better in another rack."""

    node: Node
    before: str
    after: str


def unbalanced(design: Design) -> Iterator[Result]:
    """One advice for all moves together."""
    racks, feeds = _loads(design)
    loads = [*racks, *feeds]
    worst = max(loads, key=lambda load: load.share, default=None)
    if worst is None or worst.share < TIGHT:
        return
    name, before = worst.name, worst.share
    moves, after = _moves(racks, feeds)
    # A node that moves twice moves once.
    from_to: dict[str, Move] = {}
    for move in moves:
        first = from_to.get(move.node.name)
        from_to[move.node.name] = replace(move, before=first.before) if first else move
    kept = [move for move in from_to.values() if move.before != move.after]
    if not kept or before - after < WORTH:
        return
    ways: dict[tuple[str, str], list[str]] = {}
    for move in kept:
        ways.setdefault((move.before, move.after), []).append(move.node.name)
    shown = [f"{fold(names)} from rack {one} to {other}" for (one, other), names in ways.items()]
    more = f" and {len(shown) - 3} more (--json has them all)" if len(shown) > 3 else ""
    yield design.advise(
        "CU110",
        (*kept[0].node.path, "rack"),
        f"{name} is at {100 * before:.0f} % of what it carries for good, and other racks have room",
        f"move {', '.join(shown[:3])}{more}: the fullest would be at about {100 * after:.0f} %",
        hosts=fold([move.node.name for move in kept]),
        subject=name,
        share=round(before, 3),
        share_after=round(after, 3),
        moves="; ".join(shown),
    )


def _loads(design: Design) -> tuple[list[_Rack], list[_Load]]:
    """Racks and feeds with what they carry now; those whose limit is unknown are left out."""
    bays, power, nodes = bays_of(design), design.power, design.nodes
    standing: dict[str, list[tuple[Node, Shape, int | None]]] = {}
    for thing in things(design):
        position = design.positions.get(thing.name)
        if position is None:
            continue
        known = (power.switches if thing.shape.switch else power.nodes).get(thing.name)
        shape = (
            thing.shape if known is None or known == thing.shape.watts else replace(thing.shape, watts=known)
        )
        bays[position.rack].put(shape, position.u)
        node = nodes.get(thing.name)
        if node is not None and shape.watts and (shape.aside or (position.u and shape.height_u)):
            standing.setdefault(position.rack, []).append((node, shape, position.u))
    # A feed that the plan reckoned is as full as the plan says, else as the racks say.
    reckoned = {load.id: _share(load) for load in power.feeds}
    uses = {name: use for one in bays.values() for name, use in zip(one.feed_names, one.feeds, strict=True)}
    feeds = {
        name: _Load(f"feed {name}", use.watts, _of_watt(reckoned.get(name), use.watts, use.limit))
        for name, use in uses.items()
    }
    circuits = _worst_circuits(power.circuits)
    racks = []
    for name, one in bays.items():
        if one.limit_watts:
            label, share = circuits.get(name, (f"rack {name}", None))
            racks.append(
                _Rack(
                    label,
                    one.watts,
                    _of_watt(share, one.watts, one.limit_watts),
                    bay=one,
                    feeds=[feeds[feed] for feed in one.feed_names],
                    nodes=standing.get(name, []),
                )
            )
    return racks, list(feeds.values())


def _share(load: CircuitLoad) -> float:
    return max(load.watts, load.failover_watts) / load.limit_watts


def _of_watt(share: float | None, watts: float, limit: float) -> float:
    """How much of its limit a watt takes: by the share that it has now, else by the limit."""
    return share / watts if share and watts else 1 / limit


def _worst_circuits(circuits: Sequence[CircuitLoad]) -> dict[str, tuple[str, float]]:
    """Of each rack the fullest circuit: what a message calls it, and its share."""
    found: dict[str, tuple[str, float]] = {}
    for load in circuits:
        rack, share = load.id.partition("/")[0], _share(load)
        if rack not in found or share > found[rack][1]:
            phase = f" ({load.phase})" if load.phase else ""
            found[rack] = (f"circuit {load.id}{phase} of rack {rack}", share)
    return found


def _moves(racks: Sequence[_Rack], feeds: Sequence[_Load]) -> tuple[list[Move], float]:
    """Moves, each of which takes from the worst, until nothing is tight; and the worst share that is left."""
    loads: list[_Load] = [*racks, *feeds]
    moves: list[Move] = []
    before = best = max(load.share for load in loads)
    kept = 0
    for _ in range(MOVES_AT_MOST):
        if best < TIGHT and before - best >= WORTH:
            break
        worst = max(loads, key=lambda load: load.share)
        move = _move(worst, racks)
        if move is None:
            break
        moves.append(move)
        now = max(load.share for load in loads)
        if now < best - 1e-9:
            best, kept = now, len(moves)
    return moves[:kept], best


def _move(worst: _Load, racks: Sequence[_Rack]) -> Move | None:
    """Take a node out of the worst rack, or out of the fullest rack of the worst feed, and put it where there is room.

    The biggest that helps; each shape is tried once, against the emptiest racks of the room first.
    """
    donors = (
        [worst]
        if isinstance(worst, _Rack)
        else [rack for rack in racks if worst in rack.feeds and rack.nodes]
    )
    donor = max(donors, key=lambda rack: rack.share, default=None)
    if donor is None:
        return None
    emptiest = sorted(
        (
            rack
            for rack in racks
            if rack.bay.rack.group.room == donor.bay.rack.group.room and rack is not donor
        ),
        key=lambda rack: rack.share,
    )
    limit = worst.share
    tried: set[int] = set()
    # Of those that draw alike the last of the file, which are rarely the heads.
    order = sorted(range(len(donor.nodes)), key=lambda at: (-(donor.nodes[at][1].watts or 0.0), -at))
    for number in order:
        node, shape, u = donor.nodes[number]
        if id(shape) in tried:
            continue
        tried.add(id(shape))
        watts = shape.watts or 0.0
        for rack in emptiest:
            if rack.share >= limit:
                break
            if not isinstance(worst, _Rack) and worst in rack.feeds:
                continue
            if rack.with_more(watts) >= limit or rack.bay.hindrance(shape, alive=True) is not None:
                continue
            unit = rack.bay.unit(shape)
            donor.bay.take_out(shape, u)
            rack.bay.put(shape, unit)
            donor.add(-watts)
            rack.add(watts)
            del donor.nodes[number]
            rack.nodes.append((node, shape, unit))
            return Move(node, donor.bay.rack.name, rack.bay.rack.name)
    return None
