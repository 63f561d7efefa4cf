"""What a BMC says, typed; what it does not say stays unknown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision.bmc_facts import Attribute, BootOption, Facts, Override, read_facts
from tests.unit.provision.bmc_samples import BIOS, URI, entries, redfish_facts


def test_a_whole_answer() -> None:
    progress = {"LastState": "OSRunning", "LastStateTime": "2026-01-01T00:00:00Z", "Oem": {}}
    facts = read_facts(redfish_facts("On", "Once", "Pxe", progress), {"Attributes": {"BootMode": "Bios"}})
    assert facts.power == "On"
    assert facts.attributes == BIOS
    assert facts.pending == {"BootMode": "Bios"}
    assert facts.registry["BootMode"] == Attribute("BootMode", "Enumeration", False, ("Bios", "Uefi"))
    assert facts.registry["FanOffset"] == Attribute("FanOffset", "Integer", False, (), 0, 100)
    assert facts.registry["SystemModelName"].read_only
    assert facts.boot_order is not None
    assert facts.boot_order[::3] == (BootOption("Boot0001", "PXE NIC 1"), BootOption("Boot0004"))
    assert facts.override == Override("Once", "Pxe", ("None", "Pxe", "Hdd", "UefiHttp"))
    assert facts.started == "OSRunning 2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "given",
    [
        {},
        # A BMC without these: the module says ok all the same.
        {"boot_order": {"ret": True, "entries": []}, "bios_attribute": {"ret": True, "entries": [[URI, {}]]}},
        {"boot_override": {"ret": False, "msg": "Key Boot not found"}},
    ],
)
def test_what_is_not_there_is_not_known(given: dict[str, Any]) -> None:
    assert read_facts(given) == Facts()


def test_an_override_that_is_hardly_said() -> None:
    facts = read_facts({"boot_override": entries({"BootSourceOverrideMode": "UEFI"})})
    assert facts.override == Override("Disabled", "None")
    assert not facts.override.active


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"system": "503"}, "`system` is no mapping"),
        ({"system": {"entries": 3}}, "no list of entries"),
        ({"system": {"entries": [[URI, {}], [URI, {}]]}}, "shows 2 systems"),
        ({"system": {"entries": ["x"]}}, "is no pair"),
        ({"system": entries([1])}, "is no mapping"),
        ({"system": entries({1: 2})}, "is no mapping"),
        ({"system": entries({"PowerState": []})}, "PowerState is no text"),
        ({"bios_attribute": entries({"a\nb": {}})}, r"a\\nb is neither text nor number"),
        ({"boot_order": entries({"a": 1})}, "the boot order is no list"),
        ({"boot_order": entries([{"Name": "x"}])}, "no reference"),
        ({"bios_registries": {"bios_registry": {"RegistryEntries": {"Attributes": {"a": 1}}}}}, "no list"),
    ],
)
def test_garbage_is_refused_in_one_line(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ColdironError, match=words) as refused:
        read_facts(given)
    assert refused.value.exit_code == ExitCode.ENVIRONMENT
    assert refused.value.message.isprintable()


WORDS = ["system", "boot_order", "boot_override", "bios_attribute", "entries", "BootOptionReference", "x\n"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just(URI),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(WORDS), inner),
    max_leaves=10,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.sampled_from(WORDS), JSON | JSON.map(entries)))
def test_facts_or_one_line(given: dict[str, Any]) -> None:
    message = ""
    try:
        read_facts(given)
    except ColdironError as refused:
        message = refused.message
    assert not message or message.isprintable()
