"""Words that the findings about electricity share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from coldiron.inventory.ranges import fold
from coldiron.plan.caps import percent
from coldiron.plan.circuits import Breaker, FeedKey, RackKind


def racks(kind: RackKind) -> str:
    """Its racks, as ``rack r01`` or ``each of racks r[01-04]``."""
    return f"rack {kind.racks[0]}" if len(kind.racks) == 1 else f"each of racks {fold(kind.racks)}"


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
    """``value`` in whole watts."""
    return f"{value:.0f} W"


def too_many(carried: float, allowed: float) -> str:
    """By how many watts ``carried`` is above ``allowed``, rounded up."""
    return f"{math.ceil(carried - allowed - 1e-6)} W too many"


def names(found: Sequence[str]) -> str:
    """Names, folded; empty for none."""
    return fold(list(found)) if found else ""
