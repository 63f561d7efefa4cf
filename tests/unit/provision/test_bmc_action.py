"""Role bmc as Ansible runs it: check mode and diff are right, a second run changes nothing, no secret is shown."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coldiron.testing.stages import find_collection
from tests.unit.provision.bmc_server import PASSWORD, USER, Machine, Served, serving

# Ansible as it is, but that a kept module runs in the worker that asks for it: it is the start of a process for each
# that takes the time. With REAL they are processes.
PROGRAM = """\
import os, sys
from ansible.cli.playbook import main
from ansible.plugins.action import ActionBase
from tests.unit.provision.bmc_modules import call

def execute(self, module_name, module_args, task_vars):
    words = {key: str(value) if type(value).__name__ == "Hidden" else value for key, value in module_args.items()}
    for given in self._task.environment or []:
        os.environ.update(given)
    if self._task.check_mode:
        words["_ansible_check_mode"] = True
    return call(module_name, words, False)

if "REAL" not in os.environ:
    ActionBase._execute_module = execute
sys.argv[0] = "ansible-playbook"
main()
"""
DECLARED = {"bmc_attributes": {"NumLock": "Off"}, "bmc_boot_order": ["Boot0002"]}


def play(*files: str, check: bool = False, **variables: Any) -> dict[str, Any]:
    """A play that runs task files of the role, in order."""
    roles = [
        {"ansible.builtin.include_role": {"name": "coldiron.cluster.bmc", "tasks_from": file}}
        for file in files
    ]
    return {
        "hosts": "all", "gather_facts": False, "check_mode": check, "diff": check, "vars": variables, "tasks": roles
    }  # fmt: skip


def run(folder: Path, served: Served, *plays: dict[str, Any], talkative: bool = False) -> str:
    """What Ansible says of plays on one machine, in one process."""
    variables = {
        "bmc_address": "127.0.0.1",
        "bmc_port": served.port,
        "bmc_user": USER,
        "bmc_password": PASSWORD,
        "bmc_ca": served.ca,
        "bmc_grace_seconds": 2,
        "bmc_proof_seconds": 2,
        "bmc_mac": served.machine.mac,
    }
    listed = " ".join(f"{name}='{value}'" for name, value in variables.items())
    (folder / "hosts.ini").write_text(f"gpu01 {listed}\n", encoding="utf-8")
    (folder / "plays.yml").write_text(json.dumps(plays), encoding="utf-8")
    words = ["-i", str(folder / "hosts.ini"), str(folder / "plays.yml"), "-vvvvv" if talkative else "-v"]
    collection = find_collection()
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(collection / "ansible.cfg"),
        "PYTHONPATH": str(collection),
    }
    if talkative:
        environment["REAL"] = "1"
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=240
    )
    said = ran.stdout + ran.stderr
    assert PASSWORD not in said
    return said


@pytest.fixture
def served(tmp_path: Path):  # type: ignore[no-untyped-def]
    with serving(tmp_path / "bmc", Machine()) as found:
        yield found


def test_check_then_do_then_nothing_left_to_do_and_a_refusal_is_one_line(
    tmp_path: Path, served: Served
) -> None:
    said = run(
        tmp_path,
        served,
        play("facts"),
        play("main", "power_on", check=True, **DECLARED),
        play("main", "power_on", **DECLARED),
        play("main", "power_on", **DECLARED),
        play("power_off", bmc_serial="OTHER"),
    )
    asked, checked, did, again, refused = re.split(r"^PLAY \[all\].*$", said, flags=re.MULTILINE)[1:]
    assert "serials:\n" in asked or '"serials"' in asked
    assert checked.count("changed: [gpu01") == 2, checked
    assert re.search(r"-\s+NumLock: 'On'\n\+\s+NumLock: 'Off'|\+\s+NumLock: 'Off'", checked)
    assert "+power: 'On'" in checked
    # Had check mode sent anything, there would be nothing left to change.
    assert did.count("changed: [gpu01") == 2, did
    assert "changed: [gpu01" not in again
    assert "gpu01: BMC 127.0.0.1: it belongs to a machine with serial SN0001" in refused
    assert "Traceback" not in said
    assert (served.machine.power, served.machine.bios["NumLock"]) == ("On", "Off")


def test_nothing_secret_is_said_at_its_most_talkative(tmp_path: Path, served: Served) -> None:
    """With Ansible's own debug log, and with modules that are processes as they are at any other time."""
    said = run(tmp_path, served, play("power_on"), talkative=True)
    assert "changed=1" in said, said
    assert "AnsiballZ_redfish" in said
    assert served.machine.power == "On"
