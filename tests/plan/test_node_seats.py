"""Which slots cards sit in, and what lanes they get: against trying every way, and by hand."""

from __future__ import annotations

from itertools import combinations
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldiron.inventory.model import Slot
from coldiron.plan.checks.node_lanes import said
from coldiron.plan.checks.node_seats import lanes, room, seats, touching

Lanes = st.sampled_from([1, 4, 8, 16])
Boards = st.dictionaries(st.integers(1, 12), Lanes, min_size=1, max_size=7).map(
    lambda found: [Slot(position=position, lanes=wired) for position, wired in sorted(found.items())]
)
Widths = st.sampled_from([1.0, 2.0, 2.5, 3.0, 4.0])


def slots(*positions: int, wired: int = 16) -> list[Slot]:
    """Slots at these positions."""
    return [Slot(position=position, lanes=wired) for position in positions]  # type: ignore[arg-type]


def fits(chosen: tuple[Slot, ...], width: float, brackets: int | None) -> bool:
    """Whether cards in these slots hide none of each other's, and none stands out of the chassis."""
    taken = [range(slot.position, slot.position + ceil(width)) for slot in chosen]
    apart = all(set(one).isdisjoint(other) for one, other in combinations(taken, 2))
    return apart and (brackets is None or all(place.stop - 1 <= brackets for place in taken))


@given(Boards, st.integers(1, 7), Widths, st.one_of(st.none(), st.integers(1, 16)))
def test_cards_find_seats_whenever_there_are_any(
    board: list[Slot], cards: int, width: float, brackets: int | None
) -> None:
    possible = any(fits(chosen, width, brackets) for chosen in combinations(board, cards))
    found = seats(board, cards, width, brackets)
    assert (found is not None) == possible
    if found is not None:
        assert len(found) == cards
        assert fits(found, width, brackets)


@given(Boards, Widths, st.one_of(st.none(), st.integers(1, 16)))
def test_the_room_is_the_most_cards_that_find_seats(
    board: list[Slot], width: float, brackets: int | None
) -> None:
    most = room(board, width, brackets)
    assert most == 0 or seats(board, most, width, brackets) is not None
    assert seats(board, most + 1, width, brackets) is None


@given(Boards, st.integers(1, 4), Widths)
def test_no_card_gets_less_than_eight_lanes_where_it_need_not(
    board: list[Slot], cards: int, width: float
) -> None:
    found = seats(board, cards, width, None)
    good = any(
        fits(chosen, width, None) and all(slot.lanes >= 8 for slot in chosen)
        for chosen in combinations(board, cards)
    )
    if found is not None and good:
        assert min(slot.lanes for slot in found) >= 8


@given(st.lists(Lanes, min_size=1, max_size=8), st.integers(8, 256))
def test_lanes_are_never_more_than_the_slots_or_the_processors_have(wired: list[int], cpu: int) -> None:
    board = [Slot(position=at, lanes=one) for at, one in enumerate(wired, 1)]  # type: ignore[arg-type]
    each = lanes(tuple(board), cpu)
    assert sum(each) <= cpu
    assert all(1 <= got <= had for got, had in zip(each, wired, strict=True))
    if sum(wired) <= cpu:
        assert list(each) == wired


@pytest.mark.parametrize(
    ("cpu", "each"),
    [
        (64, (16, 16, 16, 16)),
        (63, (16, 16, 16, 8)),
        (40, (16, 8, 8, 8)),
        (32, (8, 8, 8, 8)),
        (24, (8, 8, 4, 4)),
    ],
)
def test_the_last_cards_give_up_lanes_first(cpu: int, each: tuple[int, ...]) -> None:
    assert lanes(tuple(slots(1, 3, 5, 7)), cpu) == each


def test_a_free_bracket_is_kept_where_there_is_one() -> None:
    loose = seats(slots(1, 3, 4, 7), 3, 2, None)
    assert [slot.position for slot in loose or ()] == [1, 4, 7]
    assert not touching(loose or (), 2)
    tight = seats(slots(1, 3, 5), 3, 2, None)
    assert touching(tight or (), 2)


def test_who_gets_what_is_said_in_runs() -> None:
    assert said((16, 8, 8, 8)) == "GPU 1 gets x16, GPUs 2-4 get x8"
    assert said((16,)) == "GPU 1 gets x16"
