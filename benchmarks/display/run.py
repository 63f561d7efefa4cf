"""What the live view costs: a run of many nodes replayed in real time, with the view and without.

    python benchmarks/display/run.py --nodes 500 --seconds 20

A thread changes a RunState as the events of a busy run would, at a steady rate, and tells the view of each one,
as `coldiron apply` does. The view draws on a terminal of the size given (a file stands in for it). Told is
processor time over wall time: of the thread that draws, and of the calls that tell it of events. Nothing is
asserted here.
"""

from __future__ import annotations

import argparse
import io
import json
import threading
import time

from rich.console import Console

from coldiron.display.estimate import from_states
from coldiron.display.live import FRAMES_PER_SECOND, LiveView
from coldiron.run.state import (
    Cell,
    CellStatus,
    Failure,
    Header,
    Host,
    Outcome,
    Running,
    RunState,
    Stage,
    TaskTiming,
)

STAGES = ("validate", "base", "fabric", "gpu", "storage", "containers", "scheduler", "monitoring")
TASKS_A_STAGE = 8


def begun(nodes: int) -> RunState:
    """A run that is about to begin."""
    names = ["head01", "head02", "login01", "storage01", *(f"gpu{n:04}" for n in range(1, nodes - 3))]
    now = time.time()
    header = Header("x", "apply", [], "", now, "", "", 0, "hopper", "", [], list(STAGES), names)
    hosts = {
        name: Host(name, name.rstrip("0123456789"), {stage: Cell() for stage in STAGES}) for name in names
    }
    return RunState(header, hosts=hosts, stages={name: Stage(name) for name in STAGES})


class Replay:
    """The events of a run, two a node and task, spread evenly over ``seconds``."""

    def __init__(self, state: RunState, seconds: float) -> None:
        self.state = state
        self.events = len(state.hosts) * len(STAGES) * TASKS_A_STAGE * 2
        self.seconds = seconds

    def play(self, view: LiveView | None) -> float:
        """Play them all; returns the processor seconds that telling the view has taken."""
        state, told, done, began = self.state, 0.0, 0, time.monotonic()
        for stage in STAGES:
            state.stage = stage
            state.stages[stage].started = time.time()
            for number in range(TASKS_A_STAGE):
                task = TaskTiming(
                    f"{stage}{number}", stage, stage, "role", f"Step {number}", "x:1", time.time()
                )
                state.tasks.append(task)
                for phase in (self._begin, self._end):
                    for place, host in enumerate(state.hosts.values()):
                        phase(host, task, place)
                        state.events += 1
                        done += 1
                        if view is not None:
                            before = time.thread_time()
                            view.update(state)
                            told += time.thread_time() - before
                        if done % 64 == 0:
                            ahead = done / self.events * self.seconds - (time.monotonic() - began)
                            if ahead > 0:
                                time.sleep(ahead)
                task.ended = time.time()
            state.stages[stage].ended = time.time()
        state.outcome, state.ended = Outcome.OK, time.time()
        return told

    @staticmethod
    def _begin(host: Host, task: TaskTiming, place: int) -> None:
        cell = host.cells[task.stage]
        host.status = cell.status = CellStatus.RUNNING
        cell.started = cell.started or time.time()
        host.running = Running(host.name, task.stage, task.role, task.name, task.path, time.time())

    def _end(self, host: Host, task: TaskTiming, place: int) -> None:
        cell = host.cells[task.stage]
        host.running = None
        task.hosts += 1
        if place % 100 == 99:
            host.status = cell.status = CellStatus.FAILED
            if task.stage == "base" and task.name == "Step 0":
                self.state.failures.append(
                    Failure(host.name, task.stage, task.role, task.name, task.path, f"fault {place % 3}")
                )
            return
        changed = place % 3 == 0
        host.status = cell.status = CellStatus.CHANGED if changed else CellStatus.OK
        for counts in (cell.counts, host.counts):
            counts.changed += changed
            counts.ok += not changed


def thread_seconds(thread: threading.Thread) -> float:
    """Processor seconds of a thread that is alive."""
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def measure(nodes: int, seconds: float, width: int, height: int) -> dict[str, float | int]:
    """Replay once without the view, once with it."""
    earlier = begun(nodes)
    before = time.process_time()
    Replay(earlier, seconds).play(None)
    without = time.process_time() - before

    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, color_system="256", width=width, height=height)
    state = begun(nodes)
    replay = Replay(state, seconds)
    view = LiveView(console, estimate=from_states([earlier] * 5))
    before, began = time.process_time(), time.monotonic()
    with view:
        told = replay.play(view)
        wall = time.monotonic() - began
        (thread,) = [one for one in threading.enumerate() if one.name == "coldiron-live-view"]
        drawing = thread_seconds(thread)
    whole = time.process_time() - before
    return {
        "nodes": nodes,
        "columns": width,
        "lines": height,
        "wall_seconds": round(wall, 2),
        "events_per_second": round(replay.events / wall),
        "frames": int(wall * FRAMES_PER_SECOND),
        "drawing_percent_of_a_core": round(100 * drawing / wall, 2),
        "telling_percent_of_a_core": round(100 * told / wall, 2),
        "view_percent_of_a_core": round(100 * (drawing + told) / wall, 2),
        "process_difference_percent_of_a_core": round(100 * (whole - without) / wall, 2),
        "bytes_per_frame": round(len(terminal.getvalue()) / max(1, wall * FRAMES_PER_SECOND)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--size", default="200x50", help="columns x lines of the terminal")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    width, height = (int(number) for number in given.size.split("x"))
    figures = measure(given.nodes, given.seconds, width, height)
    if given.json:
        print(json.dumps(figures, indent=2))
        return
    for name, figure in figures.items():
        print(f"{name.replace('_', ' '):<40} {figure:>10}")


if __name__ == "__main__":
    main()
