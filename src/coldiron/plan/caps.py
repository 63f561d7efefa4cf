"""The highest cap per GPU at which every breaker holds, and what a cap is known to cost in speed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coldiron.plan.circuits import Breaker, FeedKey, RackKind
from coldiron.plan.draw import Machine

# Loads are sums of floats: what is over by less than this many watts is not over.
SLACK_WATTS = 1e-6


@dataclass(frozen=True)
class Measured:
    """What somebody measured: with each GPU held to ``watts``, ``share`` of its full speed was left."""

    watts: float
    share: float
    what: str


@dataclass(frozen=True)
class Card:
    """What was measured of a card with this rating, from the highest cap downwards."""

    tdp_watts: float
    points: tuple[Measured, ...]


# By name in the catalog, where NAME-VARIANT with the same rating is the same card under another cooler. Few texts that
# measure computing, not games, were found. Sources: D. Kinghorn, Puget Systems, "Quad RTX3090 GPU Wattage Limited
# 'MaxQ' TensorFlow Performance", 2020,
# https://www.pugetsystems.com/labs/hpc/quad-rtx3090-gpu-wattage-limited-maxq-tensorflow-performance-1974/ ;
# Factryze, "Power Capping" (10 to 15 % of a training step at 600 W; the worse is taken),
# https://factryze.ai/scale-atlas/power/power-capping
MEASURED: dict[str, Card] = {
    "rtx-3090": Card(350, (Measured(280, 0.95, "training in TensorFlow on four, Puget Systems 2020"),)),
    "h100-sxm5-80gb": Card(700, (Measured(600, 0.85, "training transformers, Factryze"),)),
}


def _measured(machine: Machine) -> tuple[Measured, ...]:
    for name, card in MEASURED.items():
        if (
            machine.gpu == name or machine.gpu.startswith(f"{name}-")
        ) and machine.tdp_watts == card.tdp_watts:
            return card.points
    return ()


def percent(share: float) -> str:
    """``share`` in whole percent."""
    return f"{100 * share:.0f} %"


def price(machine: Machine, cap: float) -> tuple[float | None, str]:
    """The share of its full speed that ``machine`` keeps under ``cap`` watts a GPU, and a few words with the source.

    Between two measured caps, and from the highest up to the rating, it is linear; below the lowest, and for a GPU that
    nobody measured, it is None: unknown.
    """
    points = _measured(machine)
    if machine.tdp_watts is None or not points:
        return (
            None,
            f"what that costs in speed is not known of {machine.gpu}: measure your own jobs with and without",
        )
    low = points[-1]
    if cap < low.watts:
        measured = f"{low.watts:.0f} W only ({percent(low.share)} left; {low.what})"
        return None, f"what that costs in speed is measured down to {measured}"
    above_watts, above_share = machine.tdp_watts, 1.0
    for point in points:
        if cap >= point.watts:
            share = point.share + (above_share - point.share) * (cap - point.watts) / max(
                above_watts - point.watts, 1
            )
            share = min(share, 1.0)
            return share, f"about {percent(share)} of the full speed is left ({point.what})"
        above_watts, above_share = point.watts, point.share
    raise AssertionError("a cap is above or below the lowest point")


def highest(holds: Callable[[int], bool], top: int) -> int | None:
    """The highest of 1 to ``top`` that ``holds``, which must hold below each that holds; None if 1 does not."""
    if top < 1 or not holds(1):
        return None
    low, high = 1, top + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class FeedLimit:
    """What a feed may carry: its derated breaker, or its UPS where that gives less."""

    key: FeedKey
    limit_watts: float


@dataclass
class Solution:
    """Caps in watts by kind of rack and machine; those that need none are absent.

    ``unfit`` are kinds of racks where none within the cards' limits holds, with the breaker that is worst, what it
    would carry at the least limits, and the feed that is lost then, if one is; ``unfit_feeds`` are feeds where none
    does, with what they would carry.
    """

    caps: dict[RackKind, dict[Machine, float]] = field(default_factory=dict)
    unfit: dict[RackKind, tuple[Breaker, float, FeedKey | None]] = field(default_factory=dict)
    unfit_feeds: dict[FeedKey, float] = field(default_factory=dict)


def _held(machine: Machine, cap: float) -> float:
    """``cap`` as the card can take it."""
    ceiling = machine.ceiling or cap
    return min(ceiling, max(cap, machine.cap_min_watts or 0))


def _top(machines: Iterable[Machine]) -> int:
    return max((math.floor(machine.ceiling or 0) for machine in machines), default=0)


def over(kind: RackKind, caps: Mapping[Machine, float]) -> list[tuple[Breaker, float, FeedKey | None]]:
    """The breakers that carry too much, what they carry, and the feed that is lost then, if one is."""
    return [
        (breaker, worst, lost)
        for breaker, _, worst, lost in kind.loads(caps)
        if worst > breaker.limit_watts + SLACK_WATTS
    ]


def solve(
    kinds: Sequence[RackKind], feeds: Sequence[FeedLimit], movable: Callable[[Machine], bool]
) -> Solution:
    """The highest caps, in whole watts and one for all movable machines of a rack, at which every breaker holds.

    Only what the cap changes is looked at: a breaker that is overloaded by others stays so. Then, where a feed carries
    too much, one cap over all the racks on it. Where none holds, nothing is capped.
    """
    found = Solution()
    moved = {kind: tuple(dict.fromkeys(m for m, _ in kind.alike if _can(m) and movable(m))) for kind in kinds}
    for kind, machines in moved.items():
        if machines:
            _solve_rack(kind, machines, found)
    for feed in feeds:
        _solve_feed(feed, feeds, moved, found)
    return found


def _can(machine: Machine) -> bool:
    """Whether a cap changes what the machine draws, as far as that is known."""
    return bool(machine.gpus) and machine.tdp_watts is not None and machine.watts(None) is not None


def _solve_rack(kind: RackKind, machines: Sequence[Machine], found: Solution) -> None:
    def caps(cap: float) -> dict[Machine, float]:
        return {machine: _held(machine, cap) for machine in machines}

    top = _top(machines)
    least, most = kind.loads(caps(1)), kind.loads(caps(top))
    concerned = [place for place, loads in enumerate(least) if most[place][2] > loads[2] + SLACK_WATTS]

    def holds(cap: int) -> bool:
        loads = kind.loads(caps(cap))
        return all(loads[place][2] <= loads[place][0].limit_watts + SLACK_WATTS for place in concerned)

    cap = highest(holds, top)
    if cap is None:
        worst = max((least[place] for place in concerned), key=lambda load: load[2] / load[0].limit_watts)
        found.unfit[kind] = (worst[0], worst[2], worst[3])
    elif cap < top:
        found.caps[kind] = _lowered(machines, cap)


def _lowered(machines: Sequence[Machine], cap: float) -> dict[Machine, float]:
    return {
        machine: _held(machine, cap) for machine in machines if _held(machine, cap) < (machine.ceiling or 0)
    }


def feed_load(
    key: FeedKey,
    feeds: Sequence[FeedLimit],
    kinds: Iterable[RackKind],
    caps: Mapping[RackKind, Mapping[Machine, float]],
) -> tuple[float, float]:
    """Watts on a feed with all alive, and with the worst other one lost."""
    kinds = [kind for kind in kinds if key in kind.feeds]
    none: Mapping[Machine, float] = {}

    def total(lost: FeedKey | None) -> float:
        return math.fsum(len(kind.racks) * kind.on_feed(key, caps.get(kind, none), lost) for kind in kinds)

    normal = total(None)
    return normal, max([normal, *(total(other.key) for other in feeds if other.key != key)])


def _solve_feed(
    feed: FeedLimit,
    feeds: Sequence[FeedLimit],
    moved: Mapping[RackKind, Sequence[Machine]],
    found: Solution,
) -> None:
    kinds = [kind for kind in moved if feed.key in kind.feeds]
    of_feed = {kind: machines for kind, machines in moved.items() if machines and kind in kinds}
    if not of_feed or feed_load(feed.key, feeds, kinds, found.caps)[1] <= feed.limit_watts + SLACK_WATTS:
        return

    def caps(cap: float) -> dict[RackKind, dict[Machine, float]]:
        return found.caps | {
            kind: {m: min(_held(m, cap), found.caps.get(kind, {}).get(m, math.inf)) for m in machines}
            for kind, machines in of_feed.items()
        }

    def carried(cap: float) -> float:
        return feed_load(feed.key, feeds, kinds, caps(cap))[1]

    cap = highest(
        lambda cap: carried(cap) <= feed.limit_watts + SLACK_WATTS,
        max(_top(machines) for machines in of_feed.values()),
    )
    if cap is None:
        found.unfit_feeds[feed.key] = carried(1)
        return
    for kind, held in caps(cap).items():
        found.caps[kind] = {
            machine: watts for machine, watts in held.items() if watts < (machine.ceiling or 0)
        }
