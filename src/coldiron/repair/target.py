"""What may be repaired, and which disks a deploy of it wipes: from cluster.yml alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster, Node
from coldiron.inventory.findings import did_you_mean, shown, shown_path
from coldiron.repair.machine import Kind

# What is written by a deploy. Disks of any other use are never touched.
WRITTEN = ("system", "swap", "scratch")
# Functions whose state or service a deploy of their node would take from everybody else.
KEEPERS = (
    "slurm_controller",
    "slurm_dbd",
    "mariadb",
    "dns_server",
    "home_server",
    "nfs_server",
    "netboot_server",
)


@dataclass(frozen=True)
class WipedDisk:
    """A disk that a deploy wipes. ``serial`` is empty where the rule finds it by something else."""

    serial: str
    use: str
    about: str

    def told(self) -> str:
        """The disk as a person reads it."""
        name = shown(self.serial) if self.serial else "serial not in cluster.yml"
        return f"{name} ({self.use}, {self.about})" if self.about else f"{name} ({self.use})"


def disks(node: str, platform: str, rules: Sequence[Mapping[str, Any]]) -> tuple[WipedDisk, ...]:
    """The disks that a deploy of ``node`` wipes; ``rules`` as in the variable ``coldiron_disks``.

    A container of the rack has one thing to lose, what it has written, and goes by its own name.
    """
    if platform == "container":
        return (WipedDisk(node, "system", "all that this container of the rack has written"),)
    found = []
    for rule in rules:
        if rule.get("use", "system") not in WRITTEN:
            continue
        size = f"{rule['size_gb']:g} GB" if rule.get("size_gb") else ""
        about = " ".join(filter(None, (str(rule.get("model") or ""), size)))
        given = rule.get("serial")
        serials = [given] if isinstance(given, str) else list(given or [])
        found += [
            WipedDisk(str(serial), str(rule.get("use", "system")), about)
            for serial in serials or [""] * int(rule.get("count") or 1)
        ]
    return tuple(found)


def serials(node: str, wiped: Sequence[WipedDisk], given: Sequence[str]) -> tuple[str, ...]:
    """The serials that must be agreed to. Where a rule names none, those ``given`` beyond the known ones stand for it.

    The machine has the last word: its deploy environment writes to no disk that bears data under another serial.
    Raises ColdironError where too few are given.
    """
    known = [disk.serial for disk in wiped if disk.serial]
    nameless = len(wiped) - len(known)
    others = [serial for serial in dict.fromkeys(given) if serial not in known]
    if nameless and len(others) < nameless:
        raise ColdironError(
            f"{node}: cluster.yml finds {nameless} of the disks that would be wiped by something else than a serial; "
            "read the serial on the node (lsblk -o NAME,SERIAL) or on the disk, and give it: --yes SERIAL",
            ExitCode.REFUSED,
        )
    return (*known, *others[:nameless])


def check(cluster: Cluster, names: Sequence[str], kind: Kind) -> list[Node]:
    """The nodes called ``names``. Raises ColdironError where one is not there, or must not or cannot be deployed."""
    found = []
    known = [node.name for node in cluster.nodes]
    for name in names:
        if name not in cluster:
            raise ColdironError(
                f"{shown_path(cluster.path)} has no node `{shown(name)}`; {did_you_mean(name, known)}"
            )
        node = cluster.node(name)
        keeps = [function for function in KEEPERS if function in node.functions]
        if keeps:
            raise ColdironError(
                f"{name} is {cluster.name}'s {', '.join(keeps)}: the whole cluster would be without; "
                "such a node is not reinstalled by a repair",
                ExitCode.REFUSED,
            )
        if kind is not Kind.WEBHOOK and node.platform != "container" and not node.bare_metal:
            raise ColdironError(
                f"{name} has no `bmc` in {shown_path(cluster.path)}:{node.line}: coldiron cannot switch it on and "
                "install it; write its bmc there, or install it by hand (docs/operate/replace-a-node.md)",
                ExitCode.REFUSED,
            )
        found.append(node)
    return found


def disks_of(node: Node) -> tuple[WipedDisk, ...]:
    """``disks`` of a node of cluster.yml."""
    return disks(node.name, node.platform, node.hostvars().get("coldiron_disks", []))
