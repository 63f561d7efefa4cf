"""The exporter answers who has the password, and asks a BMC as the declared user."""

from __future__ import annotations

import re
import urllib.parse

import pytest

from coldiron.errors import ColdironError
from coldiron.provision.bmc_ipmi import Ipmi
from coldiron.provision.bmc_trouble import Where


def test_it_runs_and_a_boot_starts_it(exporter, opts):
    exporter.runs(opts["__ipmi_exporter_os"]["service"])


def test_it_is_heard_where_it_is_declared_and_nowhere_else(exporter):
    exporter.is_heard_where_declared()


def test_nobody_asks_without_the_password(exporter):
    exporter.wants_its_password()


def test_nobody_else_reads_its_secrets(exporter):
    exporter.hides_its_password()


@pytest.fixture
def read(exporter):
    """What it says of a BMC: {metric: [(labels, value)]}."""

    def go(address, module):
        return exporter.samples("/ipmi?" + urllib.parse.urlencode({"module": module, "target": address}))

    return go


def test_it_knows_the_declared_users(opts, exporter, read):
    """Of a BMC that is not there it says so, by each module; a module that nobody declared is refused."""
    for module in opts["ipmi_exporter_modules"]:
        found = read("127.0.0.1", module)["ipmi_up"]
        assert found
        assert all(value == 0 for _, value in found)
    assert exporter.ask("/ipmi?module=nobody&target=127.0.0.1")[0] == 400


@pytest.fixture
def bmcs(opts):
    """The BMCs that Prometheus asks it for, three at the most: address, who logs in, name of the node."""
    jobs = opts.get("topology_bmcs", [])
    targets = [one for job in jobs if job["name"] == "bmc_ipmi" for one in job["targets"]]
    return [(one["address"], one["labels"]["module"], one["labels"]["instance"]) for one in targets[:3]]


def asked_by_ipmitool(opts, address, module, name):
    """The BMC itself, asked from here: power state and sensors by name; None where it does not answer us either."""
    user = opts["ipmi_exporter_modules"][module]
    bmc = Ipmi(Where(name, address, user=str(user["user"])), str(user["pass"]))
    try:
        power, lines = bmc.facts().power, bmc.sensors().splitlines()
    except ColdironError:
        return None
    columns = [[word.strip() for word in line.split("|")] for line in lines]
    return power, {
        one[0]: float(one[1]) for one in columns if len(one) > 2 and re.fullmatch(r"[\d.]+", one[1])
    }


def test_what_it_says_is_what_the_bmc_says(opts, bmcs, read):
    for address, module, name in bmcs:
        said = asked_by_ipmitool(opts, address, module, name)
        found = read(address, module)
        up = {labels["collector"]: value for labels, value in found["ipmi_up"]}
        assert up["chassis"] == up["ipmi"] == float(said is not None), name
        if said is None:
            continue
        assert found["ipmi_chassis_power_state"] == [({}, float(said[0] == "On"))]
        for metric in ("ipmi_temperature_celsius", "ipmi_fan_speed_rpm"):
            for labels, value in found.get(metric, []):
                # It turns and warms while it is asked twice.
                assert value == pytest.approx(said[1][labels["name"]], rel=0.2), (name, labels["name"])


def test_it_reads_the_length_of_the_event_log(bmcs, read):
    for address, module, _ in bmcs:
        found = read(address, module)
        up = {labels["collector"]: value for labels, value in found["ipmi_up"]}
        if up["chassis"]:
            assert up["sel"] == 1
            assert found["ipmi_sel_logs_count"][0][1] >= 0


def test_the_bmcs_users_are_in_no_list_and_no_log(host, opts):
    said = host.check_output("cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; true")
    service = opts["__ipmi_exporter_os"]["service"]
    said += host.check_output("journalctl --no-pager -u %s", service)
    for module in opts["ipmi_exporter_modules"].values():
        assert not module.get("pass") or str(module["pass"]) not in said


def test_the_bmcs_users_are_for_it_alone(host):
    file = host.file("/etc/coldiron/ipmi-exporter/ipmi.yml")
    assert (file.user, file.group, file.mode) == ("root", "prometheus", 0o640)
