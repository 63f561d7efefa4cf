"""What Prometheus is told of Slurm is what Slurm says."""

from __future__ import annotations

import re
import time

import pytest


def test_it_runs_and_a_boot_starts_it(exporter):
    exporter.runs("coldiron-slurm-exporter.service")


def test_it_is_heard_where_it_is_declared_and_nowhere_else(exporter):
    exporter.is_heard_where_declared()


def test_nobody_asks_without_the_password(exporter):
    exporter.wants_its_password()


def test_nobody_else_reads_its_secrets(exporter):
    exporter.hides_its_password("slurm-exporter", "config.json")


@pytest.fixture
def read(exporter):
    """What it serves, asked of Slurm after this moment: {metric: [(labels, value)]}."""
    return exporter.samples


@pytest.fixture
def told(read, opts, eventually):
    """A whole reading that has these metrics: a command of a busy machine may take longer than is waited for it."""

    def look(metrics):
        found = read()
        assert found["slurm_up"] == [({}, 1.0)]
        assert not [name for name in metrics if not found.get(name)]
        return found

    return lambda *metrics: eventually(
        lambda: look(metrics), seconds=2 * int(opts["slurm_exporter_seconds"]) + 70
    )


def labelled(found, metric):
    return [labels for labels, _ in found.get(metric, [])]


def test_it_runs_as_a_user_who_may_do_nothing_else(host, eventually):
    pid = eventually(
        lambda: int(host.check_output("systemctl show -p MainPID --value coldiron-slurm-exporter"))
    )
    status = host.file(f"/proc/{pid}/status").content_string
    number = str(host.user("slurm-exporter").uid)
    assert re.search(r"^Uid:\s+(.*)$", status, re.MULTILINE)[1].split() == [number] * 4
    assert re.search(r"^CapEff:\s+(\w+)$", status, re.MULTILINE)[1].strip("0") == ""


def test_slurm_and_accounting_answer(read, opts, eventually):
    def all_three():
        """What one reading says of them."""
        found = read()
        leading = [
            value for labels, value in found.get("slurm_controller_active", []) if labels["role"] == "primary"
        ]
        return [found["slurm_up"], found["slurm_dbd_up"], leading]

    # A command of a busy machine may take longer than the exporter waits; the next reading has it.
    assert eventually(
        lambda: all_three() == [[({}, 1.0)], [({}, 1.0)], [1.0]],
        seconds=2 * int(opts["slurm_exporter_seconds"]) + 70,
    )


def test_every_node_is_told_with_its_state_and_size(host, told):
    found = told("slurm_node_state", "slurm_nodes", "slurm_node_cpus")
    names = sorted(set(host.check_output("sinfo --all --noheader -N -o %%N").split()))
    assert sorted(one["node"] for one in labelled(found, "slurm_node_state")) == names
    assert sum(value for _, value in found["slurm_nodes"]) == len(names)
    cpus = dict(
        line.split() for line in host.check_output("sinfo --all --noheader -N -o '%%N %%c'").splitlines()
    )
    assert {one["node"]: value for one, value in found["slurm_node_cpus"]} == {
        name: float(count) for name, count in cpus.items()
    }


def test_the_partitions_and_the_scheduler_are_told(host, read, told, opts, eventually):
    metrics = ("slurm_scheduler_threads", "slurm_scheduler_cycle_seconds", "slurm_dbd_queue_size")
    found = told("slurm_partition_up", *metrics)
    names = set(re.findall(r"PartitionName=(\S+)", host.check_output("scontrol -o show partition")))
    assert {one["partition"] for one in labelled(found, "slurm_partition_up")} == names

    def types():
        return {one["type"] for one in labelled(read(), "slurm_rpcs_total")}

    # All is asked at once: what the first reading has cost slurmctld, the next one says.
    assert eventually(
        lambda: "REQUEST_NODE_INFO" in types(), seconds=2 * int(opts["slurm_exporter_seconds"]) + 10
    )


@pytest.mark.acts
def test_a_drained_node_is_told_with_the_reason(host, read, told, opts, eventually):
    """A node that takes jobs is drained for a moment, and given back."""
    idle = host.check_output("sinfo --all --noheader -N -t idle -o %%N").split()
    if not idle:
        return
    name = idle[0]

    def reason():
        return [one for one in labelled(read(), "slurm_node_reason_timestamp_seconds") if one["node"] == name]

    host.check_output("scontrol update NodeName=%s State=DRAIN Reason='planted: a \"test\" = [x]'", name)
    try:
        seconds = 3 * int(opts["slurm_exporter_seconds"]) + 10
        assert eventually(reason, seconds=seconds)[0]["reason"].startswith("planted: a ")
        found = told("slurm_node_state", "slurm_node_reason_timestamp_seconds")
        assert {"node": name, "state": "drained"} in labelled(found, "slurm_node_state")
        since = next(at for one, at in found["slurm_node_reason_timestamp_seconds"] if one["node"] == name)
        assert abs(time.time() - since) < 300
    finally:
        host.check_output("scontrol update NodeName=%s State=RESUME", name)


def test_slurm_is_not_asked_more_often_than_declared(exporter, opts):
    """Two questions at once get one answer of Slurm's."""
    if int(opts["slurm_exporter_seconds"]) >= 10:
        first, second = exporter.ask()[1], exporter.ask()[1]
        spans = [re.findall(r"^slurm_scrape_seconds.*$", text, re.MULTILINE) for text in (first, second)]
        third = re.findall(r"^slurm_scrape_seconds.*$", exporter.ask()[1], re.MULTILINE)
        assert spans[0] == spans[1] or spans[1] == third
