"""A run before a person's eyes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from coldiron.run.events import read_events
from coldiron.run.reducer import Reducer
from coldiron.run.store import Runs
from coldiron.run.watch import Shown, past_states
from tests.unit.run.samples import keep, recorded, recording

NOW = 1795280000.0


def store(folder: Path, *names: str) -> Runs:
    runs = Runs(folder)
    for place, name in enumerate(names):
        keep(runs, NOW + place, name)
    return runs


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_is_shown(tmp_path: Path, terminal: bool) -> None:
    runs = store(tmp_path, "ok", "failed")
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, height=40)
    watcher = Shown(console, tmp_path)
    reducer = Reducer()
    events = iter(read_events(recording("failed")))
    reducer.feed(next(events))
    watcher.begin(reducer.state, runs.open("last"))
    watcher.say("[one] line")
    for event in events:
        reducer.feed(event)
        watcher.update(reducer.state)
    watcher.output("not for this view")
    watcher.end()
    watcher.end()
    text = out.getvalue()
    assert "[one] line" in text
    assert "gpu01" in text
    assert "not for this view" not in text


def test_ansible_speaks_for_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = store(tmp_path, "ok")
    watcher = Shown(Console(file=io.StringIO()), tmp_path, verbose=True)
    watcher.begin(recorded("ok"), runs.open("last"))
    watcher.update(recorded("ok"))
    watcher.output("TASK [x]")
    watcher.end()
    assert capsys.readouterr().out == "TASK [x]\n"


def test_which_runs_tell_how_long_it_takes(tmp_path: Path) -> None:
    runs = store(tmp_path, "ok", "check", "failed", "ok", "ok", "ok", "no-change")
    state = recorded("ok")
    found = past_states(runs, state, runs.open("last"))
    # What is recorded names itself, so all are of one id here; failed and --check runs tell nothing.
    assert all(one.header.check is False for one in found)
    assert len(found) <= 3
