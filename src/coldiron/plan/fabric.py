"""Who is on which fabric and network, which switches carry it, and which leaf serves which rail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from coldiron.inventory.cluster import Node, SwitchUnit
from coldiron.inventory.ranges import expand
from coldiron.inventory.source import KeyPath
from coldiron.inventory.wiring import Fabric, Network
from coldiron.plan.design import Design

CLUSTER = "cluster"


@dataclass(frozen=True, eq=False)
class Plane:
    """A fabric, or a network that has ports of its own. ``rails`` are the links of each of its nodes.

    ``leaves`` are the switches that nodes hang on, ``serving`` those of each rail in the file's order; ``fabric`` is
    None for a network. ``path`` leads to it in the file.
    """

    name: str
    path: KeyPath
    nodes: tuple[Node, ...]
    rails: int
    gbit_per_s: float | None
    fabric: Fabric | None = None
    leaves: tuple[SwitchUnit, ...] = ()
    spines: tuple[SwitchUnit, ...] = ()
    serving: Mapping[int, tuple[SwitchUnit, ...]] = field(default_factory=dict)

    @property
    def carried(self) -> bool:
        """Whether the file has any switch of it."""
        return bool(self.leaves or self.spines)

    def rails_of(self, unit: SwitchUnit) -> tuple[int, ...]:
        """The rails whose links come to this leaf."""
        return tuple(rail for rail, leaves in self.serving.items() if unit in leaves)


def planes(design: Design) -> dict[KeyPath, Plane]:
    """Every fabric and every network with ports of its own, by its path, fabrics first, in the file's order."""
    found: dict[KeyPath, Plane] = {}
    of_fabric: dict[str, set[str]] = {}
    for name, fabric in design.cluster.fabrics.items():
        plane = _fabric(design, name, fabric)
        found[plane.path] = plane
        for its in fabric.networks:
            of_fabric.setdefault(its, set()).update(node.name for node in plane.nodes)
    for name, network in design.cluster.networks.items():
        if network.port_of is None:
            plane = _network(design, name, network, of_fabric.get(name, set()))
            found[plane.path] = plane
    return found


def purpose(name: str, network: Network) -> str | None:
    """What a network is for: what the file says, else what its name says."""
    if network.purpose is not None:
        return network.purpose
    return name if name in ("bmc", "provisioning", CLUSTER, "storage", "fabric", "external") else None


def fabric_nodes(design: Design, fabric: Fabric) -> tuple[Node, ...]:
    """The nodes on a fabric, in the cluster's order."""
    if fabric.nodes is None:
        return tuple(node for node in design.cluster.nodes if node.kind == "gpu")
    named = set(expand(fabric.nodes))
    return tuple(node for node in design.cluster.nodes if node.name in named)


def network_nodes(design: Design, name: str, network: Network) -> tuple[Node, ...]:
    """The nodes on a network: all on the cluster's, those with a BMC on the BMCs', those with an address on others."""
    nodes = design.cluster.nodes
    if name == CLUSTER:
        return nodes
    if purpose(name, network) == "bmc":
        low, high = bounds(network)
        return tuple(node for node in nodes if node.bmc_address and low <= int(node.bmc_address) <= high)
    return tuple(node for node in nodes if name in node.addresses)


def bounds(network: Network) -> tuple[int, int]:
    """The first and the last address of a network's subnet, as numbers."""
    subnet = IPv4Network(network.subnet)
    return int(subnet.network_address), int(subnet.broadcast_address)


def _fabric(design: Design, name: str, fabric: Fabric) -> Plane:
    units = [unit for unit in design.cluster.switches if unit.group.fabric == name]
    leaves = tuple(unit for unit in units if unit.group.function != "spine")
    spines = tuple(unit for unit in units if unit.group.function == "spine")
    return Plane(
        name=name,
        path=("fabrics", name),
        nodes=fabric_nodes(design, fabric),
        rails=fabric.rails,
        gbit_per_s=fabric.gbit_per_s,
        fabric=fabric,
        leaves=leaves,
        spines=spines,
        serving=serving(leaves, fabric.rails),
    )


def _network(design: Design, name: str, network: Network, elsewhere: set[str]) -> Plane:
    """A network; the nodes in ``elsewhere`` reach it through a fabric."""
    units = [unit for unit in design.cluster.switches if name in unit.group.networks]
    leaves = tuple(unit for unit in units if unit.group.function != "spine")
    nodes = network_nodes(design, name, network)
    if elsewhere:
        nodes = tuple(node for node in nodes if node.name not in elsewhere)
    return Plane(
        name=name,
        path=("networks", name),
        nodes=nodes,
        rails=network.links,
        gbit_per_s=network.gbit_per_s,
        leaves=leaves,
        spines=tuple(unit for unit in units if unit.group.function == "spine"),
        serving=dict.fromkeys(range(1, network.links + 1), leaves),
    )


def written_rails(unit: SwitchUnit, total: int) -> tuple[int, ...] | None:
    """The rails that the file gives a leaf: its own of a list with one a switch, else the whole list."""
    rails = unit.group.rails
    if rails is None:
        return None
    return (rails[unit.index],) if len(rails) == total else rails


def serving(leaves: Sequence[SwitchUnit], rails: int) -> dict[int, tuple[SwitchUnit, ...]]:
    """The leaves of each rail, in the file's order.

    Leaves for which the file names no rails take those that are left, in turn, so that a rail keeps to as few leaves
    as it can; where rails and leaves do not divide each other, each of them serves all, so that they are loaded alike.
    """
    found: dict[int, list[SwitchUnit]] = {rail: [] for rail in range(1, rails + 1)}
    sizes: dict[KeyPath, int] = {}
    for unit in leaves:
        sizes[unit.path] = sizes.get(unit.path, 0) + 1
    open_leaves = []
    for unit in leaves:
        written = written_rails(unit, sizes[unit.path])
        if written is None:
            open_leaves.append(unit)
        for rail in written or ():
            if rail in found:
                found[rail].append(unit)
    if open_leaves:
        left = [rail for rail, units in found.items() if not units] or list(found)
        for rail, unit in _in_turn(left, open_leaves):
            found[rail].append(unit)
    return {rail: tuple(units) for rail, units in found.items()}


def _in_turn(rails: Sequence[int], leaves: Sequence[SwitchUnit]) -> Iterable[tuple[int, SwitchUnit]]:
    if len(rails) % len(leaves) == 0:
        return [(rail, leaves[index % len(leaves)]) for index, rail in enumerate(rails)]
    if len(leaves) % len(rails) == 0:
        return [(rails[index % len(rails)], leaf) for index, leaf in enumerate(leaves)]
    return [(rail, leaf) for rail in rails for leaf in leaves]
