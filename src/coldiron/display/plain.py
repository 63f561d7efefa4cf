"""The view for pipes, files and CI: one line, with its time, for all that is worth one; nothing moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console

from coldiron.display.words import hosts, one_line, span
from coldiron.run.state import CellStatus, Failure, RunState, Stage, TaskTiming
from coldiron.text import counted

# Seconds without a line after which one says that the run is still on.
HEARTBEAT_SECONDS = 30.0


class PlainView:
    """Tells stages as they begin and end, tasks that changed something, and failures at once.

    ``verbose`` tells every task. ``clock`` gives seconds since the epoch. Lines are as long as they must be.
    """

    def __init__(
        self, console: Console, *, verbose: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self._console = console
        self._verbose = verbose
        self._clock = clock
        self._lock = threading.Lock()
        self._state: RunState | None = None
        self._said = clock()
        self._began: set[str] = set()
        self._ended: set[str] = set()
        self._open: list[TaskTiming] = []
        self._tasks = 0
        self._changes = 0
        self._changed: dict[tuple[str, str, str], dict[str, None]] = {}
        self._failures = 0
        self._warnings = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="coldiron-plain-view", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._state is not None:
            with self._lock:
                self._tell(self._state, last=True)

    def update(self, state: RunState) -> None:
        """Print what is new in ``state``."""
        with self._lock:
            self._state = state
            self._tell(state, last=state.finished)

    def beat(self) -> None:
        """Say that the run is still on, if nothing was said for long."""
        with self._lock:
            state, now = self._state, self._clock()
            if now - self._said < HEARTBEAT_SECONDS or (state is not None and state.finished):
                return
            if state is None or not state.stage:
                self._say(now, "still reading the inventory")
                return
            running = [host.running for host in list(state.hosts.values()) if host.running is not None]
            if not running:
                self._say(now, f"{state.stage}: still on, between two tasks")
                return
            oldest = min(running, key=lambda one: one.started)
            names = [one.host for one in running if (one.role, one.task) == (oldest.role, oldest.task)]
            what = _task(oldest.role, oldest.task)
            self._say(now, f"{state.stage}: {hosts(names)} for {span(now - oldest.started)} at {what}")

    def _beat_on(self) -> None:
        while not self._stop.wait(1.0):
            self.beat()

    def _tell(self, state: RunState, last: bool) -> None:
        while self._warnings < len(state.warnings):
            self._say(state.last_event, f"warning: {one_line(state.warnings[self._warnings])}")
            self._warnings += 1
        self._tell_changes(state)
        self._tell_failures(state)
        for stage in state.stages.values():
            if stage.ended is not None and stage.name not in self._ended:
                self._ended.add(stage.name)
                self._tell_beginning(stage, state)
                # What the stage has left to tell comes before its end, and its end before the next one.
                self._tell_tasks(state, of_stage=stage.name)
                self._say(stage.ended, _stage_end(stage, state))
        for stage in state.stages.values():
            if stage.started is not None:
                self._tell_beginning(stage, state)
        self._tell_tasks(state, all_of_them=last)

    def _tell_beginning(self, stage: Stage, state: RunState) -> None:
        if stage.name in self._began or stage.started is None:
            return
        self._began.add(stage.name)
        taking_part = sum(stage.name in host.cells for host in state.hosts.values())
        self._say(stage.started, f"{stage.name}: {counted(taking_part, 'node') if taking_part else 'begins'}")

    def _tell_changes(self, state: RunState) -> None:
        while self._changes < len(state.changes):
            change = state.changes[self._changes]
            self._changed.setdefault((change.stage, change.role, change.task), {})[change.host] = None
            self._changes += 1

    def _tell_failures(self, state: RunState) -> None:
        while self._failures < len(state.failures):
            self._say(state.last_event, _failure(state.failures[self._failures]))
            self._failures += 1

    def _tell_tasks(self, state: RunState, of_stage: str = "", all_of_them: bool = False) -> None:
        """Tell the tasks that are over: those after which another one has begun, those of a stage, or all."""
        self._open += state.tasks[self._tasks :]
        self._tasks += len(state.tasks) - self._tasks
        done = self._open if all_of_them else self._open[:-1]
        if of_stage:
            done = [task for task in self._open if task.stage == of_stage]
        for task in done:
            if task.changed or task.failed or (self._verbose and task.hosts):
                self._say(task.ended or state.last_event, self._task_end(task))
        told = {id(task) for task in done}
        self._open = [task for task in self._open if id(task) not in told]

    def _task_end(self, task: TaskTiming) -> str:
        parts = []
        if task.changed:
            names = self._changed.pop((task.stage, task.role, task.name), {})
            parts.append(f"changed {hosts(names)}" if names else f"changed {counted(task.changed, 'node')}")
        if task.failed:
            parts.append(f"failed on {counted(task.failed, 'node')}")
        if not parts:
            parts.append(f"ok on {counted(task.hosts, 'node')}")
        return f"{task.stage}: {_task(task.role, task.name)}: {', '.join(parts)} ({span(task.seconds)})"

    def _say(self, when: float, text: str) -> None:
        self._said = self._clock()
        stamp = time.strftime("%H:%M:%S", time.localtime(when or self._said))
        self._console.print(f"{stamp} {text}", highlight=False, markup=False, emoji=False, soft_wrap=True)


def _task(role: str, task: str) -> str:
    return f"{role}: {one_line(task)}" if role else one_line(task)


def _failure(failure: Failure) -> str:
    if failure.unreachable:
        return f"UNREACHABLE {failure.host}: {one_line(failure.sentence)}"
    word = "failed, and the run goes on:" if failure.ignored else "FAILED"
    where = f" ({failure.path})" if failure.path else ""
    return f"{word} {failure.host}: {_task(failure.role, failure.task)}{where}: {one_line(failure.sentence)}"


def _stage_end(stage: Stage, state: RunState) -> str:
    numbers: dict[CellStatus, int] = {}
    for host in state.hosts.values():
        if cell := host.cells.get(stage.name):
            numbers[cell.status] = numbers.get(cell.status, 0) + 1
    words = [
        f"{numbers[status]} {word}"
        for status, word in (
            (CellStatus.FAILED, "failed"),
            (CellStatus.UNREACHABLE, "unreachable"),
            (CellStatus.CHANGED, "changed"),
            (CellStatus.OK, "ok"),
            (CellStatus.SKIPPED, "with nothing to do"),
        )
        if numbers.get(status)
    ]
    took = f"ended after {span(stage.seconds)}" if stage.seconds is not None else "ended"
    return f"{stage.name}: {took}" + (f", nodes: {', '.join(words)}" if words else "")
