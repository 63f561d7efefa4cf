"""``coldiron node``: what it runs, what it asks and what it says; the playbooks themselves are run elsewhere."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from coldiron.errors import ColdironError
from coldiron.node.cli import app
from coldiron.run.state import CellStatus, Header, Host, RunState
from tests.unit.node.samples import CLUSTER

HEADER: dict[str, Any] = {
    "id": "one", "verb": "node remove", "command": [], "plain": "", "started": 0.0, "user": "root",
    "machine": "here", "pid": 1, "cluster": "virtual", "inventory": "", "playbooks": [],
}  # fmt: skip


@dataclass
class Runs:
    """The recorded runs that were asked for; each ends with ``code``."""

    code: int = 0
    state: RunState = field(default_factory=lambda: RunState(Header(**HEADER)))
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, verb: str, inventory: Path, playbooks: list[str], **more: Any) -> RunState:
        kept = {name: more[name] for name in ("limit", "extravars", "check", "diff")}
        self.calls.append({"verb": verb, "playbooks": playbooks, **kept})
        if self.code:
            raise typer.Exit(self.code)
        self.may_be_dead = more.get("may_be_dead", ())
        return self.state


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    recorded = Runs()
    monkeypatch.setattr("coldiron.node.cli.run_recorded", recorded)
    return recorded


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    (tmp_path / "cluster.yml").write_text(CLUSTER)
    return str(tmp_path)


def run(*arguments: str, typed: str | None = None) -> str:
    result = CliRunner().invoke(app, [*arguments], input=typed)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_add(runs: Runs, inventory: str) -> None:
    output = run("add", "gpu[02-03]", "-i", inventory)
    assert runs.calls == [
        {
            "verb": "node add",
            "playbooks": ["coldiron.cluster.node_add"],
            "limit": ["gpu02", "gpu03", "dns_server", "slurm_controller"],
            "extravars": {"coldiron_nodes": ["gpu02", "gpu03"]},
            "check": False,
            "diff": False,
        }
    ]
    assert output == "gpu02, gpu03: in the cluster virtual\n"


def test_add_can_only_look(runs: Runs, inventory: str) -> None:
    output = run("add", "gpu03", "-i", inventory, "--check", "--diff")
    assert runs.calls[0]["check"]
    assert runs.calls[0]["diff"]
    assert output == ""


def test_an_unknown_node_runs_nothing(runs: Runs, inventory: str) -> None:
    with pytest.raises(ColdironError, match="has no node `gpu04`; to add it"):
        run("add", "gpu04", "-i", inventory)
    assert runs.calls == []


def test_a_run_that_failed_says_nothing_of_success(runs: Runs, inventory: str) -> None:
    runs.code = 1
    result = CliRunner().invoke(app, ["add", "gpu03", "-i", inventory])
    assert (result.exit_code, result.output) == (1, "")


def test_remove_says_what_is_left_to_do(runs: Runs, inventory: str) -> None:
    output = run("remove", "gpu03", "-i", inventory, "--yes")
    assert runs.calls[0]["playbooks"] == ["coldiron.cluster.node_remove"]
    assert runs.calls[0]["limit"] == ["gpu03", "dns_server", "slurm_controller"]
    assert "gpu03: gone from the cluster virtual" in output
    assert output.endswith("cluster.yml:28: in `name: gpu[01-03]` write `name: gpu[01-02]`\n")


def test_a_dead_node_is_removed_all_the_same(runs: Runs, inventory: str) -> None:
    runs.state.hosts["gpu03"] = Host("gpu03", status=CellStatus.UNREACHABLE)
    output = run("remove", "gpu03", "-i", inventory, "--yes")
    assert runs.may_be_dead == ["gpu03"]
    assert "gpu03 was out of reach: what runs on it was not stopped" in output
    assert "What is left to do" in output


def test_remove_what_has_left_the_file(runs: Runs, inventory: str) -> None:
    output = run("remove", "gpu04", "-i", inventory, "--yes")
    assert "has no node `gpu04` (any more); did you mean `gpu0" in output
    assert runs.calls[0]["limit"] == ["dns_server", "slurm_controller"]
    assert runs.calls[0]["extravars"] == {"coldiron_nodes": ["gpu04"]}
    assert "by hand" not in output


def test_remove_asks(runs: Runs, inventory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ColdironError, match="say --yes"):
        run("remove", "gpu03", "-i", inventory)
    monkeypatch.setattr("coldiron.node.cli.sys", _with_terminal())
    with pytest.raises(ColdironError, match="nothing was changed"):
        run("remove", "gpu03", "-i", inventory, typed="n\n")
    assert runs.calls == []
    assert "Drain gpu03 and take them out of virtual?" in run("remove", "gpu03", "-i", inventory, typed="y\n")
    assert len(runs.calls) == 1


def _with_terminal() -> Any:
    class Terminal:
        def __getattr__(self, name: str) -> Any:
            return self if name == "stdin" else getattr(sys, name)

        def isatty(self) -> bool:
            return True

    return Terminal()


def test_looking_asks_nothing_and_deletes_nothing(runs: Runs, inventory: str) -> None:
    output = run("remove", "gpu03", "-i", inventory, "--check")
    assert runs.calls[0]["check"]
    assert "gone" not in output


def test_what_must_stay_runs_nothing(runs: Runs, inventory: str) -> None:
    with pytest.raises(ColdironError, match="cannot be without one"):
        run("remove", "head01", "-i", inventory, "--yes")
    assert runs.calls == []
