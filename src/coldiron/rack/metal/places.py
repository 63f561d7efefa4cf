"""Where a rack's machines keep their things, and what they are called on the host. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from coldiron.rack.layout import Layout
from coldiron.rack.metal.spec import MachineDisk, MachineSpec


@dataclass(frozen=True)
class Firmware:
    """Where the distribution keeps the firmware for QEMU."""

    code: str = "/usr/share/OVMF/OVMF_CODE_4M.fd"
    secure_code: str = "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"
    variables: str = "/usr/share/OVMF/OVMF_VARS_4M.fd"
    secure_variables: str = "/usr/share/OVMF/OVMF_VARS_4M.ms.fd"


@dataclass(frozen=True)
class Places:
    """One rack's places for its machines."""

    layout: Layout

    @property
    def root(self) -> Path:
        """What belongs to all machines of the rack."""
        return self.layout.data / "metal"

    @property
    def libvirt(self) -> Path:
        """The private etc, lib, run and log of the rack's libvirtd."""
        return self.root / "libvirt"

    @property
    def socket(self) -> Path:
        return self.libvirt / "run" / "libvirt-sock"

    @property
    def uri(self) -> str:
        """The rack's libvirtd, for virsh and sushy."""
        return f"qemu+unix:///system?socket={self.socket}"

    @property
    def ca_key(self) -> Path:
        return self.root / "ca.key"

    @property
    def ca(self) -> Path:
        """The certificate of the CA that signed the BMCs' certificates: for Ansible and for people."""
        return self.layout.own / "bmc-ca.crt"

    @property
    def credentials(self) -> Path:
        """The BMCs' user and password, as JSON."""
        return self.layout.own / "bmc-credentials.json"

    @property
    def media(self) -> Path:
        """libvirt's pool `default`: images put in as virtual media."""
        return self.root / "media"

    @property
    def bridge(self) -> str:
        """The bridge of the machines' second cards."""
        return second_bridge(self.layout)

    def node(self, name: str) -> Path:
        return self.layout.node(name)

    def console(self, name: str) -> Path:
        """What the machine's serial console said, since it was made."""
        return self.node(name) / "console.log"

    def bmc(self, name: str) -> Path:
        """What belongs to a machine's BMC: its certificate, its configuration, its log."""
        return self.node(name) / "bmc"

    def disk(self, name: str, disk: MachineDisk) -> Path:
        return self.node(name) / f"disk-{disk.target}.raw"

    def nvram(self, name: str) -> Path:
        """A UEFI machine's variables."""
        return self.node(name) / "nvram.fd"

    def tap(self, name: str) -> str:
        """The host's end of the first card's cable."""
        return self.layout.veth(name)

    def second_tap(self, name: str) -> str:
        return self.layout.veth(f"{name}/2")

    def group(self, name: str) -> str:
        """The control group of a machine's BMC. libvirtd and the machines themselves are in another."""
        return f"_bmc-{name}"

    def loopback(self, spec: MachineSpec) -> str:
        """An address of the loopback for one machine alone: two racks' BMCs can use the same ports."""
        digest = hashlib.sha256(spec.uuid.encode()).digest()
        return f"127.{64 + digest[0] % 128}.{digest[1]}.{1 + digest[2] % 254}"


LIBVIRT_GROUP = "_libvirt"


def second_bridge(layout: Layout) -> str:
    """The name of the second bridge: the first one's, with another letter."""
    return f"cj{layout.bridge[2:]}"


def nft_table(bridge: str) -> str:
    """The name of a rack's table of nft: its bridge's, spelt as nft allows."""
    return f"coldiron_{bridge.replace('-', '_')}"
