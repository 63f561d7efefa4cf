"""From a document to a checked cluster: every finding of the model, then of what the blocks mean together."""

from __future__ import annotations

import math
import re
from bisect import bisect
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from coldiron.catalog.load import Catalog
from coldiron.catalog.load import load as load_catalog
from coldiron.errors import ColdironError
from coldiron.inventory.cluster import Cluster, Node
from coldiron.inventory.explain import explain
from coldiron.inventory.findings import InventoryError, shown
from coldiron.inventory.functions import FUNCTIONS, Wanted, assign, ordered, provisioner
from coldiron.inventory.judge import Judge
from coldiron.inventory.members import Members
from coldiron.inventory.model import (
    PLUGIN,
    ClusterFile,
    Defaults,
    Fabric,
    Features,
    Feed,
    Network,
    NodeGroup,
    NodeOwn,
    PluginOptions,
    RackGroup,
    Room,
    Site,
    SwitchGroup,
)
from coldiron.inventory.ranges import MAX_NAMES, MAX_NODES, Names, TooManyNames, bounded, expand_names
from coldiron.inventory.source import Document, KeyPath
from coldiron.inventory.structure import Structure
from coldiron.inventory.table import Rows, check_names, read_rows

_Model = TypeVar("_Model", bound=BaseModel)


def build(document: Document, path: Path) -> Cluster:
    """The cluster that ``document`` describes. Raises InventoryError with every finding at once."""
    try:
        with bounded():
            return _build(document, path)
    except TooManyNames:
        document.find((), f"the ranges make more than {MAX_NAMES} names in all; write fewer", "CI108")
        raise InventoryError(document.findings) from None


def _build(document: Document, path: Path) -> Cluster:
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
    parts = _Parts(data, file)
    catalog = _catalog(document, parts, path)
    judge = Judge(document, parts.networks)
    _networks(judge, parts.networks)
    structure = Structure(judge, parts, catalog)
    rows = _rows(document, data, file, path)
    nodes = _nodes(judge, parts, catalog, structure, rows)
    if file is not None:
        check_names(document, rows, {node.name for node in nodes})
    structure.references(nodes)
    if not document.findings:
        _completeness(judge, parts.features, nodes)
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
        site=parts.site,
        feeds=parts.feeds,
        rooms=parts.rooms,
        racks=structure.racks,
        fabrics=parts.fabrics,
        switches=structure.switches,
        catalog=catalog,
        document=document,
    )


class _Parts:
    """The blocks that are sound by themselves, so that one wrong block hides no other's faults."""

    def __init__(self, data: dict[str, Any], file: ClusterFile | None) -> None:
        if file is not None:
            self.groups = list(enumerate(file.nodes))
            self.rack_groups = list(enumerate(file.racks))
            self.switch_groups = list(enumerate(file.switches))
            self.networks: Mapping[str, Network] = file.networks
            self.feeds: Mapping[str, Feed] = file.feeds
            self.rooms: Mapping[str, Room] = file.rooms
            self.fabrics: Mapping[str, Fabric] = file.fabrics
            self.features = file.features
            self.defaults = file.defaults
            self.site = file.site or Site()
            return
        self.groups = _sound_items(NodeGroup, data.get("nodes"))
        self.rack_groups = _sound_items(RackGroup, data.get("racks"))
        self.switch_groups = _sound_items(SwitchGroup, data.get("switches"))
        self.networks = _sound_values(Network, data.get("networks"))
        self.feeds = _sound_values(Feed, data.get("feeds"))
        self.rooms = _sound_values(Room, data.get("rooms"))
        self.fabrics = _sound_values(Fabric, data.get("fabrics"))
        self.features = _sound(Features, data.get("features")) or Features()
        self.defaults = _sound(Defaults, data.get("defaults")) or Defaults()
        self.site = _sound(Site, data.get("site")) or Site()

    def names_hardware(self) -> bool:
        """Whether anything here is looked up in the catalog."""
        blocks = [self.defaults, *(group for _, group in self.groups)]
        return bool(
            self.switch_groups
            or self.site.catalog
            or any(group.model for _, group in self.groups)
            or any(block.hardware for block in blocks)
            or any(own.hardware for _, group in self.groups for own in group.overrides.values())
        )


def _sound(model: type[_Model], raw: object) -> _Model | None:
    try:
        return model.model_validate(raw)
    except ValidationError:
        return None


def _sound_items(model: type[_Model], raw: object) -> list[tuple[int, _Model]]:
    items = enumerate(raw if isinstance(raw, list) else [])
    return [(index, block) for index, item in items if (block := _sound(model, item)) is not None]


def _sound_values(model: type[_Model], raw: object) -> dict[str, _Model]:
    items = (raw if isinstance(raw, dict) else {}).items()
    return {name: block for name, item in items if (block := _sound(model, item)) is not None}


def _rows(document: Document, data: dict[str, Any], file: ClusterFile | None, path: Path) -> Rows:
    """What the CSV file says of single nodes."""
    name = file.nodes_csv if file is not None else data.get("nodes_csv")
    if not isinstance(name, str) or document.is_spoilt(("nodes_csv",)):
        return {}
    networks = data.get("networks")
    return read_rows(path.parent / name, document, networks if isinstance(networks, dict) else ())


def _catalog(document: Document, parts: _Parts, path: Path) -> Catalog:
    """The catalog with the site's files over it; empty where nothing is looked up in it."""
    if not parts.names_hardware():
        return Catalog()
    if not parts.site.catalog:
        return packaged()
    try:
        return load_catalog([path.parent / name for name in parts.site.catalog])
    except InventoryError as error:
        document.findings += [replace(finding, code="CI221") for finding in error.findings]
    except ColdironError as error:
        document.find(("site", "catalog"), str(error), "CI221")
    document.spoilt.add(("site", "catalog"))
    return packaged()


@cache
def packaged() -> Catalog:
    """The package's own catalog, read once a process: it does not change."""
    return load_catalog()


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


def _nodes(
    judge: Judge,
    parts: _Parts,
    catalog: Catalog,
    structure: Structure,
    extra: Mapping[str, tuple[KeyPath, NodeOwn]],
) -> list[Node]:
    """Every node that could be made out; what is wrong with the rest goes to the findings."""
    expanded: list[tuple[int, NodeGroup, Names]] = []
    total = 0
    for index, group in parts.groups:
        names = expand_names(group.name)
        total += len(names.names)
        if total > MAX_NODES:
            judge.find(("nodes", index, "name"), f"more than {MAX_NODES} nodes in all; write fewer", "CI108")
            break
        expanded.append((index, group, names))
    wanted = [
        Wanted(group.kind, None if group.functions is None else tuple(group.functions))
        for _, group, names in expanded
        for _ in names.names
    ]
    features = parts.features
    functions = iter(
        assign(
            wanted,
            features.scheduler,
            features.home_backend,
            features.gpus,
            [*features.containers, *(["mpi"] if features.mpi != "none" else [])],
            features.worker_logins,
            features.monitoring,
            features.logging,
            features.dashboards,
            features.log_viewer,
        )
    )
    members = Members(
        judge,
        parts.defaults,
        parts.features,
        catalog,
        [rack.name for rack in structure.racks],
        extra,
        _last_lines(judge.document),
    )
    nodes: list[Node] = []
    for index, group, names in expanded:
        nodes.extend(members.nodes(index, group, names, [next(functions) for _ in names.names]))
    if any(node.bare_metal for node in nodes):
        _provisioner(nodes, {("nodes", index) for index, group, _ in expanded if group.functions is not None})
    return nodes


def _provisioner(nodes: list[Node], own: Collection[KeyPath]) -> None:
    """Give one head the function ``netboot_server``; ``own`` are the groups that name their functions."""
    said = [node.path in own for node in nodes]
    at = provisioner([node.kind for node in nodes], said, [node.functions for node in nodes])
    if at is not None:
        nodes[at] = replace(nodes[at], functions=ordered((*nodes[at].functions, "netboot_server")))


def _networks(judge: Judge, networks: Mapping[str, Network]) -> None:
    if networks and ("networks", "cluster") not in judge.document.lines:
        judge.find(
            ("networks",), "no network is called `cluster`; rename the one that the nodes are on", "CI201"
        )
    placed: list[tuple[IPv4Network, str]] = []
    for name, network in networks.items():
        path: KeyPath = ("networks", name)
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", name):
            judge.find(
                path,
                f"`{shown(name)}` is no name for a network; write lower-case letters, digits and _",
                "CI106",
            )
        subnet = IPv4Network(network.subnet)
        order = bisect(placed, subnet, key=itemgetter(0))
        # Those that are placed overlap no other, so that only its neighbours can be in its way.
        for other, other_name in placed[max(order - 1, 0) : order + 1]:
            if subnet.overlaps(other):
                judge.find(
                    (*path, "subnet"),
                    f"{subnet} overlaps {other} of the network `{other_name}`; give each its own",
                    "CI202",
                )
                break
        else:
            placed.insert(order, (subnet, name))
        if network.gateway is not None:
            gateway = (*path, "gateway")
            judge.inside(gateway, [IPv4Address(network.gateway)], name)
            judge.once(gateway, "address", [network.gateway], "give the gateway one that no node has")
        for position, span in enumerate(network.dhcp):
            ends = [IPv4Address(end) for end in span.split("-")]
            judge.inside((*path, "dhcp", position), ends, name)


def _completeness(judge: Judge, features: Features, nodes: list[Node]) -> None:
    """What a cluster cannot be without. Only asked when all else is sound: otherwise it would mislead."""
    having = {name: [node for node in nodes if name in node.functions] for name in FUNCTIONS}
    where: KeyPath = ("nodes",)
    if not having["home_server"]:
        judge.find(
            where,
            "no node is the `home_server`; add a node of kind storage, or write it in some `functions`",
            "CI214",
        )
    if features.scheduler == "none":
        return
    control, worker = (
        ("slurm_controller", "slurm_worker")
        if features.scheduler == "slurm"
        else ("kube_control_plane", "kube_worker")
    )
    if not having[control]:
        judge.find(
            where,
            f"no node is the `{control}`; add a node of kind head, or `{control}` to some "
            "`functions`, or write `scheduler: none` under `features`",
            "CI215",
        )
    if not having[worker]:
        judge.find(
            where,
            f"no node is a `{worker}`, so no job can run; add a node of kind cpu or gpu",
            "CI216",
        )
    if having["slurm_dbd"] and not having["mariadb"]:
        judge.find(
            where,
            f"{having['slurm_dbd'][0].name} is the `slurm_dbd`, and no node is its `mariadb`; "
            "add `mariadb` to its `functions`",
            "CI217",
        )
