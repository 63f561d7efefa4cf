"""The playbooks and the action plugin as ansible-playbook runs them, on the controller alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from coldiron.repair import keep
from coldiron.repair.journal import path_of, read
from coldiron.repair.machine import ROWS, Kind, State
from coldiron.run.catalog import Catalog
from coldiron.run.lock import held_by
from coldiron.testing.stages import find_collection
from tests.unit.repair.samples import CLUSTER

PLAYBOOKS = find_collection() / "playbooks"
PLAY = """
- name: Repair
  hosts: cpu01
  gather_facts: false
  vars:
    some_password: hunter2hunter2
  tasks:
    - name: Open
      coldiron.cluster.repair_state:
        do: open
        consent: "{{ coldiron_consent | default([]) }}"
    - name: Begin
      coldiron.cluster.repair_state:
        state: drain
      register: drain
    - name: End
      coldiron.cluster.repair_state:
        do: end
        state: drain
      when: drain.due
    - name: Begin
      coldiron.cluster.repair_state:
        state: diagnose
      when: stop_here is not defined
    - name: Judge
      coldiron.cluster.repair_state:
        do: judge
        files:
          journal-0.txt: "somebody typed hunter2hunter2"
      when: stop_here is not defined
    - name: Look
      coldiron.cluster.repair_state:
        do: where
      register: where
    - name: Tell
      ansible.builtin.debug:
        msg: "it is at {{ where.next }}"
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "cluster.yml").write_text(CLUSTER, encoding="utf-8")
    return folder


def play(inventory: Path, text: str = PLAY, **variables: object) -> tuple[int, str]:
    """Run a play and return the exit code and all that was printed."""
    file = inventory.parent / "play.yml"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"), str(file), "-i", str(inventory),
            "-e", json.dumps(variables),
        ],
        capture_output=True,
        text=True,
        cwd=inventory.parent,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_INVENTORY_ENABLED": "coldiron.cluster.cluster,yaml"},
        timeout=90,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_plain_run_keeps_the_same_journal_and_goes_on_where_it_ended(inventory: Path) -> None:
    code, said = play(inventory, coldiron_consent=["cpu01"], stop_here=True)
    assert code == 0, said
    assert "it is at diagnose" in said
    code, said = play(inventory, coldiron_consent=["cpu01"])
    assert code == 0, said
    assert "it is at power" in said
    repairs = keep.directory(inventory)
    kinds = [event.kind.removeprefix("repair_") for event in read(path_of(repairs, "cpu01"))]
    assert kinds == ["open", "begin", "end", "resumed", "begin", "end"]
    # The lock went with ansible-playbook, and no secret is in the bundle.
    end = time.monotonic() + 5
    while held_by([repairs / "cpu01.lock"]) is not None:
        assert time.monotonic() < end
        time.sleep(0.05)
    (evidence,) = (repairs / "cpu01").glob("*/evidence/journal-0.txt")
    assert evidence.read_text() == "somebody typed ********"


def test_a_plain_run_without_consent_is_refused(inventory: Path) -> None:
    code, said = play(inventory)
    assert code == 2
    assert "cpu01: deploy would wipe cpu01; type the serial, or give --yes cpu01" in " ".join(said.split())


def test_a_mistake_in_a_play_is_one_sentence(inventory: Path) -> None:
    text = PLAY.replace("state: drain\n      register", "state: drian\n      register")
    code, said = play(inventory, text, coldiron_consent=["cpu01"])
    assert code == 2
    assert "'drian' is not a valid State" in said


def test_every_state_has_its_playbook_and_they_come_in_the_tables_order() -> None:
    names = [
        item["ansible.builtin.import_playbook"]
        for item in yaml.safe_load((PLAYBOOKS / "repair.yml").read_text())
    ]
    assert names == [
        "validate.yml", "repair_open.yml", *(f"repair_{row.state}.yml" for row in ROWS), "repair_tell.yml",
    ]  # fmt: skip


def test_what_an_alert_may_do_has_no_playbook_in_it_that_writes() -> None:
    items = yaml.safe_load((PLAYBOOKS / "diagnose.yml").read_text())
    names = [item["ansible.builtin.import_playbook"] for item in items]
    kept = [row.state for row in ROWS if Kind.WEBHOOK not in row.skipped]
    assert names == [
        "validate.yml", "repair_open.yml", *(f"repair_{state}.yml" for state in kept), "repair_tell.yml",
    ]  # fmt: skip
    # Jobs run on where a node is only looked at, also when the playbook is typed by hand.
    for item in items:
        if item["ansible.builtin.import_playbook"] in ("repair_open.yml", "repair_drain.yml"):
            assert item["vars"] == {"coldiron_repair_kind": "webhook"}


def test_converge_has_every_stage_of_the_site_but_the_one_that_deploys() -> None:
    def stages(name: str) -> list[str]:
        items = yaml.safe_load((PLAYBOOKS / name).read_text())
        return [
            item["ansible.builtin.import_playbook"]
            for item in items
            if "ansible.builtin.import_playbook" in item
        ]

    assert stages(f"repair_{State.CONVERGE}.yml") == [
        name for name in stages("site.yml") if "provision" not in name
    ]


def test_the_live_view_calls_the_states_by_their_names() -> None:
    stages = list(dict.fromkeys(play.stage for play in Catalog().plays(["repair"])))
    assert [stage for stage in stages if stage in set(State)] == [row.state.value for row in ROWS]
