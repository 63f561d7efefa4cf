"""Role bmc as Ansible runs it: check mode and diff are right, a second run changes nothing, no secret is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coldiron.testing.stages import find_collection
from tests.unit.provision.bmc_server import PASSWORD, USER, Machine, Served, serving

PLAYBOOK = """\
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: coldiron.cluster.bmc
        tasks_from: "{{ item }}"
      loop: "{{ files }}"
"""


def run(folder: Path, served: Served, files: list[str], *words: str, **given: str) -> str:
    """What Ansible says of task files of the role, run in order on one machine."""
    variables = {
        "bmc_address": "127.0.0.1",
        "bmc_port": served.port,
        "bmc_user": USER,
        "bmc_password": PASSWORD,
        "bmc_ca": served.ca,
        "bmc_grace_seconds": 2,
        "bmc_proof_seconds": 2,
        "bmc_mac": served.machine.mac,
        **given,
    }
    listed = " ".join(f"{name}='{value}'" for name, value in variables.items())
    (folder / "hosts.ini").write_text(f"gpu01 {listed}\n", encoding="utf-8")
    (folder / "play.yml").write_text(PLAYBOOK, encoding="utf-8")
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    asked = [program, "-i", str(folder / "hosts.ini"), str(folder / "play.yml"), *words]
    asked += ["-e", f"{{'files': {files}}}"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(find_collection() / "ansible.cfg")}
    ran = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=240)
    said = ran.stdout + ran.stderr
    assert PASSWORD not in said
    return said


@pytest.fixture
def served(tmp_path: Path):  # type: ignore[no-untyped-def]
    with serving(tmp_path / "bmc", Machine()) as found:
        yield found


@pytest.mark.slow
def test_check_then_do_then_nothing_left_to_do(tmp_path: Path, served: Served) -> None:
    declared = {"bmc_attributes": '{"NumLock": "Off"}', "bmc_boot_order": '["Boot0002"]'}
    files = ["main", "power_on"]
    checked = run(tmp_path, served, files, "--check", "--diff", **declared)
    assert "changed=2" in checked, checked
    assert re.search(r"-\s+NumLock: 'On'\n\+\s+NumLock: 'Off'|\+\s+NumLock: 'Off'", checked)
    assert "+power: 'On'" in checked
    assert served.machine.sent == []
    # At its most talkative, and with Ansible's own debug log: no secret in it.
    done = run(tmp_path, served, files, "-vvvvv", **declared)
    assert "changed=2" in done
    assert (served.machine.power, served.machine.bios["NumLock"]) == ("On", "Off")
    assert "changed=0" in run(tmp_path, served, files, **declared)


def test_a_refusal_is_one_line_and_facts_are_there_to_use(tmp_path: Path, served: Served) -> None:
    said = run(tmp_path, served, ["facts"], "-v")
    assert "serials:\n" in said or '"serials"' in said
    said = run(tmp_path, served, ["power_on"], bmc_serial="OTHER")
    assert "gpu01: BMC 127.0.0.1: it belongs to a machine with serial SN0001" in said
    assert "Traceback" not in said
    assert served.machine.power == "Off"
