"""The steps of a scenario: where it starts, when the converged nodes are made anew, what --check may say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from coldiron.errors import ColdironError
from coldiron.testing import sabotage, steps
from coldiron.testing.stages import find_collection, read_plays
from tests.unit.testing.toy import Toy, write


class Commands:
    """Stands in for the commands that the steps call, and remembers them."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.snapshots: list[str] = []
        self.recap = "node01 : ok=3 changed=0 unreachable=0 failed=0"

    def __call__(self, words: Sequence[str], what: str) -> str:
        line = " ".join([Path(words[0]).name, *words[1:]])
        self.called.append(line)
        if "rack snapshot" in line:
            if "--json" in line:
                return json.dumps([{"name": name} for name in self.snapshots])
            if "--remove" in line:
                self.snapshots.remove(words[5])
            else:
                self.snapshots.append(words[5])
        return self.recap if "ansible-playbook" in line else ""


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """The commands, replaced."""
    replaced = Commands()
    monkeypatch.setattr(steps, "call", replaced)
    return replaced


@pytest.fixture
def shared(toy: Toy) -> Path:
    """The toy's inventory at the place of the shared nodes'; a scheduler stage with a role of its own."""
    inventory = toy.collection / "molecule" / "default" / "inventory"
    inventory.parent.mkdir(parents=True)
    toy.inventory.rename(inventory)
    with (toy.collection / "playbooks" / "site.yml").open("a") as stream:
        stream.write("- ansible.builtin.import_playbook: scheduler.yml\n")
    write(
        toy.collection / "playbooks" / "scheduler.yml",
        "- name: S\n  hosts: cluster\n  roles: [coldiron.cluster.late]\n",
    )
    write(toy.collection / "roles" / "late" / "defaults" / "main.yml", "late_x: 1\n")
    return inventory


def test_a_role_of_the_first_stages_starts_bare(shared: Path, commands: Commands) -> None:
    assert steps.main(["start", "--scenario", "toy"]) == 0
    assert steps.main(["start", "--scenario", "site"]) == 0
    assert commands.called[-1] == f"coldiron rack reset -i {shared}"
    assert commands.called.count(f"coldiron rack reset -i {shared}") == 2
    assert f"coldiron rack up -i {shared}" in commands.called


def test_the_stages_that_start_bare_are_of_the_site() -> None:
    """A stage by another name would be a late one, and its roles' scenarios would converge the whole site first."""
    stages = {play.playbook.stem for play in read_plays(find_collection() / "playbooks" / "site.yml")}
    assert set(steps.BARE_STAGES) <= stages


def test_a_late_role_starts_from_converged_nodes_made_once(shared: Path, commands: Commands) -> None:
    name = steps.start(shared, "late")
    assert commands.snapshots == [name]
    assert any("ansible-playbook coldiron.cluster.site" in line for line in commands.called)
    commands.called.clear()
    assert steps.start(shared, "late") == name
    assert commands.called[-1] == f"coldiron rack reset -i {shared} --to {name}"
    assert not any("ansible-playbook" in line for line in commands.called)


def test_a_changed_role_makes_the_converged_nodes_anew(shared: Path, commands: Commands, toy: Toy) -> None:
    first = steps.start(shared, "late")
    write(toy.collection / "roles" / "late" / "defaults" / "main.yml", "late_x: 2\n")
    second = steps.start(shared, "late")
    assert first != second
    assert commands.snapshots == [second]


def test_the_rack_s_state_is_no_change(shared: Path, toy: Toy) -> None:
    before = steps.digest(toy.collection, shared)
    write(shared / ".rack" / "state.json", "{}")
    write(toy.collection / "roles" / "toy" / "tests" / "test_more.py", "")
    assert steps.digest(toy.collection, shared) == before


def test_check_has_to_be_silent_before_anything_is_broken(
    shared: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken: list[list[str]] = []
    monkeypatch.setattr(sabotage, "run", lambda words: broken.append(words) or 0)
    extra = ["--inventory", "/variables"]
    assert steps.main(["prove", "--scenario", "toy", *extra]) == 0
    assert broken == [["--inventory", str(shared), "--inventory", "/variables", "--role", "toy"]]
    assert commands.called[-1].endswith(f"-i {shared} -i /variables --check --tags toy")
    assert steps.main(["prove", "--scenario", "site"]) == 0
    commands.recap = "node01 : ok=3 changed=2 unreachable=0 failed=0"
    assert steps.main(["prove", "--scenario", "toy", *extra]) == 1
    assert "--check on converged nodes announces changes: node01 (2)" in capsys.readouterr().err
    assert len(broken) == 1


def test_up_and_down(shared: Path, commands: Commands) -> None:
    assert steps.main(["up"]) == 0
    assert steps.main(["down"]) == 0
    assert commands.called == [
        f"coldiron secrets init -i {shared}",
        f"coldiron rack up -i {shared}",
        f"coldiron rack down -i {shared}",
    ]


def test_a_failing_command_tells_its_last_words() -> None:
    assert steps.call(["sh", "-c", "echo fine"], "x") == "fine\n"
    with pytest.raises(ColdironError, match=r"x failed \(rc 3\):\nwords"):
        steps.call(["sh", "-c", "echo words >&2; exit 3"], "x")


def test_a_command_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_SECONDS", 0.2)
    with pytest.raises(ColdironError, match="no end within"):
        steps.call(["sleep", "5"], "x")


def test_the_environment_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_FORCE_COLOR", "1")
    environment = steps.environment()
    assert "ANSIBLE_FORCE_COLOR" not in environment
    assert environment["PATH"].startswith(str(Path(steps.command("x")).parent))
