"""slurmdbd answers, knows the cluster, keeps records as long as declared, and shows nobody its password."""

from __future__ import annotations

import re

import pytest


@pytest.fixture(scope="module")
def config(host):
    """What the running slurmdbd says of its configuration, keys in lower case."""
    lines = host.check_output("sacctmgr --noheader show config").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {key.strip().lower(): value.strip() for key, value in pairs}


def test_the_daemon_runs_and_starts_at_boot(host):
    slurmdbd = host.service("slurmdbd")
    assert slurmdbd.is_running
    assert slurmdbd.is_enabled


def test_it_listens(host, opts):
    assert host.check_output(
        f"ss --no-header --listening --numeric --tcp 'sport = :{opts['slurm_dbd_port']}'"
    )


def test_only_slurm_reads_the_password(host):
    config_file = host.file("/etc/slurm/slurmdbd.conf")
    assert (config_file.user, config_file.group, config_file.mode) == ("slurm", "slurm", 0o600)


def test_the_cluster_is_registered(host, opts):
    known = host.check_output("sacctmgr --noheader --parsable2 show cluster format=Cluster").splitlines()
    assert opts["slurm_dbd_cluster_name"] in known


def test_the_running_daemon_stores_where_it_is_told(config, opts):
    assert config["storagehost"] == opts["slurm_dbd_database_host"]
    assert config["storageloc"] == opts["slurm_dbd_database_name"]
    assert config["storageuser"] == opts["slurm_dbd_database_user"]
    assert config["dbdport"] == str(opts["slurm_dbd_port"])


def test_the_running_daemon_purges_as_declared(config, opts):
    """ "36months" of the file is "36 months*" or "36 months" of the daemon."""
    for key, value in opts["slurm_dbd_purge"].items():
        if value is None:
            continue
        amount, unit = re.fullmatch(r"(\d+)([a-z]*)", str(value)).groups()
        words = config[key.lower()].rstrip("*").split()
        assert words[0] == amount, key
        assert words[1].rstrip("s") == (unit or "months").rstrip("s"), key


def test_the_running_daemon_has_further_keys(config, opts):
    for key, value in opts["slurm_dbd_config"].items():
        if value is not None and key.lower() in config:
            assert config[key.lower()].lower() == str(value).lower(), key


def test_tokens_have_a_key_that_only_slurm_reads_or_none(host, opts):
    key = host.file(opts["__slurm_dbd_jwt_file"])
    assert key.exists == bool(opts["slurm_dbd_jwt_key"])
    if key.exists:
        assert (key.user, key.mode) == ("slurm", 0o600)


def test_the_package_is_held_or_not(host, opts):
    """An upgrade belongs to a maintenance window. Only apt's holds are looked at."""
    if host.exists("apt-mark"):
        held = set(host.check_output("apt-mark showhold").split())
        named = set(opts["__slurm_dbd_os"]["packages"])
        assert named <= held if opts["slurm_dbd_hold"] else not named & held
