"""What a machine of the rack is: what cluster.yml says of the node, and stand-ins where it is silent. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coldiron.errors import ColdironError

if TYPE_CHECKING:
    from coldiron.inventory.cluster import Cluster, Node

MEMORY_MIB = 2048
GB = 10**9
_SYSTEM_GB = 10.0
_OTHER_GB = 2.0
# What virtio-blk and ATA can tell; QEMU cuts longer ones off, and no rule would find the disk again.
SERIAL_MAX = 20
_SCSI_SERIAL_MAX = 36
_DISKS_MAX = 16
_NAMESPACE = uuid.UUID("7b8a4c5e-0f5d-5c6a-9a55-0b6f1b3a6d10")
DEFAULT_CREDENTIALS = "bmc_credentials"


@dataclass
class MachineDisk:
    """A disk. ``size`` in bytes; ``target`` is its place in the machine (vda, sda) and its file's name."""

    target: str
    use: str
    serial: str
    size: int
    wwn: str | None = None
    model: str | None = None

    @property
    def bus(self) -> str:
        """SCSI where a rule asks for what virtio-blk cannot tell."""
        return "scsi" if self.target.startswith("sd") else "virtio"


@dataclass
class MachineSpec:
    """A machine as cluster.yml wants it, and as it was made. ``faults``: what was broken on purpose."""

    name: str
    address: str
    distribution: str
    kind: str
    uuid: str
    firmware: str
    path: str
    mac: str
    second_mac: str
    serial: str
    bmc_address: str
    protocol: str
    credentials: str
    disks: list[MachineDisk]
    memory_mib: int = MEMORY_MIB
    faults: list[str] = field(default_factory=list, compare=False)

    @property
    def bmc_url(self) -> str:
        """Where its management controller listens."""
        return f"https://{self.bmc_address}" if self.protocol == "redfish" else f"ipmi://{self.bmc_address}"

    @classmethod
    def load(cls, data: dict[str, Any]) -> MachineSpec:
        """The machine in a state file's mapping."""
        return cls(**{**data, "disks": [MachineDisk(**disk) for disk in data["disks"]]})


def machine_uuid(rack: str, name: str) -> str:
    """A machine's UUID: the same however often the rack is made."""
    return str(uuid.uuid5(_NAMESPACE, f"{rack}/{name}"))


def second_mac(mac: str) -> str:
    """The second card's address: the first's with the locally administered bit, and its last byte turned over."""
    words = [int(word, 16) for word in mac.split(":")]
    words[0] |= 0x02
    words[5] ^= 0x80
    words[4] ^= 0x01
    return ":".join(f"{word:02x}" for word in words)


def disks_of(node: Node) -> list[MachineDisk]:
    """The disks that the node's rules speak of, each once; a system and a data disk where there are no rules.

    Raises ColdironError, with the line, for what no virtual disk can be.
    """
    wanted: list[tuple[str, str, float, str | None, str | None]] = []
    for rule in node.disks:
        for number in range(rule.count):
            size = rule.size_gb or (_SYSTEM_GB if rule.use == "system" else _OTHER_GB)
            serial = rule.serial[number] if rule.serial else ""
            wanted.append((rule.use, serial, size, rule.wwn[number] if rule.wwn else None, rule.model))
    if not wanted:
        wanted = [("system", "", _SYSTEM_GB, None, None), ("data", "", _OTHER_GB, None, None)]
    if len(wanted) > _DISKS_MAX:
        raise ColdironError(
            f"{_where(node)}: {len(wanted)} disks, and a machine of the virtual rack has {_DISKS_MAX} at most"
        )
    found: list[MachineDisk] = []
    plain = scsi = 0
    for use, given, size, wwn, model in wanted:
        on_scsi = bool(wwn or model)
        letter = "abcdefghijklmnop"[scsi if on_scsi else plain]
        scsi, plain = scsi + on_scsi, plain + (not on_scsi)
        most = _SCSI_SERIAL_MAX if on_scsi else SERIAL_MAX
        serial = given or f"{node.name}-{use}{1 + sum(disk.use == use for disk in found)}"[-most:]
        if len(serial.encode()) > most:
            raise ColdironError(
                f"{_where(node)}: the serial {serial} has more than {most} characters, which a virtual disk "
                "cannot tell; write a shorter one"
            )
        target = f"{'sd' if on_scsi else 'vd'}{letter}"
        found.append(MachineDisk(target, use, serial, int(size * GB), wwn, model))
    return found


def machine(node: Node, rack: str) -> MachineSpec:
    """The machine that stands for ``node``. Raises ColdironError, with its line, for what is missing."""
    if node.bmc_address is None:
        raise ColdironError(
            f"{_where(node)}: {node.name} is a machine without a BMC, so nobody could switch it on; write e.g. "
            "`bmc: {address: 10.77.0.131}`, or `platform: container`"
        )
    if node.mac is None:
        raise ColdironError(
            f"{_where(node)}: {node.name} is a machine without a MAC address, so nobody would know it when it "
            'boots; write e.g. `mac: "02:cd:00:00:00:31"`'
        )
    return MachineSpec(
        name=node.name,
        address=str(node.address),
        distribution=node.distribution,
        kind=node.kind,
        uuid=machine_uuid(rack, node.name),
        firmware=node.boot.firmware,
        path=node.boot.path,
        mac=node.mac,
        second_mac=second_mac(node.mac),
        serial=node.serial or f"{rack}-{node.name}",
        bmc_address=str(node.bmc_address),
        protocol=node.bmc_protocol,
        credentials=node.bmc_credentials or DEFAULT_CREDENTIALS,
        disks=disks_of(node),
    )


def is_machine(node: Node) -> bool:
    """Whether the rack makes a machine of a node, and no container."""
    return node.platform == "machine"


def machines(cluster: Cluster) -> tuple[MachineSpec, ...]:
    """The machines of a cluster. Raises ColdironError for one that cannot be made."""
    found = tuple(machine(node, cluster.name) for node in cluster.nodes if is_machine(node))
    _refuse_twice(cluster, found)
    return found


def _refuse_twice(cluster: Cluster, found: Iterable[MachineSpec]) -> None:
    """Raise ColdironError where a made up MAC address of one machine is another's."""
    seen: dict[str, str] = {}
    for one in found:
        for value in (one.mac, one.second_mac):
            if (other := seen.setdefault(value, one.name)) != one.name:
                raise ColdironError(
                    f"{_where(cluster.node(one.name))}: {value} is {other}'s too; give each its own"
                )


def _where(node: Node) -> str:
    return f"cluster.yml:{node.line}"
