"""Which machines a person means, and what they agree to lose, before anything is asked of a machine. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster, Node
from coldiron.inventory.findings import did_you_mean, shown, shown_path
from coldiron.inventory.ranges import fold


@dataclass(frozen=True)
class Asked:
    """A machine that is to be installed. ``serials``: of the disks that would be written, as far as they are named."""

    name: str
    serials: tuple[str, ...]
    describes: bool
    record: Mapping[str, Any] | None


def machines(cluster: Cluster) -> list[Node]:
    """The nodes that can be installed from here, in the file's order."""
    group = set(cluster.groups().get("bare_metal", ()))
    return [node for node in cluster.nodes if node.name in group]


def check(cluster: Cluster, names: Sequence[str]) -> None:
    """Raise ColdironError unless every one of ``names`` is a machine that can be installed from here."""
    known = [node.name for node in machines(cluster)]
    where = shown_path(cluster.path)
    if not known:
        raise ColdironError(
            f"{where} has no machine that can be installed from here; one has `platform: metal` (or `machine`, in a "
            "virtual rack) and a `bmc`"
        )
    for name in names:
        if name in known:
            continue
        if name in cluster:
            raise ColdironError(
                f"{name} cannot be installed from here: it has platform {cluster.node(name).platform} and "
                f"{'a' if cluster.node(name).bmc_address else 'no'} `bmc` in {where}; "
                "a machine has platform metal or machine, and a bmc"
            )
        raise ColdironError(f"{where} has no node `{shown(name)}`; {did_you_mean(name, known)}")


def asked(cluster: Cluster, names: Sequence[str], records: Mapping[str, Mapping[str, Any]]) -> list[Asked]:
    """What is meant by ``names``, given the provisioner's ``records``."""
    found = []
    for name in names:
        rules = [rule for rule in cluster.node(name).disks if rule.use != "data"]
        serials = tuple(serial for rule in rules for serial in rule.serial or ())
        found.append(Asked(name, serials, any(not rule.serial for rule in rules), records.get(name)))
    return found


def consent(wanted: Sequence[Asked], given: Sequence[str], ask: Callable[[str], str] | None) -> list[str]:
    """The serials that may be lost: those ``given``, and for a machine with a record those that are typed.

    ``ask`` puts a question to the person; None where nobody is there. Raises ColdironError where a machine that was
    installed before may not be written, or a serial is nobody's.
    """
    describes = any(one.describes for one in wanted)
    known = {serial for one in wanted for serial in one.serials}
    for serial in given:
        if serial not in known and not describes:
            names = ", ".join(one.name for one in wanted)
            raise ColdironError(
                f"--yes {shown(serial)}: no disk of {names} that would be written has this serial; "
                f"{did_you_mean(serial, sorted(known))}",
                ExitCode.REFUSED,
            )
    agreed = list(dict.fromkeys(given))
    for one in wanted:
        missing = [serial for serial in one.serials if serial not in agreed]
        if one.record is None or not missing:
            continue
        if ask is None:
            raise ColdironError(
                f"{one.name} was installed before and its disk would be wiped; nobody is there to ask: add "
                + " ".join(f"--yes {serial}" for serial in missing),
                ExitCode.REFUSED,
            )
        for serial in missing:
            typed = ask(f"{one.name}: everything on disk {serial} will be lost. Type its serial to go on")
            if typed.strip() != serial:
                raise ColdironError(f"that is not {serial}; nothing was changed", ExitCode.REFUSED)
            agreed.append(serial)
    return agreed


def told(one: Asked, image: str, agreed: Sequence[str]) -> list[str]:
    """What would be done to a machine, in lines."""
    lines = [f"{one.name}: image {image}"]
    for serial in one.serials:
        fate = "wiped and written" if serial in agreed else "written if it is blank, else refused"
        lines.append(f"  disk {serial}: {fate}")
    if one.describes:
        lines.append(
            "  a disk that is described and not named: written if it is blank, else refused by its serial"
        )
    if one.record is not None:
        lines.append(f"  has a record: {recorded(one.record)}")
    return lines


def recorded(record: Mapping[str, Any]) -> str:
    """A record in a few words."""
    import time

    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(record.get("when") or 0)))
    return f"image {str(record.get('image'))[:12]} on {when}"


def names_of(wanted: Sequence[Asked]) -> str:
    """The machines' names, folded."""
    return fold([one.name for one in wanted])
