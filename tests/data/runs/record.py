"""Record the runs in this directory anew: real runs of small playbooks over hosts that are this machine.

    python tests/data/runs/record.py [NAME...]

Names of this machine, of its user and of its directories are replaced before anything is written.
"""

from __future__ import annotations

import getpass
import gzip
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldiron.run import engine
from coldiron.run.events import END, START, STOP, Event
from coldiron.run.trim import trim

HERE = Path(__file__).parent
STAGES = ("base", "storage", "scheduler")
LOCAL = "ansible_connection: local, ansible_python_interpreter: PYTHON"
# A port of this machine that nobody listens on.
DEAD = "ansible_host: 127.0.0.1, ansible_port: 1, ansible_connection: ssh"

STAGE = """\
- name: Look before touching anything
  hosts: all
  gather_facts: false
  tasks:
    - name: Validate | Check every option of every role
      ansible.builtin.assert: {that: true, quiet: true}

- name: Base
  hosts: all
  gather_facts: false
  roles: [base, time]

- name: Storage servers
  hosts: storage*
  gather_facts: false
  roles: [nfs]

- name: Storage clients
  hosts: all:!storage*
  gather_facts: false
  roles: [nfs]

- name: Controller
  hosts: head*
  gather_facts: false
  roles: [slurm_controller]

- name: Workers
  hosts: gpu*
  gather_facts: false
  roles: [slurm_worker]
"""
PLAYS = {
    "Look before touching anything": "check",
    "Base": "base",
    "Storage servers": "storage",
    "Storage clients": "storage",
    "Controller": "scheduler",
    "Workers": "scheduler",
}
HANDLER = '- name: Restart chrony\n  ansible.builtin.command: "true"\n'
ROLES = {
    "base": """\
- name: Base | Name the node
  ansible.builtin.copy: {content: "{{ inventory_hostname }}\\n", dest: "NODES/{{ inventory_hostname }}.hostname"}
- name: Base | Settle
  ansible.builtin.command: sleep 0.2
  changed_when: false
""",
    "time": """\
- name: Time | Ensure the node follows the cluster's clock
  ansible.builtin.copy: {content: "server head01 iburst\\n", dest: "NODES/{{ inventory_hostname }}.chrony"}
  notify: Restart chrony
""",
    "nfs": """\
- name: Storage | Ensure the shared directories are there
  ansible.builtin.file: {path: "NODES/{{ inventory_hostname }}.{{ item }}", state: directory, mode: "0755"}
  loop: [home, scratch]
""",
    "slurm_controller": """\
- name: Scheduler | Ensure slurmctld knows the nodes
  ansible.builtin.copy:
    content: "NodeName={{ ansible_play_hosts_all | join(',') }}\\n"
    dest: "NODES/{{ inventory_hostname }}.slurm.conf"
""",
    "slurm_worker": """\
- name: Scheduler | Ensure slurmd runs
  ansible.builtin.copy: {content: "on\\n", dest: "NODES/{{ inventory_hostname }}.slurmd"}
""",
}  # fmt: skip


@dataclass
class Scene:
    """A run to record: its hosts, and the roles that differ from the ordinary ones."""

    hosts: list[str] = field(default_factory=lambda: ["head01", "storage01", "gpu01", "gpu02", "gpu03"])
    dead: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    handler: str = HANDLER
    check: bool = False
    twice: bool = False
    kill: str = ""  # the task in which the run dies
    stop: str = ""  # the task in which a person stops it
    wrong: str = ""  # in place of the playbook's text


def _scenes() -> dict[str, Scene]:
    loop = (
        '- name: Storage | Ensure the exports are there\n  ansible.builtin.command: test "{{ item }}" != /scratch'
        "\n  changed_when: false\n  loop: [/home, /scratch, /software]\n"
    )
    rescue = """\
- name: Scheduler | Ensure slurmd runs
  block:
    - name: Scheduler | Start slurmd
      ansible.builtin.command: test {{ inventory_hostname }} != gpu02
      changed_when: false
  rescue:
    - name: Scheduler | Make its directory anew
      ansible.builtin.file: {path: "NODES/{{ inventory_hostname }}.spool", state: directory}
- name: Scheduler | Ensure slurmd answers
  ansible.builtin.command: "true"
  changed_when: false
"""
    always = """\
- name: Scheduler | Ensure slurmd runs
  block:
    - name: Scheduler | Start slurmd
      ansible.builtin.command: test {{ inventory_hostname }} != gpu02
      changed_when: false
  always:
    - name: Scheduler | Keep its last words
      ansible.builtin.command: "true"
      changed_when: false
"""
    ignored = (
        "- name: Time | Look for another clock daemon\n  ansible.builtin.command: systemctl is-active ntpd-of-old\n"
        "  changed_when: false\n  ignore_errors: true\n"
    )
    hidden = (
        "- name: Base | Set the password\n  ansible.builtin.copy:\n    content: hunter2-hunter2\n"
        '    dest: "NODES/{{ inventory_hostname }}.shadow"\n  no_log: true\n'
    )
    refused = (
        "- name: Time | Ensure the node follows the cluster's clock\n  ansible.builtin.fail:\n    msg: >-\n"
        "      time_servers has no server that answers; write one that does to group_vars/all/site.yml\n"
        "  when: inventory_hostname == 'gpu01'\n"
    )
    slow = "- name: Base | Wait for the package manager\n  ansible.builtin.command: sleep 60\n"
    many = ["head01", "storage01", *(f"gpu{number:02d}" for number in range(1, 63))]
    return {
        "ok": Scene(),
        "no-change": Scene(twice=True),
        "check": Scene(check=True),
        "unreachable": Scene(dead=("gpu02",)),
        "failed": Scene(roles={"time": refused}),
        "loop": Scene(roles={"nfs": loop}),
        "rescue": Scene(roles={"slurm_worker": rescue}),
        "always": Scene(roles={"slurm_worker": always}),
        "ignored": Scene(roles={"time": ignored}),
        "handler": Scene(handler=HANDLER.replace('"true"', "test {{ inventory_hostname }} != gpu03")),
        "hidden": Scene(roles={"base": hidden}),
        "killed": Scene(roles={"base": slow}, kill="Base | Wait for the package manager"),
        "interrupted": Scene(roles={"base": slow}, stop="Base | Wait for the package manager"),
        "wrong": Scene(wrong="- name: Base\n  hosts: all\n  taks: []\n"),
        "many": Scene(
            hosts=many, dead=("gpu17", "gpu18"), roles={"slurm_worker": rescue.replace("gpu02", "gpu33")}
        ),
    }


def record(name: str, scene: Scene) -> None:
    """Run one scene and write ``NAME.jsonl.gz``."""
    with tempfile.TemporaryDirectory(prefix="record-") as folder:
        place = Path(folder)
        _write(place, scene)
        os.chdir(place)
        if scene.twice:
            _run(place, scene, [])
        lines: list[str] = []
        _run(place, scene, lines)
    for old, new in _names(place).items():
        lines = [line.replace(old, new) for line in lines]
    with gzip.GzipFile(HERE / f"{name}.jsonl.gz", "wb", mtime=0) as stream:
        stream.write("".join(lines).encode())
    print(f"{name}: {len(lines)} events")


def _names(place: Path) -> dict[str, str]:
    """What must not be in a recording, with what stands there instead; longer names first."""
    names = {
        f"{place}/nodes": "/etc/nodes",
        f"{place}/": "",
        str(place): ".",
        sys.executable: "/usr/bin/python3",
        str(Path(sys.executable).parent): "/usr/bin",
        str(Path(sys.prefix)): "/usr",
        platform.node(): "controller",
    }
    return {old: names[old] for old in sorted(names, key=len, reverse=True)}


def _write(place: Path, scene: Scene) -> None:
    hosts = "".join(
        f"    {host}: {{{DEAD if host in scene.dead else LOCAL}}}\n".replace("PYTHON", sys.executable)
        for host in scene.hosts
    )
    nodes = place / "nodes"
    nodes.mkdir()
    (place / "ansible.cfg").write_text("[defaults]\nforks = 16\nnocows = true\n")
    (place / "hosts.yml").write_text(f"all:\n  hosts:\n{hosts}")
    (place / "site.yml").write_text(scene.wrong or STAGE)
    for role, text in {**ROLES, **scene.roles}.items():
        for part, content in (("tasks", text), ("handlers", scene.handler)):
            path = place / "roles" / role / part / "main.yml"
            path.parent.mkdir(parents=True)
            path.write_text(content.replace("NODES", str(nodes)))


def _run(place: Path, scene: Scene, lines: list[str]) -> None:
    began = time.time()
    groups = {"storage": [], "scheduler": []}  # type: dict[str, list[str]]
    groups["check"] = groups["base"] = groups["storage"] = scene.hosts
    groups["scheduler"] = [host for host in scene.hosts if host.startswith(("head", "gpu"))]
    header = {
        "id": "20261121T165307Z-apply-a1b2",
        "verb": "apply",
        "command": ["coldiron", "apply", "-i", "inventories/hopper"],
        "plain": "ansible-playbook coldiron.cluster.site -i inventories/hopper",
        "started": began,
        "user": "ada",
        "machine": "controller",
        "pid": 4711,
        "cluster": "hopper",
        "inventory": "inventories/hopper",
        "playbooks": ["coldiron.cluster.site"],
        "stages": ["check", *STAGES],
        "hosts": scene.hosts,
        "check": scene.check,
        "diff": True,
        "revision": "3b31c8306c1f",
        "versions": {
            "coldiron": "0.1.0",
            "ansible-core": "2.19.14",
            "ansible-runner": "2.4.3",
            "python": "3.11",
        },
    }

    def add(moment: float, kind: str, data: Mapping[str, Any]) -> None:
        lines.append(Event(len(lines) + 1, moment, kind, data).line() + "\n")

    plays = [{"name": play, "stage": stage} for play, stage in PLAYS.items()]
    add(began, START, {"header": header, "plays": plays, "takes_part": groups})
    stop = engine.Stop()

    def take(event: engine.RawEvent) -> None:
        if (kept := trim(event)) is None:
            return
        add(*kept)
        data = kept[2]
        last = kept[1] == "runner_on_start" and data.get("host") == scene.hosts[-1]
        if last and data.get("task") in (scene.kill, scene.stop) and not stop.count:
            if scene.kill:
                os.killpg(int(event["pid"]), signal.SIGKILL)
                return
            add(time.time(), STOP, {"count": 1})
            stop.ask()

    job = engine.Job(["site.yml"], Path("hosts.yml"), check=scene.check, diff=True)
    private = place / "private"
    private.mkdir(mode=0o700)
    plain = {
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "USER": getpass.getuser(),
    }
    code = engine.run(job, private, plain, take, lambda _text: None, stop)
    shutil.rmtree(private)
    if scene.kill:
        return
    outcome = {0: "ok", 2: "failed", 4: "unreachable"}.get(code, "error")
    outcome = "error" if scene.wrong else outcome
    outcome = "interrupted" if stop.count else outcome
    exits = {"ok": 0, "failed": 1, "unreachable": 1, "interrupted": 4, "error": 5}
    add(time.time(), END, {"outcome": outcome, "exit_code": exits[outcome]})


def main() -> None:
    """Record the scenes that are named, all when none is."""
    scenes = _scenes()
    for name in sys.argv[1:] or scenes:
        record(name, scenes[name])


if __name__ == "__main__":
    main()
