"""Real runs, recorded: drawn, told and summed up event by event, as they were then."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from coldiron.display import print_end
from coldiron.display.frame import frame
from coldiron.display.picture import take
from coldiron.display.plain import PlainView
from coldiron.display.symbols import BAD, UNICODE
from coldiron.display.words import hosts
from coldiron.run.events import read_events
from coldiron.run.reducer import Reducer
from coldiron.run.state import Outcome, RunState

RUNS = sorted((Path(__file__).parents[2] / "data" / "runs").glob("*.jsonl.gz"))
SIZES = [(80, 23), (200, 49), (60, 12)]


def test_there_are_recordings() -> None:
    assert len(RUNS) > 10


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_a_recorded_run(path: Path) -> None:
    log, now = io.StringIO(), 0.0
    view = PlainView(Console(file=log, width=80), clock=lambda: now)
    reducer = Reducer()
    state: RunState = reducer.state
    for number, event in enumerate(read_events(path)):
        reducer.feed(event)
        state, now = reducer.state, event.time
        view.update(state)
        if number % 7 == 0:
            for width, height in SIZES:
                lines = frame(take(state), width, height, now, UNICODE).text.split("\n")
                assert len(lines) <= height
                assert max(map(cell_len, lines)) <= width
    with view:
        pass
    told = log.getvalue()
    last = frame(take(state), 200, 49, now, UNICODE).text
    summary = io.StringIO()
    print_end(state, Console(file=summary, width=80), log=None, go_on="coldiron apply")
    bad = [host.name for host in state.hosts.values() if host.status in BAD]
    for name in bad:
        assert f" {name}: " in told, "each failure has a line at once"
    for status in BAD:
        names = hosts(host.name for host in state.hosts.values() if host.status is status)
        assert names in last or all(name in last for name in bad)
    for failure in state.failures:
        if not failure.ignored:
            assert failure.sentence in summary.getvalue()
            assert failure.path in summary.getvalue()
    for stage in state.stages.values():
        if stage.started is not None:
            assert f" {stage.name}: " in told
        if stage.ended is not None:
            begun, ended = told.index(f" {stage.name}: "), told.index(f" {stage.name}: ended after")
            assert begun < ended
            later = [other for other in state.stages.values() if (other.started or 0) > stage.ended]
            assert all(told.index(f" {other.name}: ") > ended for other in later)
    if state.outcome is Outcome.OK:
        assert "coldiron apply" not in summary.getvalue()
    elif state.outcome is not Outcome.RUNNING:
        assert "go on from there coldiron apply" in summary.getvalue()
