"""One release of Slurm on every host, with one user, and nobody upgrades it by the way."""

from __future__ import annotations

import pytest


def release(host):
    """Return the release of the commands, such as 24.11."""
    return ".".join(host.check_output("sinfo --version").split()[1].split(".")[:2])


def test_the_commands_are_the_release_that_the_data_says(host, opts):
    wanted = opts["slurm_common_version"] or opts["__slurm_common_os"]["release"]
    assert wanted.startswith(release(host))


def test_every_host_has_the_same_release(host, role_hosts, run_on):
    first = role_hosts("slurm_common")[0]
    assert release(host) == release(run_on(first))


def test_the_packages_are_held_or_not(host, opts):
    held = host.check_output("apt-mark showhold").split() if host.exists("apt-mark") else []
    for name in opts["__slurm_common_os"]["packages"] if host.exists("apt-mark") else []:
        assert (name in held) == opts["slurm_common_hold"], name


def test_slurms_user_has_one_number(host, role_hosts, run_on):
    first = role_hosts("slurm_common")[0]
    assert host.user("slurm").uid == run_on(first).user("slurm").uid


@pytest.mark.parametrize(
    ("path", "owner"), [("/etc/slurm", "root"), ("/var/log/slurm", "slurm"), ("/var/lib/slurm", "slurm")]
)
def test_directories_belong_to_whom_they_should(host, path, owner):
    directory = host.file(path)
    assert directory.is_directory
    assert (directory.user, directory.mode) == (owner, 0o755)


@pytest.mark.parametrize("folder", ["prolog.d", "epilog.d"])
def test_there_is_a_first_file_to_run_around_jobs(host, folder):
    """slurmd drains a node whose folder is empty or has a file that fails."""
    assert host.run(f"/etc/slurm/{folder}/00-coldiron").rc == 0
    directory = host.file(f"/etc/slurm/{folder}")
    assert (directory.user, directory.mode) == ("root", 0o755)
