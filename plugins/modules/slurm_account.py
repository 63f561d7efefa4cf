#!/usr/bin/python
"""Keep Slurm's accounting data as declared."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_account
short_description: Keep Slurm's clusters, accounts, users and QOS as declared
description:
  - Reads what slurmdbd holds with C(sacctmgr show), and changes only what differs, in the order that the
    entities depend on each other.
  - Runs on a host with C(sacctmgr), as root or as Slurm's own user.
  - Associations that are bound to a partition are left alone.
options:
  cluster:
    description: The cluster whose associations I(accounts) and I(users) are about.
    type: str
    required: true
  clusters:
    description: Clusters that slurmdbd must know. A cluster is registered before its slurmctld starts.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The cluster's name, ClusterName in slurm.conf.
        type: str
        required: true
      state:
        description: Whether it must be there. Removing a cluster removes its records.
        type: str
        choices: [present, absent]
        default: present
  accounts:
    description: Bank accounts, in any order.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The account's name.
        type: str
        required: true
      state:
        description: Whether it must be there. Refused while jobs run or wait in the account.
        type: str
        choices: [present, absent]
        default: present
      parent:
        description: The account above it.
        type: str
        default: root
      description:
        description: What it is for.
        type: str
      organization:
        description: Whose it is.
        type: str
      fairshare:
        description: Its share against its siblings, or C(parent).
        type: str
      qos:
        description: The QOS that its users may ask for.
        type: list
        elements: str
      default_qos:
        description: The QOS of jobs that name none.
        type: str
      limits:
        description:
          - Limits by the names that sacctmgr(1) gives them, such as C(GrpTRES) or C(MaxWall).
          - Times want quotes.
          - The whole of them. A limit that is not named is lifted; without I(limits) none is touched.
        type: dict
  users:
    description: Users and the accounts that they charge.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The user's login name.
        type: str
        required: true
      state:
        description: Whether the user may use the cluster.
        type: str
        choices: [present, absent]
        default: present
      default_account:
        description: The account of jobs that name none. Needed unless I(state=absent).
        type: str
      accounts:
        description:
          - All accounts that the user may charge; the default one need not be repeated.
          - The user leaves all others; without it none is left.
        type: list
        elements: str
      admin_level:
        description: What the user may change of the accounting data.
        type: str
        choices: [none, operator, administrator]
      fairshare:
        description: The user's share within each account, or C(parent).
        type: str
      qos:
        description: The QOS that the user may ask for.
        type: list
        elements: str
      default_qos:
        description: The QOS of jobs that name none.
        type: str
      limits:
        description: As for accounts, set on each of the user's associations.
        type: dict
  qos:
    description: Qualities of service.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The QOS's name.
        type: str
        required: true
      state:
        description: Whether it must be there.
        type: str
        choices: [present, absent]
        default: present
      description:
        description: What it is for.
        type: str
      priority:
        description: Its weight among other QOS.
        type: int
      flags:
        description: Flags such as C(DenyOnLimit). The whole of them.
        type: list
        elements: str
      preempt:
        description: The QOS whose jobs it may preempt. The whole of them.
        type: list
        elements: str
      preempt_mode:
        description: What happens to a preempted job.
        type: str
        choices: [cluster, cancel, requeue, suspend]
      usage_factor:
        description: What an hour in it counts.
        type: float
      limits:
        description: As for accounts, by the names of QOS limits, such as C(MaxTRESPerUser).
        type: dict
  exclusive:
    description:
      - Remove users, accounts and QOS of this cluster that are not declared (never C(root) or C(normal)).
    type: bool
    default: false
  dbd_host:
    description: Where slurmdbd listens, for a host that has no slurm.conf yet. Empty asks slurm.conf.
    type: str
    default: ""
  dbd_port:
    description: The port of slurmdbd on I(dbd_host).
    type: int
    default: 6819
  wait_seconds:
    description: How long to wait for a slurmdbd that does not answer yet.
    type: int
    default: 60
attributes:
  check_mode:
    support: full
    description: Without a slurmdbd that answers, everything declared would be added.
  diff_mode:
    support: full
    description: One line a field that differs.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Slurm | Ensure the cluster is known to slurmdbd
  coldiron.cluster.slurm_account:
    cluster: lab
    clusters:
      - name: lab

- name: Slurm | Ensure accounts, users and QOS are as declared
  coldiron.cluster.slurm_account:
    cluster: lab
    qos:
      - name: interactive
        priority: 100
        limits: {MaxTRESPerUser: gres/gpu=2, MaxWall: "8:00:00"}
    accounts:
      - name: physics
        description: Department of Physics
        fairshare: 10
        limits: {GrpTRES: gres/gpu=64}
      - name: lattice
        parent: physics
    users:
      - name: alice
        default_account: lattice
        accounts: [physics]
        qos: [normal, interactive]
      - name: mallory
        state: absent
"""

RETURN = r"""
commands:
  description: The sacctmgr calls that were made, or would be in check mode, in order.
  returned: always
  type: list
  elements: str
  sample: ["add account name=physics cluster=lab parent=root"]
"""

import os
import shlex
import tempfile
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.coldiron.cluster.plugins.module_utils import slurm_account as accounting

STATE: dict[str, Any] = {"type": "str", "choices": ["present", "absent"], "default": "present"}
NAME: dict[str, Any] = {"type": "str", "required": True}
WORDS: dict[str, Any] = {"type": "list", "elements": "str"}
TEXT: dict[str, Any] = {"type": "str"}
SHARES: dict[str, Any] = {"fairshare": TEXT, "qos": WORDS, "default_qos": TEXT, "limits": {"type": "dict"}}


def _entities(**options: Any) -> dict[str, Any]:
    return {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": dict(options, name=NAME, state=STATE),
    }


def argument_spec() -> dict[str, Any]:
    """Return the module's arguments."""
    return {
        "cluster": NAME,
        "clusters": _entities(),
        "accounts": _entities(
            parent={"type": "str", "default": "root"}, description=TEXT, organization=TEXT, **SHARES
        ),
        "users": _entities(
            default_account=TEXT,
            accounts=WORDS,
            admin_level={"type": "str", "choices": ["none", "operator", "administrator"]},
            **SHARES,
        ),
        "qos": _entities(
            description=TEXT,
            priority={"type": "int"},
            flags=WORDS,
            preempt=WORDS,
            preempt_mode={"type": "str", "choices": ["cluster", "cancel", "requeue", "suspend"]},
            usage_factor={"type": "float"},
            limits={"type": "dict"},
        ),
        "exclusive": {"type": "bool", "default": False},
        "dbd_host": {"type": "str", "default": ""},
        "dbd_port": {"type": "int", "default": 6819},
        "wait_seconds": {"type": "int", "default": 60},
    }


class Sacctmgr:
    """Runs sacctmgr, with a configuration of its own where the host has none yet."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.program = module.get_bin_path("sacctmgr")
        self.environment: dict[str, str] = {"LC_ALL": "C.UTF-8"}
        if module.params["dbd_host"]:
            self.environment["SLURM_CONF"] = self._configuration()

    def _configuration(self) -> str:
        parameters = self.module.params
        handle, path = tempfile.mkstemp(prefix="slurm_account-", suffix=".conf", dir=self.module.tmpdir)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(
                f"ClusterName={parameters['cluster']}\n"
                "SlurmctldHost=localhost\nSlurmUser=slurm\nAuthType=auth/munge\n"
                "AccountingStorageType=accounting_storage/slurmdbd\n"
                f"AccountingStorageHost={parameters['dbd_host']}\n"
                f"AccountingStoragePort={parameters['dbd_port']}\n"
            )
        return path

    def ready(self) -> bool:
        """Wait until slurmdbd answers, at most ``wait_seconds``; in check mode ask once."""
        if self.program is None:
            if self.module.check_mode:
                return False
            self.module.fail_json(msg="sacctmgr is not installed here: install Slurm's client package first")
        last = time.monotonic() + (0 if self.module.check_mode else self.module.params["wait_seconds"])
        while True:
            code, output, error = self.run(["-n", "-P", "show", "cluster", "format=Cluster"])
            if code == 0:
                return True
            if time.monotonic() >= last:
                break
            time.sleep(1)
        if self.module.check_mode:
            return False
        self.module.fail_json(
            msg="slurmdbd does not answer: {} (see `journalctl -u slurmdbd` on its host)".format(
                " ".join((error or output).split())[-300:]
            )
        )
        return False

    def run(self, words: list[str]) -> Any:
        """Run sacctmgr and return (exit status, output, errors)."""
        return self.module.run_command([self.program, *words], environ_update=self.environment)

    def show(self, words: list[str]) -> str:
        """Return what ``sacctmgr show`` prints."""
        code, output, error = self.run(["-n", "-P", "show", *words])
        if code != 0:
            self.module.fail_json(
                msg="sacctmgr show {}: {}".format(words[0], " ".join((error or output).split()))
            )
        return str(output)

    def jobs(self, account: str) -> list[str]:
        """Return the jobs that run or wait in an account; none known when no slurmctld answers."""
        squeue = self.module.get_bin_path("squeue")
        if squeue is None:
            return []
        code, output, _error = self.module.run_command([squeue, "-h", "-A", account, "-o", "%i"])
        # Without slurmctld nothing runs; sacctmgr itself refuses while its records say otherwise.
        return str(output).split() if code == 0 else []

    def apply(self, step: accounting.Step) -> None:
        """Make one step; fail with its words."""
        code, output, error = self.run(["-i", *step.argv])
        if code != 0:
            self.module.fail_json(
                msg="{}: sacctmgr refused `{}`: {}".format(
                    step.entity, shlex.join(step.argv), " ".join((error or output).split())
                )
            )


def main() -> None:
    """Read, plan, apply."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    sacctmgr = Sacctmgr(module)
    facts = accounting.read_facts(sacctmgr.show) if sacctmgr.ready() else accounting.empty_facts()
    try:
        steps = accounting.plan(facts, module.params)
    except accounting.AccountError as error:
        module.fail_json(msg=str(error))
    removed = [step.removes_account for step in steps if step.removes_account]
    refusal = accounting.busy(steps, {account: sacctmgr.jobs(account) for account in removed})
    if refusal:
        module.fail_json(msg=refusal)
    if not module.check_mode:
        for step in steps:
            sacctmgr.apply(step)
    result: dict[str, Any] = {"changed": bool(steps), "commands": [shlex.join(step.argv) for step in steps]}
    if steps:
        result["diff"] = accounting.diff(steps)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
