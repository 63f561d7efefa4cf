#!/usr/bin/python
"""Look at what an edit of slurm.conf would do to running jobs, before it is made."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_edit
short_description: Refuse an edit of slurm.conf that would end or lose running jobs
description:
  - Compares the configuration to come with the one in place, asks slurmctld for its jobs, and fails where
    the edit takes a node or partition from under a job, or changes a key that wants every slurmd stopped
    first.
  - Changes nothing. What an edit needs by key is a table in C(module_utils/slurm_edits.py).
options:
  settings:
    description: The settings of slurm.conf to come, SlurmctldHost among them.
    type: dict
    required: true
  nodes:
    description: Its NodeName lines.
    type: list
    elements: str
    required: true
  partitions:
    description: Its PartitionName lines.
    type: list
    elements: str
    required: true
  release:
    description: Slurm's release, such as 24.11.
    type: str
    required: true
  allow_job_loss:
    description: Let the edit pass all the same.
    type: bool
    default: false
  config:
    description: The slurm.conf in place.
    type: path
    default: /etc/slurm/slurm.conf
  start_file:
    description: The file that keeps the settings which slurmctld last started with, as comments.
    type: path
    default: /etc/default/slurmctld
attributes:
  check_mode:
    support: full
    description: It only reads.
  diff_mode:
    support: none
    description: It changes nothing.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Slurm controller | Refuse an edit that jobs would not survive
  coldiron.cluster.slurm_edit:
    settings: {ClusterName: lab, SlurmdPort: 6818}
    nodes: ["NodeName=gpu01 Sockets=2 CoresPerSocket=48 ThreadsPerCore=2 RealMemory=1000000"]
    partitions: ["PartitionName=main Nodes=ALL Default=YES"]
    release: "24.11"
"""

RETURN = r"""
need:
  description:
    - "What the edit needs: C(none), C(reconfigure), C(restart_controller), C(restart_daemons) or C(stop_first)."
  returned: always
  type: str
  sample: reconfigure
edited:
  description: The keys that differ.
  returned: always
  type: list
  elements: str
  sample: [NodeName]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.coldiron.cluster.plugins.module_utils import slurm_config, slurm_edits

#: States of a node, as sinfo writes them, in which nothing runs and nothing starts.
QUIET = ("drained", "down", "fail", "unknown", "powered_down")


def read(path: str) -> str:
    """Return a file's text, empty where there is none."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except OSError:
        return ""


def ask(module: AnsibleModule, words: list[str]) -> list[list[str]] | None:
    """Return the lines that a command of Slurm prints, split at ``|``; None where it has no answer."""
    program = module.get_bin_path(words[0])
    if program is None:
        return None
    code, output, _error = module.run_command([program, *words[1:]], environ_update={"LC_ALL": "C.UTF-8"})
    return [line.split("|") for line in str(output).splitlines()] if code == 0 else None


def live(module: AnsibleModule) -> slurm_edits.Live | None:
    """Return slurmctld's jobs and nodes; None where it does not answer."""
    jobs = ask(module, ["squeue", "-h", "-a", "-t", "all_active", "-o", "%i|%P|%N"])
    if jobs is None:
        jobs = ask(module, ["squeue", "-h", "-a", "-o", "%i|%P|%N"])
    nodes = ask(module, ["sinfo", "-h", "-a", "-N", "-o", "%N|%T"])
    if jobs is None or nodes is None:
        return None
    return slurm_edits.Live(
        [
            slurm_edits.Job(job[0], job[1], tuple(slurm_config.expand(job[2]) if job[2] else ()))
            for job in jobs
        ],
        [node[0] for node in nodes if node[1].rstrip("*~#!%$@^-").lower() in QUIET],
        [node[0] for node in nodes],
    )


def main() -> None:
    """Compare, ask, judge."""
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "dict", "required": True},
            "nodes": {"type": "list", "elements": "str", "required": True},
            "partitions": {"type": "list", "elements": "str", "required": True},
            "release": {"type": "str", "required": True},
            "allow_job_loss": {"type": "bool", "default": False},
            "config": {"type": "path", "default": "/etc/slurm/slurm.conf"},
            "start_file": {"type": "path", "default": "/etc/default/slurmctld"},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    text = read(parameters["config"])
    if not text:
        module.exit_json(changed=False, need=slurm_edits.NONE, edited=[])
    new: dict[str, Any] = slurm_config.parse("\n".join(parameters["nodes"] + parameters["partitions"]))
    new["settings"] = {key: slurm_config.render(value) for key, value in parameters["settings"].items()}
    try:
        old = slurm_config.parse(text)
    except slurm_config.SlurmDataError:
        # A file that somebody broke by hand: what it says is no measure of anything.
        old = {"settings": {}, "nodes": {}, "partitions": {}}
    old["started"] = slurm_edits.parse_start_lines(read(parameters["start_file"]))
    verdict = slurm_edits.judge(old, new, parameters["release"], live(module))
    if verdict.refusals and not parameters["allow_job_loss"]:
        module.fail_json(
            msg=f"{'; '.join(verdict.refusals[:5])}. Drain what is concerned (`scontrol update NodeName=..."
            " State=DRAIN Reason=...`), wait for the jobs or cancel them, and run again;"
            " slurm_controller_allow_job_loss: true lets it pass all the same."
        )
    module.exit_json(changed=False, need=verdict.need, edited=verdict.changed)


if __name__ == "__main__":
    main()
