"""The table, and the roads through it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldiron.repair.machine import (
    ENDS,
    ROWS,
    TABLE,
    Consent,
    Kind,
    Outcome,
    Policy,
    State,
    after_cut,
    next_state,
    plan,
    refusal,
    start,
    still,
)

ROAD = [row.state for row in ROWS]
AGREED = Policy(Kind.REPAIR, ("S1", "S2"), Consent(frozenset({"S1", "S2"})))
policies = st.builds(
    Policy,
    st.sampled_from(Kind),
    st.sampled_from([(), ("S1",), ("S1", "S2")]),
    st.builds(
        Consent,
        st.sets(st.sampled_from(["S1", "S2", "S3"])).map(frozenset),
        st.sampled_from([5.0, 20.0, 1e9]),
    ),
    st.booleans(),
)


def test_the_table_is_whole() -> None:
    assert " ".join(ROAD) == "drain diagnose power deploy converge accept resume"
    assert set(TABLE) | set(ENDS) == set(State)
    for row in ROWS:
        assert row.does
        assert row.why
        assert row.attempts >= 1
        assert row.again in TABLE
        assert set(row.to.values()) <= set(State)
        # Every state can go well and can fail.
        assert {Outcome.OK, Outcome.FAILED} <= set(row.to)
        # It is gone back to, never ahead: what is left out would not have been done.
        assert ROAD.index(row.again) <= ROAD.index(row.state)
    assert [row.state for row in ROWS if row.wipes] == [State.DEPLOY]
    assert {end.state for end in ENDS.values() if not end.drained} == {State.DONE, State.REFUSED}


@pytest.mark.parametrize(
    ("kind", "road"),
    [
        (Kind.REPAIR, "drain diagnose power deploy converge accept resume done"),
        (Kind.REIMAGE, "drain power deploy converge accept resume done"),
        (Kind.WEBHOOK, "drain diagnose held"),
    ],
)
def test_the_road_of_each_kind(kind: Kind, road: str) -> None:
    policy = replace(AGREED, kind=kind)
    state = start(policy, 0)
    seen = [state]
    while state not in ENDS:
        state = next_state(state, Outcome.OK, policy)
        seen.append(state)
    assert seen == road.split()
    assert [step.state for step in plan(policy) if not step.skipped] == seen[:-1]


def test_a_dry_run_names_the_disks_and_what_is_left_out() -> None:
    assert {step.state: step.wipes for step in plan(AGREED) if step.wipes} == {State.DEPLOY: ("S1", "S2")}
    assert not any(step.wipes for step in plan(replace(AGREED, kind=Kind.WEBHOOK)))
    (skipped,) = [step for step in plan(replace(AGREED, kind=Kind.REIMAGE)) if step.skipped]
    assert (skipped.state, skipped.skipped) == (
        State.DIAGNOSE,
        "a reimage is ordered by a person, whatever the evidence",
    )


@pytest.mark.parametrize(
    ("disks", "consent", "words"),
    [
        ((), Consent(), "no disk is named to deploy to"),
        (("S1",), Consent(), "deploy would wipe S1; type the serial, or give --yes S1"),
        (("S1", "S2"), Consent(frozenset({"S1"})), "deploy would wipe S2; type the serial, or give --yes S2"),
        (("S1",), Consent(frozenset({"S1"}), 10.0), "the consent to wipe S1 has run out; give it again"),
    ],
)
def test_without_consent_the_node_is_not_touched(
    disks: tuple[str, ...], consent: Consent, words: str
) -> None:
    policy = Policy(Kind.REIMAGE, disks, consent)
    assert refusal(policy, 10.0).startswith(words)
    assert start(policy, 10.0) is State.REFUSED
    # A webhook wipes nothing, and so asks nobody.
    assert start(replace(policy, kind=Kind.WEBHOOK), 10.0) is State.DRAIN


@pytest.mark.parametrize(
    ("state", "outcome", "follows"),
    [
        (State.DIAGNOSE, Outcome.HARDWARE, State.TICKET),
        (State.DIAGNOSE, Outcome.UNCLEAR, State.POWER),
        (State.DEPLOY, Outcome.HARDWARE, State.TICKET),
        (State.DEPLOY, Outcome.REFUSED, State.FAILED),
        (State.DEPLOY, Outcome.FAILED, State.POWER),
        (State.ACCEPT, Outcome.HARDWARE, State.TICKET),
        (State.RESUME, Outcome.FAILED, State.ACCEPT),
    ],
)
def test_what_follows(state: State, outcome: Outcome, follows: State) -> None:
    assert next_state(state, outcome, AGREED) is follows


def test_unclear_evidence_stops_where_the_policy_says_so() -> None:
    stop = replace(AGREED, stop_when_unclear=True)
    assert next_state(State.DIAGNOSE, Outcome.UNCLEAR, stop) is State.FAILED
    assert next_state(State.DIAGNOSE, Outcome.UNCLEAR, replace(stop, kind=Kind.WEBHOOK)) is State.HELD


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.state)
def test_a_state_is_tried_as_often_as_the_table_says(row: object) -> None:
    row = TABLE[row.state]  # type: ignore[attr-defined]
    follows = [
        next_state(row.state, Outcome.FAILED, AGREED, failures=before) for before in range(row.attempts + 1)
    ]
    assert follows == [row.again] * (row.attempts - 1) + [State.FAILED] * 2


@pytest.mark.parametrize(
    ("state", "outcome"),
    [(State.DONE, Outcome.OK), (State.POWER, Outcome.HARDWARE), (State.RESUME, Outcome.UNCLEAR)],
)
def test_what_the_table_does_not_know(state: State, outcome: Outcome) -> None:
    with pytest.raises(ValueError, match="the table has no row"):
        next_state(state, outcome, AGREED)


def test_consent_that_runs_out_on_the_way() -> None:
    brief = replace(AGREED, consent=Consent(AGREED.consent.serials, 100.0))
    assert next_state(State.POWER, Outcome.OK, brief, now=99.0) is State.DEPLOY
    assert next_state(State.POWER, Outcome.OK, brief, now=100.0) is State.FAILED
    assert after_cut(State.DEPLOY, brief, 99.0) is State.POWER
    assert after_cut(State.DEPLOY, brief, 100.0) is State.FAILED
    assert still(State.DEPLOY, brief, 100.0) is State.FAILED
    assert still(State.DONE, brief, 100.0) is State.DONE
    assert after_cut(State.CONVERGE, brief, 100.0) is State.CONVERGE


@given(policies, st.data())
def test_every_road_ends_and_keeps_its_promises(policy: Policy, data: st.DataObject) -> None:
    now = 0.0
    failed: dict[State, int] = {}
    state, accepted, steps = start(policy, now), False, 0
    began = []
    while state not in ENDS:
        steps += 1
        assert steps <= 200
        began.append(state)
        if TABLE[state].wipes:
            assert set(policy.disks) <= policy.consent.serials
            assert policy.disks
            assert now < policy.consent.until
        if state is State.RESUME:
            assert accepted
        assert policy.kind not in TABLE[state].skipped
        now += data.draw(st.sampled_from([0.0, 1.0, 7.0]))
        outcome = data.draw(st.sampled_from(sorted(TABLE[state].to)))
        before = failed.get(state, 0)
        failed[state] = before + 1 if outcome is Outcome.FAILED else 0
        accepted = outcome is Outcome.OK if state is State.ACCEPT else accepted and state is State.RESUME
        last, state = state, next_state(state, outcome, policy, failures=before, now=now)
        if state is State.DONE:
            assert (last, outcome) == (State.RESUME, Outcome.OK)
        accepted = accepted and state is State.RESUME
    if policy.kind is Kind.WEBHOOK:
        assert set(began) <= {State.DRAIN, State.DIAGNOSE}
        assert state is not State.DONE
    assert (state is State.REFUSED) == (not began)
