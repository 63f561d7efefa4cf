"""A toy collection with one role, two nodes that are folders, and an ssh that runs commands right here."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from coldiron.testing.site import Site
from coldiron.testing.stages import find_collection

CHECKOUT = Path(__file__).parents[3]

FAKE_SSH = """\
#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift 2; done
host=$1
shift
cd "{nodes}/$host" 2>/dev/null || {{
    echo "ssh: connect to host $host port 22: No route to host" >&2
    exit 255
}}
exec sh -c "$*"
"""

# What a converge does to the toy nodes: everything is put back; a node that was right is not changed.
FAKE_PLAYBOOK = """\
#!{python}
import pathlib, sys
words = sys.argv[1:]
pathlib.Path({nodes!r}, "calls").open("a").write(" ".join(words) + "\\n")
for host in words[words.index("--limit") + 1].split(","):
    node = pathlib.Path({nodes!r}, host)
    wanted = {{"color": "blue\\n", "daemon": "on\\n"}}
    changed = 0
    for name, text in wanted.items():
        file = node / name
        if (node / "stuck").exists():
            continue
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            changed += 1
    print(f"{{host}} : ok=3 changed={{changed}} unreachable=0 failed=0")
sys.exit(2 if pathlib.Path({nodes!r}, "broken-playbook").exists() else 0)
"""

ROLE_TESTS = """\
def test_color(host, opts):
    assert host.run("cat color").stdout.strip() == opts["toy_color"]


def test_daemon(host):
    assert host.run("cat daemon").stdout == "on\\n"


def test_daemon_is_seen_from_everywhere(host, run_on, role_hosts):
    for name in role_hosts("toy"):
        assert run_on(name).run("cat daemon").stdout == "on\\n"


def test_password(host, opts):
    assert host.run("cat password").stdout != opts["toy_password"] + "x"
"""


@dataclass
class Toy:
    """Where the toy's parts are."""

    root: Path
    collection: Path
    inventory: Path
    nodes: Path
    playbook: Path

    def site(self) -> Site:
        """Load the toy's inventory anew."""
        return Site((self.inventory,), self.collection)

    @property
    def role(self) -> Path:
        """The folder of the toy's role."""
        return self.collection / "roles" / "toy"


def write(path: Path, text: str, executable: bool = False) -> Path:
    """Write a file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if executable:
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def make_toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """Make a converged toy cluster: two nodes, role toy on both, ssh and ansible-playbook replaced."""
    collection = tmp_path / "ansible_collections" / "coldiron" / "cluster"
    nodes = tmp_path / "nodes"
    write(collection / "playbooks" / "site.yml", "- ansible.builtin.import_playbook: stage_base.yml\n")
    write(
        collection / "playbooks" / "stage_base.yml",
        """\
- name: Look
  hosts: localhost
  tasks: []
- name: Base
  hosts: cluster
  tasks:
    - name: Toy
      ansible.builtin.import_role:
        name: coldiron.cluster.toy
    - name: Part
      ansible.builtin.import_role:
        name: coldiron.cluster.part
      when: part_wanted | bool
""",
    )
    write(
        collection / "playbooks" / "group_vars" / "all" / "topology.yml",
        """toy_peers: "{{ groups['cluster'] }}"\n""",
    )
    module = Path("plugins", "modules", "os_facts.py")
    write(collection / module, (CHECKOUT / module).read_text(encoding="utf-8"))
    role = collection / "roles" / "toy"
    write(
        role / "defaults" / "main.yml",
        """\
toy_color: "{{ toy_base_color }}"
toy_base_color: red
toy_peers: []
toy_size: 3
toy_password: "{{ vault_toy_password }}"
toy_never: "{{ nobody_defines_this }}"
toy_system: "{{ ansible_facts['distribution'] }}"
""",
    )
    write(role / "vars" / "main.yml", '__toy_path: "/srv/{{ toy_color }}"\n')
    write(
        role / "meta" / "argument_specs.yml",
        "argument_specs: {main: {options: {toy_password: {type: str, no_log: true}}}}\n",
    )
    write(role / "tests" / "test_toy.py", ROLE_TESTS)
    write(collection / "roles" / "part" / "defaults" / "main.yml", "part_wanted: false\n")
    inventory = tmp_path / "inventory"
    write(
        inventory / "hosts.yml",
        """\
all:
  vars:
    coldiron_cluster: toy
  children:
    cluster:
      hosts:
        node01: {ansible_host: 192.0.2.1, part_wanted: true}
        node02: {ansible_host: 192.0.2.2, ansible_ssh_common_args: "-o StrictHostKeyChecking=yes"}
""",
    )
    write(
        inventory / "group_vars" / "cluster.yml", "toy_base_color: blue\nvault_toy_password: correct-horse\n"
    )
    for name in ("node01", "node02"):
        write(nodes / name / "color", "blue\n")
        write(nodes / name / "daemon", "on\n")
        write(nodes / name / "password", "correct-horse")
    write(tmp_path / "bin" / "ssh", FAKE_SSH.format(nodes=nodes), executable=True)
    playbook = write(
        tmp_path / "bin" / "ansible-playbook",
        FAKE_PLAYBOOK.format(python=sys.executable, nodes=str(nodes)),
        executable=True,
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    assert find_collection() == collection
    return Toy(tmp_path, collection, inventory, nodes, playbook)
