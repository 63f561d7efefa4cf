"""The command line as it is typed: bad input is one line and the right exit code, and completion completes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldiron import cli
from coldiron.run import lock
from coldiron.run.artifacts import state_of
from coldiron.run.state import Outcome
from coldiron.run.store import Runs
from coldiron.testing.steps import command
from tests.unit.node.samples import CLUSTER
from tests.unit.run.samples import keep, write_play

NOW = 1795280000.0
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the inventory ``inv``, two recorded runs in it, and nothing else."""
    (tmp_path / "inv").mkdir()
    (tmp_path / "inv" / "cluster.yml").write_text(CLUSTER)
    runs = Runs(tmp_path / "inv")
    for when, name in ((NOW, "failed"), (NOW + 60, "ok")):
        stored = keep(runs, when, name)
        stored.log.write_text("all that it said\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(lock, "MACHINE_DIRECTORIES", (tmp_path,))
    for name in list(os.environ):
        if name.startswith(("ANSIBLE_", "COLDIRON_")):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def run(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Types a command line; returns its exit code, what it printed and what it complained of."""

    def typed(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["coldiron", *words])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return typed


BAD = [
    (["aply"], 2, "No such command 'aply'"),
    (["apply", "--nope"], 2, "`coldiron apply --help` shows how"),
    (["apply", "-i"], 2, "requires an argument"),
    (["apply", "-i", "nowhere"], 2, "nowhere does not exist"),
    (["apply", "-i", "nul\x00byte"], 2, ""),
    (["apply", "bas", "-i", "inv"], 2, "no stage `bas`; did you mean `base`?"),
    (["apply", "-i", "inv", "--limit", "gpu04"], 2, "no node or group `gpu04`; did you mean `gpu0"),
    (["apply", "-i", "inv", "--tags", "tme"], 2, "nothing has the tag `tme`; did you mean `time`?"),
    (["status", "-i", "nowhere"], 2, "nowhere does not exist"),
    (["runs", "show", "lost", "-i", "inv"], 2, "has no run `lost`; did you mean `last`?"),
    (["runs", "show", "last-9", "-i", "inv"], 2, "has only 2 recorded runs"),
    (["runs", "diff"], 2, "Missing argument"),
    (["runs", "diff", "zz", "b", "-i", "inv"], 2, "has no run `zz`"),
    (["runs", "replay", "--speed", "0", "-i", "inv"], 2, "--speed"),
    (["runs", "list", "-n", "many"], 2, "--most"),
    (["runs", "prune", "--keep", "-1"], 2, "--keep"),
    (["runs", "show", "-i", "."], 2, "has no recorded run"),
    (["report", "nothing/there", "-i", "inv"], 2, "does not exist"),
    (["report", "inv", "-i", "inv"], 2, "holds neither a recorded run"),
    (["report", "inv/cluster.yml", "-i", "inv"], 2, "is no directory"),
    (["report", "last", "-i", "inv", "-o", "inv/cluster.yml/x"], 5, "cannot be written"),
    (["export-runner", "inv", "-i", "inv"], 2, "inv is there already"),
    (["export-runner"], 2, "Missing argument"),
    (["node", "add", "gpu04", "-i", "inv"], 2, "has no node `gpu04`"),
    (["node", "remove", "gpu04", "--yes", "-i", "nowhere"], 2, "nowhere does not exist"),
]


@pytest.mark.parametrize(("words", "code", "told"), BAD, ids=[" ".join(words) for words, _, _ in BAD])
def test_bad_input_is_one_line(run: Run, words: list[str], code: int, told: str) -> None:
    ended, _, err = run(*words)
    assert ended == code
    (line,) = err.splitlines()
    assert line.startswith("coldiron: ")
    assert told in line


def test_a_broken_cluster_file_is_told_before_anything_runs(run: Run, place: Path) -> None:
    (place / "inv" / "cluster.yml").write_text(CLUSTER.replace("kind: gpu", "kind: gpo"))
    code, out, err = run("apply", "-i", "inv")
    assert (code, out) == (2, "")
    assert "inv/cluster.yml:" in err
    assert "did you mean `gpu`" in err
    assert len(Runs(place / "inv").ids()) == 2


def test_without_the_vault_password(run: Run, place: Path) -> None:
    folder = place / "inv" / "group_vars" / "all"
    folder.mkdir(parents=True)
    (place / "key").write_text("open sesame")
    (folder / "vault.yml").write_text("munge_key: mungemunge\n")
    vault = [command("ansible-vault"), "encrypt", "--vault-password-file", "key", str(folder / "vault.yml")]
    subprocess.run(vault, check=True, capture_output=True)
    code, _, err = run("apply", "-i", "inv")
    assert code == 5
    (line,) = err.splitlines()
    assert "inv/.vault-password is missing" in line


def test_an_inventory_that_cannot_be_recorded_in(run: Run, place: Path) -> None:
    shutil.rmtree(place / "inv" / ".coldiron")
    (place / "inv" / ".coldiron").write_text("in the way")
    code, _, err = run("apply", "-i", "inv")
    assert code == 5
    (line,) = err.splitlines()
    assert "the run cannot be recorded" in line


def test_without_ansible(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    monkeypatch.setenv("PATH", "/nonexistent")
    code, _, err = run("apply", "-i", "inv")
    assert code == 5
    assert "pip install ansible-core" in err


def test_a_run_by_hand_written_inventory(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody is reached: the first look refuses an inventory that names no cluster.
    write_play(place)
    code, out, err = run("apply", "-i", "hosts.yml")
    assert (code, err) == (2, "")
    assert "names no cluster" in out
    assert "coldiron apply -i hosts.yml" in out
    assert "output.log" in out
    state = Runs(place).open("last").state()
    assert state.outcome is Outcome.REFUSED
    code, out, err = run("apply", "base", "storage", "-i", "hosts.yml", "--json")
    data = json.loads(out)
    assert (code, data["outcome"], data["exit_code"]) == (2, "refused", 2)
    assert data["header"]["stages"] == ["check", "base", "storage"]
    assert data["header"]["plain"] == (
        "ansible-playbook coldiron.cluster.base -i hosts.yml && ansible-playbook coldiron.cluster.storage -i hosts.yml"
    )
    code, out, _ = run("apply", "base", "-v", "--diff", "-i", "hosts.yml")
    assert "TASK [Validate | Refuse to run without a cluster]" in out


def test_status_and_runs(run: Run, place: Path) -> None:
    code, out, _ = run("status", "-i", "inv")
    assert code == 0
    assert out.splitlines()[0].startswith("apply on hopper ended ok")
    assert out.splitlines()[-1].startswith("all of it: coldiron runs show 2026")
    assert json.loads(run("status", "-i", "inv", "--json")[1])["outcome"] == "ok"
    code, out, _ = run("runs", "list", "-i", "inv")
    assert [line.split()[1] for line in out.splitlines()] == ["outcome", "ok", "failed"]
    assert len(json.loads(run("runs", "list", "-n", "1", "-i", "inv", "--json")[1])) == 1
    code, out, _ = run("runs", "show", "last-1", "-i", "inv", "--diff")
    assert code == 0
    for told in ("gpu01", "time_servers has no server", "+gpu01", "roles/time/tasks/main.yml:1",
                 "output.log", "coldiron apply -i inventories/hopper --limit gpu01"):  # fmt: skip
        assert told in out
    assert json.loads(run("runs", "show", "-i", "inv", "--json")[1])["header"]["cluster"] == "hopper"
    code, out, _ = run("runs", "diff", "last-1", "last", "-i", "inv")
    assert "outcome     failed  ->  ok" in out
    assert json.loads(run("runs", "diff", "last-1", "-i", "inv", "--json")[1])["outcome"] == ["failed", "ok"]
    code, out, _ = run("runs", "replay", "last-1", "-i", "inv")
    assert code == 0
    assert "time_servers has no server" in out
    events = run("runs", "replay", "-i", "inv", "--json")[1].splitlines()
    assert json.loads(events[0])["kind"] == "coldiron_start"
    code, out, _ = run("runs", "prune", "--keep", "1", "--days", "0", "-i", "inv")
    assert out.splitlines()[-1] == "1 removed"
    assert json.loads(run("runs", "prune", "--keep", "0", "--days", "0", "-i", "inv", "--json")[1])
    assert "has no recorded run" in run("status", "-i", "inv")[1]
    assert run("status", "-i", "inv", "--json")[1] == "null\n"


def test_a_damaged_run_is_shown_as_far_as_it_goes(run: Run, place: Path) -> None:
    stored = Runs(place / "inv").open("last")
    text = stored.events.read_bytes()
    stored.events.write_bytes(text[: len(text) // 2])
    code, out, _ = run("runs", "show", "-i", "inv")
    assert code == 0
    assert "1 lines of" in out
    assert "coldiron apply" in out


def test_a_report(run: Run, place: Path) -> None:
    code, out, _ = run("report", "last-1", "-i", "inv")
    assert code == 0
    assert {Path(line).name for line in out.splitlines()} == {"index.html", "junit.xml"}
    assert (place / out.splitlines()[0]).exists()
    directory = str(Runs(place / "inv").open("last").directory)
    assert json.loads(run("report", directory, "-o", "out", "--json")[1])["run"]["outcome"] == "ok"


def test_artifacts_of_ansible_runner(place: Path) -> None:
    events = place / "private" / "artifacts" / "one" / "job_events"
    events.mkdir(parents=True)
    data = {"play": "Base", "task": "T", "task_uuid": "u", "host": "n1", "res": {"msg": "broken"}}
    for number, (kind, more) in enumerate(
        [("playbook_on_play_start", {}), ("runner_on_start", {}), ("runner_on_failed", {})], 1
    ):
        event = {
            "event": kind,
            "created": f"2026-11-21T16:53:0{number}+00:00",
            "event_data": {**data, **more},
        }
        (events / f"{number}-0a1b.json").write_text(json.dumps(event))
    (events / "4-0a1b.json").write_text("{cut o")
    (events / "0a1b-partial.json").write_text("{}")
    state, where = state_of("private", place / "inv")
    assert where == Path("private")
    assert state.outcome is Outcome.KILLED
    assert state.failures[0].sentence == "broken"
    assert list(state.stages)[:2] == ["check", "provision"]
    (events.parent / "rc").write_text("2")
    (events.parent / "status").write_text("failed")
    for path in ("private", "private/artifacts", "private/artifacts/one", "private/artifacts/one/job_events"):
        state, _ = state_of(path, place / "inv")
        assert (state.outcome, state.exit_code) == (Outcome.FAILED, 1), path
    (events.parent / "status").write_text("canceled")
    assert state_of("private", place / "inv")[0].outcome is Outcome.INTERRUPTED


def test_an_export(run: Run, place: Path) -> None:
    (place / "inv" / ".vault-password").write_text("x")
    code, out, _ = run("export-runner", "ci", "-i", "inv", "--limit", "gpu01", "--check")
    assert code == 0
    assert out.splitlines() == ["ansible-runner run ci -p site.yml", "coldiron report ci"]
    assert (place / "ci" / "inventory").resolve() == place / "inv"
    assert (place / "ci" / "env" / "cmdline").read_text() == "--diff --check --limit gpu01\n"
    assert "ANSIBLE_HOST_KEY_CHECKING: 'True'" in (place / "ci" / "env" / "envvars").read_text()
    about = json.loads((place / "ci" / "coldiron.json").read_text())
    assert about["header"]["hosts"] == ["gpu01"]
    assert about["header"]["stages"][0] == "check"
    assert about["takes_part"]["base"] == ["gpu01"]
    code, _, _ = run("export-runner", "copied", "-i", "inv", "--copy")
    assert code == 0
    copied = {path.name for path in (place / "copied" / "inventory").iterdir()}
    assert copied == {"cluster.yml"}
    program = subprocess.run(["copied/project/vault-password"], capture_output=True, text=True)
    assert (program.returncode, program.stdout) == (1, "")
    assert "COLDIRON_VAULT_PASSWORD_FILE" in program.stderr
    assert subprocess.run(["ci/project/vault-password"], capture_output=True, text=True).stdout.strip() == "x"


def test_help_teaches_by_example(run: Run) -> None:
    for words in ([], ["apply"], ["status"], ["runs"], ["runs", "show"], ["report"], ["export-runner"]):
        code, out, _ = run(*words, "--help")
        assert code == 0
        assert "Example" in out or "Begin with" in out, words
    assert run("--version")[1].startswith("coldiron ")
    code, out, _ = run()
    assert code == 2
    assert "Usage" in out


def test_interruptions_and_closed_pipes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_args: Any, **_more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coldiron.run.cli._runs", stop)
    code, _, err = run("status")
    assert code == 4
    assert "interrupted" in err


def test_nobody_reads_on(place: Path) -> None:
    line = f"{command('coldiron')} runs show last-1 --diff -i inv --json | head -c 10"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, cwd=place
    )
    assert done.stderr == ""
    assert done.returncode == 0


WORDS = st.sampled_from(
    ["apply", "status", "runs", "list", "show", "replay", "diff", "prune", "report", "export-runner", "node",
     "add", "remove", "-i", "inv", "nowhere", "--limit", "--tags", "--check", "--json", "--diff", "last",
     "last-1", "base", "gpu01", "gpu[01-", "-n", "0", "--", "-", "", "é", "\udcff", "%s", "--keep", "9" * 30,
     "--speed", "nan", "-o", "-h", "--version", "a\nb", "../..", "-vvv"]
)  # fmt: skip


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(words=st.lists(WORDS, max_size=6))
def test_any_words_are_survived(place: Path, words: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # What would work on nodes, write somewhere or wait ends here.
        patch.setattr("coldiron.run.cli.run_recorded", lambda *_args, **_more: None)
        patch.setattr("coldiron.node.cli.run_recorded", lambda *_args, **_more: None)
        patch.setattr("coldiron.run.export.export", lambda *_args, **_more: [])
        patch.setattr("coldiron.report.write_run_report", lambda *_args, **_more: [])
        patch.setattr("time.sleep", lambda _seconds: None)
        patch.setattr(sys, "argv", ["coldiron", *words])
        with pytest.raises(SystemExit) as caught:
            cli.main()
    assert caught.value.code in (None, 0, 2, 3, 5)


# Completion.


def completed(place: Path, line: str) -> list[str]:
    """What bash's completion, loaded as a user loads it, offers at the end of ``line``."""
    script = (
        f'PATH="{Path(command("coldiron")).parent}:$PATH"\n'
        'eval "$(coldiron --show-completion bash)"\n'
        f"COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
        "_coldiron_completion coldiron\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=place, timeout=60)
    assert done.stderr == ""
    return [word for word in done.stdout.split() if word]


def test_bash_completes_stages_nodes_and_runs(place: Path) -> None:
    assert "apply" in completed(place, "coldiron ap")
    assert completed(place, "coldiron apply st") == ["storage"]
    assert completed(place, "coldiron apply -i inv --limit gpu0") == ["gpu01", "gpu02", "gpu03"]
    assert completed(place, "coldiron runs show -i inv 2026")[0].startswith("20261121T")
    (place / "inv" / "cluster.yml").write_text("broken: [")
    assert completed(place, "coldiron apply -i inv --limit g") == []


SHELLS = ("bash", "zsh", "fish")


def script_for(place: Path, shell: str) -> str:
    done = subprocess.run(
        [command("coldiron")],
        capture_output=True,
        text=True,
        cwd=place,
        timeout=60,
        env=os.environ | {"_COLDIRON_COMPLETE": f"source_{shell}"},
    )
    assert done.returncode == 0
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(place: Path, shell: str) -> None:
    assert f"_COLDIRON_COMPLETE=complete_{shell}" in script_for(place, shell)


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell)])
def test_each_shell_of_this_machine_can_read_its_script(place: Path, shell: str) -> None:
    check = subprocess.run(
        [shell, "-n"], input=script_for(place, shell), capture_output=True, text=True, timeout=30
    )
    assert (check.returncode, check.stderr) == (0, "")
