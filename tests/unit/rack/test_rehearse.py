"""A rehearsal's steps, on a machine made of files; and the jobs that it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from coldiron.cli import app
from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import load
from coldiron.rack import jobs as jobs_module
from coldiron.rack import rehearse as module
from coldiron.rack.jobs import Jobs, partitions
from coldiron.rack.rehearse import Rehearsal, end, told
from coldiron.rack.report import Report
from coldiron.rack.spec import from_cluster
from coldiron.rack.state import NodeState, RackState
from coldiron.run.state import Change

from .conftest import Toy

SINFO = """\
all|up|2|1-infinite|(null)
all|up|2|1-infinite|gpu:h100:8(S:0-1)
try|up|2|1-1|gpu:h100:8
old|down|4|1-infinite|(null)
"""


class Stage:
    """A rehearsal whose verbs are written down instead of typed."""

    def __init__(self, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
        self.toy = toy
        self.typed: list[str] = []
        self.fails = ""
        self.changes: list[Change] = []
        self.said = StringIO()
        stage = self

        def type_(rehearsal: Rehearsal, verb: str) -> None:
            stage.typed.append(verb)
            if verb == stage.fails:
                raise ColdironError("it failed", ExitCode.HOSTS_FAILED)

        class State:
            changes = self.changes

        class Runs:
            def __init__(self, directory: Path) -> None:
                assert (directory / "cluster.yml").is_file()

            def current(self) -> Any:
                return type("Run", (), {"state": lambda run: State})()

        monkeypatch.setattr(Rehearsal, "_type", type_)
        monkeypatch.setattr("coldiron.run.store.Runs", Runs)
        monkeypatch.setattr(Jobs, "run", lambda jobs, say: ["a job"])

    def rehearsal(self, **more: Any) -> Rehearsal:
        report = Report(Console(file=self.said, width=200))
        return Rehearsal(self.toy.inventory, report, machine=self.toy.machine, host=self.toy.host, **more)

    def end(self) -> bool:
        return end(
            self.toy.inventory, Report(Console(file=self.said)), machine=self.toy.machine, host=self.toy.host
        )


@pytest.fixture
def stage(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Stage:
    toy.describe(gpus=3)
    return Stage(toy, monkeypatch)


def test_every_step_is_done_and_nothing_stays(stage: Stage) -> None:
    outcome = stage.rehearsal(most=2).play()
    assert stage.typed == ["apply", "verify", "apply"]
    assert (outcome.nodes, outcome.of) == (["head01", "gpu01", "gpu02"], 4)
    assert outcome.subnet == "10.77.120.0/24"
    assert outcome.jobs == ["a job"]
    assert list(outcome.seconds) == ["rack_up", "first_run", "jobs", "verify", "second_run", "rack_down"]
    assert not stage.toy.machine.lib.exists()
    assert not list(stage.toy.machine.run.glob("*"))
    assert told(outcome, "inventories/toy")[0].startswith("toy: rehearsed, 3 of 4 nodes: up in ")


def test_secrets_are_its_own(stage: Stage) -> None:
    stage.rehearsal().play(keep=True)
    directory = stage.toy.machine.lib / "rehearsal" / "toy-rehearsal"
    assert directory.stat().st_mode & 0o077 == 0
    assert (directory / "group_vars/all/vault.yml").read_text().startswith("$ANSIBLE_VAULT")
    assert not (stage.toy.inventory / ".vault-password").exists()


def test_a_failure_takes_the_rack_away(stage: Stage) -> None:
    stage.fails = "verify"
    with pytest.raises(ColdironError, match="it failed"):
        stage.rehearsal().play()
    assert stage.typed == ["apply", "verify"]
    assert not stage.toy.machine.lib.exists()


def test_kept_nodes_stay_until_they_are_taken_away(stage: Stage) -> None:
    stage.fails = "apply"
    with pytest.raises(ColdironError, match="it failed"):
        stage.rehearsal().play(keep=True)
    directory = stage.toy.machine.lib / "rehearsal" / "toy-rehearsal"
    assert len(from_cluster(directory).nodes) == 4
    # What has become of the inventory since is nobody's business.
    (stage.toy.inventory / "cluster.yml").write_text("half written")
    assert stage.end()
    assert not stage.toy.machine.lib.exists()
    assert not stage.end()


def test_what_a_killed_rehearsal_left_is_in_nobodys_way(stage: Stage) -> None:
    stage.rehearsal().play(keep=True)
    outcome = stage.rehearsal(most=1).play()
    assert outcome.nodes == ["head01", "gpu01"]
    assert not stage.toy.machine.lib.exists()


def test_another_cluster_of_that_name_is_left_alone(stage: Stage, tmp_path: Path) -> None:
    stage.rehearsal().play(keep=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "cluster.yml").write_text((stage.toy.inventory / "cluster.yml").read_text())
    stage.toy.inventory = other
    with pytest.raises(
        ColdironError, match="a cluster of the same name; take it away: coldiron rehearse --down"
    ):
        stage.rehearsal().play()


def test_a_second_run_that_changes_something_is_a_failure(stage: Stage) -> None:
    stage.changes.append(Change("gpu01", "scheduler", "slurm_worker", "Ensure", "slurm.conf", ""))
    with pytest.raises(
        ColdironError, match=r"to change nothing, and changed 1 things, first .* on gpu01"
    ) as caught:
        stage.rehearsal().play()
    assert caught.value.exit_code is ExitCode.HOSTS_FAILED


def test_without_slurm_there_are_no_jobs(stage: Stage) -> None:
    file = stage.toy.inventory / "cluster.yml"
    file.write_text(file.read_text().replace("scheduler: slurm", "scheduler: none"))
    assert "jobs" not in stage.rehearsal().play().seconds


def test_a_subnet_that_the_machine_has_is_not_taken(stage: Stage) -> None:
    stage.toy.host.routes.append({"dst": "10.77.120.0/23", "dev": "eth7"})
    assert stage.rehearsal().play().subnet == "10.77.122.0/24"


def test_an_ordinary_user_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ColdironError, match="only root"):
        stage.rehearsal().play()


@pytest.fixture
def verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for the program: ends with what the file `code` beside it says."""
    program = tmp_path / "bin" / "coldiron"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\necho "$@"\nenv | grep VAULT >"${0%/*}/env"\nexit "$(cat "${0%/*}/code")"\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    return program.with_name("code")


@pytest.mark.parametrize("code", [0, 3])
def test_a_verb_is_typed_before_the_persons_eyes(
    toy: Toy, verb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setenv("COLDIRON_VAULT_PASSWORD_FILE", "the site's")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", "the site's")
    # An earlier test that read a site in this process leaves it behind.
    monkeypatch.delenv("COLDIRON_VAULT_PASSWORD_QUIET", raising=False)
    verb.write_text(f"{code}\n")
    log = tmp_path / "log"
    with log.open("w") as file:
        rehearsal = Rehearsal(toy.inventory, Report(Console(file=file, width=200)), machine=toy.machine)
        if code:
            with pytest.raises(ColdironError, match="`coldiron verify` ended with 3"):
                rehearsal._type("verify")
        else:
            rehearsal._type("verify")
    lines = log.read_text().splitlines()
    assert lines == [f"$ coldiron verify -i {rehearsal.directory}", f"verify -i {rehearsal.directory}"]
    # The site's own password does not open the rehearsal's vault.
    named = {line.partition("=")[2] for line in verb.with_name("env").read_text().splitlines()}
    assert named == {f"{rehearsal.directory}/.vault-password"}


def test_an_interrupted_verb_is_ended(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Process:
        def __init__(self, *words: object, **more: object) -> None:
            self.waits = iter([KeyboardInterrupt(), subprocess.TimeoutExpired("coldiron", 1)])

        def __enter__(self) -> Process:
            return self

        def __exit__(self, *words: object) -> None:
            asked.append("gone")

        def wait(self, timeout: float | None = None) -> int:
            raise next(self.waits)

        def send_signal(self, signal: int) -> None:
            asked.append("asked")

        def kill(self) -> None:
            asked.append("killed")

    monkeypatch.setattr(module.subprocess, "Popen", Process)
    with pytest.raises(KeyboardInterrupt):
        Rehearsal(toy.inventory, Report(Console(file=sys.stdout)), machine=toy.machine)._type("apply")
    assert asked == ["asked", "killed", "gone"]


def test_the_verb_tells_and_prints_json(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Rehearsal

    def toys(inventory: Path, report: Report, **more: Any) -> Rehearsal:
        return real(inventory, report, machine=stage.toy.machine, host=stage.toy.host, **more)

    monkeypatch.setattr(module, "Rehearsal", toys)
    monkeypatch.setattr(module, "end", lambda inventory, report: stage.end())
    words = ["rehearse", "-i", str(stage.toy.inventory), "--subnet", "10.99.0.0/24"]
    done = CliRunner().invoke(app, [*words, "--json", "--keep", "--sample", "1"], catch_exceptions=False)
    data = json.loads(done.stdout)
    assert (data["subnet"], data["nodes"], data["kept"]) == ("10.99.0.0/24", ["head01", "gpu01"], True)
    assert "; take it away: coldiron rehearse --down -i " in done.stderr
    done = CliRunner().invoke(app, [*words, "--down"], catch_exceptions=False)
    assert done.stdout == f"rehearsal of {stage.toy.inventory}: taken away\n"
    done = CliRunner().invoke(app, [*words, "--down"], catch_exceptions=False)
    assert done.stdout == f"rehearsal of {stage.toy.inventory}: there is none\n"
    failed = CliRunner().invoke(app, [*words[:3], "--subnet", "10.99.0.0/33"])
    assert isinstance(failed.exception, ColdironError)
    assert failed.exception.message.startswith("--subnet `10.99.0.0/33` is no IPv4 subnet; write e.g. ")


def test_partitions_are_read() -> None:
    found = {part.name: part for part in partitions(SINFO)}
    assert list(found) == ["all", "try"]
    assert (found["all"].nodes, found["all"].at_once, found["all"].gpus) == (4, 4, {"h100": 8})
    assert (found["try"].nodes, found["try"].at_once) == (2, 1)


class Slurm:
    """Answers what is asked of a cluster over ssh."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, toy: Toy) -> None:
        self.lines: list[str] = []
        self.answers = {
            "sacctmgr": "root\nalice\nbob\n",
            "sinfo": SINFO,
            "-p all -N 4": "cpu01\ncpu02\ngpu01\ngpu02\n",
            "-p try -N 1": "gpu01\n",
            "--gres=gpu:h100:8": "0,1,2,3,4,5,6,7\n",
        }
        self.code = 0
        monkeypatch.setattr(jobs_module.subprocess, "run", self.run)
        nodes = {name: NodeState(name, "10.9.0.1", "debian-13", "head", "") for name in ("head01", "gpu01")}
        state = RackState("toy", str(toy.inventory), "", "", "", 0, "", "", str(toy.root), "", "", nodes)
        self.jobs = Jobs(state, load(toy.inventory))

    def run(self, command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        self.lines.append(command[-1])
        answer = next((text for words, text in self.answers.items() if words in command[-1]), "")
        return subprocess.CompletedProcess(command, self.code, answer, "srun: error: no\n such thing")


@pytest.fixture
def slurm(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(monkeypatch, toy)


def test_jobs_of_a_user_run_in_each_partition_and_on_each_kind_of_gpu(slurm: Slurm) -> None:
    said: list[str] = []
    done = slurm.jobs.run(said.append)
    assert done == said
    assert done == [
        "partition all: a job of alice's on 4 nodes at once",
        "partition try: a job of alice's on 1 nodes at once",
        "partition all: a job of alice's on 8 x h100 (simulated)",
    ]
    assert all(line.startswith("runuser -l alice -c ") for line in slurm.lines[1:])


def test_where_the_site_names_no_user_root_runs_them(slurm: Slurm) -> None:
    slurm.answers["sacctmgr"] = "\nroot\n"
    assert "root's" in slurm.jobs.run(lambda _: None)[0]


@pytest.mark.parametrize(
    ("words", "answer", "message"),
    [
        ("sinfo", "", "head01: sinfo shows alice no partition that is up"),
        ("-p all -N 4", "cpu01\n", "partition all: a job on 4 nodes answered from 1"),
        ("--gres=gpu:h100:8", "0,1\n", "partition all: a job that asked for 8 h100 was given 2"),
    ],
)
def test_what_is_not_as_it_should_be_is_said(slurm: Slurm, words: str, answer: str, message: str) -> None:
    slurm.answers[words] = answer
    with pytest.raises(ColdironError) as caught:
        slurm.jobs.run(lambda _: None)
    assert caught.value.message == message


def test_slurms_own_words_are_shown(slurm: Slurm) -> None:
    slurm.code = 1
    with pytest.raises(ColdironError, match=r"^head01: sacctmgr .*: srun: error: no such thing$"):
        slurm.jobs.run(lambda _: None)


def test_a_job_that_never_ends_is_said(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: list[str], **more: Any) -> None:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(jobs_module.subprocess, "run", hang)
    with pytest.raises(ColdironError, match="no end after 180 s"):
        slurm.jobs.run(lambda _: None)
