"""``coldiron provision``: what it runs, what it asks and what it says; the playbook itself is run elsewhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision import cli
from tests.unit.provision.test_wanted import CLUSTER, RECORD

LINE = {
    "node": "cpu01", "state": "failed", "step": "disks", "failed": "S1 bears ext4", "text": "", "age_seconds": 12.0,
    "record": None,
}  # fmt: skip


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yml").write_text(CLUSTER)
    return tmp_path


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    def run_recorded(verb: str, inventory: Path, playbooks: list[str], **more: Any) -> None:
        calls.append({"verb": verb, "playbooks": playbooks, **more})

    monkeypatch.setattr(cli, "run_recorded", run_recorded)
    return calls


def heads(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
    """Let the provisioner answer so; None: it is not there yet."""
    monkeypatch.setattr(cli, "_told", lambda _inventory, *words: answers[words[0]])


def run(inventory: Path, *words: str) -> str:
    app = typer.Typer()
    app.command()(cli.provision)
    result = CliRunner().invoke(app, [*words, "-i", str(inventory)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_without_names_it_takes_what_is_new(inventory: Path, runs: list[dict[str, Any]]) -> None:
    told = run(inventory, "--at-once", "4")
    assert "what makes them nodes of hopper: coldiron apply" in told
    (call,) = runs
    assert (call["playbooks"], call["limit"]) == (["coldiron.cluster.provision"], [])
    assert call["extravars"] == {"provision_at_once": 4}
    assert call["machines"] == ["cpu01", "cpu02", "cpu03"]


def test_a_named_machine_with_a_record_wants_its_serial(
    inventory: Path, runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    heads(monkeypatch, record={"records": [RECORD, {"node": "gone", "image": "", "when": 0}]})
    with pytest.raises(ColdironError, match="add --yes S1") as refused:
        run(inventory, "cpu01")
    assert refused.value.exit_code is ExitCode.REFUSED
    assert runs == []
    run(inventory, "cpu01", "--yes", "S1")
    assert runs[0]["extravars"] == {
        "provision_at_once": 16,
        "provision_nodes": ["cpu01"],
        "provision_consent": ["S1"],
    }
    assert runs[0]["limit"] == ["cpu01", "netboot_server"]


def test_a_consent_without_a_machine_is_refused(inventory: Path, runs: list[dict[str, Any]]) -> None:
    with pytest.raises(ColdironError, match="name the machine too"):
        run(inventory, "--yes", "S1")


def test_a_dry_run_names_what_is_missing_and_touches_nothing(
    inventory: Path, runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    heads(monkeypatch, record={"records": [RECORD]})
    told = run(inventory, "cpu01", "--dry-run", "--yes", "S1")
    assert "disk S1: wiped and written" in told
    assert "none yet: there is no current image of class cpu-debian-13" in told
    told = run(inventory, "--dry-run")
    assert told.startswith("of these, those that are powered off:\ncpu02: ")
    assert "cpu01" not in told
    heads(monkeypatch, record={"records": [{**RECORD, "node": name} for name in ("cpu01", "cpu02", "cpu03")]})
    assert run(inventory, "--dry-run") == "every machine has a record: none is new\n"
    assert runs == []


def test_the_status_is_a_line_a_machine(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = LINE | {"node": "cpu02", "state": "done", "step": "done", "failed": "", "record": RECORD}
    heads(monkeypatch, status=[LINE, done])
    lines = run(inventory, "--status").splitlines()
    assert lines[0].split() == ["node", "state", "step", "ago"]
    assert lines[1].split(maxsplit=5) == ["cpu01", "failed", "disks", "12", "s", "S1 bears ext4"]
    assert "image ffffffffffff on" in lines[2]
    assert lines[3].split() == ["cpu03", "new", "-", "-"]
    assert json.loads(run(inventory, "--status", "--json"))[0]["node"] == "cpu01"
    heads(monkeypatch, status=None)
    with pytest.raises(ColdironError, match="nothing was provisioned yet"):
        run(inventory, "--status")


class Head:
    """A site whose head answers so."""

    def __init__(self, done: subprocess.CompletedProcess[str], heads: list[str]) -> None:
        self.connections = self
        self.done = done
        self.heads = heads
        self.lines: list[str] = []

    def hosts(self, _group: str) -> list[str]:
        return self.heads

    def hostvars(self, _host: str) -> dict[str, str]:
        return {"ansible_user": "debian"}

    def run(self, _host: str, line: str, timeout: float) -> subprocess.CompletedProcess[str]:
        self.lines.append(line)
        return self.done


@pytest.mark.parametrize(
    ("code", "out", "err", "why"),
    [
        (255, "", "ssh: connect: No route to host", "head01, the provisioner, does not answer: ssh: connect"),
        (0, "<html>", "", "head01: coldiron-deployd printed no JSON"),
    ],
)
def test_a_head_that_does_not_answer_is_told(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, code: int, out: str, err: str, why: str
) -> None:
    head = Head(subprocess.CompletedProcess([], code, out, err), ["head01"])
    monkeypatch.setattr(cli, "_site", lambda _inventory: head)
    with pytest.raises(ColdironError, match=why) as told:
        cli._told(inventory, "record")
    assert told.value.exit_code is ExitCode.ENVIRONMENT
    assert "sudo -n coldiron-deployd record" in head.lines[0]


def test_a_head_without_the_provisioner_has_no_records(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Head(subprocess.CompletedProcess([], 127, "", ""), ["head01"])
    monkeypatch.setattr(cli, "_site", lambda _inventory: head)
    assert cli._told(inventory, "record") is None
    assert cli._records(inventory, ["cpu01"]) == {}
    head.heads = []
    with pytest.raises(ColdironError, match="has no host in group netboot_server"):
        cli._told(inventory, "record")
