"""Checks of networks and fabrics; their codes begin with CL. Here: addresses, VLANs, MTUs and names."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address

from coldiron.inventory.cluster import Node
from coldiron.inventory.ranges import fold
from coldiron.inventory.wiring import Network
from coldiron.plan.checks import fabric, fabric_advice, fabric_cables, fabric_ports, network_ports
from coldiron.plan.design import Check, Design
from coldiron.plan.fabric import CLUSTER, bounds, network_nodes, purpose
from coldiron.plan.findings import Finding

# Linux's HOST_NAME_MAX, and the longest common name of a certificate (RFC 5280, ub-common-name).
NAME_MAX = 64
# An MTU that carries RDMA's largest packet, 4096 bytes and its headers.
ROCE_MTU = 4200
JUMBO_MTU = 9000
ETHERNET_MTU = 1500


def _spans(network: Network) -> list[tuple[int, int]]:
    """The DHCP spans as numbers, both ends included."""
    pairs = (span.split("-") for span in network.dhcp)
    return [(int(IPv4Address(first)), int(IPv4Address(last))) for first, last in pairs]


def _pool(network: Network) -> int:
    """Addresses in all DHCP spans together."""
    total, end = 0, -1
    for first, last in sorted(_spans(network)):
        total += max(0, last - max(first, end + 1) + 1)
        end = max(end, last)
    return total


def _fixed(design: Design, name: str, network: Network) -> Iterator[tuple[int, str]]:
    """Every address on a network that the file gives away, and to whom."""
    if network.gateway is not None:
        yield int(IPv4Address(network.gateway)), "the gateway"
    low, high = bounds(network)
    for node in design.cluster.nodes:
        if name == CLUSTER:
            yield int(node.address), node.name
        if name in node.addresses:
            yield int(node.addresses[name]), node.name
        if node.bmc_address is not None and low <= (number := int(node.bmc_address)) <= high:
            yield number, f"{node.name}'s BMC"


def _strangers(design: Design, name: str, network: Network) -> tuple[str, list[Node]]:
    """What asks for an address here before its own is known: in words, and the nodes."""
    kind = purpose(name, network)
    nodes = network_nodes(design, name, network)
    if kind == "bmc":
        return "BMCs", [node for node in nodes if node.bmc_mac is None]
    if kind == "provisioning" and not nodes:
        nodes = design.cluster.nodes
    boots_here = kind == "provisioning" or not any(
        purpose(other, one) == "provisioning" and one.dhcp for other, one in design.cluster.networks.items()
    )
    if kind not in ("provisioning", CLUSTER) or not boots_here:
        return "", []
    return "nodes", [node for node in nodes if node.mac is None and node.platform != "container"]


def pool_size(design: Design) -> Iterator[Finding]:
    """CL101: fewer addresses in the pool than machines that must ask it."""
    for name, network in design.cluster.networks.items():
        if not network.dhcp:
            continue
        what, strangers = _strangers(design, name, network)
        pool = _pool(network)
        if len(strangers) > pool:
            yield design.warn(
                "CL101",
                ("networks", name, "dhcp"),
                f"the DHCP pool of `{name}` has {pool} addresses for {len(strangers)} {what} whose MAC is not known",
                "write a larger span, or the MACs that are known",
                subject=f"network {name}",
                hosts=fold([node.name for node in strangers]),
                pool=pool,
                wanted=len(strangers),
            )


def pool_clashes(design: Design) -> Iterator[Finding]:
    """CL102: an address that may be leased to anybody belongs to somebody."""
    for name, network in design.cluster.networks.items():
        spans = _spans(network)
        taken = list(_fixed(design, name, network)) if spans else []
        for index, (first, last) in enumerate(spans):
            inside = [(number, who) for number, who in taken if first <= number <= last]
            if inside:
                number, who = inside[0]
                more = f" and {len(inside) - 1} more" if len(inside) > 1 else ""
                what = f"{IPv4Address(number)} of {who}{more} in the DHCP span {network.dhcp[index]}"
            elif before := [span for span in spans[:index] if span[0] <= last and first <= span[1]]:
                at = spans.index(before[0])
                what = f"the DHCP spans {network.dhcp[at]} and {network.dhcp[index]} overlap"
            else:
                continue
            yield design.refuse(
                "CL102",
                ("networks", name, "dhcp", index),
                what,
                "write a span in which no address is given away",
                subject=f"network {name}",
                addresses=len(inside),
            )


def vlans(design: Design) -> Iterator[Finding]:
    """CL103: two networks on one VLAN."""
    first: dict[int, str] = {}
    for name, network in design.cluster.networks.items():
        if network.vlan is None:
            continue
        other = first.setdefault(network.vlan, name)
        if other != name:
            yield design.warn(
                "CL103",
                ("networks", name, "vlan"),
                f"`{name}` and `{other}` are both VLAN {network.vlan}, so nothing keeps them apart",
                "give each network a VLAN of its own",
                subject=f"network {name}",
                vlan=network.vlan,
            )


def subnet_size(design: Design) -> Iterator[Finding]:
    """CL104: a subnet without room for the switches' own addresses and the pool beside the nodes'."""
    networks = design.cluster.networks
    managed = [unit for unit in design.cluster.switches if not unit.model or unit.model.managed is not False]
    kinds = {purpose(name, network) for name, network in networks.items()}
    for name, network in networks.items():
        low, high = bounds(network)
        there = max(0, high - low - 1)
        nodes = sum(1 for _ in _fixed(design, name, network))
        pool = _pool(network)
        here = purpose(name, network) == "bmc" or (name == CLUSTER and "bmc" not in kinds)
        switches = len(managed) if here else 0
        wanted = nodes + pool + switches
        if wanted > there:
            listed = [f"{nodes} that are written", f"{pool} of the DHCP pool", f"{switches} of switches"]
            counts = (nodes, pool, switches)
            yield design.warn(
                "CL104",
                ("networks", name, "subnet"),
                f"{network.subnet} of `{name}` has {there} addresses, and {wanted} are wanted: "
                + ", ".join(text for text, count in zip(listed, counts, strict=True) if count),
                "write a larger subnet",
                subject=f"network {name}",
                addresses=there,
                wanted=wanted,
            )


def long_names(design: Design) -> Iterator[Finding]:
    """CL105: full names that Linux and certificates do not take."""
    domain = design.cluster.domain
    room = NAME_MAX - len(domain) - 1
    long = [node.name for node in design.cluster.nodes if len(node.name) > room]
    if long:
        longest = max(long, key=len)
        length = len(longest) + 1 + len(domain)
        yield design.warn(
            "CL105",
            ("domain",),
            f"{longest}.{domain} has {length} characters, of {NAME_MAX} at most",
            f"write a `domain` of at most {len(domain) - length + NAME_MAX} characters, or shorter names",
            hosts=fold(long),
            subject="domain",
            characters=length,
            characters_most=NAME_MAX,
        )


def small_packets(design: Design) -> Iterator[Finding]:
    """CL106: a storage network or a RoCE fabric with the packets of the internet."""
    wanted: dict[str, tuple[int, str]] = {}
    infiniband: set[str] = set()
    for name, one in design.cluster.fabrics.items():
        for network in one.networks:
            if one.link_layer == "roce":
                wanted[network] = (ROCE_MTU, f"RoCE fabric `{name}`")
            else:
                infiniband.add(network)
    for name, net in design.cluster.networks.items():
        if purpose(name, net) == "storage" and name not in infiniband:
            wanted[name] = (JUMBO_MTU, "storage")
    for name, (least, user) in wanted.items():
        mtu = design.cluster.networks[name].mtu
        if (mtu or ETHERNET_MTU) < least:
            says = f"an MTU of {mtu}" if mtu else f"no MTU, which leaves nodes at {ETHERNET_MTU}"
            yield design.advise(
                "CL106",
                ("networks", name, "mtu") if mtu else ("networks", name),
                f"`{name}` carries {user} with {says}",
                f"write `mtu: {JUMBO_MTU}`, if its switches take that",
                subject=f"network {name}",
                mtu=mtu,
                mtu_least=least,
            )


def unequal_packets(design: Design) -> Iterator[Finding]:
    """CL107: networks of one fabric whose packets differ in size."""
    for name, one in design.cluster.fabrics.items():
        sizes = {network: design.cluster.networks[network].mtu for network in one.networks}
        odd = [network for network, mtu in sizes.items() if mtu != sizes[one.networks[0]]]
        if odd:
            first = one.networks[0]
            said = {True: "none", False: ""}
            yield design.warn(
                "CL107",
                ("networks", odd[0], "mtu") if sizes[odd[0]] else ("networks", odd[0]),
                f"`{odd[0]}` has the MTU {sizes[odd[0]] or said[True]} and `{first}` "
                f"{sizes[first] or said[True]}; both are rails of `{name}`",
                "write one MTU for all rails",
                subject=f"fabric {name}",
            )


def shared_ports(design: Design) -> Iterator[Finding]:
    """CL108 and CL114: a network on another's ports, with larger packets or without a VLAN of its own."""
    networks = design.cluster.networks
    for name, network in networks.items():
        if network.port_of is None:
            continue
        below = networks[network.port_of]
        if network.mtu and network.mtu > (below.mtu or ETHERNET_MTU):
            says = f"{below.mtu}" if below.mtu else f"none, so {ETHERNET_MTU}"
            yield design.refuse(
                "CL108",
                ("networks", name, "mtu"),
                f"`{name}` has an MTU of {network.mtu} on the ports of `{network.port_of}`, which has {says}",
                f"write at least that MTU for `{network.port_of}`, or a smaller one here",
                subject=f"network {name}",
                mtu=network.mtu,
                mtu_most=below.mtu or ETHERNET_MTU,
            )
        if network.vlan is None:
            yield design.refuse(
                "CL114",
                ("networks", name, "port_of"),
                f"`{name}` shares the ports of `{network.port_of}` and has no VLAN to tell them apart",
                "write its `vlan`",
                subject=f"network {name}",
            )


def rails_of_one_subnet(design: Design) -> Iterator[Finding]:
    """CL109: several RoCE rails with addresses of one subnet."""
    for name, one in design.cluster.fabrics.items():
        if one.link_layer == "roce" and one.rails > 1 and len(one.networks) == 1:
            yield design.advise(
                "CL109",
                ("fabrics", name, "networks"),
                f"the {one.rails} rails of `{name}` share the subnet of `{one.networks[0]}`; Linux sends and answers "
                "for all of them through any one port",
                "write a network for each rail, or set up routing by source on the nodes",
                subject=f"fabric {name}",
                rails=one.rails,
            )


def bmc_addresses(design: Design) -> Iterator[Finding]:
    """CL110 and CL111: BMCs among the nodes, or nowhere."""
    spans = {name: bounds(network) for name, network in design.cluster.networks.items()}
    for kind in design.kinds:
        where: dict[str | None, list[str]] = {}
        for node in kind.nodes:
            if node.bmc_address is not None:
                number = int(node.bmc_address)
                home = next((name for name, (low, high) in spans.items() if low <= number <= high), None)
                where.setdefault(home, []).append(node.name)
        if CLUSTER in where:
            yield design.warn(
                "CL110",
                (*kind.path, "bmc"),
                f"{len(where[CLUSTER])} BMCs are on the network `{CLUSTER}`, within reach of every job",
                "write a network `bmc` and give them addresses there",
                hosts=fold(where[CLUSTER]),
                bmcs=len(where[CLUSTER]),
            )
        if None in where:
            yield design.warn(
                "CL111",
                (*kind.path, "bmc"),
                f"the addresses of {len(where[None])} BMCs are in no network of the file",
                "write the network they are in, with `purpose: bmc`",
                hosts=fold(where[None]),
                bmcs=len(where[None]),
            )


def fabric_addresses(design: Design) -> Iterator[Finding]:
    """CL112: nodes on a fabric without an address on its networks."""
    planes = design.cabling.planes
    for name, one in design.cluster.fabrics.items():
        for network in one.networks:
            if network == CLUSTER:
                continue
            without = [node.name for node in planes["fabrics", name].nodes if network not in node.addresses]
            if without:
                yield design.warn(
                    "CL112",
                    ("fabrics", name, "networks"),
                    f"{len(without)} nodes of `{name}` have no address on `{network}`",
                    f"write it under `addresses` of their node group: `{network}: ...`",
                    hosts=fold(without),
                    subject=f"fabric {name} network {network}",
                    nodes=len(without),
                )


def uncarried(design: Design) -> Iterator[Finding]:
    """CL113: nodes are on it, switches are written, and none carries it."""
    if not design.cluster.switches:
        return
    for plane in design.cabling.planes.values():
        if plane.carried or len(plane.nodes) < 2:
            continue
        if plane.fabric is None and purpose(plane.name, design.cluster.networks[plane.name]) == "external":
            continue
        what = "fabric" if plane.fabric else "network"
        key = "as the `fabric`" if plane.fabric else "under the `networks`"
        yield design.advise(
            "CL113",
            plane.path,
            f"{len(plane.nodes)} nodes are on {what} `{plane.name}`, and no switch carries it",
            f"write `{plane.name}` {key} of a switch; until then its ports are not counted",
            subject=f"{what} {plane.name}",
            nodes=len(plane.nodes),
        )


CHECKS: tuple[Check, ...] = (
    pool_size,
    pool_clashes,
    vlans,
    subnet_size,
    long_names,
    small_packets,
    unequal_packets,
    shared_ports,
    rails_of_one_subnet,
    bmc_addresses,
    fabric_addresses,
    uncarried,
    *network_ports.CHECKS,
    *fabric.CHECKS,
    *fabric_ports.CHECKS,
    *fabric_cables.CHECKS,
    *fabric_advice.CHECKS,
)
