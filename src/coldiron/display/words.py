"""How times, numbers and hosts are written, alike in the live view, in logs and in the summary."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from coldiron.inventory.ranges import fold

# Folding goes through ClusterShell; a longer list is cut rather than read anyway.
_FOLDED_AT_MOST = 2000


def span(seconds: float) -> str:
    """A duration as words that fit a sentence: ``0.4 s``, ``12 s``, ``3 min 05 s``, ``2 h 04 min``."""
    if seconds < 0:
        return "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def clock(seconds: float) -> str:
    """A duration as a clock counts it, for columns that must not move: ``0:07``, ``12:41``, ``1:02:41``."""
    whole = max(0, int(seconds))
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"


def about(seconds: float) -> str:
    """A duration that is only guessed, so coarse that it does not flicker: ``about 40 s``, ``about 6 min``."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 90:
        return f"about {max(10, round(seconds / 10) * 10)} s"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min"
    return f"about {seconds / 3600:.1f} h"


def hosts(names: Iterable[str]) -> str:
    """``names`` as ranges (``gpu[001-480]``), or one by one where a name is none that can be folded."""
    return _hosts(tuple(names))


@lru_cache(maxsize=512)
def _hosts(names: tuple[str, ...]) -> str:
    if len(names) == 1:
        return names[0]
    try:
        return fold(list(names[:_FOLDED_AT_MOST]))
    except Exception:  # an inventory written by hand may call its hosts anything
        return ",".join(names)


def group_of(name: str) -> str:
    """The name of a host without its number: what hosts are folded by where the state names no group."""
    return name.rstrip("0123456789") or name


def one_line(text: str) -> str:
    """``text`` on one line and printable: what comes from a node must not move the cursor."""
    joined = " ".join(text.split())
    return joined if joined.isprintable() else "".join(c if c.isprintable() else "?" for c in joined)
