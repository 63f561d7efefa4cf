"""A cluster that has passed every check: nodes, groups and the variables that Ansible gets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError
from coldiron.inventory.findings import did_you_mean, shown, shown_path
from coldiron.inventory.functions import all_groups, kind_group
from coldiron.inventory.model import Features, Hardware, Network, NodeGroup, PluginOptions


@dataclass(frozen=True)
class Node:
    """One node. ``group`` is the range it was written in, on ``line`` to ``last_line`` of cluster.yml."""

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

    @property
    def memory_mib(self) -> int:
        """Memory in MiB; 0 where the hardware is not stated."""
        return int(self.hardware.memory_gib * 1024) if self.hardware else 0

    def hostvars(self) -> dict[str, Any]:
        """The node's own Ansible variables, as plain JSON types."""
        hostvars: dict[str, Any] = {
            "ansible_host": str(self.address),
            "coldiron_address": str(self.address),
            "coldiron_kind": self.kind,
            "coldiron_platform": self.platform,
            "coldiron_distribution": self.distribution,
        }
        if self.mac:
            hostvars["coldiron_mac"] = self.mac
        if self.bmc_address:
            hostvars["coldiron_bmc_address"] = str(self.bmc_address)
        if self.hardware:
            gpus = self.hardware.gpus
            hostvars["coldiron_hardware"] = {
                "sockets": self.hardware.sockets,
                "cores_per_socket": self.hardware.cores_per_socket,
                "threads_per_core": self.hardware.threads_per_core,
                "memory_mib": self.memory_mib,
                "gpus": {"type": gpus.type, "count": gpus.count} if gpus else None,
            }
        return hostvars


@dataclass(frozen=True)
class Cluster:
    """A whole cluster.yml, checked. ``path`` is the file; ``nodes`` are in its order."""

    path: Path
    name: str
    domain: str
    networks: dict[str, Network]
    features: Features
    node_groups: tuple[NodeGroup, ...]
    nodes: tuple[Node, ...]
    plugin_options: PluginOptions

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
            for function in node.functions:
                groups[function].append(node.name)
        return groups

    def shared_vars(self) -> dict[str, Any]:
        """The variables of all nodes, as plain JSON types. ``coldiron_cluster`` marks a sound inventory."""
        return {
            "coldiron_cluster": self.name,
            "coldiron_domain": self.domain,
            "coldiron_networks": {
                name: network.model_dump(mode="json", exclude_none=True)
                for name, network in self.networks.items()
            },
            "coldiron_features": self.features.model_dump(mode="json"),
        }
