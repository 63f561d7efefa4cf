"""Words that the findings about electricity share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from coldiron.inventory.ranges import fold
from coldiron.plan.caps import percent
from coldiron.plan.circuits import Breaker, FeedKey, RackKind

_KW_FROM = 100_000


def racks(kind: RackKind) -> str:
    """Its racks, as ``rack r01`` or ``each of racks r[01-04]``."""
    return f"rack {kind.racks[0]}" if len(kind.racks) == 1 else f"each of racks {names(kind.racks)}"


def breaker(kind: RackKind, which: Breaker) -> str:
    """A breaker as ``circuit r01/a/b1`` or ``PDU a of each of racks r[01-04]``."""
    if len(kind.racks) == 1:
        return f"{which.kind} {kind.racks[0]}/{which.name}"
    return f"{which.kind} {which.name} in {racks(kind)}"


def subject(kind: RackKind, which: Breaker) -> str:
    """What the finding's id is made of: the breaker in the first of the racks."""
    return f"{which.kind} {kind.racks[0]}/{which.name}"


def limit(which: Breaker) -> str:
    """What a breaker may carry and why, as ``its 16 A at 230 V last for 2944 W (80 %)``."""
    volts = f"{which.volts:.0f} V" + (" on three phases" if which.phases == 3 else "")
    derated = f" ({percent(which.derating)} of the rating)" if which.derating < 1 else ""
    return f"its {which.amps:g} A at {volts} may carry {watts(which.limit_watts)}{derated}"


def lost(feed: FeedKey) -> str:
    """A lost feed, or a lost PDU that is alone on its own."""
    return f"with {feed[0]} {feed[1]} lost"


def watts(value: float) -> str:
    """``value`` in whole watts, in kW from 100 kW on."""
    return f"{value:.0f} W" if value < _KW_FROM else f"{value / 1000:.0f} kW"


def too_many(carried: float, allowed: float) -> str:
    """By how many watts ``carried`` is above ``allowed``, rounded up."""
    more = carried - allowed
    return (
        f"{math.ceil(more - 1e-6)} W too many" if more < _KW_FROM else f"{math.ceil(more / 1000)} kW too many"
    )


def hosts(kind: RackKind, which: Breaker) -> str:
    """What hangs on a breaker, folded; of racks that are alike, what hangs on its PDU, which folds into fewer words."""
    whole = which if len(kind.racks) == 1 else kind.layout.breakers_of(which.pdu)[0]
    return names(kind.on(whole))


def names(found: Sequence[str]) -> str:
    """Names, folded; empty for none."""
    return _folded(tuple(found)) if found else ""


# The same ten thousand names come with each PDU of racks that are alike.
@lru_cache(maxsize=32)
def _folded(found: tuple[str, ...]) -> str:
    return fold(list(found))
