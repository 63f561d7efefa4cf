"""Two virtual nodes for the tests of converge, played on by a real ansible-playbook over ssh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CLUSTER = {
    "plugin": "coldiron.cluster.cluster",
    "domain": "converge.test",
    "networks": {"cluster": {"subnet": "10.78.102.0/24", "gateway": "10.78.102.254"}},
    "features": {"scheduler": "none", "home_backend": "provided"},
    "defaults": {"platform": "container", "distribution": "debian-13"},
    "nodes": [
        {"name": "head01", "kind": "head", "address": "10.78.102.1"},
        {
            "name": "cpu01",
            "kind": "cpu",
            "address": "10.78.102.2",
            "hardware": {"sockets": 1, "cores_per_socket": 2, "memory_gib": 2},
        },
    ],
}
CONFIG = """\
[defaults]
interpreter_python = /usr/bin/python3
callbacks_enabled = keep
callback_plugins = {folder}
roles_path = {folder}/roles
[inventory]
enable_plugins = coldiron.cluster.cluster
[ssh_connection]
pipelining = true
"""
# Ansible's own ways to print results differ between its lines; this keeps them as they are.
KEEP = """\
import json, os
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "notification", "keep"

    def keep(self, result, failed=False):
        whole = getattr(result, "result", None) or result._result
        kept = {key: whole[key] for key in whole if not key.startswith("_")} | {"failed": failed}
        with open(os.environ["KEEP_RESULTS"], "a") as stream:
            stream.write(json.dumps(kept, default=str) + "\\n")

    v2_runner_on_ok = keep

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.keep(result, True)
"""


@dataclass
class Played:
    """What a play printed and what its tasks returned."""

    rc: int
    output: str
    results: list[dict[str, Any]]


class Rack:
    """The nodes head01 and cpu01, and a folder for playbooks and roles."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inventory = folder / "inventory"
        self.inventory.mkdir()
        cluster = {**CLUSTER, "name": f"converge{os.getpid()}"}
        (self.inventory / "cluster.yml").write_text(yaml.safe_dump(cluster, sort_keys=False))
        (folder / "ansible.cfg").write_text(CONFIG.format(folder=folder))
        (folder / "keep.py").write_text(KEEP)

    def coldiron(self, *words: str, text: str = "") -> str:
        """Run `coldiron rack …`; an error shows what it said."""
        program = "import sys; from coldiron.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", program, "rack", *words, "-i", str(self.inventory)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def facts(self) -> dict[str, Any]:
        command = [
            str(Path(sys.executable).parent / "ansible-inventory"),
            "-i",
            str(self.inventory),
            "--list",
        ]
        env = os.environ | {"ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"), "KEEP_RESULTS": "/dev/null"}
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)["_meta"]["hostvars"]
        return found

    def ssh(self, node: str, command: str, text: str = "", check: bool = True) -> str:
        """Run a shell command on a node as root, with text for its standard input."""
        if not hasattr(self, "_hosts"):
            self._hosts = self.facts()
        host = self._hosts[node]
        line = f"ssh -i {host['ansible_ssh_private_key_file']} {host['ansible_ssh_common_args']} -o ControlMaster=auto "
        line += f"-o ControlPersist=60 root@{host['ansible_host']} {_quote(command)}"
        done = subprocess.run(["sh", "-c", line], input=text, capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def play(self, tasks: list[dict[str, Any]], *options: str, hosts: str = "head01", **extra: Any) -> Played:
        """Run the tasks; extra goes into the environment (ANSIBLE_…) or, as `play`, into the play itself."""
        book = self.folder / "book.yml"
        head = {"name": "Test", "hosts": hosts, "gather_facts": False, **extra.pop("play", {})}
        book.write_text(yaml.safe_dump([{**head, "tasks": tasks}], sort_keys=False))
        kept = self.folder / "results"
        kept.unlink(missing_ok=True)
        env = os.environ | {
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "KEEP_RESULTS": str(kept),
            **extra,
        }
        command = [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "-i",
            str(self.inventory),
            str(book),
        ]
        done = subprocess.run([*command, *options], capture_output=True, text=True, env=env, timeout=300)
        lines = kept.read_text().splitlines() if kept.exists() else []
        return Played(done.returncode, done.stdout + done.stderr, [json.loads(line) for line in lines])

    def converge(self, declaration: dict[str, Any], *options: str, **extra: Any) -> dict[str, Any]:
        """One converge task; returns its result, failed or not."""
        played = self.play(
            [{"name": "Converge", "coldiron.cluster.converge": declaration}], *options, **extra
        )
        assert played.results, played.output
        return played.results[-1]


def _quote(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
