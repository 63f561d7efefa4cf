"""``run_recorded``: what a run's end means to the verb that asked for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from coldiron.run import session
from coldiron.run.cli import run_recorded
from coldiron.run.state import CellStatus, Header, Host, Outcome, RunState


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunState:
    """The end of every run in this test: gpu03 was out of reach, head01 came through."""
    facts: dict[str, Any] = {"plain": "", "started": 0.0, "user": "root", "machine": "here", "pid": 1}
    header = Header(
        id="one", verb="node remove", command=["coldiron"], cluster="lab", inventory="", playbooks=[], **facts
    )
    state = RunState(header, outcome=Outcome.UNREACHABLE, ended=1.0)
    state.hosts = {
        "head01": Host("head01", status=CellStatus.OK),
        "gpu03": Host("gpu03", status=CellStatus.UNREACHABLE),
    }
    stored = SimpleNamespace(log=tmp_path / "output.log")
    monkeypatch.setattr(session, "run", lambda _request, _watcher: (state, stored))
    return state


def remove(tmp_path: Path, *dead: str) -> RunState:
    return run_recorded(
        "node remove", tmp_path, ["coldiron.cluster.node_remove"], limit=["gpu03"], may_be_dead=dead
    )


def test_a_host_that_may_be_dead_is_no_failure(ended: RunState, tmp_path: Path) -> None:
    assert remove(tmp_path, "gpu03", "gpu04") is ended


@pytest.mark.parametrize("dead", [(), ("gpu04",)])
def test_another_host_out_of_reach_is_one(ended: RunState, tmp_path: Path, dead: tuple[str, ...]) -> None:
    with pytest.raises(typer.Exit) as stopped:
        remove(tmp_path, *dead)
    assert stopped.value.exit_code == 1


def test_a_failed_host_is_one_whoever_is_dead(ended: RunState, tmp_path: Path) -> None:
    ended.outcome = Outcome.FAILED
    with pytest.raises(typer.Exit):
        remove(tmp_path, "gpu03", "head01")
