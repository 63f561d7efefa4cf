"""Every run begins with the plan: refused before any node is contacted, in lines that a person can read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plan.test_cli import CLASH, SOUND

ROOT = Path(__file__).parents[2]
# A run that got past the plan would not get past this: the addresses are for documentation, nobody has them.
NOWHERE = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_TIMEOUT": "1"}


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text(
        "dns_forwarders: [192.0.2.53]\nansible_connection: local\n"
    )
    return tmp_path


def run(inventory: Path, *words: str, playbook: str = "site.yml") -> tuple[int, str]:
    ansible = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [str(ansible), "-i", str(inventory), str(ROOT / "playbooks" / playbook), *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | NOWHERE,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "words", [[], ["--limit", "storage01"], ["--check"], ["--tags", "plan"]], ids=" ".join
)
def test_a_refused_plan_stops_the_run_before_any_node(inventory: Path, words: list[str]) -> None:
    (inventory / "cluster.yml").write_text(CLASH)
    code, text = run(inventory, *words)
    assert code == 2
    lines = text.splitlines()
    # The findings are lines of their own, not a blob.
    assert any(line.startswith("[ERROR]: refused: 1 to mend") for line in lines)
    assert any(line.startswith(f"{inventory}/cluster.yml:19: storage01") for line in lines)
    assert "no node was contacted" in text
    assert "TASK [Validate | Check every option of every role]" not in text
    recap = [line for line in lines if "failed=1" in line]
    assert len(recap) == 1
    assert all("changed=0" in line for line in recap)


@pytest.mark.parametrize("words", [["-e", "coldiron_plan=false"], ["--skip-tags", "plan"]], ids=" ".join)
def test_it_can_be_left_out(inventory: Path, words: list[str]) -> None:
    # The next look, at the roles' options, is what stops this run.
    (inventory / "group_vars" / "all.yml").write_text("base_timezone: ../etc\n")
    (inventory / "cluster.yml").write_text(CLASH)
    code, text = run(inventory, *words, playbook="validate.yml")
    assert code == 2
    assert "refused: " not in text
    assert "../etc" in text


def test_a_sound_plan_lets_the_run_go_on(inventory: Path) -> None:
    (inventory / "group_vars" / "all.yml").write_text("base_timezone: ../etc\n")
    (inventory / "cluster.yml").write_text(SOUND.replace("memory_gib: 64", "memory_gib: 8"))
    code, text = run(inventory, "-v", playbook="validate.yml")
    assert code == 2
    assert "sound: nothing to mend, 2 warnings" in text
    assert f"to read: coldiron plan -i {inventory}" in text
    assert "../etc" in text
    # Once, whatever the number of nodes.
    assert text.count("to read: ") == 1


def test_an_inventory_without_a_cluster_yml_is_none_of_its_business(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        "all:\n  vars: {coldiron_cluster: hopper, ansible_connection: local, base_timezone: ../etc}\n"
        "  children: {cluster: {hosts: {head01: {ansible_host: 192.0.2.1}}}}\n"
    )
    code, text = run(tmp_path / "hosts.yml", playbook="validate.yml")
    assert code == 2
    assert "skipping: [head01]" in text
    assert "TASK [Validate | Check every option of every role]" in text


def test_a_node_may_leave_a_site_that_a_plan_refuses(inventory: Path) -> None:
    (inventory / "group_vars" / "all.yml").write_text("base_timezone: ../etc\n")
    (inventory / "cluster.yml").write_text(CLASH)
    code, text = run(inventory, "-e", '{"coldiron_nodes": ["storage01"]}', playbook="node_remove.yml")
    assert code == 2
    assert "refused: " not in text
    assert "../etc" in text
