"""Which scenarios run, in which order, and what is said of them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from coldiron.errors import ColdironError
from coldiron.testing import scenarios
from tests.unit.testing.toy import Toy, write

MOLECULE = """\
#!{python}
import sys
words = sys.argv[1:]
if "part" in words:
    print("INFO     part ➜ converge: Executing")
    print("it broke")
    sys.exit(1)
print("INFO     x ➜ verify: Executing")
"""


@pytest.fixture
def root(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy as a checkout with scenarios, and a molecule that fails for the role ``part``."""
    for name in ("default", "part", "site", "toy"):
        write(toy.collection / "molecule" / name / "molecule.yml", "---\n")
    script = write(toy.root / "bin" / "molecule", MOLECULE.format(python=sys.executable), executable=True)
    monkeypatch.setattr(scenarios, "command", lambda name: str(script))
    return toy.collection


def test_scenarios_run_in_the_order_of_the_stages(root: Path) -> None:
    assert scenarios.scenarios_of(root) == ["toy", "part", "site"]


def test_a_change_touches_its_role_and_the_site() -> None:
    known = ["toy", "part", "site"]
    assert scenarios.touched(["roles/toy/tasks/main.yml"], known) == ["toy", "site"]
    assert scenarios.touched(["molecule/part/molecule.yml"], known) == ["part"]
    assert scenarios.touched(["plugins/action/converge.py"], known) == known
    assert scenarios.touched(["docs/testing.md"], known) == []


def test_changed_files_are_git_s(root: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.invalid"]
        subprocess.run(["git", "-C", str(root), *identity, *words], check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "x")
    write(root / "roles" / "toy" / "defaults" / "main.yml", "toy_size: 4\n")
    write(root / "roles" / "part" / "new.yml", "")
    assert scenarios.changed_files(root, "HEAD") == ["roles/toy/defaults/main.yml", "roles/part/new.yml"]
    assert scenarios.choose(root, [], "HEAD") == ["toy", "part", "site"]
    assert scenarios.choose(root, ["toy"], "HEAD") == ["toy"]
    with pytest.raises(ColdironError, match="git diff"):
        scenarios.changed_files(root, "no-such-revision")


def test_an_unknown_scenario_is_refused(root: Path) -> None:
    with pytest.raises(ColdironError, match="no scenario lamp: choose from toy, part, site"):
        scenarios.choose(root, ["lamp"], None)
    assert scenarios.main(["--role", "lamp"]) == 2


def test_a_failure_is_told_and_the_others_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scenarios.main(["--keep"]) == 1
    output = capsys.readouterr().out
    assert "FAILED in converge" in output
    assert "it broke" in output
    assert "2 of 3 scenarios passed" in output
    assert scenarios.main(["--role", "toy"]) == 0
    assert (root / ".cache" / "molecule" / "destroy.log").is_file()


def test_nothing_touched_is_no_failure(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenarios, "changed_files", lambda root, revision: ["docs/x.md"])
    assert scenarios.main(["--changed-since", "main"]) == 0
    assert "no scenario is touched" in capsys.readouterr().out


def test_a_scenario_that_hangs_is_given_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it has started, as Ansible's workers in sessions of their own."""
    beat = root / "beat"
    script = write(
        root / "hang",
        f"#!/bin/sh\nsetsid sh -c 'while sleep 0.05; do date +%N > {beat}; done' &\nexec sleep 30\n",
        executable=True,
    )
    monkeypatch.setattr(scenarios, "command", lambda name: str(script))
    monkeypatch.setattr(scenarios, "SCENARIO_SECONDS", 5)
    (outcome,) = scenarios.run_scenarios(root, ["toy"])
    assert not outcome.passed
    assert outcome.action == "start"
    last = beat.read_text()
    time.sleep(0.5)
    assert beat.read_text() == last
