"""The services that the GPUs' fabric needs run, at exactly the driver's version; others are not there."""

from __future__ import annotations

import pytest

from coldiron.catalog.load import load

UNITS = {"fabric_manager": "nvidia-fabricmanager", "nvlsm": "nvlsm", "imex": "nvidia-imex"}
TIED = {"fabric_manager", "imex"}


@pytest.fixture
def needed(opts):
    if "auto" not in opts["gpu_fabric_services"]:
        return set(opts["gpu_fabric_services"])
    gpu = load().gpus.get(opts["gpu_fabric_model"])
    return set(gpu.fabric or ()) if gpu else set()


def package(host, name):
    """A package's version, its revision left out, and whether upgrades leave it alone."""
    said = host.check_output(f"dpkg-query -W -f '${{db:Status-Abbrev}}|${{Version}}' {name}")
    status, _, version = said.partition("|")
    return version.rpartition("-")[0], status.startswith("h")


def test_what_the_fabric_needs_runs_and_starts_at_boot(host, needed):
    for service in needed:
        assert host.service(UNITS[service]).is_running
        assert host.service(UNITS[service]).is_enabled


def test_it_is_the_driver_s_version(host, opts, needed):
    for service in needed & TIED:
        assert package(host, UNITS[service])[0] == opts["gpu_fabric_driver"]


def test_it_was_started_after_it_was_installed(host, needed):
    """A service of the driver before would go on running."""
    for service in needed & TIED:
        unit = UNITS[service]
        shown = host.check_output(f"systemctl show --property ActiveEnterTimestamp --value {unit}")
        started = int(host.check_output(f"date --date '{shown}' +%s"))
        # dpkg writes a package's list of files when it unpacks it.
        assert host.file(f"/var/lib/dpkg/info/{unit}.list").mtime.timestamp() <= started + 1


def test_upgrades_leave_it_alone(host, opts, needed):
    for service in needed:
        assert package(host, UNITS[service])[1] == opts["gpu_fabric_hold"]


def test_imex_knows_the_nodes_of_its_domain(host, opts, needed):
    if "imex" in needed:
        said = host.file("/etc/nvidia-imex/nodes_config.cfg").content_string.split()
        assert said == opts["gpu_fabric_imex_nodes"]
