"""Each class of edit does to Slurm's daemons what the table says, and no more, while a job runs.

The table is plugins/module_utils/slurm_edits.py. Asked are the daemons: which start of theirs runs, and what
slurmctld says of its configuration.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.siterun import Record, SiteRun

pytestmark = [pytest.mark.site, pytest.mark.slow]

TAGS = ("--tags", "slurm_controller,slurm_worker,slurm_login")
# What slurm.conf is edited to, one class after the other: the settings of the one before stay.
RECONFIGURE: dict[str, Any] = {"KillWait": 31}
RESTART_CONTROLLER = RECONFIGURE | {
    "AuthAltParameters": "jwt_key=/etc/slurm/jwt_hs256.key,max_token_lifespan=3600"
}
RESTART_DAEMONS = RESTART_CONTROLLER | {"SlurmdPort": 6828}
STOP_FIRST = RESTART_DAEMONS | {"SlurmdSpoolDir": "/var/lib/slurm/elsewhere"}


def edit(run: SiteRun, config: dict[str, Any], **more: Any) -> Record:
    """Run the roles that have a part in it with another policy."""
    return run.run(*TAGS, "-e", json.dumps({"slurm_controller_config": config, **more}))


def starts(run: SiteRun) -> dict[str, str]:
    """Return, for the controller and each worker, which start of its daemon runs."""
    show = "systemctl show --value --property=InvocationID "
    units = {run.head: "slurmctld", **dict.fromkeys(run.workers, "slurmd")}
    return {host: run.on(host, show + unit).strip() for host, unit in units.items()}


def restarted(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Return the hosts whose daemon was started anew."""
    return {host for host in before if before[host] != after[host]}


def setting(run: SiteRun, key: str) -> str:
    """Return a setting as the running slurmctld has it."""
    return run.on(run.head, f"scontrol show config | grep '^{key} '").partition("=")[2].strip()


def known_to_workers(run: SiteRun, text: str) -> bool:
    """Say whether every worker was given a slurm.conf with this line, within a few seconds."""
    for _ in range(15):
        found = [
            run.on(host, f"grep -c '^{text}$' /run/slurm/conf/slurm.conf || true") for host in run.workers
        ]
        if all(answer.strip() == "1" for answer in found):
            return True
        time.sleep(1)
    return False


@pytest.fixture(scope="module")
def job(converged: SiteRun) -> Iterator[str]:
    """A job of an ordinary user on every worker, which must outlive every edit; the policy is put back then."""
    nodes = len(converged.workers)
    ident = converged.as_user(f"sbatch --parsable -N {nodes} -o /dev/null --wrap 'sleep 900'").strip()
    try:
        for _ in range(30):
            if state_of(converged, ident) == "RUNNING":
                break
            time.sleep(1)
        yield ident
    finally:
        converged.on(converged.head, f"scancel {ident}")
        record = converged.run(*TAGS)
        assert record.status == 0, record.told()


def state_of(run: SiteRun, job: str) -> str:
    """Return a job's state as squeue says it."""
    return run.on(run.head, f"squeue -h -j {job} -o %T").strip()


def test_what_reconfigure_is_enough_for_restarts_nothing(converged: SiteRun, job: str) -> None:
    before = starts(converged)
    record = edit(converged, RECONFIGURE)
    assert record.status == 0, record.told()
    assert restarted(before, starts(converged)) == set()
    assert setting(converged, "KillWait").startswith("31")
    assert known_to_workers(converged, "KillWait=31")
    assert state_of(converged, job) == "RUNNING"


def test_a_partitions_limits_restart_nothing(converged: SiteRun, job: str) -> None:
    before = starts(converged)
    partitions = converged.site.options(converged.head, "slurm_controller")["slurm_controller_partitions"]
    record = edit(
        converged,
        RECONFIGURE,
        slurm_controller_partitions=[{**partition, "max_time": "0-12:00:00"} for partition in partitions],
    )
    assert record.status == 0, record.told()
    assert restarted(before, starts(converged)) == set()
    assert "MaxTime=12:00:00" in converged.on(converged.head, "scontrol show partition")
    assert state_of(converged, job) == "RUNNING"


def test_what_only_slurmctld_reads_at_its_start_restarts_that_alone(converged: SiteRun, job: str) -> None:
    before = starts(converged)
    record = edit(converged, RESTART_CONTROLLER)
    assert record.status == 0, record.told()
    assert restarted(before, starts(converged)) == {converged.head}
    assert "max_token_lifespan=3600" in setting(converged, "AuthAltParameters")
    assert state_of(converged, job) == "RUNNING"


def test_a_listening_port_restarts_all_and_jobs_go_on(converged: SiteRun, job: str) -> None:
    before = starts(converged)
    record = edit(converged, RESTART_DAEMONS)
    assert record.status == 0, record.told()
    assert restarted(before, starts(converged)) == {converged.head, *converged.workers}
    for host in converged.workers:
        assert converged.on(host, "ss --no-header --listening --numeric --tcp 'sport = :6828'"), host
        assert converged.wait_for_state(host, ("mixed", "allocated")) in ("mixed", "allocated")
    assert state_of(converged, job) == "RUNNING"


def test_what_wants_every_slurmd_stopped_is_refused_under_a_job(converged: SiteRun, job: str) -> None:
    before = starts(converged)
    record = edit(converged, STOP_FIRST)
    assert record.status != 0
    assert any("SlurmdSpoolDir changes" in why and job in why for _, _, why in record.failed), record.told()
    assert record.changed == []
    assert restarted(before, starts(converged)) == set()


def test_a_node_is_not_taken_from_under_a_job(converged: SiteRun, job: str) -> None:
    nodes = converged.site.options(converged.head, "slurm_controller")["slurm_controller_nodes"]
    record = edit(converged, RESTART_DAEMONS, slurm_controller_nodes=nodes[:-1])
    assert record.status != 0
    gone = nodes[-1]["name"]
    assert any(f"node {gone} goes while job {job} runs" in why for _, _, why in record.failed), record.told()
    assert state_of(converged, job) == "RUNNING"


def test_what_wants_every_slurmd_stopped_passes_on_drained_nodes(converged: SiteRun, job: str) -> None:
    """The last one: it ends the job. Both ways, since the way back is the same edit."""
    nodes = ",".join(converged.workers)
    converged.on(converged.head, f"scontrol update nodename={nodes} state=drain reason=test")
    for host in converged.workers:
        # slurmctld may wait minutes for the end of a job that it was not told of; reconfigure asks the node again.
        for _ in range(6):
            converged.on(converged.head, f"scancel {job}")
            if converged.wait_for_state(host, ("drained",), seconds=10) == "drained":
                break
            converged.on(converged.head, "scontrol reconfigure")
        assert converged.node_state(host) == "drained"
    try:
        for config, wanted in ((STOP_FIRST, "elsewhere"), (RESTART_DAEMONS, "slurmd")):
            before = starts(converged)
            record = edit(converged, config)
            assert record.status == 0, record.told()
            assert restarted(before, starts(converged)) == {converged.head, *converged.workers}
            assert setting(converged, "SlurmdSpoolDir") == f"/var/lib/slurm/{wanted}"
    finally:
        # One that is in service already cannot be resumed.
        converged.on(converged.head, f"scontrol update nodename={nodes} state=resume || sinfo --Node")
    assert converged.as_user(f"srun -N {len(converged.workers)} hostname").split()
