"""One task on one BMC, from its arguments to what is told of it: coldiron.cluster.bmc without Ansible."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision import bmc_output, bmc_trust
from coldiron.provision.bmc_facts import Facts
from coldiron.provision.bmc_ipmi import Ipmi
from coldiron.provision.bmc_plan import Wanted
from coldiron.provision.bmc_redfish import Call, Redfish
from coldiron.provision.bmc_trouble import Where
from coldiron.provision.bmc_work import Done, Patience, Work, check_asset

Around = Callable[[dict[str, str]], AbstractContextManager[None]]


@dataclass
class Found:
    """What a task gives back. ``facts`` are plain data for other tasks, ``files`` the paths that were written."""

    done: Done
    msg: str
    facts: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def run(given: Mapping[str, Any], call: Call, around: Around, *, check: bool) -> Found:
    """Do what ``given`` says. Raises ColdironError, one line that names node, BMC, what is wrong and what to do."""
    if not given["address"]:
        raise ColdironError(
            f"{given['node']} has no BMC in the inventory; write one in cluster.yml: bmc: {{address: …}}"
        )
    where = Where(given["node"], given["address"], given["credentials"], given["user"], given["ca"])
    if given["state"] == "trusted":
        return _trusted(given, where, check)
    if given["state"] == "console":
        return _console(given, where)
    if not given["user"] or not given["password"]:
        raise ColdironError(
            where.told(
                f"there is no user and password for it; write them into the vault: {where.credentials or 'bmc_user'}"
            )
        )
    with _reached(given, where, call, around) as bmc:
        try:
            return _asked(given, where, bmc, check)
        except ColdironError as error:
            if error.message.startswith(where.told("")):
                raise
            # What is wrong with the wishes themselves is said without a machine.
            raise ColdironError(where.told(error.message), error.exit_code) from None


def _reached(
    given: Mapping[str, Any], where: Where, call: Call, around: Around
) -> AbstractContextManager[Redfish | Ipmi]:
    """The BMC, behind what its protocol needs: an environment for the modules, a learnt certificate."""
    if given["protocol"] == "ipmi":
        return nullcontext(_ipmi(given, where))
    return bmc_trust.reached(given, where, call, around)


def _ipmi(given: Mapping[str, Any], where: Where) -> Ipmi:
    return Ipmi(
        where,
        given["password"],
        port=given["port"],
        timeout=given["timeout_seconds"],
        cipher_suite=given["cipher_suite"],
        efi=given["firmware"] == "uefi",
    )


def _asked(given: Mapping[str, Any], where: Where, bmc: Redfish | Ipmi, check: bool) -> Found:
    patience = Patience(
        given["retries"], given["grace_seconds"], given["power_seconds"], given["proof_seconds"]
    )
    work = Work(bmc, patience, force=given["force"], check=check)
    state = given["state"]
    if state in ("events", "sensors"):
        texts = work.patiently(bmc.logs if state == "events" else lambda: {"sensors.txt": bmc.sensors()})
        files = bmc_output.write(given["directory"], texts, where, check)
        return Found(Done(bool(files)), _count(where.node, texts, state), files=files)
    wanted = Wanted(given["attributes"], tuple(given["boot_order"]) or None)
    declares = state == "configured"
    asset = work.facts(
        asset=True,
        bios=declares and bool(wanted.attributes),
        order=declares and wanted.boot_order is not None,
    )
    check_asset(asset, where, given["serial"], given["mac"])
    done = _done(given, work, asset, wanted)
    found = Found(done, _message(given, done), facts=_data(done.facts, asset))
    if done.proof and done.proof.outcome != "took" and given["cycle"]:
        found.warnings.append(f"{where.node}: {done.proof.why}")
    return found


def _done(given: Mapping[str, Any], work: Work, found: Facts, wanted: Wanted) -> Done:
    state = given["state"]
    if state == "on":
        return work.on(found)
    if state == "off":
        return work.off(found)
    if state == "cycled":
        return work.cycle(found)
    if state == "booted_once":
        return work.boot_once(found, given["target"], cycle=given["cycle"])
    if state == "boots_from_disk":
        return work.boot_disk(found)
    if state == "configured":
        return work.configure(found, wanted, may_reboot=given["may_reboot"])
    return Done(facts=found)


def _trusted(given: Mapping[str, Any], where: Where, check: bool) -> Found:
    shown = bmc_trust.fetch(where, given["port"], given["timeout_seconds"])
    changed = bmc_trust.learn(given, where, shown, check)
    return Found(Done(changed), where.told(f"its certificate {shown.fingerprint} is known"))


def _console(given: Mapping[str, Any], where: Where) -> Found:
    if given["console_file"]:
        text = bmc_output.tail(given["console_file"], where)
    elif given["protocol"] == "ipmi":
        text = _ipmi(given, where).console(given["console_seconds"])
    else:
        raise ColdironError(
            where.told(
                "Redfish gives no console; name the file that its serial line is written to in "
                "`bmc_console_file`, or use `bmc.protocol: ipmi` (serial over LAN)"
            ),
            ExitCode.REFUSED,
        )
    files = bmc_output.write(given["directory"], {"console.txt": text}, where, False)
    return Found(Done(), text, files=files)


def _message(given: Mapping[str, Any], done: Done) -> str:
    told = [*done.told, *([done.proof.why] if done.proof else [])]
    if done.waits:
        told.append(f"waits for the next start: {'; '.join(done.waits)}")
    power = f"power is {done.facts.power or 'unknown'}"
    return f"{given['node']}: {'; '.join(told) if told else power}"


def _count(node: str, texts: Mapping[str, str], state: str) -> str:
    if not texts:
        return f"{node}: the BMC keeps no {'event log' if state == 'events' else 'sensors'} that can be read"
    return f"{node}: " + ", ".join(
        f"{name} ({len(text.splitlines())} lines)" for name, text in sorted(texts.items())
    )


def _data(facts: Facts, asset: Facts) -> dict[str, Any]:
    """The facts as other tasks read them."""
    override = facts.override
    return {
        **asdict(asset.asset),
        "serials": list(asset.asset.serials),
        "macs": list(asset.asset.macs),
        "power": facts.power,
        "override": {"enabled": override.enabled, "target": override.target} if override else {},
        "attributes": dict(facts.attributes or {}),
        "pending": dict(facts.pending),
        "boot_order": [asdict(option) for option in facts.boot_order or ()],
    }
