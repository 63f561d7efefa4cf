"""Filters of role slurm_pam: who gets in to a worker without a job, and whether Slurm can keep the others there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.coldiron.cluster.plugins.module_utils import slurm_config

# Words of users_accounts' sudo that stand for any command.
ANY_COMMAND = ("password", "nopasswd")


def administrators(accounts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the accounts that are there and may run any command by sudo."""
    return [
        account["name"]
        for account in accounts
        if account.get("state", "present") == "present" and account.get("sudo") in ANY_COMMAND
    ]


def adoption_problems(
    settings: Mapping[str, Any],
    proctrack_type: str,
    task_plugins: Sequence[str],
    cgroup_config: Mapping[str, Any],
    adopts: bool,
) -> list[str]:
    """Return what keeps pam_slurm_adopt from its work, a sentence each; none where it can do it.

    ``settings`` and ``cgroup_config`` are the site's own words for slurm.conf and cgroup.conf. ``adopts`` says that
    a session has to be put into its job's control group, and not only be let in.
    """
    words = slurm_config.merge(settings)
    own = {key.lower(): value for key, value in words.items()}
    problems = []
    flags = own.get("prologflags")
    if flags is not None and "contain" not in [flag.strip().lower() for flag in flags.split(",")]:
        problems.append(
            f"PrologFlags={flags} of slurm_controller_config lacks Contain, without which Slurm cannot say"
            " who has a job on a node: add it, or leave the setting out."
        )
    if not adopts:
        return problems
    cgroup = {key.lower(): value.lower() for key, value in slurm_config.merge(cgroup_config).items()}
    tracked = own.get("proctracktype", f"proctrack/{proctrack_type}") == "proctrack/cgroup"
    if not tracked or "cgroup" not in task_plugins or cgroup.get("cgroupplugin") == "disabled":
        problems.append(
            "Here Slurm does not keep jobs in control groups, so that a session could not be put into its"
            " job's: set slurm_controller_proctrack_type to cgroup and have cgroup in slurm_controller_task_plugins,"
            " or let sessions in unconfined with `slurm_pam_not_adopted: allow`."
        )
    return problems


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"administrators": administrators, "adoption_problems": adoption_problems}
