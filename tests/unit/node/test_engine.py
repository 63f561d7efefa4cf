"""Playbooks through ansible-runner: the same as by ansible-playbook, and Ctrl-C ends them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.run.engine import plain_command, run_playbook

PLAY = """\
- name: Say what arrived
  hosts: here
  gather_facts: false
  tasks:
    - name: Write it down
      ansible.builtin.copy:
        content: "{{ [coldiron_nodes, ansible_check_mode, ansible_limit | default(''), ansible_run_tags] | to_json }}"
        dest: "{{ playbook_dir }}/seen.json"
        mode: "0600"
      check_mode: false
      tags: [always]
    - name: Wait
      ansible.builtin.command: sleep {{ wait | default(0) }}
      tags: [wait]
    - name: Fail
      ansible.builtin.fail:
        msg: as asked
      when: fail | default(false)
"""
INVENTORY = f"""\
here:
  hosts:
    one:
      ansible_connection: local
      ansible_python_interpreter: {sys.executable}
    two:
      ansible_connection: local
"""


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    (tmp_path / "ansible.cfg").write_text("[defaults]\nnocows = true\n")
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("ANSIBLE_"):
            monkeypatch.delenv(name)
    return tmp_path


def test_everything_arrives(play: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = run_playbook(
        "play.yml",
        Path("hosts.yml"),
        ["one"],
        ["wait"],
        {"coldiron_nodes": ["a b", "c'd"]},
        check=True,
        diff=True,
    )
    assert code == 0
    assert json.loads((play / "seen.json").read_text()) == [["a b", "c'd"], True, "one", ["wait"]]
    output = capfd.readouterr().out
    assert "TASK [Write it down]" in output
    # Into a pipe it goes without colours, and its differences are shown.
    assert "\x1b[" not in output
    assert "+++ after" in output
    assert not [
        name for name in os.listdir(play) if name not in {"play.yml", "hosts.yml", "ansible.cfg", "seen.json"}
    ]


def test_exit_codes(play: Path) -> None:
    assert run_playbook("play.yml", Path("hosts.yml"), ["one"], (), {"coldiron_nodes": [], "fail": True}) == 2
    assert run_playbook("none.yml", Path("hosts.yml")) == 1


def test_without_ansible_playbook(play: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ColdironError, match="could not be started") as caught:
        run_playbook("play.yml", Path("hosts.yml"))
    assert caught.value.exit_code == ExitCode.ENVIRONMENT


def test_ctrl_c_ends_the_run(play: Path) -> None:
    code = (
        "from pathlib import Path\nfrom coldiron.errors import ColdironError\n"
        "from coldiron.run.engine import run_playbook\n"
        "try:\n    run_playbook('play.yml', Path('hosts.yml'), ['one'], (), {'coldiron_nodes': [], 'wait': 45})\n"
        "except ColdironError as error:\n    print(error.message, int(error.exit_code))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 40
    while not (play / "seen.json").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert output.splitlines()[-1] == "interrupted; the same command goes on from here 4"


def test_plain_command() -> None:
    command = plain_command(
        "a.b.c", Path("inv/x y"), ["n1", "g"], ["time"], {"k": ["v"]}, check=True, diff=True
    )
    assert shlex.split(command) == [
        *("ansible-playbook", "a.b.c", "-i", "inv/x y", "-l", "n1,g", "-t", "time"),
        *("-e", '{"k": ["v"]}', "--check", "--diff"),
    ]
    assert plain_command("a.b.c", Path("inv")) == "ansible-playbook a.b.c -i inv"
