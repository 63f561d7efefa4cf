"""``coldiron node repair | reimage | repairs``: what is asked, what is refused, and what is said."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coldiron.errors import ColdironError, ExitCode
from coldiron.node.cli import app
from coldiron.repair import cli, keep, steps
from coldiron.repair.batch import Limits
from coldiron.repair.machine import Kind, Outcome, State
from coldiron.repair.view import Repair
from tests.unit.repair.samples import CLUSTER


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    (tmp_path / "cluster.yml").write_text(CLUSTER, encoding="utf-8")
    return str(tmp_path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was to be repaired; each repair ends well."""
    calls: list[tuple[Any, ...]] = []

    def repair(inventory: Path, names: list[str], kind: Kind, options: Any) -> list[Repair]:
        calls.append((names, kind, options))
        return [Repair(name, kind.value, "done", 0.0, "", "alice", False) for name in names]

    monkeypatch.setattr(cli, "run_repair", repair)
    return calls


def run(*words: str, typed: str | None = None, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*words], input=typed)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody sits at the terminal."""
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda _self: True, raising=False)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True, raising=False)


def test_a_dry_run_names_the_disks_by_serial_and_touches_nothing(inventory: str, asked: list[Any]) -> None:
    output = run("repair", "gpu02", "-i", inventory, "--dry-run")
    assert output.splitlines()[0] == "gpu02: repair; nothing is touched now"
    assert "would wipe SYS1 (system, 960 GB)" in output
    assert "DATA1" not in output
    output = run("reimage", "cpu[01-02]", "-i", inventory, "--dry-run")
    assert output.count("diagnose  left out: a reimage is ordered by a person") == 2
    assert asked == []
    assert not keep.directory(Path(inventory)).exists()


def test_nobody_there_to_ask_is_told_the_line_to_type(
    inventory: str, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["coldiron", "node", "repair", "gpu02"])
    with pytest.raises(ColdironError) as refused:
        run("repair", "gpu02", "-i", inventory)
    assert refused.value.exit_code is ExitCode.REFUSED
    assert refused.value.message == (
        "gpu02: deploy would wipe SYS1; type: coldiron node repair gpu02 --yes SYS1"
    )
    assert asked == []


@pytest.mark.usefixtures("person")
def test_a_person_types_the_serial(inventory: str, asked: list[Any]) -> None:
    output = run("repair", "gpu02", "-i", inventory, typed="SYS1\n")
    assert "gpu02: everything on SYS1 (system, 960 GB) will be lost." in output
    assert output.splitlines()[-1] == "gpu02: done; it takes jobs again"
    ((names, kind, options),) = asked
    assert (names, kind, options.consent) == (["gpu02"], Kind.REPAIR, ("SYS1",))


@pytest.mark.usefixtures("person")
@pytest.mark.parametrize("typed", ["SYS2\n", "\n", "y\n"])
def test_another_word_is_no_consent(inventory: str, asked: list[Any], typed: str) -> None:
    with pytest.raises(ColdironError, match="nothing was touched"):
        run("repair", "gpu02", "-i", inventory, typed=typed)
    assert asked == []


def test_reimage_passes_on_how_many_at_once(inventory: str, asked: list[Any]) -> None:
    run("reimage", "cpu[01-02]", "-i", inventory, "--yes", "cpu01", "--yes", "cpu02", "--batch", "4",
        "--max-failures", "2", "--drain", "requeue", "--reason", "kernel")  # fmt: skip
    ((names, kind, options),) = asked
    assert (names, kind) == (["cpu01", "cpu02"], Kind.REIMAGE)
    assert (options.limits, options.drain, options.reason) == (Limits(4, 2), "requeue", "kernel")


def test_what_is_not_done_is_the_commands_failure(
    inventory: str, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = [Repair("cpu01", "reimage", "failed", 0.0, "deploy: it hangs", "alice", False)]
    monkeypatch.setattr(cli, "run_repair", lambda *_words: ended)
    output = run("reimage", "cpu[01-02]", "-i", inventory, "--yes", "cpu01", "--yes", "cpu02", code=1)
    assert output.splitlines() == [
        "cpu01: failed: a state failed; the node stays drained with the reason",
        "  deploy: it hangs",
        "not begun: cpu02",
    ]


def test_diagnose_wipes_nothing_and_so_asks_nobody(inventory: str, asked: list[Any]) -> None:
    run("diagnose", "cpu[01-02]", "-i", inventory, "--reason", "alert NodeDown", code=1)
    ((names, kind, options),) = asked
    assert (names, kind, options.reason) == (["cpu01", "cpu02"], Kind.WEBHOOK, "alert NodeDown")
    assert (options.limits, options.consent) == (Limits(2, 1, canary=False), ())


@pytest.mark.parametrize(("state", "code"), [("held", 0), ("ticket", 0), ("failed", 1)])
def test_a_diagnosis_that_came_to_an_end_is_no_failure(
    inventory: str, monkeypatch: pytest.MonkeyPatch, state: str, code: int
) -> None:
    ended = [Repair("cpu01", "webhook", state, 0.0, "what was found", "alice", False)]
    monkeypatch.setattr(cli, "run_repair", lambda *_words: ended)
    lines = run("diagnose", "cpu01", "-i", inventory, code=code).splitlines()
    assert lines[0].startswith(f"cpu01: {state}: ")
    assert lines[1] == "  what was found"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("repair", "cpu[01-02]"), "more than one node"),
        (("repair", "cpu01", "--drain", "never"), "--drain never: write wait, requeue or deadline"),
        (("reimage", "cpu01", "--batch", "0", "--yes", "cpu01"), "--batch 0"),
        (("repair", "head01"), "slurm_controller"),
    ],
)
def test_what_makes_no_sense_is_refused(
    inventory: str, asked: list[Any], words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ColdironError) as refused:
        run(*words, "-i", inventory)
    assert said in refused.value.message
    assert asked == []


def test_repairs_are_listed_and_one_is_shown_step_by_step(inventory: str) -> None:
    assert "no node of" in run("repairs", "-i", inventory)
    assert run("repairs", "-i", inventory, "--json").strip() == "[]"
    repairs = keep.prepare(Path(inventory))

    wanted = steps.Wanted(Kind.REPAIR, ["cpu01"])
    steps.open_repair(repairs, "cpu01", wanted, {"coldiron_platform": "container"}, "coldiron", os.getpid())
    steps.begin(repairs, "cpu01", State.DRAIN)
    steps.end(repairs, "cpu01", State.DRAIN, Outcome.FAILED, "job 12 is still there")
    listed = run("repairs", "-i", inventory)
    assert "cpu01" in listed
    assert "  job 12 is still there" in listed
    assert '"state": "drain"' in run("repairs", "-i", inventory, "--json")
    assert "drain failed: job 12 is still there; next: drain" in run(
        "repair", "cpu01", "--status", "-i", inventory
    )
