"""The machine is what was ordered: its record, its disks, its host key."""

from __future__ import annotations

import json

import pytest


@pytest.fixture(scope="module")
def record(host, opts):
    """What the deployment left on the machine; of one that was installed by other means, what it would say."""
    file = host.file("/etc/coldiron/deployed.json")
    if file.exists:
        return json.loads(file.content_string)
    return {
        "node": opts["deploy_machine"]["name"],
        "image": {"class": opts["deploy_image_class"]},
        "disks": [],
    }


def test_the_record_is_of_this_machine(opts, record):
    assert record["node"] == opts["deploy_machine"]["name"]
    assert record["image"]["class"] == opts["deploy_image_class"]


def test_only_disks_that_the_rules_name_were_written(opts, record):
    rules = [rule for rule in opts["deploy_machine"]["disks"] if rule["use"] != "data"]
    named = {serial for rule in rules for serial in rule.get("serial") or ()}
    described = any(not rule.get("serial") for rule in rules)
    assert described or {disk["serial"] for disk in record["disks"]} <= named
    kept = {
        serial
        for rule in opts["deploy_machine"]["disks"]
        if rule["use"] == "data"
        for serial in rule.get("serial") or ()
    }
    assert not kept & {disk["serial"] for disk in record["disks"]}


def test_the_host_key_is_for_root_alone(host, record):
    key = host.file("/etc/ssh/ssh_host_ed25519_key")
    assert (key.user, key.mode) == ("root", 0o600)


def test_nothing_of_the_deployment_is_left_on_the_kernels_command_line(host, record):
    assert "coldiron.token" not in host.file("/proc/cmdline").content_string
