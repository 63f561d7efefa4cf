"""The journal: what is promised is on the disk, and a repair that was killed goes on to the same end."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldiron.errors import ColdironError, ExitCode
from coldiron.repair import journal as module
from coldiron.repair.journal import Journal, policy_data, policy_of, read
from coldiron.repair.machine import ENDS, TABLE, Consent, Kind, Outcome, Policy, State
from coldiron.run.events import read_events

AGREED = Policy(Kind.REPAIR, ("S1",), Consent(frozenset({"S1"})))
REASON = "as it came"


class Clock:
    """A clock that only goes on when it is told to. Seconds since the epoch."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(folder: Path, policy: Policy = AGREED, clock: Clock | None = None) -> Journal:
    return Journal.open(folder, "gpu02", policy, "coldiron node repair gpu02", clock or Clock())


def run(journal: Journal, *outcomes: Outcome) -> State:
    """Run the states that are due, one an outcome; then all well to the end if none is given."""
    state = journal.resume().next
    left: Iterator[Outcome] = iter(outcomes)
    while state not in ENDS:
        outcome = next(left, None) if outcomes else Outcome.OK
        if outcome is None:
            break
        journal.begin(state)
        state = State(journal.end(state, outcome, REASON).data["next"])
    return state


def test_a_repair_from_end_to_end(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        assert run(journal) is State.DONE
        assert journal.resume().next is State.DONE
        told = journal.events
    path = tmp_path / "gpu02.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read(path) == told
    # It has the shape of a run's events, and reads as such.
    assert tuple(read_events(path)) == told
    assert [
        (event.number, event.kind, event.data.get("state"), event.data.get("next")) for event in told[:3]
    ] == [
        (1, "repair_open", None, "drain"),
        (2, "repair_begin", "drain", None),
        (3, "repair_end", "drain", "diagnose"),
    ]
    assert told[0].data["node"] == "gpu02"
    assert told[0].data["by"]


def test_the_next_repair_begins_anew_in_the_same_file(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        assert run(journal, Outcome.OK, Outcome.HARDWARE) is State.TICKET
    with opened(tmp_path) as journal:
        assert [event.kind for event in journal.events] == ["repair_open"]
        assert journal.events[0].number == 6
        assert journal.resume().next is State.DRAIN


def test_one_without_consent_is_refused_and_says_why(tmp_path: Path) -> None:
    with opened(tmp_path, Policy(Kind.REIMAGE, ("S1",))) as journal:
        found = journal.resume()
        assert found.next is State.REFUSED
        assert "--yes S1" in found.reason
        assert len(journal.events) == 1
    # It has come to its end: the same with consent is another repair.
    with opened(tmp_path, Policy(Kind.REIMAGE, ("S1",), AGREED.consent)) as journal:
        assert journal.resume().next is State.DRAIN


@pytest.mark.parametrize("state", list(TABLE))
def test_killed_in_a_state(tmp_path: Path, state: State) -> None:
    with opened(tmp_path) as journal:
        while journal.where().next is not state:
            due = journal.where().next
            journal.begin(due)
            journal.end(due, Outcome.OK)
        journal.begin(state)
    with opened(tmp_path) as journal:
        found = journal.resume()
        assert (found.next, found.cut, found.failures) == (TABLE[state].again, state, 0)
        assert journal.events[-1].kind == "repair_resumed"
        assert run(journal) is State.DONE


def test_failures_before_a_kill_count(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        assert run(journal, Outcome.OK, Outcome.OK, Outcome.FAILED, Outcome.FAILED) is State.POWER
        assert journal.begin(State.POWER).data["attempt"] == 3
    with opened(tmp_path) as journal:
        assert journal.resume().failures == 2
        assert run(journal, Outcome.FAILED) is State.FAILED
        assert journal.where().reason == REASON


def test_failures_are_forgotten_when_it_goes_well(tmp_path: Path) -> None:
    failed, ok = Outcome.FAILED, Outcome.OK
    with opened(tmp_path) as journal:
        # Accepted at the second attempt; the resuming fails, and the node has two attempts to be accepted again.
        assert run(journal, ok, ok, ok, ok, ok, failed, ok, failed, failed) is State.ACCEPT
        assert journal.where().failures == 1
        assert run(journal) is State.DONE


def test_a_repair_whose_consent_ran_out_while_nobody_was_there(tmp_path: Path, clock: Clock) -> None:
    policy = Policy(Kind.REIMAGE, ("S1",), Consent(frozenset({"S1"}), 2000.0))
    with opened(tmp_path, policy, clock) as journal:
        run(journal, Outcome.OK, Outcome.OK)
        journal.begin(State.DEPLOY)
    clock.now = 2000.0
    with opened(tmp_path, policy, clock) as journal:
        found = journal.resume()
        assert (found.next, found.reason) == (
            State.FAILED,
            "the consent to wipe S1 has run out; give it again",
        )
        assert journal.events[-1].kind == "repair_stop"
        # The end is written once.
        assert journal.resume().next is State.FAILED
        assert [event.kind for event in journal.events].count("repair_stop") == 1


def test_consent_can_be_given_anew(tmp_path: Path, clock: Clock) -> None:
    brief = Policy(Kind.REIMAGE, ("S1",), Consent(frozenset({"S1"}), 2000.0))
    with opened(tmp_path, brief, clock) as journal:
        run(journal, Outcome.OK)
        journal.begin(State.POWER)
    clock.now = 3000.0
    again = Policy(Kind.REIMAGE, ("S1",), Consent(frozenset({"S1"}), 9000.0))
    with opened(tmp_path, again, clock) as journal:
        assert run(journal) is State.DONE
        assert journal.policy.consent.until == 9000.0


def test_consent_that_runs_out_between_two_states(tmp_path: Path, clock: Clock) -> None:
    policy = Policy(Kind.REIMAGE, ("S1",), Consent(frozenset({"S1"}), 2000.0))
    with opened(tmp_path, policy, clock) as journal:
        assert run(journal, Outcome.OK, Outcome.OK) is State.DEPLOY
        clock.now = 2000.0
        with pytest.raises(ColdironError, match="gpu02: the consent to wipe S1 has run out") as raised:
            journal.begin(State.DEPLOY)
        assert raised.value.exit_code is ExitCode.REFUSED
        assert journal.events[-1].kind == "repair_end"
        assert journal.resume().next is State.FAILED


def test_consent_that_runs_out_during_a_state_is_the_reason(tmp_path: Path, clock: Clock) -> None:
    policy = Policy(Kind.REIMAGE, ("S1",), Consent(frozenset({"S1"}), 2000.0))
    with opened(tmp_path, policy, clock) as journal:
        run(journal, Outcome.OK)
        journal.begin(State.POWER)
        clock.now = 2000.0
        end = journal.end(State.POWER, Outcome.OK)
        assert (end.data["next"], end.data["reason"]) == (
            "failed",
            "the consent to wipe S1 has run out; give it again",
        )


def test_what_a_caller_gets_wrong(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        with pytest.raises(ValueError, match="drain is due, not accept"):
            journal.begin(State.ACCEPT)
        with pytest.raises(ValueError, match="drain is not under way"):
            journal.end(State.DRAIN, Outcome.OK)
        journal.begin(State.DRAIN)
        with pytest.raises(ValueError, match="for no reason"):
            journal.end(State.DRAIN, Outcome.FAILED, " ")
        assert len(journal.events) == 2


def test_a_reason_is_one_line_of_text(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.begin(State.DRAIN)
        journal.end(State.DRAIN, Outcome.FAILED, "two\nlines \udcff" + "x" * 900)
    (*_, last) = read(tmp_path / "gpu02.jsonl")
    assert last.data["reason"].startswith("two lines ?xxx")
    assert len(last.data["reason"]) == 500


def test_another_kind_of_repair_waits_for_the_first(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.begin(State.DRAIN)
    for policy in (Policy(Kind.WEBHOOK), Policy(Kind.REPAIR, ("S2",), Consent(frozenset({"S2"})))):
        with pytest.raises(ColdironError, match=r"gpu02: a repair \(S1\) has not come to its end") as raised:
            opened(tmp_path, policy)
        assert raised.value.exit_code is ExitCode.REFUSED
    # The lock was given back.
    opened(tmp_path).close()


def test_one_repair_of_a_node_at_a_time(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(
        ColdironError, match=r"gpu02 is being repaired: .* \(pid \d+\) since \d\d:\d\d, .*node repair"
    ):
        opened(tmp_path)
    # Another node is another matter.
    Journal.open(tmp_path, "gpu03", AGREED).close()
    first.close()
    first.close()
    opened(tmp_path).close()


KILLED = """
import os, sys
from pathlib import Path
from coldiron.repair.journal import Journal
from coldiron.repair.machine import Consent, Kind, Policy, State
journal = Journal.open(Path(sys.argv[1]), "gpu02", Policy(Kind.REPAIR, ("S1",), Consent(frozenset({"S1"}))))
journal.begin(State.DRAIN)
print(os.getpid(), flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True)
    assert ended.returncode == -9, ended.stderr
    with opened(tmp_path) as journal:
        assert journal.resume().cut is State.DRAIN
        # The kernel's lock went with the process; what the file says stayed.
        assert journal.lock.died is not None
        assert journal.lock.died.pid == int(ended.stdout)


def test_a_lock_that_cannot_be_taken(tmp_path: Path) -> None:
    (tmp_path / "gpu02.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ColdironError, match="is a link; remove it"):
        opened(tmp_path)


@pytest.mark.parametrize("node", ["", "../gpu02", "gpu 02", "-gpu02", "gpu02/x", "x" * 300])
def test_a_name_that_is_no_node(tmp_path: Path, node: str) -> None:
    with pytest.raises(ColdironError, match="is no name of a node"):
        Journal.open(tmp_path, node, AGREED)


@given(cut=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_a_torn_last_line_is_taken_away(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("torn")
    path = folder / "gpu02.jsonl"
    with opened(folder) as journal:
        run(journal)
        told = journal.events
    content = path.read_bytes()
    last = len(content.rstrip(b"\n").rsplit(b"\n", 1)[-1]) + 1
    path.write_bytes(content[: len(content) - 1 - cut % last])
    assert read(path) == told[:-1]
    with opened(folder) as journal:
        assert run(journal) is State.DONE
        whole = journal.events
    assert read(path) == whole


def test_a_last_line_of_rubbish_is_torn_too(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.begin(State.DRAIN)
    path = tmp_path / "gpu02.jsonl"
    with path.open("ab") as stream:
        stream.write(b"\0" * 40 + b"\n")
    with opened(tmp_path) as journal:
        assert journal.resume().cut is State.DRAIN


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda all_: [all_[0], all_[1].replace(b"drain", b"power"), *all_[2:]],
        lambda all_: [all_[0], *all_[2:]],
        lambda all_: [all_[0], all_[2], all_[1], *all_[3:]],
        lambda all_: [all_[0], b"\n", *all_[1:]],
    ],
    ids=["altered", "missing", "swapped", "empty"],
)
def test_a_damaged_line_is_named(tmp_path: Path, damage: Any) -> None:
    with opened(tmp_path) as journal:
        run(journal)
    path = tmp_path / "gpu02.jsonl"
    path.write_bytes(b"".join(damage(lines(path))))
    for look in (lambda: read(path), lambda: opened(tmp_path)):
        with pytest.raises(ColdironError, match=r"gpu02\.jsonl:2: this line of the journal is damaged"):
            look()


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "repair_begin", "data": {"state": "dance"}},
        {"kind": "repair_end", "data": {"state": "drain", "outcome": "perhaps", "next": "done"}},
        {"kind": "repair_stop", "data": {}},
        {"kind": "repair_open", "data": {"policy": [], "next": "drain"}},
        {"kind": "something", "data": {}},
    ],
)
def test_a_line_that_says_what_nobody_understands(tmp_path: Path, change: dict[str, Any]) -> None:
    total = ""
    path = tmp_path / "gpu02.jsonl"
    with path.open("wb") as stream:
        for number in (1, 2):
            event = module.Event(number, 5.0, change["kind"], change["data"])
            line, total = module._sealed(event, total)
            stream.write(line)
    with pytest.raises(ColdironError, match=r"gpu02\.jsonl:1: this line"):
        read(path)


def test_a_journal_of_a_newer_coldiron(tmp_path: Path) -> None:
    path = tmp_path / "gpu02.jsonl"
    path.write_text(json.dumps({"format": 99, "number": 1, "time": 1.0, "kind": "x", "data": {}}) + "\n")
    with pytest.raises(ColdironError, match="newer coldiron"):
        read(path)


def test_there_is_no_journal_yet(tmp_path: Path) -> None:
    assert read(tmp_path / "gpu02.jsonl") == ()


def failing(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_disk_that_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    with opened(tmp_path) as journal:
        monkeypatch.setattr(module.os, call, failing)
        with pytest.raises(ColdironError, match="the journal cannot be kept: No space left on device"):
            journal.begin(State.DRAIN)
        monkeypatch.undo()
    monkeypatch.setattr(module.os, call, failing)
    with pytest.raises(ColdironError, match="the journal cannot be kept"):
        opened(tmp_path)
    monkeypatch.undo()
    # Neither the lock nor the journal is left behind.
    with opened(tmp_path) as journal:
        assert journal.resume().next is State.DRAIN


def test_a_place_where_no_journal_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ColdironError, match="the journal cannot be kept"):
        opened(tmp_path / "file")
    (tmp_path / "gpu02.jsonl").mkdir()
    with pytest.raises(ColdironError, match="the journal cannot be kept: Is a directory"):
        opened(tmp_path)


def test_a_torn_line_that_cannot_be_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpu02.jsonl").write_bytes(b'{"form')
    monkeypatch.setattr(module.os, "fsync", failing)
    with pytest.raises(ColdironError, match="the journal cannot be kept"):
        opened(tmp_path)


@given(
    st.builds(
        Policy,
        st.sampled_from(Kind),
        st.lists(st.text(max_size=5), max_size=3).map(tuple),
        st.builds(Consent, st.frozensets(st.text(max_size=5)), st.floats(0, 1e11) | st.just(float("inf"))),
        st.booleans(),
    )
)
def test_a_policy_is_read_as_it_was_written(policy: Policy) -> None:
    assert policy_of(json.loads(json.dumps(policy_data(policy)))) == policy


class Node:
    """A node that fails each state so often before it goes well, and then says ``last`` of it, killed or not."""

    def __init__(self, fails: dict[State, int], last: dict[State, Outcome]) -> None:
        self.left = dict(fails)
        self.last = last

    def does(self, state: State) -> Outcome:
        if self.left.get(state, 0):
            self.left[state] -= 1
            return Outcome.FAILED
        return self.last.get(state, Outcome.OK)


def to_the_end(
    folder: Path, policy: Policy, node: Node, kills: list[tuple[int, str]]
) -> tuple[State, list[State]]:
    """Repair until it ends, killed at the n-th point that a kill names: before or after the line of an end."""
    states: list[State] = []
    point, left = 0, list(kills)
    while True:
        journal = opened(folder, policy)
        state = journal.resume().next
        killed = False
        while state not in ENDS and not killed:
            journal.begin(state)
            states.append(state)
            killed = bool(left) and left[0] == (point, "before")
            if not killed:
                state = State(journal.end(state, node.does(state), REASON).data["next"])
                killed = bool(left) and left[0] == (point, "after")
            if killed:
                left.pop(0)
            point += 1
        journal.close()
        # Whatever came to its end has ended: the next one to open the journal would begin another repair.
        if state in ENDS:
            return state, states


@given(
    kind=st.sampled_from(Kind),
    fails=st.dictionaries(st.sampled_from(sorted(TABLE)), st.integers(0, 3), max_size=3),
    last=st.dictionaries(st.sampled_from(sorted(TABLE)), st.sampled_from(Outcome), max_size=2),
    kills=st.lists(
        st.tuples(st.integers(0, 12), st.sampled_from(["before", "after"])), max_size=4, unique=True
    ),
)
@settings(max_examples=80, deadline=None)
def test_a_kill_at_any_point_leads_to_the_same_end(
    tmp_path_factory: pytest.TempPathFactory,
    kind: Kind,
    fails: dict[State, int],
    last: dict[State, Outcome],
    kills: list[tuple[int, str]],
) -> None:
    last = {state: outcome for state, outcome in last.items() if outcome in TABLE[state].to}
    policy = Policy(kind, ("S1",), AGREED.consent)
    plain, _ = to_the_end(tmp_path_factory.mktemp("plain"), policy, Node(fails, last), [])
    ends, states = to_the_end(tmp_path_factory.mktemp("killed"), policy, Node(fails, last), sorted(kills))
    assert ends is plain
    # Never resumed but straight after an acceptance.
    assert all(states[at - 1] is State.ACCEPT for at, state in enumerate(states) if state is State.RESUME)
