"""What the exporter makes of Slurm's own words."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from email.message import Message
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import slurm_exporter as exporter

NODES = (
    "NodeName=gpu01 Arch=x86_64 CPUAlloc=8 CPUEfctv=96 CPUTot=96 Gres=gpu:h100:8 OS=Linux 6.1 #1 SMP "
    "RealMemory=1024 AllocMem=512 State=MIXED+PLANNED Partitions=gpu,all CfgTRES=cpu=96,mem=1G,billing=96,gres/gpu=8,"
    "gres/gpu:h100=8 AllocTRES=cpu=8,mem=512M,gres/gpu=2,gres/gpu:h100=2 \n"
    "NodeName=gpu02 CPUAlloc=0 CPUTot=96 RealMemory=1024 AllocMem=0 State=IDLE+DRAIN Partitions=gpu CfgTRES=cpu=96 "
    'AllocTRES= Reason=coldiron gpu: "nvidia3" State=lost [bad] [root@2026-03-01T10:00:00] Comment=x\n'
    "NodeName=gpu03 CPUAlloc=0 CPUTot=96 RealMemory=1024 AllocMem=0 State=DOWN* Reason=Not responding "
    "[slurm@2026-03-01T11:00:00]\n"
)


def values(samples: Any, metric: str) -> dict[tuple[str, ...], float]:
    return {tuple(one.labels.values()): one.value for one in samples if one.name == metric}


def test_nodes() -> None:
    found = list(exporter.nodes(NODES))
    assert set(values(found, "slurm_node_state")) == {
        ("gpu01", "mixed"),
        ("gpu02", "drained"),
        ("gpu03", "down"),
    }
    counted = values(found, "slurm_nodes")
    assert (counted["mixed",], counted["drained",], counted["down",], counted["idle",]) == (1, 1, 1, 0)
    assert values(found, "slurm_node_gpus") == {("gpu01",): 8}
    assert values(found, "slurm_node_gpus_allocated") == {("gpu01",): 2}
    assert values(found, "slurm_node_memory_allocated_bytes")["gpu01",] == 512 * 2**20
    why = values(found, "slurm_node_reason_timestamp_seconds")
    assert set(why) == {
        ("gpu02", 'coldiron gpu: "nvidia3" State=lost [bad]', "root"),
        ("gpu03", "Not responding", "slurm"),
    }
    assert all(at > 1_700_000_000 for at in why.values())


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("IDLE", "idle"),
        ("ALLOCATED", "allocated"),
        ("MIXED+DRAIN", "draining"),
        ("IDLE+COMPLETING+DRAIN", "draining"),
        ("DOWN*+DRAIN", "drained"),
        ("DOWN+NOT_RESPONDING", "down"),
        ("DOWN+RESERVED", "down"),
        ("IDLE+COMPLETING", "completing"),
        ("IDLE+CLOUD+POWERED_DOWN", "powered_down"),
        ("IDLE+MAINTENANCE+RESERVED", "maint"),
        ("ALLOCATED+RESERVED", "allocated"),
        ("IDLE+PLANNED", "planned"),
        ("UNKNOWN*", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_node_has_one_state(said: str, word: str) -> None:
    assert exporter.state(said) == word


def line(*parts: str) -> str:
    return "|".join(part.ljust(9) for part in parts) + "|"


def test_jobs() -> None:
    text = "\n".join(
        [
            line("7_[1-10:2%3]", "PENDING", "gpu,all", "phys", "alice", "Resources", "2026-03-01T10:00:00", "", ""),
            line("8", "PENDING", "gpu", "phys", "bob", "Dependency", "N/A", "", ""),
            line("9", "RUNNING", "gpu", "phys", "alice", "None", "2026-03-01T09:00:00",
                 "cpu=8,mem=2G,node=2,gres/gpu=4,gres/gpu:h100=4", "gpu[01-02]"),
            line("10", "COMPLETING", "all", "chem", "carol", "None", "2026-03-01T09:00:00", "cpu=1", "cpu1"),
            "half a li",
        ]
    )  # fmt: skip
    now = exporter.moment("2026-03-01T10:30:00")
    found = list(exporter.jobs(text, now))
    assert values(found, "slurm_jobs") == {
        ("gpu", "pending"): 6, ("gpu", "running"): 1, ("all", "completing"): 1,
    }  # fmt: skip
    assert values(found, "slurm_jobs_pending_by_reason") == {
        ("gpu", "Resources"): 5,
        ("gpu", "Dependency"): 1,
    }
    assert values(found, "slurm_job_pending_seconds_max") == {("gpu",): 1800}
    assert values(found, "slurm_account_jobs")["phys", "pending"] == 6
    assert values(found, "slurm_account_gpus_running") == {("phys",): 4}
    assert values(found, "slurm_account_memory_bytes_running") == {("phys",): 2**31}
    assert values(found, "slurm_user_gpus_running") == {("alice", "phys"): 4}
    assert values(found, "slurm_job_gpu") == {
        ("gpu01", "9", "alice", "phys", "gpu"): 2,
        ("gpu02", "9", "alice", "phys", "gpu"): 2,
    }


def test_lists_of_nodes_and_tasks() -> None:
    assert exporter.expand("gpu[01-03,7],head1,r[1-2]n[08-09]") == [
        *("gpu01", "gpu02", "gpu03", "gpu7", "head1"), *("r1n08", "r1n09", "r2n08", "r2n09"),
    ]  # fmt: skip
    assert exporter.expand("") == []
    assert [exporter.tasks(job) for job in ("5", "5_3", "5_[2-5]", "5_[1,3,7-9%2]", "5_[0-20:10]")] == [
        1,
        1,
        4,
        5,
        3,
    ]


SDIAG = """
Server thread count:  3
Agent queue size:     4
DBD Agent queue size: 1200
Jobs submitted: 7
Jobs failed:    1
Main schedule statistics (microseconds):
\tLast cycle:   1500
\tMax cycle:    2500000
\tTotal cycles: 25
Backfilling stats
\tLast cycle: 40000
\tMax cycle:  50000
Remote Procedure Call statistics by message type
\tREQUEST_NODE_INFO                       ( 2007) count:12     ave_time:298    total_time:3576
Remote Procedure Call statistics by user
\troot            (       0) count:22     ave_time:298    total_time:3576
"""


def test_the_scheduler() -> None:
    found = list(exporter.scheduler(SDIAG))
    assert {one.name: one.value for one in found if not one.labels} == {
        "slurm_scheduler_threads": 3,
        "slurm_scheduler_agent_queue_size": 4,
        "slurm_dbd_queue_size": 1200,
        "slurm_scheduler_cycle_seconds": 0.0015,
        "slurm_scheduler_cycle_seconds_max": 2.5,
        "slurm_scheduler_cycles_total": 25,
        "slurm_scheduler_backfill_cycle_seconds": 0.04,
    }
    assert values(found, "slurm_scheduler_jobs_total") == {("submitted",): 7, ("failed",): 1}
    assert values(found, "slurm_rpcs_total") == {("REQUEST_NODE_INFO",): 12}
    assert values(found, "slurm_rpc_seconds_total") == {("REQUEST_NODE_INFO",): 0.003576}


def test_a_backup_that_took_over_is_in_command() -> None:
    found = list(exporter.controllers("Slurmctld(primary) at a is DOWN\nSlurmctld(backup1) at b is UP\n"))
    assert values(found, "slurm_controller_up") == {("a", "primary"): 0, ("b", "backup"): 1}
    assert values(found, "slurm_controller_active") == {("a", "primary"): 0, ("b", "backup"): 1}
    found = list(exporter.controllers("Slurmctld(primary) at a is UP\nSlurmctld(backup) at b is UP\n"))
    assert values(found, "slurm_controller_active") == {("a", "primary"): 1, ("b", "backup"): 0}


def test_slurm_is_asked_once_in_the_declared_time() -> None:
    asked = []

    def ask(words: Sequence[str], seconds: float) -> str:
        asked.append(words[0])
        if words[0] == "squeue":
            raise subprocess.TimeoutExpired(words, 8)
        return NODES if "node" in words else "cluster\n" if words[0] == "sacctmgr" else ""

    collector = exporter.Collector(60, ask)
    first = collector.text()
    assert collector.text() == first
    assert sorted(asked) == ["sacctmgr", "scontrol", "scontrol", "scontrol", "sdiag", "squeue"]
    assert "\nslurm_up 1\n" in first
    assert "\nslurm_dbd_up 1\n" in first
    assert "slurm_jobs{" not in first
    assert 'slurm_node_cpus{node="gpu01"} 96\n' in first


def test_a_slurm_that_does_not_answer_is_told() -> None:
    def ask(words: Sequence[str], seconds: float) -> str:
        raise subprocess.CalledProcessError(1, words)

    text = exporter.Collector(0, ask).text()
    assert "\nslurm_up 0\n" in text
    assert "\nslurm_dbd_up 0\n" in text


@pytest.mark.parametrize(
    ("said", "seconds"), [("5", 4.0), ("10", 8.0), ("60", 8.0), ("0.2", 1.0), (None, 8.0), ("soon", 8.0)]
)
def test_an_answer_is_there_before_prometheus_is_tired_of_waiting(said: str | None, seconds: float) -> None:
    asked = []

    def ask(words: Sequence[str], seconds: float) -> str:
        asked.append(seconds)
        return ""

    headers = Message()
    if said is not None:
        headers["X-Prometheus-Scrape-Timeout-Seconds"] = said
    assert exporter.Collector(0, ask).answer("/metrics", "", headers)[0] == 200
    assert set(asked) == {seconds}
