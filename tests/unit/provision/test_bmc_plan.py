"""From what a BMC says to what has to be asked of it, and whether a one-time boot took."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldiron.errors import ColdironError
from coldiron.provision.bmc_facts import Facts, Override, Value, read_facts
from coldiron.provision.bmc_plan import Plan, Wanted, plan
from coldiron.provision.bmc_proof import prove_boot
from tests.unit.provision.bmc_samples import REGISTRY, redfish_facts

FACTS = read_facts(redfish_facts())
OFF = read_facts(redfish_facts("Off"))


def commands(made: Plan) -> list[str]:
    return [step.command for step in made.steps]


def test_as_declared() -> None:
    wanted = Wanted(
        {"BootMode": "Uefi", "QuietBoot": True, "SystemModelName": "PowerEdge XE9680"},
        ("PXE NIC 1",),
        "None",
        "on",
    )
    made = plan(FACTS, wanted, may_reboot=True)
    assert made.steps == ()
    assert made.already == (
        "BootMode",
        "QuietBoot",
        "SystemModelName",
        "the boot order",
        "no boot override",
        "power on",
    )
    assert plan(Facts(), Wanted()) == Plan(())


def test_all_at_once_with_one_start() -> None:
    wanted = Wanted({"LogicalProc": "Disabled", "FanOffset": 20}, ("Boot0003",), "Pxe", "on")
    made = plan(FACTS, wanted, may_reboot=True)
    assert commands(made) == ["SetBiosAttributes", "SetBootOrder", "SetOneTimeBoot", "PowerGracefulRestart"]
    bios, order, once, restart = made.steps
    assert bios.attributes == {"FanOffset": 20, "LogicalProc": "Disabled"}
    assert order.boot_order == ("Boot0003", "Boot0001", "Boot0002", "Boot0004")
    assert once.target == "Pxe"
    assert restart.why == "one start for BIOS: FanOffset=20, LogicalProc=Disabled; one boot from Pxe"
    assert made.waits == ()
    assert commands(plan(FACTS, wanted, may_reboot=True, force=True))[-1] == "PowerForceRestart"


def test_no_reboot_unless_it_is_allowed() -> None:
    made = plan(FACTS, Wanted({"FanOffset": 20}, boot_once="Pxe"))
    assert commands(made) == ["SetBiosAttributes", "SetOneTimeBoot"]
    assert made.waits == ("BIOS: FanOffset=20", "one boot from Pxe")
    made = plan(OFF, Wanted({"FanOffset": 20}), may_reboot=True)
    assert commands(made) == ["SetBiosAttributes"]
    assert made.waits == ("BIOS: FanOffset=20",)


def test_what_is_staged_waits_for_the_start_alone() -> None:
    facts = replace(FACTS, pending={"FanOffset": 20})
    made = plan(facts, Wanted({"FanOffset": 20}), may_reboot=True)
    assert commands(made) == ["PowerGracefulRestart"]
    # Staged away from what is wanted: it has to be staged back.
    assert commands(plan(facts, Wanted({"FanOffset": 10}))) == ["SetBiosAttributes"]


@pytest.mark.parametrize(
    ("facts", "power", "force", "expected"),
    [
        (FACTS, "off", False, ["PowerGracefulShutdown"]),
        (FACTS, "off", True, ["PowerForceOff"]),
        (OFF, "off", True, []),
        (OFF, "on", False, ["PowerOn"]),
        (FACTS, "on", False, []),
        (replace(FACTS, power="PoweringOn"), "on", False, []),
    ],
)
def test_power(facts: Facts, power: Any, force: bool, expected: list[str]) -> None:
    assert commands(plan(facts, Wanted(power=power), force=force)) == expected


def test_a_boot_from_off_is_the_power_on() -> None:
    made = plan(OFF, Wanted(boot_once="Pxe", power="on"))
    assert commands(made) == ["SetOneTimeBoot", "PowerOn"]
    assert made.waits == ()


def test_an_override_that_is_there() -> None:
    once = read_facts(redfish_facts("Off", "Once", "Pxe"))
    assert plan(once, Wanted(boot_once="Pxe")).already == ("one boot from Pxe",)
    assert commands(plan(once, Wanted(boot_once="None"))) == ["DisableBootOverride"]
    # One that stays is no one-time boot.
    stays = read_facts(redfish_facts("Off", "Continuous", "Pxe"))
    assert commands(plan(stays, Wanted(boot_once="Pxe"))) == ["SetOneTimeBoot"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Wanted({"BotMode": "Uefi"}), "no attribute `BotMode`; did you mean `BootMode`?"),
        (Wanted({"BootMode": "Efi"}), "`BootMode` is never `Efi`; did you mean `Uefi`?"),
        (Wanted({"BootMode": True}), "`BootMode` is a text, and `True` is a boolean"),
        (Wanted({"QuietBoot": "true"}), "`QuietBoot` is a boolean, and `true` is a text"),
        (Wanted({"QuietBoot": 1}), "is a number"),
        (Wanted({"QuietBoot": None}), "is nothing"),
        (Wanted({"FanOffset": 101}), "`FanOffset` goes from 0 to 100; 101 is outside"),
        (Wanted({"FanOffset": -1}), "outside"),
        (Wanted({"SystemModelName": "Cray"}), "`SystemModelName` is read-only: it is PowerEdge XE9680"),
        (Wanted({"Unsaid": "secret"}), "`Unsaid` is a password"),
        (Wanted({"SetupPassword": "secret"}), "`SetupPassword` is a password"),
        (Wanted({"NumaNodesPerSocket": 2}), r"`NumaNodesPerSocket` is a text \(1 now\), not a number"),
        (Wanted(boot_order=("PXE NIC 2",)), "no boot option `PXE NIC 2`; did you mean `PXE NIC 1`?"),
        (Wanted(boot_order=("debian",)), "the name of 2 boot options; write one of: Boot0002, Boot0003"),
        (Wanted(boot_order=("Boot0001", "PXE NIC 1")), "one option twice"),
        (Wanted(boot_once="Pixie"), "does not boot from `Pixie`; did you mean `Pxe`?"),
    ],
)
def test_refused(wanted: Wanted, words: str) -> None:
    with pytest.raises(ColdironError, match=words) as refused:
        plan(FACTS, wanted, may_reboot=True)
    assert refused.value.message.isprintable()
    assert "secret" not in refused.value.message


def test_a_value_that_is_not_said_may_be_set() -> None:
    made = plan(read_facts(redfish_facts(registry=[])), Wanted({"Unsaid": "x"}))
    assert made.steps[0].attributes == {"Unsaid": "x"}


def test_greyed_out_is_read_only() -> None:
    registry = [{**entry, "GrayOut": True} for entry in REGISTRY]
    with pytest.raises(ColdironError, match="read-only"):
        plan(read_facts(redfish_facts(registry=registry)), Wanted({"BootMode": "Bios"}))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Wanted({"BootMode": "Uefi"}), "no BIOS attributes"),
        (Wanted(boot_order=("a",)), "no boot order"),
        (Wanted(boot_once="Pxe"), "no boot override"),
        (Wanted(power="on"), "power is `unknown`"),
    ],
)
def test_a_bmc_that_lacks_it(wanted: Wanted, words: str) -> None:
    with pytest.raises(ColdironError, match=words):
        plan(Facts(), wanted)


VALUES: dict[str, st.SearchStrategy[Value]] = {
    "BootMode": st.sampled_from(["Bios", "Uefi"]),
    "LogicalProc": st.sampled_from(["Enabled", "Disabled"]),
    "FanOffset": st.integers(0, 100),
    "QuietBoot": st.booleans(),
}


@given(
    st.fixed_dictionaries({}, optional=VALUES),
    st.none() | st.permutations(["Boot0001", "Boot0002", "Boot0003"]).map(tuple),
    st.sampled_from([None, "None", "Pxe", "Hdd"]),
    st.sampled_from([None, "on", "off"]),
    st.sampled_from(["On", "Off"]),
    st.booleans(),
)
def test_a_second_plan_has_nothing_left(
    attributes: dict[str, Value], order: Any, once: str | None, power: Any, now: str, may_reboot: bool
) -> None:
    wanted = Wanted(attributes, order, once, power)
    facts = read_facts(redfish_facts(now))
    made = plan(facts, wanted, may_reboot=may_reboot)
    assert may_reboot or not any("Restart" in command for command in commands(made))
    again = plan(_after(facts, made), wanted, may_reboot=False)
    assert not [step for step in again.steps if step.command != "SetOneTimeBoot"]


def _after(facts: Facts, made: Plan) -> Facts:
    """A BMC that does as it is told."""
    for step in made.steps:
        if step.command == "SetBiosAttributes":
            facts = replace(facts, pending=step.attributes)
        elif step.command == "SetBootOrder" and facts.boot_order:
            by_reference = {option.reference: option for option in facts.boot_order}
            facts = replace(facts, boot_order=tuple(by_reference[name] for name in step.boot_order))
        elif step.command == "SetOneTimeBoot":
            facts = replace(facts, override=Override("Once", step.target))
        elif step.command in ("PowerOn", "PowerGracefulRestart"):
            assert facts.attributes is not None
            facts = replace(
                facts,
                power="On",
                attributes=dict(facts.attributes) | dict(facts.pending),
                pending={},
                override=Override("Disabled", "None"),
            )
        elif step.command == "PowerGracefulShutdown":
            facts = replace(facts, power="Off")
    return facts


def facts(enabled: str, target: str, started: str = "") -> Facts:
    return replace(Facts(), override=Override(enabled, target), started=started)


@pytest.mark.parametrize(
    ("before", "after", "outcome", "clear"),
    [
        (facts("Once", "Pxe"), facts("Disabled", "None"), "took", False),
        (facts("Once", "Pxe", "1"), facts("Disabled", "Pxe", "2"), "took", False),
        (facts("Once", "Pxe", "1"), facts("Disabled", "None", "1"), "lost", False),
        (facts("Once", "Pxe"), facts("Once", "Pxe"), "waits", False),
        # As sushy's emulator does it: asked for once, kept for good.
        (facts("Continuous", "Pxe"), facts("Continuous", "Pxe"), "stays", True),
        (facts("Once", "Pxe"), facts("Once", "Cd"), "unknown", False),
        (facts("Disabled", "None"), facts("Disabled", "None"), "not armed", False),
        (facts("Once", "Hdd"), facts("Disabled", "None"), "not armed", False),
        (Facts(), facts("Disabled", "None"), "unknown", False),
        (facts("Once", "Pxe"), Facts(), "unknown", False),
    ],
)
def test_the_proof(before: Facts, after: Facts, outcome: str, clear: bool) -> None:
    proof = prove_boot(before, after, "Pxe")
    assert (proof.outcome, proof.clear) == (outcome, clear)
    assert proof.why.isprintable()
