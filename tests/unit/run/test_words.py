"""What is said of runs, to people and as JSON."""

from __future__ import annotations

import json

import pytest

from coldiron.run.state import Outcome
from coldiron.run.store import RunSummary
from coldiron.run.words import (
    change_lines,
    columns,
    compare,
    compare_lines,
    cut,
    header_lines,
    host_lines,
    listed,
    slowest_lines,
    stage_lines,
    state_data,
    status_line,
    taken,
)
from tests.unit.run.samples import NAMES, recorded


@pytest.mark.parametrize("name", NAMES)
def test_every_run_can_be_told(name: str) -> None:
    state = recorded(name)
    json.loads(json.dumps(state_data(state), allow_nan=False))
    lines = [
        *header_lines(state.header), *stage_lines(state), *host_lines(state), *slowest_lines(state),
        *change_lines(state.changes, diffs=True), status_line(state, state.last_event + 90),
        *listed([RunSummary.of(state)]),
    ]  # fmt: skip
    assert all("\n" not in line for line in lines)
    assert not any(line.endswith(" ") for line in columns([["a", ""], ["bb", "c"]]))


def test_how_a_run_stands() -> None:
    state = recorded("killed")
    now = state.last_event
    assert status_line(state, now + 1).startswith("apply on hopper is running since")
    assert "now in base" in status_line(state, now + 1)
    assert "nothing heard for 2 min" in status_line(state, now + 130)
    state.outcome = Outcome.KILLED
    assert "ended killed" in status_line(state, now)
    assert "base: Base | Wait for the package manager" in host_lines(state)[1]


def test_a_failed_host_says_why() -> None:
    (line,) = [line for line in host_lines(recorded("failed")) if line.startswith("gpu01")]
    assert line.split()[:5] == ["gpu01", "failed", "2", "1", "1"]
    assert "time: time_servers has no server that answers" in line
    assert any("4 changed, 1 failed" in line for line in stage_lines(recorded("failed")))


def test_changes_with_and_without_their_diffs() -> None:
    state = recorded("check")
    brief = change_lines(state.changes, diffs=False)
    assert "  time: /etc/nodes/gpu01.chrony" in brief
    assert not any("iburst" in line for line in brief)
    assert "    +server head01 iburst" in change_lines(state.changes, diffs=True)


def test_the_difference_of_two_runs() -> None:
    one, other = recorded("failed"), recorded("unreachable")
    other.header.revision = "0" * 12
    other.header.versions["coldiron"] = "0.2.0"
    found = compare(one, other)
    assert found["outcome"] == ["failed", "unreachable"]
    assert found["header"] == {"revision": ["3b31c8306c1f", "0" * 12]}
    assert found["versions"] == {"coldiron": ["0.1.0", "0.2.0"]}
    assert found["hosts"] == {"gpu01": ["failed", "changed"], "gpu02": ["changed", "unreachable"]}
    assert found["failed"][0][0].startswith("gpu01: time: ")
    assert found["failed"][1][0].startswith("gpu02: base: ")
    lines = compare_lines(found)
    assert "gpu01       failed  ->  changed" in lines
    assert any(line.startswith("changed only in the second: gpu01: ") for line in lines)
    json.dumps(found)
    same = compare(one, one)
    assert not any(
        (same["header"], same["versions"], same["hosts"], same["diffs"], *same["failed"], *same["changed"])
    )


def test_what_changed_in_another_way() -> None:
    one, other = recorded("check"), recorded("check")
    change = other.changes[0]
    change.diff += "\n+more"
    assert compare(one, other)["diffs"] == [f"{change.host}: {change.what}"]
    assert any(line.startswith("changed in another way: ") for line in compare_lines(compare(one, other)))


def test_small_words() -> None:
    assert cut("a" * 60) == "a" * 43 + "…"
    assert (taken(0.0, 5.0), taken(5.0, None), taken(5.0, 10.0), taken(5.0, 200.0)) == (
        "-",
        "-",
        "5 s",
        "3 min 15 s",
    )
    assert columns([]) == []
