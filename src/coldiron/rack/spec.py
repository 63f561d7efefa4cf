"""What the rack needs to know of a cluster, and nothing else: its nodes, their network and their home."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path

from coldiron.errors import ColdironError
from coldiron.inventory import FILE_NAMES, find, load
from coldiron.inventory.hardware import gres_type
from coldiron.rack.metal.spec import MachineSpec, is_machine, machines


@dataclass(frozen=True)
class NodeSpec:
    """One node. ``gpu_count`` is the number of GPU device files it gets; they are simulated.

    ``serves_home``: it exports /home by NFS.
    """

    name: str
    address: str
    distribution: str
    kind: str
    gpu_count: int = 0
    gpu_type: str | None = None
    serves_home: bool = False


@dataclass(frozen=True)
class RackSpec:
    """A rack to be brought up. ``file`` is its cluster.yml, ``mtu`` in bytes; None takes the uplink's."""

    name: str
    file: Path
    domain: str
    subnet: IPv4Network
    gateway: str
    home_backend: str
    nodes: tuple[NodeSpec, ...]
    mtu: int | None = None
    machines: tuple[MachineSpec, ...] = ()

    @property
    def directory(self) -> Path:
        """The inventory's directory."""
        return self.file.parent

    @property
    def bridge_address(self) -> IPv4Interface:
        """The address that the bridge carries: the gateway's, with the subnet's prefix length."""
        return IPv4Interface(f"{self.gateway}/{self.subnet.prefixlen}")

    def node(self, name: str) -> NodeSpec:
        """The node called ``name``. Raises ColdironError where the cluster has none of that name."""
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join([*(node.name for node in self.nodes), *(one.name for one in self.machines)])
        raise ColdironError(f"{self.file}: no node is called {name}; there are {known}")

    def machine(self, name: str) -> MachineSpec | None:
        """The machine called ``name``, None where the node of that name is a container, or there is none."""
        return next((machine for machine in self.machines if machine.name == name), None)


def inventory_directory(path: Path) -> Path:
    """The inventory's directory, given it or its cluster.yml. Raises ColdironError where there is none."""
    if path.name in FILE_NAMES and not path.is_dir():
        path = path.parent
    if not path.is_dir():
        raise ColdironError(f"{path}: no such directory; give an inventory's with -i")
    return Path(os.path.realpath(path))


def bridge_address(subnet: IPv4Network, gateway: str | None, taken: set[str]) -> str:
    """The gateway's address, or where the cluster has none, the subnet's last that no node has."""
    if gateway is not None and gateway not in taken:
        return gateway
    candidate = subnet.broadcast_address - 1
    while str(candidate) in taken or str(candidate) == gateway:
        candidate -= 1
    if candidate == subnet.network_address:
        raise ColdironError(f"subnet {subnet} of networks.cluster has no address left for the rack's bridge")
    return str(IPv4Address(candidate))


def from_cluster(path: Path) -> RackSpec:
    """The rack of the cluster.yml at ``path``, a file or its directory. Raises InventoryError."""
    file = find(inventory_directory(path))
    cluster = load(file)
    network = cluster.networks["cluster"]
    nodes = []
    for node in cluster.nodes:
        if is_machine(node):
            continue
        gpus = node.hardware.gpus if node.hardware else None
        nodes.append(
            NodeSpec(
                name=node.name,
                address=str(node.address),
                distribution=node.distribution,
                kind=node.kind,
                gpu_count=gpus.count if gpus else 0,
                gpu_type=gres_type(gpus) if gpus else None,
                serves_home="nfs_server" in node.functions,
            )
        )
    taken = {
        str(address) for node in cluster.nodes for address in (node.address, node.bmc_address) if address
    }
    return RackSpec(
        name=cluster.name,
        file=file,
        domain=cluster.domain,
        subnet=cluster.subnet,
        gateway=bridge_address(cluster.subnet, network.gateway, taken),
        home_backend=cluster.features.home_backend,
        nodes=tuple(nodes),
        mtu=network.mtu,
        machines=machines(cluster),
    )
