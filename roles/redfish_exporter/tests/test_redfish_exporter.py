"""The exporter answers who has the password, and reads the declared BMCs, each as it is."""

from __future__ import annotations

import base64
import json
import re
import ssl
import urllib.request

import pytest


def test_it_runs_and_a_boot_starts_it(exporter):
    exporter.runs("coldiron-redfish-exporter.service")


def test_it_is_heard_where_it_is_declared_and_nowhere_else(exporter):
    exporter.is_heard_where_declared()


def test_nobody_asks_without_the_password(exporter):
    exporter.wants_its_password()


def test_nobody_else_reads_its_secrets(exporter):
    exporter.hides_its_password("redfish-exporter", "config.json")


@pytest.fixture
def read(exporter):
    """What it says of a machine's BMC: {metric: [(labels, value)]}."""
    return lambda name: exporter.samples(f"/redfish?target={name}")


def test_it_runs_as_a_user_who_may_do_nothing_else(host, eventually):
    pid = eventually(
        lambda: int(host.check_output("systemctl show -p MainPID --value coldiron-redfish-exporter"))
    )
    status = host.file(f"/proc/{pid}/status").content_string
    number = str(host.user("redfish-exporter").uid)
    assert re.search(r"^Uid:\s+(.*)$", status, re.MULTILINE)[1].split() == [number] * 4
    assert re.search(r"^CapEff:\s+(\w+)$", status, re.MULTILINE)[1].strip("0") == ""


def test_the_passwords_of_bmcs_are_in_no_list_and_no_log(host, opts):
    said = host.check_output("cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; true")
    said += host.check_output("journalctl --no-pager -u coldiron-redfish-exporter.service")
    for pair in opts["redfish_exporter_credentials"].values():
        word = str(pair.get("password") or "")
        assert not word or word not in said
        assert not word or base64.b64encode(word.encode()).decode() not in said


def test_it_knows_the_declared_bmcs_and_no_others(opts, exporter):
    wanted = float(len(opts["redfish_exporter_targets"]))
    assert exporter.samples()["redfish_exporter_targets"] == [({}, wanted)]
    assert exporter.ask("/redfish?target=undeclared")[0] == 400
    for target in opts["redfish_exporter_targets"].values():
        assert exporter.ask(f"/redfish?target={target['address']}")[0] == 400


def told(opts, target, path):
    """A resource of a BMC, asked from here; its certificate is looked at by the exporter, and not once more."""
    pair = opts["redfish_exporter_credentials"].get(target.get("credentials"), {})
    words = f"{pair.get('user', '')}:{pair.get('password', '')}"
    headers = {"Authorization": "Basic " + base64.b64encode(words.encode()).decode()}
    context = ssl.create_default_context(cadata=str(opts["redfish_exporter_ca"]) or None)
    if target.get("fingerprint"):
        # Its names and its signer count for nothing.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"https://{target['address']}:{target.get('port') or 443}{path}"
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with opener.open(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        return json.load(answer)


def members(opts, target, name):
    found = told(opts, target, f"/redfish/v1/{name}").get("Members", [])
    return [told(opts, target, one["@odata.id"]) for one in found]


def test_every_bmc_answers_or_the_reason_is_told(opts, read):
    for name in opts["redfish_exporter_targets"]:
        found = read(name)
        ((_, up),) = found["redfish_up"]
        assert up == 1 or found["redfish_failures"], name


def test_what_it_says_is_what_the_bmc_says(opts, read, eventually):
    """Of those that answer it: the power of the machine, and each temperature that is read."""
    power = {"On": 1.0, "PoweringOff": 1.0, "Paused": 1.0, "Off": 0.0, "PoweringOn": 0.0}
    for name, target in list(opts["redfish_exporter_targets"].items())[:3]:
        if read(name)["redfish_up"] != [({}, 1.0)]:
            continue
        wanted = {one["Id"]: power[one["PowerState"]] for one in members(opts, target, "Systems")}

        def states(name=name):
            return {labels["system"]: value for labels, value in read(name)["redfish_system_power_state"]}

        assert eventually(
            lambda wanted=wanted, states=states: states() == wanted,
            seconds=int(opts["redfish_exporter_seconds"]) + 10,
        )
        found = {
            (one["chassis"], one["name"]) for one, _ in read(name).get("redfish_temperature_celsius", [])
        }
        for chassis in members(opts, target, "Chassis"):
            link = chassis.get("Thermal", {}).get("@odata.id")
            for one in told(opts, target, link).get("Temperatures", []) if link else []:
                here = isinstance(one.get("ReadingCelsius"), (int, float))
                gone = one.get("Status", {}).get("State") in ("Absent", "Disabled", "StandbyOffline")
                assert ((chassis["Id"], one["Name"]) in found) == (here and not gone), (name, one["Name"])
