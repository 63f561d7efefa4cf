"""The inventory of a rehearsal: a site's own nodes as containers, on a subnet of this machine's own.

What the site says of its nodes' work is kept: names, kinds, functions, distributions, what Slurm is told of the
hardware, and all of group_vars and host_vars that is not encrypted. What only iron has is left out: racks, power,
fabrics, other networks, BMCs, disks.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import yaml

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster, Node
from coldiron.inventory.findings import shown_path
from coldiron.inventory.hardware import gres_type
from coldiron.inventory.model import PLUGIN
from coldiron.inventory.ranges import fold

# Where rehearsals have their subnets: eight racks of up to 253 nodes beside each other.
POOL = IPv4Network("10.77.120.0/21")
DISTRIBUTIONS = ("debian-12", "debian-13")
_LEAST_BLOCK = 24
# The network's address, the bridge's and the broadcast address.
_NOT_NODES = 3
_NAME_MAX = 32
_SUFFIX = "-rehearsal"
_VARIABLES = ("group_vars", "host_vars")
_ENCRYPTED = b"$ANSIBLE_VAULT"
# Containers neither export nor mount with the kernel: the rack itself puts one /home on every node. And there are no
# machines that could boot from the network.
_NOT_IN_CONTAINERS = ("nfs_server", "nfs_client", "netboot_server", "netboot_cache")
# Nothing outside answers a rack.
OVERRIDES = """\
---
# What stands in place of what lies outside the rack.
dns_isolated: true
dns_forwarders: []
dns_forward_zones: []
time_upstream_servers: []
nfs_exports: []
nfs_mounts: []
"""


def rack_name(cluster: str) -> str:
    """What the rehearsal of ``cluster`` is called, as rack and as cluster."""
    return cluster[: _NAME_MAX - len(_SUFFIX)].rstrip("-_") + _SUFFIX


def sample(cluster: Cluster, most: int | None) -> list[Node]:
    """The nodes to rehearse: the first ``most`` of each node group, or all. Raises ColdironError.

    Those are the ones that have what only one node of a kind can have, as Slurm's controller.
    """
    seen: dict[object, int] = {}
    chosen = []
    for node in cluster.nodes:
        seen[node.path] = seen.get(node.path, 0) + 1
        if most is None or seen[node.path] <= most:
            chosen.append(node)
    for node in chosen:
        if node.distribution not in DISTRIBUTIONS:
            alike = fold([other.name for other in chosen if other.distribution == node.distribution])
            raise ColdironError(
                f"{shown_path(cluster.path)}:{node.line}: {alike} runs {node.distribution}, and the virtual rack has "
                f"{' and '.join(DISTRIBUTIONS)} only; rehearse with one of them",
                ExitCode.REFUSED,
            )
    return chosen


def block(nodes: int, pool: IPv4Network, taken: Iterable[IPv4Network]) -> IPv4Network:
    """The first part of ``pool`` that has room for ``nodes`` and meets nothing in ``taken``. Raises ColdironError."""
    prefix = _LEAST_BLOCK
    while 2 ** (32 - prefix) - _NOT_NODES < nodes:
        prefix -= 1
    if prefix < pool.prefixlen:
        room = pool.num_addresses - _NOT_NODES
        raise ColdironError(
            f"{nodes} nodes do not fit into {pool}, which has room for {max(room, 0)}; rehearse some of each group "
            "with --sample, or write a larger --subnet",
            ExitCode.REFUSED,
        )
    used = list(taken)
    for part in pool.subnets(new_prefix=prefix):
        if not any(part.overlaps(other) for other in used):
            return part
    raise ColdironError(
        f"no /{prefix} of {pool} is free on this machine; take a rack down (`coldiron rack down --name NAME`), or "
        "write another --subnet",
        ExitCode.REFUSED,
    )


def addresses(nodes: Sequence[Node], site: IPv4Network, subnet: IPv4Network) -> list[IPv4Address]:
    """An address in ``subnet`` for each node: its place in the site's subnet if all fit, else its number in the file.

    The last address but the broadcast's is the bridge's.
    """
    places = [int(node.address) - int(site.network_address) for node in nodes]
    if max(places) > subnet.num_addresses - _NOT_NODES:
        places = list(range(1, len(nodes) + 1))
    return [subnet.network_address + place for place in places]


def derived(cluster: Cluster, nodes: Sequence[Node], subnet: IPv4Network) -> dict[str, Any]:
    """The rehearsal's cluster.yml, as plain data."""
    places = addresses(nodes, cluster.subnet, subnet)
    return {
        "plugin": PLUGIN,
        "name": rack_name(cluster.name),
        "domain": cluster.domain,
        "networks": {"cluster": {"subnet": str(subnet), "gateway": str(subnet.broadcast_address - 1)}},
        "features": {"scheduler": cluster.features.scheduler, "home_backend": "provided", "gpus": "provided"},
        "defaults": {"platform": "container"},
        "nodes": [_node(cluster, node, str(place)) for node, place in zip(nodes, places, strict=True)],
    }


def _node(cluster: Cluster, node: Node, address: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": node.name,
        "kind": node.kind,
        "address": address,
        "distribution": node.distribution,
    }
    group = cluster.node_groups[int(node.path[1])]
    if group.functions is not None:
        entry["functions"] = [name for name in node.functions if name not in _NOT_IN_CONTAINERS]
    hardware = node.hardware
    if hardware is not None and hardware.cores_per_socket and hardware.memory_gib:
        entry["hardware"] = {
            "sockets": hardware.sockets or 1,
            "cores_per_socket": hardware.cores_per_socket,
            "threads_per_core": hardware.threads_per_core or 1,
            "memory_gib": hardware.memory_gib,
        }
        if hardware.gpus is not None:
            entry["hardware"]["gpus"] = {"type": gres_type(hardware.gpus), "count": hardware.gpus.count}
    return entry


def write(cluster: Cluster, nodes: Sequence[Node], subnet: IPv4Network, directory: Path) -> list[str]:
    """Write the rehearsal's inventory into ``directory``; returns the site's files that stay behind: the encrypted."""
    directory.mkdir(parents=True)
    text = yaml.safe_dump(derived(cluster, nodes, subnet), sort_keys=False, width=110)
    head = f"# The rehearsal of {cluster.name} on this machine: made by `coldiron rehearse`, gone with it.\n"
    (directory / "cluster.yml").write_text(head + text, encoding="utf-8")
    left = [name for part in _VARIABLES for name in _copied(cluster.directory / part, directory / part)]
    own = directory / "group_vars" / "virtual_rack"
    for suffix in (".yml", ".yaml", ".json"):
        # Ansible reads either the file or the folder of a group.
        if (sites := own.with_suffix(suffix)).is_file():
            own.mkdir(exist_ok=True)
            sites.rename(own / f"0{suffix}")
    own.mkdir(parents=True, exist_ok=True)
    (own / "rehearsal.yml").write_text(OVERRIDES, encoding="utf-8")
    return left


def _copied(source: Path, target: Path) -> list[str]:
    """Copy a folder of variables without what is encrypted, which is returned."""
    left = []
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if not path.is_file() or any(part.startswith(".") for part in name.parts):
            continue
        with path.open("rb") as file:
            encrypted = file.read(len(_ENCRYPTED)) == _ENCRYPTED
        if encrypted:
            left.append(f"{source.name}/{name}")
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / name)
    return left
