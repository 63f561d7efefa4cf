"""From a document to a checked cluster: every finding of the model, then of what the blocks mean together."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from coldiron.inventory.cluster import Cluster, Node
from coldiron.inventory.explain import explain
from coldiron.inventory.findings import InventoryError, shown
from coldiron.inventory.functions import FUNCTIONS, Wanted, all_groups, assign
from coldiron.inventory.model import (
    PLUGIN,
    ClusterFile,
    Defaults,
    Features,
    Hardware,
    Network,
    NodeGroup,
    PluginOptions,
    check_host_name,
)
from coldiron.inventory.ranges import MAX_NODES, Names, RangeError, expand_addresses, expand_names
from coldiron.inventory.source import Document, KeyPath

# What a node is when neither its group nor `defaults` says so.
DEFAULT_PLATFORM = "metal"
DEFAULT_DISTRIBUTION = "debian-13"

# What may be there once only, and the code of the finding where it is there twice.
_TWICE = {"address": "CI204", "node": "CI205", "MAC": "CI206", "function": "CI211"}

_RESERVED = {"all", "ungrouped", "localhost", "none"}
_Model = TypeVar("_Model", bound=BaseModel)


def build(document: Document, path: Path) -> Cluster:
    """The cluster that ``document`` describes. Raises InventoryError with every finding at once."""
    data = document.data
    if not isinstance(data, dict):
        document.find(
            (), f"cluster.yml is a mapping (`key: value` lines); begin it with `plugin: {PLUGIN}`", "CI001"
        )
        raise InventoryError(document.findings)
    file: ClusterFile | None = None
    try:
        file = ClusterFile.model_validate(data)
    except ValidationError as error:
        explain(document, error.errors(include_url=False))
    checks = _Checks(document, _Parts(data, file))
    nodes = checks.nodes()
    if not document.findings:
        checks.completeness(nodes)
    if document.findings or file is None:
        raise InventoryError(document.findings)
    return Cluster(
        path=path,
        name=file.name,
        domain=file.domain,
        networks=file.networks,
        features=file.features,
        node_groups=tuple(file.nodes),
        nodes=tuple(nodes),
        plugin_options=PluginOptions(**{name: getattr(file, name) for name in PluginOptions.model_fields}),
    )


class _Parts:
    """The blocks that are sound by themselves, so that one wrong block hides no other's faults."""

    def __init__(self, data: dict[str, Any], file: ClusterFile | None) -> None:
        if file is not None:
            self.groups = list(enumerate(file.nodes))
            self.networks = file.networks
            self.features = file.features
            self.defaults = file.defaults
            return
        nodes, networks = data.get("nodes"), data.get("networks")
        self.groups = [
            (index, group)
            for index, raw in enumerate(nodes if isinstance(nodes, list) else [])
            if (group := _sound(NodeGroup, raw)) is not None
        ]
        self.networks = {
            name: network
            for name, raw in (networks if isinstance(networks, dict) else {}).items()
            if (network := _sound(Network, raw)) is not None
        }
        self.features = _sound(Features, data.get("features")) or Features()
        self.defaults = _sound(Defaults, data.get("defaults")) or Defaults()


def _sound(model: type[_Model], raw: object) -> _Model | None:
    try:
        return model.model_validate(raw)
    except ValidationError:
        return None


def _last_lines(document: Document) -> dict[int, int]:
    """The last line of each node group, by its index."""
    first = {path[1]: line for path, line in document.lines.items() if len(path) == 2 and path[0] == "nodes"}
    last: dict[int, int] = {}
    for path, line in document.lines.items():
        index = path[1] if len(path) > 1 and path[0] == "nodes" else None
        # What an alias brings in stands elsewhere.
        if isinstance(index, int) and first[index] <= line < first.get(index + 1, math.inf):
            last[index] = max(last.get(index, 0), line)
    return last


class _Checks:
    """What must hold between the blocks: names, addresses and functions, each once and where it belongs."""

    def __init__(self, document: Document, parts: _Parts) -> None:
        self.document = document
        self.parts = parts
        # What is taken, in words, and the line that took it first.
        self.taken: dict[tuple[str, str], int] = {}
        self.last_lines = _last_lines(document)

    def find(self, path: KeyPath, text: str, code: str) -> None:
        if not self.document.is_spoilt(path):
            self.document.find(path, text, code)

    def nodes(self) -> list[Node]:
        """Every node that could be made out; what is wrong with the rest goes to the findings."""
        self._networks()
        expanded: list[tuple[int, NodeGroup, Names]] = []
        total = 0
        for index, group in self.parts.groups:
            names = expand_names(group.name)
            total += len(names.names)
            if total > MAX_NODES:
                self.find(
                    ("nodes", index, "name"), f"more than {MAX_NODES} nodes in all; write fewer", "CI108"
                )
                break
            expanded.append((index, group, names))
        wanted = [
            Wanted(group.kind, None if group.functions is None else tuple(group.functions))
            for _, group, names in expanded
            for _ in names.names
        ]
        features = self.parts.features
        functions = iter(assign(wanted, features.scheduler, features.home_backend))
        nodes: list[Node] = []
        for index, group, names in expanded:
            nodes.extend(self._group(index, group, names, [next(functions) for _ in names.names]))
        return nodes

    def _networks(self) -> None:
        networks = self.parts.networks
        if networks and ("networks", "cluster") not in self.document.lines:
            self.find(
                ("networks",), "no network is called `cluster`; rename the one that the nodes are on", "CI201"
            )
        placed: list[tuple[str, IPv4Network]] = []
        for name, network in networks.items():
            path = ("networks", name)
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", name):
                self.find(
                    path,
                    f"`{shown(name)}` is no name for a network; write lower-case letters, digits and _",
                    "CI106",
                )
            subnet = IPv4Network(network.subnet)
            for other_name, other in placed:
                if subnet.overlaps(other):
                    self.find(
                        (*path, "subnet"),
                        f"{subnet} overlaps {other} of the network `{other_name}`; give each its own",
                        "CI202",
                    )
            placed.append((name, subnet))
            if network.gateway is not None:
                gateway = (*path, "gateway")
                self._inside(gateway, [IPv4Address(network.gateway)], name)
                self._once(gateway, "address", [network.gateway], "give the gateway one that no node has")

    def _inside(self, path: KeyPath, addresses: Sequence[IPv4Address], network: str) -> None:
        """One finding for the first of ``addresses`` that no host of ``network`` can have."""
        if network not in self.parts.networks:
            return
        subnet = IPv4Network(self.parts.networks[network].subnet)
        for address in addresses:
            if address not in subnet:
                hosts = f"{subnet.network_address + 1} to {subnet.broadcast_address - 1}"
                self.find(
                    path,
                    f"{address} is outside {subnet} of network `{network}`; write one of {hosts}",
                    "CI203",
                )
            elif address in (subnet.network_address, subnet.broadcast_address):
                which = "network" if address == subnet.network_address else "broadcast"
                self.find(path, f"{address} is the {which} address of {subnet}; write another", "CI203")
            else:
                continue
            return

    def _once(self, path: KeyPath, what: str, values: Iterable[str], advice: str) -> None:
        """Take ``values``; one finding for each earlier line that has some of them already."""
        line, code = self.document.line(path), _TWICE[what]
        clashes: dict[int, list[str]] = {}
        for value in values:
            first = self.taken.setdefault((what, value), 0)
            if first:
                clashes.setdefault(first, []).append(value)
            else:
                self.taken[what, value] = line
        for first, clashing in clashes.items():
            listed = ", ".join(clashing[:5]) + (", ..." if len(clashing) > 5 else "")
            where = "twice on this line" if first == line else f"taken on line {first} already"
            self.find(path, f"{what} {listed} is {where}; {advice}", code)

    def _group(
        self, index: int, group: NodeGroup, names: Names, functions: list[tuple[str, ...]]
    ) -> list[Node]:
        path: KeyPath = ("nodes", index)
        self._names((*path, "name"), names)
        addresses = self._addresses((*path, "address"), group.address, names, "cluster")
        bmc: Sequence[IPv4Address] = ()
        if group.bmc is not None:
            bmc = self._addresses((*path, "bmc", "address"), group.bmc.address, names, "bmc")
        self._macs((*path, "mac"), group.mac, names)
        self._functions((*path, "functions"), group, names)
        hardware = group.hardware or self.parts.defaults.hardware
        self._hardware(path, group, hardware, functions)
        platform = group.platform or self.parts.defaults.platform or DEFAULT_PLATFORM
        distribution = group.distribution or self.parts.defaults.distribution or DEFAULT_DISTRIBUTION
        return [
            Node(
                name=name,
                kind=group.kind,
                address=address,
                mac=group.mac[position] if group.mac and position < len(group.mac) else None,
                bmc_address=bmc[position] if bmc else None,
                platform=platform,
                distribution=distribution,
                functions=functions[position],
                hardware=hardware,
                group=group.name,
                line=self.document.line(path),
                last_line=self.last_lines.get(index, self.document.line(path)),
            )
            for position, (name, address) in enumerate(zip(names.names, addresses, strict=False))
        ]

    def _names(self, path: KeyPath, names: Names) -> None:
        groups = set(all_groups())
        for name in names.names:
            try:
                check_host_name(name)
            except ValueError as error:
                self.find(path, f"`name`: {error}", "CI107")
                break
            if name in groups:
                self.find(path, f"`name`: {name} is also a group; number the node, e.g. {name}01", "CI208")
            elif name in _RESERVED:
                self.find(
                    path, f"`name`: {name} has a meaning in Ansible; number the node, e.g. node01", "CI208"
                )
        self._once(path, "node", names.names, "name each node once")

    def _addresses(self, path: KeyPath, text: str, names: Names, network: str) -> Sequence[IPv4Address]:
        try:
            addresses = expand_addresses(text, names)
        except RangeError as error:
            self.find(path, f"`address`: {error}", "CI207" if " addresses for " in str(error) else "CI109")
            return ()
        self._inside(path, addresses, network)
        self._once(path, "address", (str(address) for address in addresses), "give each its own")
        return addresses

    def _macs(self, path: KeyPath, macs: tuple[str, ...] | None, names: Names) -> None:
        if macs is None:
            return
        if len(macs) != len(names.names):
            self.find(
                path,
                f"`mac`: {len(macs)} for {len(names.names)} nodes; list one a node, in the names' order",
                "CI207",
            )
        self._once(path, "MAC", macs, "every card has its own; check the label")

    def _functions(self, path: KeyPath, group: NodeGroup, names: Names) -> None:
        scheduler = self.parts.features.scheduler
        for position, name in enumerate(group.functions or ()):
            function = FUNCTIONS[name]
            item = (*path, position)
            if function.scheduler not in (None, scheduler):
                self.find(
                    item,
                    f"`{name}` belongs to the scheduler {function.scheduler}, and it is {scheduler} here; "
                    f"remove it, or write `scheduler: {function.scheduler}` under `features`",
                    "CI210",
                )
            if function.single:
                if len(names.names) > 1:
                    self.find(
                        item, f"`{name}` can be on one node only, not on {group.name}; name one node", "CI211"
                    )
                self._once(item, "function", [name], "one node can have it; remove one of them")

    def _hardware(
        self, path: KeyPath, group: NodeGroup, hardware: Hardware | None, functions: list[tuple[str, ...]]
    ) -> None:
        # The block that says it is the line to mend; without one, the node group.
        where: KeyPath = (*path, "hardware") if group.hardware else path
        if hardware is None:
            if any("slurm_worker" in own for own in functions):
                self.find(
                    path,
                    f"{group.name} runs jobs, so the scheduler must know its `hardware`; write e.g. "
                    "`hardware: {sockets: 2, cores_per_socket: 56, memory_gib: 2048}`",
                    "CI212",
                )
        elif group.kind == "gpu" and hardware.gpus is None:
            self.find(
                where,
                f"{group.name} is of kind gpu and its hardware has no `gpus`; write e.g. "
                "`gpus: {type: h100, count: 8}`, or `kind: cpu`",
                "CI213",
            )
        elif group.kind == "cpu" and hardware.gpus is not None:
            self.find(
                where, f"{group.name} is of kind cpu and its hardware has `gpus`; write `kind: gpu`", "CI213"
            )

    def completeness(self, nodes: list[Node]) -> None:
        """What a cluster cannot be without. Only asked when all else is sound: otherwise it would mislead."""
        having = {name: [node for node in nodes if name in node.functions] for name in FUNCTIONS}
        where: KeyPath = ("nodes",)
        if not having["home_server"]:
            self.find(
                where,
                "no node is the `home_server`; add a node of kind storage, or write it in some `functions`",
                "CI214",
            )
        if self.parts.features.scheduler != "slurm":
            return
        if not having["slurm_controller"]:
            self.find(
                where,
                "no node is the `slurm_controller`; add a node of kind head, or `slurm_controller` to some "
                "`functions`, or write `scheduler: none` under `features`",
                "CI215",
            )
        if not having["slurm_worker"]:
            self.find(
                where,
                "no node is a `slurm_worker`, so no job can run; add a node of kind cpu or gpu",
                "CI216",
            )
        if having["slurm_dbd"] and not having["mariadb"]:
            self.find(
                where,
                f"{having['slurm_dbd'][0].name} is the `slurm_dbd`, and no node is its `mariadb`; "
                "add `mariadb` to its `functions`",
                "CI217",
            )
