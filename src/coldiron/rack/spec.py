"""What the rack needs to know of a cluster, and nothing else: its nodes, their network and their home."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path

from coldiron.catalog.load import load as load_catalog
from coldiron.errors import ColdironError
from coldiron.inventory import FILE_NAMES, find, load
from coldiron.inventory.hardware import gres_type
from coldiron.inventory.model import Gpus
from coldiron.rack.gpu.repository import DISTRIBUTION as SIMULATED_ON
from coldiron.rack.metal.spec import MachineSpec, is_machine, machines


@dataclass(frozen=True)
class NodeSpec:
    """One node. ``gpu_count`` is the number of GPU device files it gets; they are simulated.

    ``gpu_model``: the catalog's entry, where the cluster manages the GPUs of the node; its simulated driver makes
    the device files then. ``serves_home``: it exports /home by NFS. ``elastic``: it is a server of Elasticsearch.
    """

    name: str
    address: str
    distribution: str
    kind: str
    gpu_count: int = 0
    gpu_type: str | None = None
    serves_home: bool = False
    gpu_model: str | None = None
    elastic: bool = False


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
    def simulates_gpus(self) -> bool:
        """Whether GPUs of containers are simulated down to their driver."""
        return any(node.gpu_model for node in self.nodes)

    @property
    def elastic(self) -> bool:
        """Whether containers of it are servers of Elasticsearch."""
        return any(node.elastic for node in self.nodes)

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


def simulated_model(gpus: Gpus, distribution: str, node: str, file: Path) -> str:
    """The catalog's entry of GPUs that are simulated: the one that is written, else the one that the type names.

    Of a type with several the one on a board of its own (SXM) is taken. Raises ColdironError where there is none.
    """
    if distribution != SIMULATED_ON:
        raise ColdironError(
            f"{file}: {node}: its GPUs are simulated on {SIMULATED_ON}, and it runs {distribution}; write that "
            "distribution, or `features: {gpus: provided}`"
        )
    if gpus.model is not None:
        return gpus.model
    models = load_catalog().gpus
    named = [name for name in models if gpus.type and name.split("-")[0] == gpus.type]
    found = sorted(named, key=lambda name: models[name].form_factor.mount != "sxm")
    if not found:
        raise ColdironError(
            f"{file}: {node}: simulated GPUs are made from the catalog; write `model` beside its GPUs' count, e.g. "
            "`model: h100-sxm5-80gb` (`coldiron catalog list gpus` shows them), or `features: {gpus: provided}`"
        )
    return found[0]


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
                gpu_model=simulated_model(gpus, node.distribution, node.name, file)
                if gpus and "gpu_node" in node.functions
                else None,
                elastic="elasticsearch" in node.functions,
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
