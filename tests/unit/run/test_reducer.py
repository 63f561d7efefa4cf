"""From recorded runs to what is known of them; and no file, however broken, is too much."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldiron.run.events import END, START, STOP, Event, read_events
from coldiron.run.reducer import Reducer, header_from, reduce
from coldiron.run.state import CellStatus, Header, Outcome
from tests.unit.run.samples import NAMES, recorded, recording

OUTCOMES = {
    "always": (Outcome.FAILED, 1),
    "check": (Outcome.OK, 0),
    "failed": (Outcome.FAILED, 1),
    "handler": (Outcome.FAILED, 1),
    "hidden": (Outcome.OK, 0),
    "ignored": (Outcome.OK, 0),
    "interrupted": (Outcome.INTERRUPTED, 4),
    "killed": (Outcome.RUNNING, None),
    "loop": (Outcome.FAILED, 1),
    "many": (Outcome.UNREACHABLE, 1),
    "no-change": (Outcome.OK, 0),
    "ok": (Outcome.OK, 0),
    "rescue": (Outcome.OK, 0),
    "unreachable": (Outcome.UNREACHABLE, 1),
    "wrong": (Outcome.ERROR, 5),
}


def test_every_recording_is_expected_to_end_somehow() -> None:
    assert sorted(OUTCOMES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_outcome_and_counts(name: str) -> None:
    state = recorded(name)
    assert (state.outcome, state.exit_code) == OUTCOMES[name]
    assert list(state.stages) == ["check", "base", "storage", "scheduler"]
    assert list(state.hosts)[:2] == ["head01", "storage01"]
    stats = next(
        (event.data for event in read_events(recording(name)) if event.kind == "playbook_on_stats"), None
    )
    if stats is None:
        assert name in ("killed", "interrupted", "wrong")
        return
    for host in state.hosts.values():
        counts = host.counts
        # Ansible's own recap counts a changed task as an ok one too.
        assert counts.ok + counts.changed == stats["ok"].get(host.name, 0), host.name
        assert counts.changed == stats["changed"].get(host.name, 0)
        assert counts.failed == stats["failures"].get(host.name, 0)
        assert counts.unreachable == stats["dark"].get(host.name, 0)
        assert counts.rescued == stats["rescued"].get(host.name, 0)
        assert counts.ignored == stats["ignored"].get(host.name, 0)
        assert counts.skipped == stats["skipped"].get(host.name, 0)
        by_cell = [cell.counts for cell in host.cells.values()]
        assert sum(cell.ok for cell in by_cell) == counts.ok
        assert sum(cell.changed for cell in by_cell) == counts.changed


def test_a_host_out_of_reach() -> None:
    state = recorded("unreachable")
    host = state.hosts["gpu02"]
    assert host.status is CellStatus.UNREACHABLE
    assert {name: cell.status.value for name, cell in host.cells.items()} == {
        "check": "ok",
        "base": "unreachable",
        "storage": "waiting",
        "scheduler": "waiting",
    }
    (failure,) = state.failures
    assert (failure.host, failure.stage, failure.role, failure.unreachable) == ("gpu02", "base", "base", True)
    assert failure.sentence == "ssh: connect to host 127.0.0.1 port 1: Connection refused"
    assert "sshd" in failure.hint
    assert failure.path == "roles/base/tasks/main.yml:1"
    assert "scheduler" not in state.hosts["storage01"].cells


def test_a_failed_item_of_a_loop() -> None:
    (failure,) = recorded("loop").failures
    assert failure.item == "/scratch"
    assert failure.sentence == "`test /scratch != /scratch` ended with 1"


def test_a_stage_that_was_given_up() -> None:
    state = recorded("loop")
    # All servers failed, so Ansible gave up: the clients' play of the stage never came.
    assert state.hosts["gpu01"].cells["storage"].status is CellStatus.WAITING
    assert state.hosts["gpu01"].status is CellStatus.CHANGED


def test_a_rescue_is_no_failure() -> None:
    state = recorded("rescue")
    (failure,) = state.failures
    assert failure.ignored
    assert state.hosts["gpu02"].counts.rescued == 1
    assert state.hosts["gpu02"].status is CellStatus.CHANGED


def test_what_runs_always_rescues_nothing() -> None:
    state = recorded("always")
    (failure,) = state.failures
    assert not failure.ignored
    assert state.hosts["gpu02"].status is CellStatus.FAILED
    assert state.hosts["gpu02"].cells["scheduler"].status is CellStatus.FAILED


def test_an_ignored_failure() -> None:
    state = recorded("ignored")
    assert {failure.ignored for failure in state.failures} == {True}
    assert state.hosts["gpu01"].counts.ignored == 1


def test_a_failed_handler() -> None:
    (failure,) = recorded("handler").failures
    assert failure.handler
    assert failure.task == "Restart chrony"


def test_what_is_hidden_stays_hidden() -> None:
    state = recorded("hidden")
    assert b"hunter2" not in gzip.decompress(recording("hidden").read_bytes())
    assert any(change.what == "Base | Set the password" and not change.diff for change in state.changes)


def test_changes_say_how() -> None:
    change = next(one for one in recorded("check").changes if one.role == "time" and one.host == "gpu01")
    assert change.what == "/etc/nodes/gpu01.chrony"
    assert "+server head01 iburst" in change.diff.splitlines()
    assert [one.what for one in recorded("ok").changes if one.host == "gpu03" and one.role == "nfs"] == [
        "/etc/nodes/gpu03.home",
        "/etc/nodes/gpu03.scratch",
    ]
    assert not recorded("no-change").changes


def test_where_a_run_was_cut_off() -> None:
    for name in ("killed", "interrupted"):
        state = recorded(name)
        assert state.stage == "base"
        running = state.hosts["gpu03"].running
        assert running is not None
        assert running.task == "Base | Wait for the package manager"
        assert state.hosts["gpu03"].cells["base"].status is CellStatus.RUNNING
    assert recorded("interrupted").stopping
    assert not recorded("interrupted").messages


def test_what_ansible_says_of_a_wrong_playbook() -> None:
    assert recorded("wrong").messages == ["'taks' is not a valid attribute for a Play"]


def test_many_hosts() -> None:
    state = recorded("many")
    assert len(state.hosts) == 64
    assert {host.group for host in state.hosts.values()} == {"head", "storage", "gpu"}
    assert state.count(CellStatus.UNREACHABLE) == 2
    assert state.hosts["gpu33"].counts.rescued == 1
    timing = next(task for task in state.tasks if task.name == "Base | Settle")
    assert timing.hosts == 62
    assert timing.slowest_seconds <= timing.seconds


def test_task_times_lie_within_the_run() -> None:
    state = recorded("ok")
    assert state.ended is not None
    for task in state.tasks:
        assert task.ended is not None
        assert state.header.started <= task.started <= task.ended <= state.ended
    assert [task.path for task in state.tasks][:2] == ["site.yml:5", "roles/base/tasks/main.yml:1"]


def test_without_a_header_each_play_is_a_stage() -> None:
    events = [event for event in read_events(recording("ok")) if event.kind != START]
    state = reduce(events)
    assert list(state.stages) == [
        "Look before touching anything", "Base", "Storage servers", "Storage clients", "Controller", "Workers",
    ]  # fmt: skip


def test_the_controllers_own_tasks_are_no_host() -> None:
    header = Header("i", "apply", [], "", 0.0, "", "", 0, "", "", [], ["check"], ["n1"])
    reducer = Reducer(header)
    play = {"play": "P", "task": "T", "task_uuid": "u", "host": "localhost", "result": {"msg": "no cluster"}}
    reducer.feed(Event(1, 1.0, "runner_on_ok", play))
    assert list(reducer.state.hosts) == ["n1"]
    reducer.feed(Event(2, 2.0, "runner_on_failed", play))
    assert list(reducer.state.hosts) == ["n1", "localhost"]
    assert reducer.state.failures[0].sentence == "no cluster"


def test_converge_says_what_it_changed() -> None:
    result = {
        "changed": True,
        "paths": ["/etc/chrony/chrony.conf"],
        "packages": ["chrony"],
        "users": [],
        "sysctl": ["vm.swappiness"],
        "units": {"restarted": ["chrony.service"], "enabled": []},
        "diffs": [{"what": "/etc/chrony/chrony.conf", "diff": "+x"}],
    }
    data = {"task": "T", "task_uuid": "u", "role": "coldiron.cluster.time", "host": "n1", "result": result}
    state = reduce([Event(1, 1.0, "runner_on_ok", data)])
    assert {change.what: change.diff for change in state.changes} == {
        "/etc/chrony/chrony.conf": "+x",
        "package chrony": "",
        "sysctl vm.swappiness": "",
        "unit chrony.service restarted": "",
    }
    assert state.changes[0].role == "time"


def test_warnings_and_messages() -> None:
    said = [
        Event(1, 1.0, "warning", {"text": "[WARNING]: odd\nthing"}),
        Event(2, 1.0, "warning", {"text": "[WARNING]: odd thing"}),
        Event(3, 1.0, "deprecated", {"text": "[DEPRECATION WARNING]: old"}),
        Event(4, 1.0, "error", {"text": "[ERROR]: broken"}),
        Event(5, 2.0, STOP, {}),
        Event(6, 2.0, "error", {"text": "[ERROR]: User interrupted execution"}),
        Event(7, 3.0, END, {"outcome": "error", "message": "and more"}),
        Event(8, 4.0, END, {"outcome": "ok"}),
    ]
    state = reduce(said)
    assert state.warnings == ["odd thing", "old"]
    assert state.messages == ["broken", "and more"]
    assert (state.outcome, state.ended) == (Outcome.ERROR, 3.0)


def test_an_unknown_end_is_an_error() -> None:
    assert reduce([Event(1, 1.0, END, {"outcome": "splendid"})]).outcome is Outcome.ERROR


@pytest.mark.parametrize("name", NAMES)
def test_every_beginning_of_a_run_is_a_state(name: str) -> None:
    reducer = Reducer()
    for event in read_events(recording(name)):
        reducer.feed(event)
        for host in reducer.state.hosts.values():
            assert min(vars(host.counts).values()) >= 0
            json.dumps([cell.status for cell in host.cells.values()])


def test_a_truncated_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = gzip.decompress(recording("rescue").read_bytes())
    path = tmp_path / "events.jsonl"
    for length in range(0, len(text), 977):
        path.write_bytes(text[:length])
        events = read_events(path)
        state = reduce(events)
        assert events.damaged <= 1
        assert state.outcome is Outcome.RUNNING


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "play", "task", "task_uuid", "role", "host", "result", "start", "end", "header", "plays", "takes_part",
    "failures", "outcome", "exit_code", "text", "handler", "ignored",
)  # fmt: skip
KINDS = (*Reducer._KINDS, "something_new")
EVENTS = st.builds(
    Event,
    st.integers(0, 99),
    st.floats(0, 1e10),
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=12))
def test_any_events_are_survived(events: list[Event]) -> None:
    state = reduce(events)
    assert state.events == len(events)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_recording_with_foreign_values_is_survived(data: st.DataObject) -> None:
    events = list(read_events(recording("rescue")))
    for place in data.draw(st.lists(st.integers(0, len(events) - 1), max_size=8)):
        event = events[place]
        key = data.draw(st.sampled_from(sorted({*event.data, "result"})))
        events[place] = Event(event.number, event.time, event.kind, {**event.data, key: data.draw(JSON)})
    reduce(events)


def test_a_header_of_any_shape() -> None:
    odd: dict[str, Any] = {
        "id": 3,
        "hosts": ["a", 1],
        "check": "yes",
        "started": 4,
        "pid": True,
        "versions": {"a": 1},
    }
    header = header_from(odd)
    assert (header.id, header.hosts, header.check, header.started, header.pid) == (
        "",
        ["a", "1"],
        False,
        4,
        0,
    )
    assert header.versions == {"a": "1"}
    assert header_from([]).verb == ""
