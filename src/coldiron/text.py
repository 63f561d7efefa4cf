"""Text from anywhere, made fit for a page, for XML and for a terminal."""

from __future__ import annotations

import re
import time

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
# Besides control characters what XML does not allow, and marks that turn the reading direction of a whole line.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    """Return text without terminal escapes and with every control character replaced by a mark."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def cut(text: str, start: int, end: int) -> str:
    """Return a long text's first and last characters, with a word on how many were left out between."""
    left_out = len(text) - start - end
    if left_out <= 0:
        return text
    return f"{text[:start]}\n… {left_out} characters left out …\n{text[-end:] if end else ''}"


def moment(seconds: float) -> str:
    """Return a time since the epoch as people write it, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def duration(seconds: float) -> str:
    """Return a duration in the unit that suits it: ``40 ms``, ``3.2 s``, ``4 min 10 s``, ``2 h 5 min``."""
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its word: ``1 node``, ``5 nodes``."""
    return f"{number} {one if number == 1 else many or one + 's'}"
