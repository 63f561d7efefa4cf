"""The end of a run: who failed where and why, what to do, where the output lies, what to type."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from coldiron.display import print_end
from coldiron.run.state import Outcome, RunState
from tests.unit.display.samples import (
    BEGAN,
    LARGE,
    SMALL,
    begun,
    change,
    end,
    fail,
    finish_stage,
    midway,
)

GO_ON = "coldiron apply -i inventories/hopper --limit gpu02"


def printed(state: RunState, width: int = 80, terminal: bool = False, log: Path | None = None) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, color_system=None)
    print_end(state, console, log=log or Path("inventories/hopper/.coldiron/runs/x/output.log"), go_on=GO_ON)
    return file.getvalue()


def test_a_failed_host_has_all_that_is_needed_to_mend_it() -> None:
    state = midway(SMALL)
    fail(state, "gpu02", "slurmd did not start: no GPU", hint="look at journalctl -u slurmd, then run again")
    state.failures[-1].item = "slurmd.service"
    state.failures[-1].handler = True
    text = printed(end(state, Outcome.FAILED, BEGAN + 130))
    assert "apply hopper: 1 of 7 nodes failed or out of reach, after 2 min 10 s; 45 tasks changed" in text
    assert "✗ gpu02  role slurm_worker  stage scheduler" in text
    assert "handler: Configure | Ensure slurmd is as declared, item slurmd.service" in text
    assert "roles/slurm_worker/tasks/configure.yml:4" in text
    assert "slurmd did not start: no GPU" in text
    assert "hint: look at journalctl -u slurmd, then run again" in text
    assert "output in full   inventories/hopper/.coldiron/runs/x/output.log" in text
    assert f"go on from there {GO_ON}" in text
    assert "slowest" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_slow_tasks_are_cut_on_a_terminal_only(terminal: bool) -> None:
    state = midway(SMALL)
    state.tasks[0].name = "a long name " * 10
    text = printed(end(state, Outcome.OK, BEGAN + 130), terminal=terminal)
    assert ("a long name " * 9 in text) is not terminal


def test_hosts_with_the_same_fault_are_told_of_together() -> None:
    state = midway(LARGE)
    for name in LARGE[20:120]:
        fail(state, name, "no answer over ssh in 20 s", unreachable=True)
    text = printed(end(state, Outcome.UNREACHABLE, BEGAN + 130))
    assert text.count("no answer over ssh") == 1
    assert "! gpu[001-100] (100 nodes)" in text


def test_a_hundred_different_faults_are_cut() -> None:
    state = midway(LARGE)
    for number, name in enumerate(LARGE[100:200]):
        fail(state, name, f"fault {number}")
    text = printed(end(state, Outcome.FAILED, BEGAN + 130))
    assert "and 80 other faults, in the output" in text


def test_what_was_ignored_is_no_failure() -> None:
    state = midway(SMALL)
    fail(state, "gpu02", "not today")
    state.failures[-1].ignored = True
    assert "not today" not in printed(end(state, Outcome.OK, BEGAN + 130))


def test_done() -> None:
    state = begun(SMALL)
    finish_stage(state, "base", BEGAN, BEGAN + 20)
    text = printed(end(state, Outcome.OK, BEGAN + 20))
    assert "apply hopper: done, 7 nodes in 20 s; nothing had to be changed" in text
    assert GO_ON not in text
    state = begun(SMALL, check=True)
    assert "nothing would change" in printed(end(state, Outcome.OK, BEGAN + 20))
    finish_stage(state, "base", BEGAN, BEGAN + 20, changed=2)
    assert "14 tasks would change something on 7 nodes" in printed(end(state, Outcome.OK, BEGAN + 20))


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Outcome.INTERRUPTED, "interrupted in stage scheduler after 2 min 10 s"),
        (Outcome.KILLED, "killed in stage scheduler after 2 min 10 s"),
        (Outcome.REFUSED, "refused; no node was changed"),
        (Outcome.ERROR, "ansible-playbook ended with an error after 2 min 10 s"),
        (Outcome.RUNNING, "still on, for 2 min 10 s now"),
    ],
)
def test_other_ends(outcome: Outcome, says: str) -> None:
    state = end(midway(SMALL), outcome, BEGAN + 130)
    state.stage = "scheduler"
    state.messages = ["[ERROR]: what ansible said"]
    text = printed(state)
    assert says in text
    assert "[ERROR]: what ansible said" in text
    assert GO_ON in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_on_a_terminal_lines_wrap_within_the_width_but_commands_stay_whole(width: int) -> None:
    state = midway(SMALL)
    fail(state, "gpu02", "a sentence that is rather long " * 5, hint="and an advice that is long too " * 5)
    change(state, ["gpu01"], "x")
    text = printed(end(state, Outcome.FAILED, BEGAN + 130), width=width, terminal=True)
    copied = ("output in full", "go on from there")
    assert [line for line in text.splitlines() if len(line) > width and not line.startswith(copied)] == []
    assert GO_ON in text
    # In a file a sentence can be searched for: it stays on one line.
    assert "a sentence that is rather long " * 4 in printed(state, width=width)
