"""The Debian packages that the rack needs on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.host import Host
from coldiron.rack.metal.spec import MachineSpec


@dataclass(frozen=True)
class Requirement:
    """A Debian package, recognised by a command on PATH or by a file."""

    package: str
    command: str = ""
    file: str = ""


_DRIVERS = "/usr/lib/x86_64-linux-gnu/libvirt/connection-driver"
REQUIREMENTS = (
    Requirement("systemd-container", command="systemd-nspawn"),
    Requirement("systemd", command="systemd-socket-activate", file="/lib/systemd/systemd-socket-proxyd"),
    Requirement("mmdebstrap", command="mmdebstrap"),
    Requirement("debian-archive-keyring", file="/usr/share/keyrings/debian-archive-keyring.gpg"),
    Requirement("apt-cacher-ng", command="apt-cacher-ng"),
    Requirement("iproute2", command="ip"),
    Requirement("openssh-client", command="ssh"),
    Requirement("util-linux", command="setpriv"),
    Requirement("mount", command="mount"),
)

# Only where the inventory has machines.
MACHINES = (
    Requirement("qemu-system-x86", command="qemu-system-x86_64"),
    Requirement("ipxe-qemu", file="/usr/lib/ipxe/qemu/efi-virtio.rom"),
    Requirement("ovmf", file="/usr/share/OVMF/OVMF_CODE_4M.fd"),
    Requirement("libvirt-daemon", command="libvirtd"),
    Requirement("libvirt-daemon-driver-qemu", file=f"{_DRIVERS}/libvirt_driver_qemu.so"),
    Requirement("libvirt-clients", command="virsh"),
    Requirement("nftables", command="nft"),
)
REDFISH = (
    Requirement("python3-libvirt", file="/usr/lib/python3/dist-packages/libvirt.py"),
    Requirement("python3-venv", file="/usr/share/doc/python3-venv"),
)
IPMI = (
    Requirement("openipmi", command="ipmi_sim"),
    Requirement("ipmitool", command="ipmitool"),
)


# Only where the inventory has GPUs to simulate.
GPUS = (
    Requirement("gcc", command="gcc"),
    Requirement("libc6-dev", file="/usr/include/stdio.h"),
    Requirement("gpg", command="gpg"),
)
# Only where the inventory has servers of Elasticsearch, which Maven's client fetches.
ELASTIC = (
    Requirement("maven", command="mvn"),
    Requirement("gcc", command="gcc"),
    Requirement("libc6-dev", file="/usr/include/stdio.h"),
    Requirement("gpg", command="gpg"),
)


def needed(
    machines: Sequence[MachineSpec], *, gpus: bool = False, elastic: bool = False
) -> tuple[Requirement, ...]:
    """What a rack with these machines needs, with simulated ``gpus``, with servers of Elasticsearch (``elastic``)."""
    protocols = {machine.protocol for machine in machines}
    return (
        *REQUIREMENTS,
        *(MACHINES if machines else ()),
        *(REDFISH if "redfish" in protocols else ()),
        *(IPMI if "ipmi" in protocols else ()),
        *(GPUS if gpus else ()),
        *(ELASTIC if elastic else ()),
    )


def missing(host: Host, requirements: tuple[Requirement, ...] = REQUIREMENTS) -> list[str]:
    """The packages that are not here, in the table's order."""
    return [
        requirement.package
        for requirement in requirements
        if (requirement.command and host.which(requirement.command) is None)
        or (requirement.file and not Path(requirement.file).exists())
    ]


def refuse_missing(
    host: Host, machines: Sequence[MachineSpec] = (), *, gpus: bool = False, elastic: bool = False
) -> None:
    """Raise ColdironError, with the line to type, where a package is missing."""
    if packages := missing(host, needed(machines, gpus=gpus, elastic=elastic)):
        # Debian 12's own QEMU (7.2) corrupts its guests.
        newer = " (qemu-system-x86 from your release's backports)" if "qemu-system-x86" in packages else ""
        raise ColdironError(
            f"the virtual rack needs packages that are not here; type: apt-get install {' '.join(packages)}{newer}",
            ExitCode.ENVIRONMENT,
        )
