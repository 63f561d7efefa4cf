"""Which slots the cards of a machine sit in, and how many lanes each gets. Pure arithmetic, no findings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil

from coldiron.inventory.model import Slot

LEAST_LANES = 8


def seats(slots: Sequence[Slot], cards: int, width: float, brackets: int | None) -> tuple[Slot, ...] | None:
    """The slots that ``cards`` cards of ``width`` brackets sit in, or None where they do not fit.

    Wide slots first, then a free bracket between the cards. ``brackets`` is how many the chassis has, None where it
    ends nowhere.
    """
    for least, gap in ((16, 1), (LEAST_LANES, 1), (16, 0), (LEAST_LANES, 0), (4, 0), (1, 0)):
        found = _seated(
            [slot for slot in slots if slot.lanes >= least], cards, ceil(width) + gap, width, brackets
        )
        if found is not None:
            return found
    return None


def room(slots: Sequence[Slot], width: float, brackets: int | None) -> int:
    """How many cards of ``width`` brackets fit."""
    return max(n for n in range(len(slots) + 1) if not n or seats(slots, n, width, brackets) is not None)


def touching(taken: Sequence[Slot], width: float) -> bool:
    """Whether two of the cards sit without a free bracket between them."""
    return any(after.position - slot.position <= ceil(width) for slot, after in pairwise(taken))


def lanes(taken: Sequence[Slot], cpu_lanes: int | None) -> tuple[int, ...]:
    """The lanes of each card: its slot's; where the processors have fewer in all, halved from the last card on."""
    each: list[int] = [slot.lanes for slot in taken]
    while cpu_lanes is not None and sum(each) > cpu_lanes and max(each) > 1:
        widest = max(each)
        last = len(each) - 1 - each[::-1].index(widest)
        each[last] = widest // 2
    return tuple(each)


def _seated(
    slots: Sequence[Slot], cards: int, apart: int, width: float, brackets: int | None
) -> tuple[Slot, ...] | None:
    """Seat the cards from the first slot on, each as near to the one before as it may: the most that fit."""
    taken: list[Slot] = []
    for slot in sorted(slots, key=lambda slot: slot.position):
        if len(taken) == cards:
            break
        if taken and slot.position < taken[-1].position + apart:
            continue
        if brackets is not None and slot.position + ceil(width) - 1 > brackets:
            continue
        taken.append(slot)
    return tuple(taken) if len(taken) == cards else None
