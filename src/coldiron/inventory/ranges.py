"""Node and address ranges in ClusterShell's notation: ``gpu[01-12]``, ``10.77.0.[31-33]``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import cast

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

MAX_NODES = 20_000
# Of all ranges of a file together, however often each is looked at: ten thousand nodes need a quarter.
MAX_NAMES = 400_000
_MAX_CHARACTERS = 400_000

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?:/([0-9]{1,4}))?")
_DIGIT_BESIDE = re.compile(r"[0-9]\[|\][0-9]")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]*")


class RangeError(ValueError):
    """A range that cannot be read; the text says what to write."""


class TooManyNames(Exception):
    """The ranges of one file make more than ``MAX_NAMES`` names: whoever bounds them says so."""


_made: ContextVar[list[int] | None] = ContextVar("made", default=None)


@contextmanager
def bounded() -> Iterator[None]:
    """Within, all ranges together make no more than ``MAX_NAMES`` names. Raises TooManyNames where they would."""
    token = _made.set([0])
    try:
        yield
    finally:
        _made.reset(token)


@dataclass(frozen=True)
class Names:
    """The nodes of one range, in ClusterShell's order, and each one's distance from the first number.

    ``offsets`` counts by the numbers in the names, so that leaving ``gpu02`` out of ``gpu[01-03]`` moves
    nobody else's address. It counts by position where the names do not vary in exactly one number.
    """

    names: tuple[str, ...]
    offsets: tuple[int, ...]


def _size(text: str) -> int:
    """How many names ``text`` stands for, counted without making them. Raises RangeError."""
    total = 0
    if len(text) > _MAX_CHARACTERS:
        raise RangeError(f"{len(text)} characters are too long for a range; write e.g. gpu[01-12]")
    for part in _parts(text):
        size = 1
        rest = _BRACKETS.sub("", part)
        if "[" in rest or "]" in rest:
            raise RangeError(f"a bracket of `{part}` is not closed; write e.g. gpu[01-12]")
        if not part or not _PLAIN_NAME.fullmatch(rest):
            raise RangeError(f"`{part}` is no range; write e.g. gpu[01-12] or gpu[01-04,07]")
        beside = _DIGIT_BESIDE.search(part) is not None
        for inner in _BRACKETS.findall(part):
            # ClusterShell joins the digit to the numbers, which are then others, and very many.
            if beside and len({len(number) for number in re.split("[,-]", inner)}) > 1:
                raise RangeError(f"a digit stands beside the bracket of `{part}`; write e.g. gpu1-[01-12]")
            size *= sum(_range_size(piece, part) for piece in inner.split(","))
            if size > MAX_NODES:
                break
        total += size
        if total > MAX_NODES:
            raise RangeError(f"`{part}` makes more than {MAX_NODES} nodes; write a smaller range")
    return total


def _parts(text: str) -> Iterator[str]:
    """``text`` at its commas that stand outside brackets."""
    part: list[str] = []
    inside = False
    for piece in re.split(r"([\[\],])", text):
        if piece == "," and not inside:
            yield "".join(part)
            part.clear()
            continue
        inside = piece == "[" or (inside and piece != "]")
        part.append(piece)
    yield "".join(part)


def _range_size(piece: str, whole: str) -> int:
    match = _RANGE.fullmatch(piece)
    if not match:
        raise RangeError(f"`[{piece}]` in `{whole}` is no range of numbers; write e.g. [01-12]")
    first, last, step = match.group(1), match.group(2) or match.group(1), int(match.group(3) or 1)
    if step < 1:
        raise RangeError(f"the step of `[{piece}]` must be at least 1; write it, or none")
    if int(last) < int(first):
        raise RangeError(f"`[{piece}]` counts down; write [{last}-{first}]")
    if len(first) != len(last) and (first.startswith("0") or last.startswith("0")):
        width = max(len(first), len(last))
        raise RangeError(
            f"`[{piece}]` mixes widths; write [{first.zfill(width)}-{last.zfill(width)}] so that names sort"
        )
    return (int(last) - int(first)) // step + 1


def expand(text: str) -> tuple[str, ...]:
    """All that ``text`` stands for, in ClusterShell's order. Raises RangeError."""
    expected = _size(text)
    if (made := _made.get()) is not None:
        made[0] += expected
        if made[0] > MAX_NAMES:
            raise TooManyNames
    try:
        # `@group` must never ask the controller's own ClusterShell configuration.
        names = tuple(cast("list[str]", list(NodeSet(text, resolver=RESOLVER_NOGROUP))))
    except (NodeSetException, ValueError) as error:
        raise RangeError(f"`{text}` is no range: {error}") from None
    if len(names) != expected:
        raise RangeError(f"`{text}` names a node twice; name each once")
    return names


def expand_names(text: str) -> Names:
    """The nodes of ``text`` and their offsets. Raises RangeError."""
    names = expand(text)
    offsets = tuple(range(len(names)))
    if len(_BRACKETS.findall(text)) == 1 and "," not in _BRACKETS.sub("", text):
        before, after = _BRACKETS.split(text)[0], _BRACKETS.split(text)[2]
        numbers = [int(name[len(before) : len(name) - len(after)]) for name in names]
        first = min(numbers)
        offsets = tuple(number - first for number in numbers)
    return Names(names, offsets)


def expand_addresses(text: str, nodes: Names) -> tuple[IPv4Address, ...]:
    """One IPv4 address for each of ``nodes``: counted up from the one in ``text``, or ``text``'s own range.

    Raises RangeError where the counts differ or an address is none.
    """
    if "[" not in text and "," not in text:
        first = _address(text)
        try:
            return tuple(first + offset for offset in nodes.offsets)
        except AddressValueError:
            raise RangeError(f"{text} and those after it leave IPv4; write a lower one") from None
    if not re.fullmatch(r"[0-9.,\[\]/-]+", text):
        raise RangeError(f"`{text}` is no range of addresses; write e.g. 10.77.0.[31-33]")
    addresses = tuple(sorted(_address(one) for one in expand(text)))
    if len(addresses) != len(nodes.names):
        raise RangeError(
            f"`{text}` holds {len(addresses)} addresses for {len(nodes.names)} nodes; "
            "write as many, or only the first"
        )
    return addresses


def _address(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except AddressValueError:
        hint = "IPv6 is not supported here" if ":" in text else "it has four numbers from 0 to 255"
        raise RangeError(f"`{text}` is no IPv4 address ({hint}); write e.g. 10.77.0.31") from None


def fold(names: list[str]) -> str:
    """``names`` as one range: ``gpu[01-03]``. The names must be plain host names."""
    return str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP)) if names else ""
