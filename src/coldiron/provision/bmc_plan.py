"""What has to be asked of a BMC so that its machine is as declared: facts and wishes in, steps out; nothing is sent.

Steps bear the names of community.general's redfish_command and redfish_config, which carry them out. A reboot, and a
power cut instead of a shutdown, are steps only where the caller says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import did_you_mean, shown
from coldiron.provision.bmc_facts import Attribute, BootOption, Facts, Value

Command = Literal[
    "SetBiosAttributes",
    "SetBootOrder",
    "SetOneTimeBoot",
    "DisableBootOverride",
    "PowerOn",
    "PowerGracefulShutdown",
    "PowerForceOff",
    "PowerGracefulRestart",
    "PowerForceRestart",
]
Power = Literal["on", "off"]
# In between a machine is on its way; asking again would be asked twice.
_ON, _OFF = ("On", "PoweringOn"), ("Off", "PoweringOff")


@dataclass(frozen=True)
class Wanted:
    """What is declared; None, or an empty mapping, asks for nothing.

    ``boot_order`` names options by reference or name, the first ones only if the rest may stay. ``boot_once`` is a
    Redfish target (Pxe, UefiHttp, Hdd, Cd …), and ``None`` in letters: no override may be in force.
    """

    attributes: Mapping[str, Value] = field(default_factory=dict)
    boot_order: tuple[str, ...] | None = None
    boot_once: str | None = None
    power: Power | None = None


@dataclass(frozen=True)
class Step:
    """One call. ``values`` are its BIOS attributes, its boot order's references or its boot target; ``why`` is told."""

    command: Command
    why: str
    attributes: Mapping[str, Value] = field(default_factory=dict)
    boot_order: tuple[str, ...] = ()
    target: str = ""


@dataclass(frozen=True)
class Plan:
    """The steps in their order, and why the rest needs none. ``waits`` says what only a start would bring about."""

    steps: tuple[Step, ...]
    already: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()


def plan(facts: Facts, wanted: Wanted, *, may_reboot: bool = False, force: bool = False) -> Plan:
    """The steps from ``facts`` to ``wanted``; none where all is as declared. ``force`` cuts the power, unasked.

    Raises ColdironError, one line, for what the machine does not have or does not allow.
    """
    already: list[str] = []
    steps: list[Step] = []
    for_next_start: list[str] = []
    staged = _bios(facts, wanted, already, for_next_start)
    if staged:
        steps.append(Step("SetBiosAttributes", f"BIOS: {_names(staged)}", attributes=staged))
        for_next_start.append(f"BIOS: {_names(staged)}")
    if wanted.boot_order is not None:
        order = _boot_order(facts, wanted.boot_order)
        if order:
            steps.append(Step("SetBootOrder", f"boot order: {shown(', '.join(order))}", boot_order=order))
        else:
            already.append("the boot order")
    if wanted.boot_once is not None:
        override = _override(facts, wanted.boot_once, already)
        if override:
            steps.append(override)
        if wanted.boot_once != "None":
            for_next_start.append(f"one boot from {shown(wanted.boot_once)}")
    power, waits = _power(facts, wanted, for_next_start, may_reboot, force, already)
    return Plan((*steps, *power), tuple(already), waits)


def _bios(facts: Facts, wanted: Wanted, already: list[str], for_next_start: list[str]) -> dict[str, Value]:
    """The attributes to stage; what is staged since before waits for the start alone."""
    if not wanted.attributes:
        return {}
    if facts.attributes is None:
        raise ColdironError(
            "this BMC shows no BIOS attributes; take them out, or set them by hand", ExitCode.REFUSED
        )
    staged: dict[str, Value] = {}
    for name, value in sorted(wanted.attributes.items()):
        if name not in facts.attributes:
            raise ColdironError(
                f"the BIOS has no attribute `{shown(name)}`; {did_you_mean(name, facts.attributes)}"
            )
        now = facts.attributes[name]
        known = facts.registry.get(name)
        waiting = facts.pending.get(name, now)
        if _same(now, value) and _same(waiting, value):
            already.append(name)
        elif _same(waiting, value):
            for_next_start.append(f"BIOS: {name}")
        else:
            _check_value(name, value, now, known)
            staged[name] = value
    return staged


def _same(one: Value, other: Value) -> bool:
    """Equal, and of one kind: True is not 1 to a BIOS."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _check_value(name: str, value: Value, now: Value, known: Attribute | None) -> None:
    # Without a registry the name has to tell: a step's words are shown, and a password is not.
    if known.type == "Password" if known else "password" in name.lower():
        raise ColdironError(f"`{name}` is a password, which is not declared here", ExitCode.REFUSED)
    if known is None:
        # Then what is read is all that is known of an attribute's type.
        if now is not None and _kind(value) != _kind(now):
            raise ColdironError(f"`{name}` is {_kind(now)} ({shown(now)} now), not {_kind(value)}")
        return
    if known.read_only:
        raise ColdironError(f"`{name}` is read-only: it is {shown(now)} and stays so", ExitCode.REFUSED)
    kind = {"Boolean": "a boolean", "Integer": "a number", "String": "a text", "Enumeration": "a text"}.get(
        known.type
    )
    if kind and _kind(value) != kind:
        raise ColdironError(f"`{name}` is {kind}, and `{shown(value)}` is {_kind(value)}")
    if known.choices and value not in known.choices:
        raise ColdironError(f"`{name}` is never `{shown(value)}`; {did_you_mean(str(value), known.choices)}")
    if isinstance(value, int | float) and (
        (known.lower is not None and value < known.lower) or (known.upper is not None and value > known.upper)
    ):
        raise ColdironError(f"`{name}` goes from {known.lower} to {known.upper}; {value} is outside")


def _kind(value: Value) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "a boolean"
    return "a text" if isinstance(value, str) else "a number"


def _boot_order(facts: Facts, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The whole order to set, by reference; empty where it is so already."""
    if facts.boot_order is None:
        raise ColdironError("this BMC shows no boot order; take it out, or set it by hand", ExitCode.REFUSED)
    first = [_option(facts.boot_order, name).reference for name in wanted]
    if len(set(first)) < len(first):
        raise ColdironError("the boot order names one option twice")
    now = [option.reference for option in facts.boot_order]
    order = [*first, *(reference for reference in now if reference not in first)]
    return () if order == now else tuple(order)


def _option(options: tuple[BootOption, ...], name: str) -> BootOption:
    fitting = [option for option in options if name == option.reference]
    fitting = fitting or [option for option in options if name == option.name]
    if len(fitting) > 1:
        listed = ", ".join(option.reference for option in fitting)
        raise ColdironError(
            f"`{shown(name)}` is the name of {len(fitting)} boot options; write one of: {shown(listed)}"
        )
    if not fitting:
        known = [word for option in options for word in (option.name, option.reference) if word]
        raise ColdironError(f"there is no boot option `{shown(name)}`; {did_you_mean(name, known)}")
    return fitting[0]


def _override(facts: Facts, target: str, already: list[str]) -> Step | None:
    now = facts.override
    if now is None:
        raise ColdironError("this BMC shows no boot override; boot the machine by hand", ExitCode.REFUSED)
    if target == "None":
        if now.active:
            return Step("DisableBootOverride", f"no more boots from {shown(now.target)}")
        already.append("no boot override")
        return None
    if now.allowed and target not in now.allowed:
        raise ColdironError(
            f"the machine does not boot from `{shown(target)}`; {did_you_mean(target, now.allowed)}"
        )
    # One that stays for good is not a one-time boot, even with the right target.
    if (now.enabled, now.target) == ("Once", target):
        already.append(f"one boot from {target}")
        return None
    return Step("SetOneTimeBoot", f"one boot from {target}", target=target)


def _power(
    facts: Facts,
    wanted: Wanted,
    for_next_start: list[str],
    may_reboot: bool,
    force: bool,
    already: list[str],
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """The step that the power needs, at most one, and what waits for a start that is not allowed or not wanted."""
    if wanted.power is None and not for_next_start:
        return (), ()
    if facts.power not in (*_ON, *_OFF):
        raise ColdironError(
            f"the machine's power is `{shown(facts.power or 'unknown')}`; look at it before it is switched",
            ExitCode.REFUSED,
        )
    on = facts.power in _ON
    if wanted.power == "off":
        if not on:
            already.append("power off")
            return (), tuple(for_next_start)
        command: Command = "PowerForceOff" if force else "PowerGracefulShutdown"
        return (Step(command, "power off"),), tuple(for_next_start)
    if wanted.power == "on" and not on:
        return (Step("PowerOn", "power on"),), ()
    if wanted.power == "on":
        already.append("power on")
    if not for_next_start:
        return (), ()
    if not on or not may_reboot:
        return (), tuple(for_next_start)
    restart: Command = "PowerForceRestart" if force else "PowerGracefulRestart"
    return (Step(restart, f"one start for {'; '.join(for_next_start)}"),), ()


def _names(attributes: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={shown(value)}" for name, value in attributes.items())
