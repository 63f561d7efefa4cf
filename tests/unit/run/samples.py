"""Small playbooks and recorded runs for the tests of runs."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from coldiron.run.events import read_events
from coldiron.run.reducer import reduce
from coldiron.run.state import RunState
from coldiron.run.store import Runs, StoredRun, new_name

RECORDINGS = Path(__file__).parents[2] / "data" / "runs"
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in RECORDINGS.glob("*.jsonl.gz"))

PLAY = """\
- name: Say what arrived
  hosts: here
  gather_facts: false
  tasks:
    - name: Write it down
      ansible.builtin.copy:
        content: "{{ [given, ansible_check_mode, ansible_limit | default(''), ansible_run_tags] | to_json }}"
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


def recording(name: str) -> Path:
    """The file of a recorded run."""
    return RECORDINGS / f"{name}.jsonl.gz"


def keep(runs: Runs, when: float, name: str = "ok", verb: str = "apply") -> StoredRun:
    """Keep a recorded run among ``runs`` as one that began at ``when`` (seconds since the epoch)."""
    runs.prepare()
    run = new_name(verb, when)
    with runs.create(run) as begun:
        begun.events.write_bytes(gzip.decompress(recording(name).read_bytes()))
    return StoredRun(runs.directory / run)


def recorded(name: str) -> RunState:
    """The state at the end of a recorded run."""
    return reduce(read_events(recording(name)))


def write_play(folder: Path) -> None:
    """Write a playbook, its inventory and an ansible.cfg."""
    (folder / "play.yml").write_text(PLAY)
    (folder / "hosts.yml").write_text(INVENTORY)
    (folder / "ansible.cfg").write_text("[defaults]\nnocows = true\n")
