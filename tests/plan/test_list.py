"""What Ansible is told of many nodes grows with their number, not with its square."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from coldiron.inventory import known

BIN = Path(sys.executable).parent
FILE = """\
plugin: coldiron.cluster.cluster
name: {name}
domain: hopper.internal
networks:
  cluster: {{subnet: 10.{net}.0.0/16}}
features: {{scheduler: none, home_backend: provided}}
nodes:
  - {{name: "{name}[001-{number:03d}]", kind: storage, address: 10.{net}.0.1}}
"""
PLAY = """\
- hosts: a001
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "{{ coldiron_hosts | length }} nodes, {{ coldiron_hosts['b001'].coldiron_address }}"
"""


def listed(directory: Path, number: int) -> str:
    directory.mkdir()
    (directory / "cluster.yml").write_text(FILE.format(name="a", net=99, number=number))
    done = subprocess.run(
        [str(BIN / "ansible-inventory"), "-i", str(directory / "cluster.yml"), "--list"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_a_listing_of_ten_times_the_nodes_is_ten_times_as_long(tmp_path: Path) -> None:
    few, many = listed(tmp_path / "few", 20), listed(tmp_path / "many", 200)
    assert len(json.loads(many)["_meta"]["hostvars"]) == 200
    assert len(many) < 12 * len(few)


def test_nodes_of_two_files_are_known_to_each_other(tmp_path: Path) -> None:
    for name, net in (("a", 99), ("b", 98)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cluster.yml").write_text(FILE.format(name=name, net=net, number=3))
    (tmp_path / "play.yml").write_text(PLAY)
    words = ["-i", str(tmp_path / "a"), "-i", str(tmp_path / "b"), str(tmp_path / "play.yml")]
    done = subprocess.run(
        [str(BIN / "ansible-playbook"), *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 nodes, 10.98.0.1" in done.stdout


def test_what_has_not_been_read_is_unknown() -> None:
    assert known.hosts(["nowhere"]) == {}
    assert known.hosts([]) == {}
    known.keep("one", {"a": {"x": 1}})
    known.keep("two", {"a": {"x": 2}, "b": {}})
    assert known.hosts(["one", "two"]) == {"a": {"x": 2}, "b": {}}
