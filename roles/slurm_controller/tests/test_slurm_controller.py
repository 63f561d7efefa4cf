"""slurmctld runs by what is declared: asked of the daemon, not of its files."""

from __future__ import annotations

import re

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import (
    slurm_account,
    slurm_config,
    slurm_limits,
)

from coldiron.testing.jobs import with_nodes


def normal(value):
    """Return a value as `scontrol show config` and slurm.conf can be compared by."""
    words = str(value).lower().removesuffix(" sec").removesuffix(" min").strip()
    words = re.sub(r"^none$|^n/a$|\(.*\)", "", words)  # "(null)", and the number in "slurm(64030)"
    return ",".join(sorted(words.split(",")))


def records(text):
    """Read `scontrol --oneliner show`: a mapping for each line."""
    return [dict(pair.split("=", 1) for pair in line.split() if "=" in pair) for line in text.splitlines()]


@pytest.fixture
def config(host):
    """What the running slurmctld says of its configuration, keys in lower case."""
    lines = host.check_output("scontrol show config").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {key.strip().lower(): value.strip() for key, value in pairs}


def test_the_daemon_runs_and_starts_at_boot(host):
    slurmctld = host.service("slurmctld")
    assert slurmctld.is_running
    assert slurmctld.is_enabled


def test_it_answers(host, hostname):
    assert re.search(rf"Slurmctld\(\w+\) at {hostname} is UP", host.check_output("scontrol ping"))


#: Durations and weights that slurmctld shows in other units than slurm.conf has them.
REWORDED = {"prioritydecayhalflife", "prioritymaxage"}


def test_the_running_daemon_has_every_declared_setting(config, opts):
    declared = opts["__slurm_controller_conf"]
    shown = {key for key in declared if key.lower() in config and key.lower() not in REWORDED}
    assert len(shown) > 20
    differing = {
        key: (declared[key], config[key.lower()])
        for key in shown
        if normal(declared[key]) != normal(config[key.lower()])
    }
    # slurmctld adds its own resources to those that are declared.
    counted = set(differing.pop("AccountingStorageTRES", ("", ""))[0].split(","))
    assert counted <= {"", *config["accountingstoragetres"].split(",")}
    assert differing == {}


def test_nodes_have_what_is_declared(host, opts):
    nodes = {node["NodeName"]: node for node in records(host.check_output("scontrol --oneliner show node"))}
    wanted = slurm_config.parse("\n".join(opts["__slurm_controller_node_lines"]))["nodes"]
    assert set(nodes) == set(wanted)
    for name, line in wanted.items():
        fields = dict(word.split("=", 1) for word in line.split())
        node = nodes[name]
        threads = int(fields["Sockets"]) * int(fields["CoresPerSocket"]) * int(fields["ThreadsPerCore"])
        assert node["RealMemory"] == fields["RealMemory"], name
        assert int(node["CPUTot"]) == threads, name
        assert node["NodeAddr"] == fields["NodeAddr"], name
        assert re.sub(r"\(.*\)", "", node["Gres"]).replace("null", "") == fields.get("Gres", ""), name


def test_every_declared_gpu_has_a_device_file(host, opts):
    for node in opts["slurm_controller_nodes"]:
        gpus = node["hardware"].get("gpus")
        if gpus and opts["slurm_controller_gres_autodetect"] == "off":
            pattern = rf"NodeName={node['name']} Name=gpu Type={gpus['type']} File=/dev/nvidia"
            assert host.file("/etc/slurm/gres.conf").contains(pattern), node["name"]


def test_partitions_are_as_declared(host, opts):
    live = {
        part["PartitionName"]: part for part in records(host.check_output("scontrol --oneliner show part"))
    }
    assert set(live) == {partition["name"] for partition in opts["slurm_controller_partitions"]}
    everybody = {node["name"] for node in opts["slurm_controller_nodes"]}
    for partition in opts["slurm_controller_partitions"]:
        found = live[partition["name"]]
        nodes = slurm_config.partition_nodes(partition, sorted(everybody))
        assert set(slurm_config.expand(found["Nodes"])) == (
            everybody if nodes == "ALL" else set(nodes.split(","))
        )
        assert found["State"].lower() == partition.get("state", "up")
        assert (found["Default"] == "YES") == bool(partition.get("default"))
        if partition.get("max_time", "").lower() not in ("", "unlimited", "infinite"):
            assert slurm_limits.minutes(found["MaxTime"]) == slurm_limits.minutes(partition["max_time"])
        if partition.get("priority") is not None:
            assert found["PriorityTier"] == str(partition["priority"])


def test_cgroups_confine_as_declared(host, opts):
    """cgroup.conf is the slurmds' to read; what stands in it is asked here."""
    written = dict(
        line.split("=", 1)
        for line in host.file("/etc/slurm/cgroup.conf").content_string.splitlines()
        if "=" in line and not line.startswith("#")
    )
    assert written == opts["__slurm_controller_cgroup_conf"]


def test_nobody_else_writes_the_configuration(host):
    for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
        conf = host.file(f"/etc/slurm/{name}")
        assert (conf.user, conf.mode) == ("root", 0o644), name
    state = host.file("/var/lib/slurm/slurmctld")
    assert (state.user, state.mode) == ("slurm", 0o700)


def test_accounts_users_and_qos_are_as_declared(host, opts):
    """The plan between what slurmdbd holds and what is declared is empty."""

    def ask(words):
        return host.check_output("sacctmgr --noheader --parsable2 show " + " ".join(words))

    wanted = {
        "cluster": opts["slurm_controller_cluster_name"],
        "qos": opts["slurm_controller_qos"],
        "accounts": opts["slurm_controller_accounts"],
        "users": opts["slurm_controller_account_users"],
        "exclusive": opts["slurm_controller_accounts_exclusive"],
    }
    steps = slurm_account.plan(slurm_account.read_facts(ask), wanted)
    assert [" ".join(step.argv) for step in steps] == []


def test_tokens_are_taken_or_not(host, opts):
    key = host.file(opts["__slurm_controller_jwt_file"])
    assert key.exists == bool(opts["slurm_controller_jwt_key"])
    if not key.exists:
        return
    assert (key.user, key.mode) == ("slurm", 0o600)
    answer = host.run('token=$(scontrol token lifespan=60) && env "$token" sinfo --noheader --format %%P')
    assert answer.rc == 0, answer.stderr


@pytest.mark.acts
def test_a_job_runs_and_is_accounted_for(host, eventually):
    """A real job of root's, and what sacct says of it."""
    name = "coldiron-verify"

    command = "srun --immediate=30 --time=1 --ntasks=1 --mem=16M --job-name=%s sh -c 'echo $SLURM_JOB_ID'"
    answer = with_nodes(lambda: host.run(command, name))
    assert answer.rc == 0, answer.stderr
    job = answer.stdout.split()[-1]
    told = "sacct --noheader --parsable2 --allocations --jobs %s --format JobName,State"
    assert eventually(lambda: host.check_output(told, job) == f"{name}|COMPLETED", seconds=60)


def test_the_package_is_held_or_not(host, opts):
    """An upgrade belongs to a maintenance window. Only apt's holds are looked at."""
    if host.exists("apt-mark"):
        held = set(host.check_output("apt-mark showhold").split())
        named = set(opts["__slurm_controller_os"]["packages"])
        assert named <= held if opts["slurm_controller_hold"] else not named & held
