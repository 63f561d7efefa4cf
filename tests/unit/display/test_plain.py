"""The view for logs: which lines are said, in which order, and that nothing moves."""

from __future__ import annotations

import io
import re

from rich.console import Console

from coldiron.display.plain import HEARTBEAT_SECONDS, PlainView
from coldiron.run.state import CellStatus, Outcome
from tests.unit.display.samples import (
    BEGAN,
    LARGE,
    SMALL,
    begun,
    change,
    end,
    end_task,
    fail,
    finish_stage,
    midway,
    settle,
    start_stage,
)


class Log:
    """A plain view on a file, with a clock that stands where it is put."""

    def __init__(self, verbose: bool = False) -> None:
        self.now = BEGAN
        self.file = io.StringIO()
        console = Console(file=self.file, width=80)
        self.view = PlainView(console, verbose=verbose, clock=lambda: self.now)

    @property
    def lines(self) -> list[str]:
        text = self.file.getvalue()
        assert "\x1b" not in text
        assert "\r" not in text
        found = text.splitlines()
        assert all(re.match(r"\d\d:\d\d:\d\d \S", line) for line in found)
        return [line[9:] for line in found]


def test_stages_changes_and_failures_each_have_a_line() -> None:
    log = Log()
    state = begun(SMALL)
    with log.view as view:
        view.update(state)
        start_stage(state, "base", BEGAN + 1, "time", "Configure | Ensure the clock is right")
        view.update(state)
        settle(state, SMALL[:2])
        change(state, SMALL[:2], "/etc/chrony/chrony.conf")
        view.update(state)
        fail(state, "gpu02", "chronyd did not start", hint="look at its log")
        view.update(state)
        end_task(state, BEGAN + 13)
        start_stage(state, "base", BEGAN + 14, "users", "Configure | Nothing to do")
        view.update(state)
        end_task(state, BEGAN + 15)
        finish_stage(state, "base", BEGAN + 1, BEGAN + 16, changed=1)
        view.update(state)
        view.update(end(state, Outcome.FAILED, BEGAN + 17))
    assert log.lines == [
        "base: 7 nodes",
        "FAILED gpu02: time: Configure | Ensure the clock is right (roles/time/tasks/configure.yml:4): "
        "chronyd did not start",
        "base: time: Configure | Ensure the clock is right: changed head01,login01, failed on 1 node (12 s)",
        "base: ended after 15 s, nodes: 1 failed, 6 changed",
    ]


def test_lines_are_never_broken() -> None:
    log = Log()
    state = midway(LARGE)
    change(state, LARGE[::3], "x")
    log.view.update(end(state, Outcome.OK, BEGAN + 99))
    assert any(len(line) > 200 for line in log.lines)


def test_verbose_tells_every_task() -> None:
    log = Log(verbose=True)
    state = begun(SMALL)
    start_stage(state, "base", BEGAN + 1, "time", "Look")
    settle(state, SMALL, CellStatus.OK)
    log.view.update(state)
    end_task(state, BEGAN + 2)
    finish_stage(state, "base", BEGAN + 1, BEGAN + 2)
    log.view.update(state)
    assert "base: time: Look: ok on 7 nodes (1.0 s)" in log.lines
    assert log.lines[-1] == "base: ended after 1.0 s, nodes: 7 ok"


def test_the_last_task_of_a_run_is_told_at_its_end() -> None:
    log = Log()
    state = begun(SMALL)
    with log.view as view:
        start_stage(state, "base", BEGAN + 1, "time", "Change")
        change(state, ["gpu01"], "x")
        view.update(state)
        assert not any("Change" in line for line in log.lines)
    assert log.lines[-1].startswith("base: time: Change: changed gpu01")


def test_ignored_failures_and_unreachable_nodes() -> None:
    log = Log()
    state = begun(SMALL)
    start_stage(state, "base", BEGAN + 1, "time", "Try")
    fail(state, "gpu01", "no answer over ssh", unreachable=True)
    fail(state, "gpu02", "not today")
    state.failures[-1].ignored = True
    state.warnings.append("the plug-in is\nold")
    log.view.update(state)
    assert "UNREACHABLE gpu01: no answer over ssh" in log.lines
    assert any(line.startswith("failed, and the run goes on: gpu02: time: Try") for line in log.lines)
    assert "warning: the plug-in is old" in log.lines


def test_a_heartbeat_only_after_long_silence() -> None:
    log = Log()
    log.view.beat()
    assert log.lines == []
    log.now += HEARTBEAT_SECONDS
    log.view.beat()
    assert log.lines == ["still reading the inventory"]
    state = midway(SMALL)
    log.view.update(state)
    said = len(log.lines)
    log.now += HEARTBEAT_SECONDS - 1
    log.view.beat()
    assert len(log.lines) == said
    log.now += 65
    log.view.beat()
    assert re.fullmatch(
        r"scheduler: cpu01,gpu\[01-03\] for .* at slurm_worker: Configure \| Ensure slurmd is as declared",
        log.lines[-1],
    )
    settle(state, SMALL)
    log.now += 31
    log.view.beat()
    assert log.lines[-1] == "scheduler: still on, between two tasks"
    end(state, Outcome.OK, BEGAN + 200)
    log.now += 31
    said = len(log.lines)
    log.view.beat()
    assert len(log.lines) == said
