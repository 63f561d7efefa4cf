"""A cluster that has passed every check: nodes, groups and the variables that Ansible gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from coldiron.catalog.load import Catalog
from coldiron.catalog.model import Switch
from coldiron.errors import ColdironError
from coldiron.inventory.findings import did_you_mean, shown, shown_path
from coldiron.inventory.functions import BARE_METAL, BMC_IPMI, all_groups, kind_group
from coldiron.inventory.hardware import Build, gres_type
from coldiron.inventory.model import (
    Boot,
    Disk,
    Fabric,
    Features,
    Feed,
    Hardware,
    Network,
    NodeGroup,
    PluginOptions,
    Power,
    RackGroup,
    Room,
    Site,
    Software,
    SwitchGroup,
)
from coldiron.inventory.source import Document, KeyPath

# The rack of what the plan places.
AUTO = "auto"


@dataclass(frozen=True, eq=False)
class Node:
    """One node. ``group`` is the range it was written in, on ``line`` to ``last_line`` of cluster.yml.

    ``rack`` and ``u`` are what the file says: the plan chooses where it says ``auto``, or no ``u``. ``path`` leads to
    the node group in the file. ``disks`` hold this node's own serials.
    """

    name: str
    kind: str
    address: IPv4Address
    mac: str | None
    bmc_address: IPv4Address | None
    platform: str
    distribution: str
    functions: tuple[str, ...]
    hardware: Hardware | None
    group: str
    line: int
    last_line: int
    path: KeyPath = ()
    build: Build = field(default_factory=lambda: Build(Hardware()))
    model: str | None = None
    serial: str | None = None
    addresses: Mapping[str, IPv4Address] = field(default_factory=dict)
    bmc_mac: str | None = None
    bmc_credentials: str | None = None
    rack: str | None = None
    u: int | None = None
    workload: str | None = None
    power: Power = field(default_factory=Power)
    software: Software | None = None
    disks: tuple[Disk, ...] = ()
    bmc_protocol: str = "redfish"
    boot: Boot = field(default_factory=Boot)

    @property
    def memory_mib(self) -> int:
        """Memory in MiB; 0 where the hardware is not stated."""
        return int(self.hardware.memory_gib * 1024) if self.hardware and self.hardware.memory_gib else 0

    @property
    def bare_metal(self) -> bool:
        """Whether it is a machine that can be switched on and installed from afar: no container, and with a BMC."""
        return self.platform != "container" and self.bmc_address is not None

    @property
    def image_class(self) -> str:
        """The class of images that it is installed from."""
        return f"{self.kind}-{self.distribution}"

    def hostvars(self) -> dict[str, Any]:
        """The node's own Ansible variables, as plain JSON types."""
        hostvars: dict[str, Any] = {
            "ansible_host": str(self.address),
            "coldiron_address": str(self.address),
            "coldiron_kind": self.kind,
            "coldiron_platform": self.platform,
            "coldiron_distribution": self.distribution,
        }
        for name, value in (
            ("coldiron_mac", self.mac),
            ("coldiron_bmc_address", str(self.bmc_address) if self.bmc_address else None),
            ("coldiron_bmc_mac", self.bmc_mac),
            ("coldiron_bmc_credentials", self.bmc_credentials),
            ("coldiron_serial", self.serial),
            ("coldiron_model", self.model),
            ("coldiron_rack_name", None if self.rack == AUTO else self.rack),
        ):
            if value:
                hostvars[name] = value
        if self.bare_metal:
            hostvars["coldiron_bmc_protocol"] = self.bmc_protocol
            hostvars["coldiron_boot_firmware"] = self.boot.firmware
            hostvars["coldiron_boot_path"] = self.boot.path
            hostvars["coldiron_image_class"] = self.image_class
        if self.addresses:
            hostvars["coldiron_addresses"] = {name: str(address) for name, address in self.addresses.items()}
        if self.hardware and self.hardware.cores_per_socket and self.hardware.memory_gib:
            gpus = self.hardware.gpus
            hostvars["coldiron_hardware"] = {
                "sockets": self.hardware.sockets or 1,
                "cores_per_socket": self.hardware.cores_per_socket,
                "threads_per_core": self.hardware.threads_per_core or 1,
                "memory_mib": self.memory_mib,
                "gpus": {"type": gres_type(gpus), "count": gpus.count} if gpus else None,
            }
        if self.hardware and self.hardware.gpus:
            if self.hardware.gpus.model:
                hostvars["coldiron_gpu_model"] = self.hardware.gpus.model
            if self.hardware.gpus.mig:
                hostvars["coldiron_gpu_mig"] = [
                    layout.model_dump(mode="json", exclude_none=True) for layout in self.hardware.gpus.mig
                ]
        if self.software:
            hostvars["coldiron_software"] = self.software.model_dump(mode="json", exclude_none=True)
        if self.power.gpu_cap_watts:
            hostvars["coldiron_gpu_cap_watts"] = self.power.gpu_cap_watts
        if self.disks:
            hostvars["coldiron_disks"] = [
                disk.model_dump(mode="json", exclude_none=True) for disk in self.disks
            ]
        return hostvars


@dataclass(frozen=True, eq=False)
class Rack:
    """One rack. ``group`` is the range it was written in, ``path`` leads there; ``position`` counts in its row."""

    name: str
    group: RackGroup
    path: KeyPath
    position: int | None = None


@dataclass(frozen=True, eq=False)
class SwitchUnit:
    """One switch. ``index`` counts within the range it was written in, which is ``group``; ``path`` leads there."""

    name: str
    group: SwitchGroup
    path: KeyPath
    index: int
    model: Switch | None = None
    rack: str | None = None
    u: int | None = None


@dataclass(frozen=True, eq=False)
class Cluster:
    """A whole cluster.yml, checked. ``path`` is the file; ``nodes`` are in its order.

    ``document`` knows the line of each of the file's paths; ``catalog`` is the package's with the site's over it,
    empty where the file names nothing of it.
    """

    path: Path
    name: str
    domain: str
    networks: dict[str, Network]
    features: Features
    node_groups: tuple[NodeGroup, ...]
    nodes: tuple[Node, ...]
    plugin_options: PluginOptions
    site: Site = field(default_factory=Site)
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    rooms: Mapping[str, Room] = field(default_factory=dict)
    racks: tuple[Rack, ...] = ()
    fabrics: Mapping[str, Fabric] = field(default_factory=dict)
    switches: tuple[SwitchUnit, ...] = ()
    catalog: Catalog = field(default_factory=Catalog)
    document: Document = field(default_factory=lambda: Document(""))

    @property
    def directory(self) -> Path:
        """The inventory's directory: group_vars, secrets and the rack's state lie in it."""
        return self.path.parent

    @property
    def subnet(self) -> IPv4Network:
        """The subnet of the network ``cluster``."""
        return IPv4Network(self.networks["cluster"].subnet)

    def expand(self) -> list[Node]:
        """Every node, in the file's order."""
        return list(self.nodes)

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def node(self, name: str) -> Node:
        """The node called ``name``. Raises ColdironError, with the nearest name, when there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            where = shown_path(self.path)
            raise ColdironError(
                f"{where} has no node `{shown(name)}`; {did_you_mean(name, self._by_name)}"
            ) from None

    def groups(self) -> dict[str, list[str]]:
        """Every group with its nodes in the file's order. All groups exist; some are empty."""
        groups: dict[str, list[str]] = {group: [] for group in all_groups()}
        for node in self.nodes:
            groups["cluster"].append(node.name)
            groups[kind_group(node.kind)].append(node.name)
            if node.bare_metal:
                groups[BARE_METAL].append(node.name)
                if node.bmc_protocol == "ipmi":
                    groups[BMC_IPMI].append(node.name)
            for function in node.functions:
                groups[function].append(node.name)
        return groups

    def shared_vars(self) -> dict[str, Any]:
        """The variables of all nodes, as plain JSON types. ``coldiron_cluster`` marks a sound inventory."""
        return {
            "coldiron_cluster": self.name,
            "coldiron_domain": self.domain,
            "coldiron_networks": {
                name: {"dns": [], **network.model_dump(mode="json", exclude_none=True, exclude_defaults=True)}
                for name, network in self.networks.items()
            },
            "coldiron_features": self.features.model_dump(mode="json"),
            # The role's own word, below group_vars: what a site writes there wins.
            **({"dns_forwarders": list(dns)} if (dns := self.networks["cluster"].dns) else {}),
        }
