"""An ordinary user submits from here, without a slurm.conf of the host's own."""

from __future__ import annotations

import pytest

from coldiron.testing.jobs import with_nodes


@pytest.fixture(scope="module")
def user(host, opts, as_user):
    """Somebody who may use the cluster and exists here; root where nobody is declared."""
    declared = opts.get("slurm_controller_account_users", [])
    for item in declared:
        if item.get("state", "present") == "present" and host.user(item["name"]).exists:
            return as_user(item["name"])
    return as_user("root")


def test_the_configuration_is_brought(host, opts):
    if not opts["__slurm_login_sackd"]:
        return
    sackd = host.service("sackd")
    assert sackd.is_running
    assert sackd.is_enabled


def test_it_is_the_controllers(host, opts, eventually):
    """slurmctld compares: a restarted one tells sackd nothing until that asks, which it does every minute."""
    if not opts["slurm_login_fetch_config"]:
        return
    assert not host.file("/etc/slurm/slurm.conf").exists
    hash_of = "scontrol show config | grep '^HASH_VAL'"
    assert eventually(lambda: host.check_output(hash_of).endswith("= Match"), seconds=120, every=3)


@pytest.mark.acts
def test_sackd_looks_for_itself_whether_it_is_behind(host, opts, eventually):
    if not opts["__slurm_login_sackd"]:
        return
    timer = host.service("coldiron-sackd-refresh.timer")
    assert timer.is_running
    assert timer.is_enabled
    # As after a restart of slurmctld: an edit that sackd was not told of.
    host.check_output("sed -i 's/^MessageTimeout=.*/MessageTimeout=31/' /run/slurm/conf/slurm.conf")
    host.check_output("systemctl start coldiron-sackd-refresh.service")
    assert eventually(
        lambda: not host.file("/run/slurm/conf/slurm.conf").contains("^MessageTimeout=31$"),
        # Where the timer's own look had begun before the edit, the next one is a minute away.
        seconds=100,
    )


def test_what_brings_it_tries_again(host, opts):
    if opts["__slurm_login_sackd"]:
        assert host.check_output("systemctl show --property Restart --value sackd") == "on-failure"


def test_commands_ask_the_declared_controllers(host, opts):
    servers = opts["__slurm_login_servers"]
    if opts["__slurm_login_sackd"]:
        pid = host.check_output("systemctl show --property MainPID --value sackd")
        assert servers in host.check_output("tr '\\0' ' ' < /proc/%s/cmdline", pid)
        assert host.file("/etc/default/sackd").contains(f"--conf-server {servers}")
    elif opts["slurm_login_fetch_config"]:
        assert host.file("/etc/environment").contains(f"^SLURM_CONF_SERVER={servers}$")


@pytest.mark.acts
def test_an_ordinary_user_runs_a_job(user):
    answer = with_nodes(
        lambda: user.run("srun --immediate=30 --time=1 --ntasks=1 --mem=16M id --user --name")
    )
    assert answer.rc == 0, answer.stderr
    assert answer.stdout.split() == [user.name]


def test_an_ordinary_user_sees_what_was_counted(user):
    user.output("sacct --noheader --allocations --format User,State")


def test_the_package_is_held_or_not(host, opts):
    """An upgrade belongs to a maintenance window. Only apt's holds are looked at."""
    if host.exists("apt-mark") and opts["__slurm_login_sackd"]:
        held = set(host.check_output("apt-mark showhold").split())
        named = set(opts["__slurm_login_os"]["packages"])
        assert named <= held if opts["slurm_login_hold"] else not named & held
