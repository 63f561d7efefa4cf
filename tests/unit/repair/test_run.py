"""What goes around the playbook's runs: the locks, the batches, the runs that are tried again, and their ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer

from coldiron.errors import ColdironError, ExitCode
from coldiron.repair import journal, keep, run, steps
from coldiron.repair.batch import Limits
from coldiron.repair.machine import ROWS, TABLE, Kind, Outcome, State
from coldiron.repair.run import Options, run_repair
from coldiron.run.state import Failure, Header, RunState
from tests.unit.repair.samples import CLUSTER

ALL = ("cpu01", "cpu02", "cpu03")
HEADER: dict[str, Any] = {
    "id": "one", "verb": "node repair", "command": [], "plain": "", "started": 0.0, "user": "root",
    "machine": "here", "pid": 1, "cluster": "lab", "inventory": "", "playbooks": [],
}  # fmt: skip


@dataclass
class Playbook:
    """Stands for the recorded runs: takes the steps that the playbook takes, as ``behave`` says for node and state.

    ``behave`` returns an outcome, or None where the node drops out of the run there.
    """

    repairs: Path
    behave: Callable[[str, State], Outcome | None] = lambda _node, _state: Outcome.OK
    code: int = 1
    calls: list[tuple[str, list[str]]] = field(default_factory=list)
    extravars: dict[str, Any] = field(default_factory=dict)
    limit: list[str] = field(default_factory=list)

    def __call__(self, _verb: str, _inventory: Path, playbooks: list[str], **more: Any) -> RunState:
        names = more["extravars"]["coldiron_nodes"]
        self.calls.append((playbooks[0].rpartition(".")[2], list(names)))
        if playbooks[0] == run.TELL_PLAYBOOK:
            return RunState(Header(**HEADER))
        self.extravars, self.limit = more["extravars"], more["limit"]
        wanted = steps.Wanted(
            Kind(self.extravars["coldiron_repair_kind"]), self.extravars["coldiron_consent"]
        )
        well = True
        for name in names:
            variables = {"coldiron_platform": "container"}
            steps.open_repair(self.repairs, name, wanted, variables, "ansible-playbook", os.getpid())
            well = self._repair(name) and well
        if not well:
            raise typer.Exit(self.code)
        return RunState(Header(**HEADER))

    def _repair(self, name: str) -> bool:
        for row in ROWS:
            if not steps.begin(self.repairs, name, row.state)["due"]:
                continue
            outcome = self.behave(name, row.state)
            if outcome is None:
                return False
            steps.end(self.repairs, name, row.state, outcome, "as it came")
        return bool(steps.where(self.repairs, name)["well"])


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yml").write_text(CLUSTER, encoding="utf-8")
    return tmp_path


@pytest.fixture
def playbook(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> Playbook:
    found = Playbook(keep.directory(inventory))
    monkeypatch.setattr(run, "run_recorded", found)
    state = RunState(Header(**HEADER))
    state.failures.append(
        Failure("cpu01", "deploy", "deploy", "Deploy | Wait for step up", "x:1", "it hangs")
    )

    class Newest:
        def __init__(self, _directory: Path) -> None:
            pass

        def current(self) -> Newest:
            return self

        def state(self) -> RunState:
            return state

    monkeypatch.setattr(run, "Runs", Newest)
    return found


def states(inventory: Path, *names: str, kind: Kind = Kind.REPAIR, **more: Any) -> dict[str, str]:
    found = run_repair(inventory, names, kind, Options(consent=ALL, **more), say=lambda _line: None)
    return {one.node: one.state for one in found}


def test_a_repair_is_one_run(inventory: Path, playbook: Playbook) -> None:
    assert states(inventory, "cpu01", reason="disk", drain="deadline", drain_seconds=60) == {"cpu01": "done"}
    assert playbook.calls == [("repair", ["cpu01"])]
    assert playbook.limit == ["cpu01", "dns_server", "slurm_controller"]
    assert playbook.extravars == {
        "coldiron_nodes": ["cpu01"],
        "coldiron_consent": list(ALL),
        "coldiron_repair_kind": "repair",
        "coldiron_repair_drain": "deadline",
        "coldiron_repair_drain_seconds": 60,
        "coldiron_repair_stop_when_unclear": False,
        "coldiron_repair_reason": "disk",
    }
    assert not keep.ours(keep.directory(inventory), "cpu01")


def test_a_state_that_fails_is_run_again_so_often_as_the_table_says(
    inventory: Path, playbook: Playbook
) -> None:
    playbook.behave = lambda _node, state: Outcome.FAILED if state is State.ACCEPT else Outcome.OK
    assert states(inventory, "cpu01") == {"cpu01": "failed"}
    assert [name for name, _ in playbook.calls] == ["repair"] * TABLE[State.ACCEPT].attempts


def test_a_node_that_drops_out_has_failed_there_and_slurm_is_told(
    inventory: Path, playbook: Playbook
) -> None:
    playbook.behave = lambda _node, state: None if state is State.DEPLOY else Outcome.OK
    (one,) = run_repair(inventory, ["cpu01"], Kind.REPAIR, Options(consent=ALL), say=lambda _line: None)
    assert (one.state, one.reason) == ("failed", "Wait for step up: it hangs")
    assert playbook.calls == [("repair", ["cpu01"])] * 2 + [("repair_tell", ["cpu01"])]


def test_the_failure_of_another_host_says_whose_it_is(inventory: Path, playbook: Playbook) -> None:
    playbook.behave = lambda _node, state: None if state is State.CONVERGE else Outcome.OK
    (one,) = run_repair(inventory, ["cpu02"], Kind.REPAIR, Options(consent=ALL), say=lambda _line: None)
    assert one.reason == "cpu01: Wait for step up: it hangs"


def test_a_run_that_a_person_stops_is_not_a_failure(inventory: Path, playbook: Playbook) -> None:
    playbook.behave, playbook.code = (lambda _node, state: None if state is State.DEPLOY else Outcome.OK), 4
    with pytest.raises(typer.Exit):
        states(inventory, "cpu01")
    repairs = keep.directory(inventory)
    assert steps.where(repairs, "cpu01")["next"] == "deploy"
    assert not keep.ours(repairs, "cpu01")
    playbook.behave = lambda _node, _state: Outcome.OK
    assert states(inventory, "cpu01") == {"cpu01": "done"}


def test_a_run_that_never_gets_to_a_node_is_not_repeated(
    inventory: Path, playbook: Playbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def refused(*_words: Any, **_more: Any) -> RunState:
        calls.append(1)
        raise typer.Exit(2)

    monkeypatch.setattr(run, "run_recorded", refused)
    assert states(inventory, "cpu01") == {}
    assert len(calls) == 1


def test_a_batch_begins_with_a_canary(inventory: Path, playbook: Playbook) -> None:
    limits = Limits(batch=2)
    assert states(inventory, *ALL, kind=Kind.REIMAGE, limits=limits) == dict.fromkeys(ALL, "done")
    assert playbook.calls == [("reimage", ["cpu01"]), ("reimage", ["cpu02", "cpu03"])]


def test_a_canary_that_fails_keeps_the_others_from_it(inventory: Path, playbook: Playbook) -> None:
    playbook.behave = lambda _node, state: Outcome.FAILED if state is State.ACCEPT else Outcome.OK
    said: list[str] = []
    found = run_repair(inventory, ALL, Kind.REIMAGE, Options(ALL, limits=Limits(2, 2)), say=said.append)
    assert [one.node for one in found] == ["cpu01"]
    assert said[-1] == "the first node failed; 2 were not begun"


def test_a_node_that_another_repairs_is_left_alone(inventory: Path, playbook: Playbook) -> None:
    held = journal.take(keep.directory(inventory), "cpu01", "coldiron node repair cpu01", 0.0)
    with pytest.raises(ColdironError, match="cpu01 is being repaired") as refused:
        states(inventory, "cpu01")
    held.release()
    assert refused.value.exit_code is ExitCode.REFUSED
    assert playbook.calls == []


def test_a_webhook_drains_and_diagnoses_and_holds(inventory: Path, playbook: Playbook) -> None:
    (one,) = run_repair(inventory, ["cpu01"], Kind.WEBHOOK, say=lambda _line: None)
    assert (one.kind, one.state) == ("webhook", "held")
    assert playbook.calls == [("diagnose", ["cpu01"])]


def test_another_kind_that_was_cut_off_comes_first(inventory: Path, playbook: Playbook) -> None:
    playbook.behave, playbook.code = (lambda _node, state: None if state is State.DEPLOY else Outcome.OK), 4
    with pytest.raises(typer.Exit):
        states(inventory, "cpu01")
    with pytest.raises(
        ColdironError, match="a repair was cut off in deploy; go on with that one first"
    ) as refused:
        states(inventory, "cpu01", kind=Kind.REIMAGE)
    assert refused.value.exit_code is ExitCode.REFUSED
    assert not keep.ours(keep.directory(inventory), "cpu01")


def test_a_webhook_that_was_cut_off_is_brought_to_its_end_first(inventory: Path, playbook: Playbook) -> None:
    playbook.behave, playbook.code = (lambda _node, state: None if state is State.DIAGNOSE else Outcome.OK), 4
    with pytest.raises(typer.Exit):
        run_repair(inventory, ["cpu01"], Kind.WEBHOOK, say=lambda _line: None)
    playbook.behave = lambda _node, _state: Outcome.OK
    assert states(inventory, "cpu01", kind=Kind.REIMAGE) == {"cpu01": "done"}
    assert [name for name, _ in playbook.calls] == ["diagnose", "diagnose", "reimage"]
