"""Where a rack keeps its things and what they are called on the host. Pure: nothing here touches the host.

Every name begins with a prefix of its own, so that tear-down can find a rack's resources by name even when
its state file is gone, and so that a foreign resource of the same name is noticed before anything is made.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

STATE_DIRECTORY = ".rack"
# Linux allows 15 bytes in an interface's name.
_IFNAME_MAX = 15


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


@dataclass(frozen=True)
class Machine:
    """The host's places, one set for all racks. Tests give other roots."""

    lib: Path = Path("/var/lib/coldiron")
    cache: Path = Path("/var/cache/coldiron")
    run: Path = Path("/run/coldiron")
    netns: Path = Path("/run/netns")
    proc: Path = Path("/proc")
    nspawn: Path = Path("/run/systemd/nspawn")

    @property
    def registry(self) -> Path:
        """Which racks there are and what was changed on the host for them."""
        return self.lib / "machine.json"

    @property
    def bases(self) -> Path:
        """Baked base images."""
        return self.cache / "base"

    @property
    def packages(self) -> Path:
        """The package cache's store, configuration and log."""
        return self.cache / "packages"

    @property
    def layers(self) -> Path:
        """Frozen upper layers of all racks: each holds a node's changes up to some snapshot."""
        return self.cache / "layers"

    @property
    def kept(self) -> Path:
        """Snapshots that outlive their rack."""
        return self.cache / "snapshots"


@dataclass(frozen=True)
class Layout:
    """One rack's places and names. ``inventory`` is the inventory's directory."""

    name: str
    inventory: Path
    machine: Machine = field(default_factory=Machine)

    @property
    def own(self) -> Path:
        """The rack's files beside the inventory: state, keys, known hosts."""
        return self.inventory / STATE_DIRECTORY

    @property
    def state(self) -> Path:
        return self.own / "state.json"

    @property
    def client_key(self) -> Path:
        return self.own / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.own / "known_hosts"

    @property
    def host_keys(self) -> Path:
        return self.own / "host_keys"

    @property
    def data(self) -> Path:
        """Bulk data: the nodes' layers, the shared home, snapshots."""
        return self.machine.lib / "rack" / self.name

    @property
    def home(self) -> Path:
        """The directory that stands in for the site's home server."""
        return self.data / "home"

    @property
    def snapshots(self) -> Path:
        return self.data / "snapshots"

    @property
    def trash(self) -> Path:
        return self.data / "trash"

    @property
    def sockets(self) -> Path:
        """ssh's control sockets: a short path, because a socket's may have 108 bytes at most."""
        return self.machine.run / _digest(str(self.inventory), 8)

    @property
    def lock(self) -> Path:
        return self.machine.run / f"rack-{self.name}.lock"

    @property
    def cgroup(self) -> str:
        """The rack's control group, relative to the unified hierarchy's root."""
        return f"coldiron/{self.name}"

    @property
    def bridge(self) -> str:
        plain = f"ci-{self.name}"
        if len(plain) <= _IFNAME_MAX:
            return plain
        return f"ci-{self.name[:5]}-{_digest(self.name, 6)}"

    def node(self, node: str) -> Path:
        """A node's own directory."""
        return self.data / "nodes" / node

    def veth(self, node: str) -> str:
        """The host's end of a node's cable."""
        return f"civ{_digest(f'{self.name}/{node}', 10)}"

    def mac(self, node: str) -> str:
        """The node's hardware address: the same after a reset, or neighbours would send to the old one."""
        digest = _digest(f"mac {self.name}/{node}", 10)
        return ":".join(["02", *(digest[index : index + 2] for index in range(0, 10, 2))])

    @property
    def netns_prefix(self) -> str:
        # A dot stands in no rack's and no node's name, so racks `a` and `a-b` cannot be mixed up.
        return f"coldiron.{self.name}."

    def netns(self, node: str) -> str:
        return f"{self.netns_prefix}{node}"

    def machine_name(self, node: str) -> str:
        """systemd-nspawn's name for the node: unique on the host, unlike the host name."""
        return f"{self.name.replace('_', '-')}.{node}"

    def machine_id(self, node: str) -> str:
        """The node's /etc/machine-id: the same after every reset."""
        return hashlib.sha256(f"coldiron rack {os.fspath(self.inventory)} {node}".encode()).hexdigest()[:32]
