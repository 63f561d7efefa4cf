"""The wires in a cluster.yml: networks, fabrics and switches. Speeds are 10^9 bits a second."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from coldiron.inventory.values import (
    AddressSpan,
    Block,
    CatalogName,
    Counts,
    Ipv4Text,
    NodeNames,
    NodesThere,
    Numbers,
    SubnetText,
    Text,
    ThingNames,
)

Purpose = Literal["bmc", "provisioning", "cluster", "storage", "fabric", "external"]


class Network(Block):
    """One network. Every node has an address on the one called ``cluster``."""

    subnet: SubnetText = Field(description="IPv4 subnet.", examples=["10.77.0.0/24"])
    purpose: Purpose | None = Field(
        default=None,
        description="What it is for; known by itself where the network is called so.",
        examples=["storage"],
    )
    vlan: int | None = Field(default=None, ge=1, le=4094, description="VLAN number.", examples=[120])
    gateway: Ipv4Text | None = Field(default=None, description="Way out of the subnet; an address in it.")
    mtu: int | None = Field(
        default=None,
        ge=576,
        le=9216,
        description="Bytes a packet; left as the node has it when absent.",
        examples=[9000],
    )
    dns: list[Ipv4Text] = Field(
        default_factory=list, description="Name servers outside the cluster that the heads ask."
    )
    dhcp: list[AddressSpan] = Field(
        default_factory=list,
        description="Spans from which machines that are not known yet get an address.",
        examples=[["10.77.0.200-10.77.0.240"]],
    )
    gbit_per_s: float | None = Field(
        default=None, gt=0, le=10_000, description="Speed of a node's port on it.", examples=[25]
    )
    links: int = Field(
        default=1,
        ge=1,
        le=8,
        description="Links of each node to it, to different switches where there are several.",
        examples=[2],
    )
    port_of: Text | None = Field(
        default=None,
        description="The network whose ports of the nodes it shares, told apart by its VLAN; ports of its own if "
        "absent.",
        examples=["cluster"],
    )


class Fabric(Block):
    """A network for messages between GPUs: InfiniBand, or RoCE over Ethernet."""

    link_layer: Literal["infiniband", "roce"] = Field(
        description="What it is made of.", examples=["infiniband"]
    )
    gbit_per_s: float = Field(gt=0, le=10_000, description="Speed of one link.", examples=[400])
    rails: int = Field(
        default=1, ge=1, le=16, description="Links a node; link n of every node is rail n.", examples=[8]
    )
    nodes: NodesThere | None = Field(
        default=None,
        description="The nodes on it; every node of kind gpu if absent.",
        examples=["gpu[01-12]"],
    )
    oversubscription: float = Field(
        default=1.0,
        ge=1,
        le=100,
        description="What is promised: a leaf's links down over its links up. 1 is full bisection.",
        examples=[1],
    )
    spare_ports: int = Field(
        default=0, ge=0, le=1000, description="Ports that stay free on each leaf switch.", examples=[2]
    )
    networks: list[Text] = Field(
        default_factory=list,
        description="Networks with its addresses: one for all rails, or one a rail in their order.",
        examples=[["rail1", "rail2"]],
    )


class Plug(Block):
    """What is plugged into a switch's cages."""

    cages: Numbers = Field(
        description="Cages by their number: one, or a range; the first has the number 1.", examples=["1-16"]
    )
    to: NodesThere = Field(
        description="The nodes or switches at the other end, in their order.", examples=["gpu[01-12]"]
    )
    port: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Which of the node's ports of this fabric or network: its rail. The switch's rail if absent.",
        examples=[1],
    )
    breakout: int | None = Field(
        default=None,
        ge=1,
        le=8,
        description="Into how many links each cage is split; as many as the model's cages hold if absent.",
        examples=[2],
    )
    network: Text | None = Field(
        default=None,
        description="Which of the switch's networks it is for; its fabric, or its first network, if absent.",
        examples=["bmc"],
    )
    cable: CatalogName | None = Field(
        default=None, description="The cable's name in the catalog.", examples=["mcp4y10-n"]
    )
    length_m: float | None = Field(
        default=None,
        gt=0,
        le=10_000,
        description="Its length; reckoned from the racks if absent.",
        examples=[3],
    )


class SwitchGroup(Block):
    """One switch, or a range of switches that are alike."""

    name: NodeNames = Field(description="A switch or a range.", examples=["leaf[01-04]"])
    model: CatalogName = Field(description="Its name in the catalog.", examples=["qm9700"])
    function: Literal["leaf", "spine", "management"] = Field(
        description="leaf: nodes hang on it. spine: joins leaves. management: BMC, provisioning and cluster networks.",
        examples=["leaf"],
    )
    fabric: Text | None = Field(
        default=None, description="The fabric it belongs to; see fabrics.", examples=["compute"]
    )
    networks: list[Text] = Field(
        default_factory=list,
        description="The networks it carries; see networks.",
        examples=[["cluster", "bmc"]],
    )
    rack: ThingNames | None = Field(
        default=None, description="Its rack, or a range: the switches are spread evenly.", examples=["r01"]
    )
    u: Counts | None = Field(
        default=None,
        description="Lowest U that the first takes, the next stand above it; or a list.",
        examples=[40],
    )
    rails: Counts | None = Field(
        default=None,
        description="The rails whose links come to these leaves, in the switches' order: one rail a switch, or the "
        "same list for all. Shared out evenly if absent.",
        examples=[[1, 2, 3, 4]],
    )
    ports: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Links it can hold; the catalog's figure if absent.",
        examples=[48],
    )
    uplinks: int | None = Field(
        default=None,
        ge=0,
        le=512,
        description="Links from each leaf to all spines together. If absent: as many as the fabric's oversubscription "
        "asks for, and one a spine where a switch carries networks only.",
        examples=[32],
    )
    plugs: list[Plug] | None = Field(
        default=None, description="Cage by cage, where it must be so; planned by rail if absent."
    )


__all__ = ["Fabric", "Network", "Plug", "Purpose", "SwitchGroup"]
