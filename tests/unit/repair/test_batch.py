"""Which nodes of a batch begin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldiron.errors import ColdironError
from coldiron.repair.batch import Choice, Limits, may_begin
from coldiron.repair.machine import ENDS, State

NODES = [f"gpu{number:02}" for number in range(1, 9)]
FOUR = Limits(batch=4, max_failures=1)


@pytest.mark.parametrize(
    ("states", "limits", "begin"),
    [
        ({}, FOUR, ["gpu01"]),
        ({"gpu01": State.DEPLOY}, FOUR, []),
        ({"gpu01": State.DONE}, FOUR, ["gpu02", "gpu03", "gpu04", "gpu05"]),
        ({"gpu01": State.DONE, "gpu02": State.POWER, "gpu03": State.ACCEPT}, FOUR, ["gpu04", "gpu05"]),
        # A ticket, a hold or a refusal proves nothing of the road: the next is the canary.
        ({"gpu01": State.TICKET}, FOUR, ["gpu02"]),
        ({"gpu01": State.REFUSED, "gpu02": State.HELD}, FOUR, ["gpu03"]),
        ({"gpu01": State.DONE, "gpu02": State.TICKET}, FOUR, ["gpu03", "gpu04", "gpu05", "gpu06"]),
        ({}, Limits(batch=3, canary=False), ["gpu01", "gpu02", "gpu03"]),
        ({"gpu01": State.DONE, "gpu02": State.FAILED}, Limits(2, 2), ["gpu03", "gpu04"]),
        ({"gpu01": State.FAILED}, Limits(2, 2, canary=False), ["gpu02", "gpu03"]),
        ({"elsewhere": State.FAILED}, FOUR, ["gpu01"]),
    ],
)
def test_who_may_begin(states: dict[str, State], limits: Limits, begin: list[str]) -> None:
    assert may_begin(NODES, states, limits) == Choice(tuple(begin))


@pytest.mark.parametrize(
    ("states", "limits", "words"),
    [
        ({"gpu01": State.FAILED}, Limits(4, 3), "the first node failed; 7 were not begun"),
        ({"gpu01": State.DONE, "gpu02": State.FAILED}, FOUR, "1 of 8 nodes failed; 6 were not begun"),
    ],
)
def test_when_it_stops(states: dict[str, State], limits: Limits, words: str) -> None:
    assert may_begin(NODES, states, limits) == Choice((), words)


def test_nothing_is_left_to_begin() -> None:
    assert may_begin(["gpu01"], {"gpu01": State.FAILED}, FOUR) == Choice(())


def test_what_is_asked_wrongly() -> None:
    with pytest.raises(ColdironError, match="gpu01 is named twice"):
        may_begin(["gpu01", "gpu01"], {}, FOUR)
    with pytest.raises(ColdironError, match="--batch 0: give a number of nodes from 1"):
        Limits(batch=0)
    with pytest.raises(ColdironError, match="--max-failures 0"):
        Limits(max_failures=0)


@given(
    st.dictionaries(st.sampled_from(NODES), st.sampled_from(State)),
    st.builds(Limits, st.integers(1, 5), st.integers(1, 3), st.booleans()),
)
def test_a_batch_keeps_its_limits(states: dict[str, State], limits: Limits) -> None:
    choice = may_begin(NODES, states, limits)
    under_way = sum(state not in ENDS for state in states.values())
    assert not set(choice.begin) & set(states)
    assert not choice.begin or under_way + len(choice.begin) <= limits.batch
    if list(states.values()).count(State.FAILED) >= limits.max_failures:
        assert not choice.begin
    if limits.canary and State.DONE not in states.values():
        assert len(choice.begin) <= 1


@given(st.data(), st.builds(Limits, st.integers(1, 4), st.integers(1, 3), st.booleans()))
def test_a_batch_comes_to_its_end(data: st.DataObject, limits: Limits) -> None:
    """Whatever becomes of each node: either all have begun, or it says why not. Failures stay within the limit."""
    states: dict[str, State] = {}
    while True:
        choice = may_begin(NODES, states, limits)
        states |= dict.fromkeys(choice.begin, State.DRAIN)
        under_way = [node for node, state in states.items() if state not in ENDS]
        if not under_way:
            break
        states[data.draw(st.sampled_from(under_way))] = data.draw(st.sampled_from(sorted(ENDS)))
    assert choice.stopped or set(states) == set(NODES)
    # Those that were under way when the last one failed may fail too.
    assert list(states.values()).count(State.FAILED) < limits.max_failures + limits.batch
