"""What may stand in a cluster.yml, key by key. What the keys mean together is checked in ``check``.

Each class is one block of the file, each field one key; descriptions and examples feed the JSON schema, the
messages and docs/inventory.md. A later block (racks, switches) is a class here and a field of ClusterFile.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from coldiron.inventory.findings import shown
from coldiron.inventory.functions import FunctionName, Kind
from coldiron.inventory.ranges import expand

PLUGIN = "coldiron.cluster.cluster"

Platform = Literal["container", "machine", "metal"]
Distribution = Literal["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "rocky-9", "rhel-9"]
Scheduler = Literal["slurm", "none"]
HomeBackend = Literal["nfs", "provided"]

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


class Wrong(ValueError):
    """A value that cannot be meant; the text says what to write instead."""


def _text(value: object) -> object:
    """Text only, with a hint that YAML, not the reader, made a number of it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise Wrong(f'YAML takes {shown(value)} for a number; put it in quotes ("{shown(value)}")')
    return value


def _word(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,31}", value):
        raise Wrong(
            f"`{shown(value)}` is no name for a cluster; write up to 32 lower-case letters, digits, - and _, "
            "beginning with a letter"
        )
    return value


def _domain(value: str) -> str:
    if value != value.lower():
        raise Wrong(f"`{shown(value)}` has capitals, which DNS ignores; write {shown(value.lower())}")
    labels = value.split(".")
    if len(value) > 200 or not all(_LABEL.fullmatch(label) for label in labels):
        raise Wrong(
            f"`{shown(value)}` is no domain name; write lower-case letters, digits and hyphens between dots, "
            "e.g. cluster.example.org"
        )
    if labels[-1] == "local":
        raise Wrong(f"`{value}` ends in .local, which is multicast DNS's; write e.g. cluster.internal")
    if labels[-1].isdigit():
        raise Wrong(f"`{value}` looks like an address; write a domain such as cluster.internal")
    return value


def _ipv4(value: str) -> str:
    try:
        return str(IPv4Address(value))
    except AddressValueError:
        hint = "; IPv6 is not supported here" if ":" in value else ""
        raise Wrong(f"`{shown(value)}` is no IPv4 address{hint}; write e.g. 10.77.0.254") from None


def _subnet(value: str) -> str:
    try:
        network = IPv4Network(value, strict=False)
    except (AddressValueError, NetmaskValueError, ValueError):
        raise Wrong(f"`{shown(value)}` is no IPv4 subnet; write e.g. 10.77.0.0/24") from None
    if "/" not in value:
        raise Wrong(f"`{value}` has no prefix length; write e.g. {value}/24")
    if str(network.network_address) != value.split("/", maxsplit=1)[0]:
        raise Wrong(f"`{value}` is an address inside a subnet; write {network}")
    if not 8 <= network.prefixlen <= 30:
        raise Wrong(f"`{value}` must have a prefix length from 8 to 30; write e.g. 10.77.0.0/24")
    return str(network)


def check_host_name(name: str) -> None:
    """Refuse what DNS, ssh or Slurm would not take as a node's name, with a Wrong that says why."""
    if name != name.lower():
        raise Wrong(f"`{shown(name)}` has capitals, which DNS ignores; write {shown(name.lower())}")
    if "_" in name:
        better = shown(name.replace("_", "-"))
        raise Wrong(f"`{shown(name)}` has an underscore, which no host name may; write {better}")
    if "." in name:
        raise Wrong(f"`{shown(name)}` has a dot; write the short name, the cluster's domain is added to it")
    if not _LABEL.fullmatch(name) or name.isdigit():
        raise Wrong(
            f"`{shown(name)}` is no host name; write up to 63 lower-case letters, digits and inner "
            "hyphens, with a letter among them"
        )


def _names(value: str) -> str:
    for name in expand(value)[:1]:
        check_host_name(name)
    return value


def _addresses(value: str) -> str:
    if "[" in value or "," in value:
        expand(value)
        return value
    return _ipv4(value)


def _macs(value: object) -> object:
    values = value if isinstance(value, list) else [value]
    result: list[str] = []
    for one in values:
        if not isinstance(one, str):
            raise Wrong(f'`{shown(one)}` is no MAC address; write "52:54:00:12:34:56", in quotes')
        mac = one.lower().replace("-", ":")
        if not _MAC.fullmatch(mac):
            raise Wrong(f'`{shown(one)}` is no MAC address; write six hex pairs: "52:54:00:12:34:56"')
        if int(mac[:2], 16) & 1:
            raise Wrong(f"`{shown(one)}` is a multicast address, which no card has; copy the card's own")
        result.append(mac)
    return tuple(result)


Text = Annotated[str, BeforeValidator(_text)]
Ipv4Text = Annotated[Text, AfterValidator(_ipv4), Field(examples=["10.77.0.254"])]
AddressRange = Annotated[Text, AfterValidator(_addresses)]
Macs = Annotated[
    tuple[str, ...],
    BeforeValidator(_macs),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class Block(BaseModel):
    """A block of cluster.yml: unknown keys are errors, and nothing is turned into another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Network(Block):
    """One network. Every node has an address on the one called ``cluster``."""

    subnet: Annotated[Text, AfterValidator(_subnet)] = Field(
        description="IPv4 subnet.", examples=["10.77.0.0/24"]
    )
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


class Gpus(Block):
    """The accelerators of one node."""

    type: Annotated[Text, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")] = Field(
        description="Model in lower case, as Slurm's GRES names it.", examples=["h100"]
    )
    count: int = Field(ge=1, le=32, description="GPUs in one node.", examples=[8])


class Hardware(Block):
    """One node's processors, memory and GPUs, as the scheduler is told."""

    sockets: int = Field(default=1, ge=1, le=16, description="Processor sockets.", examples=[2])
    cores_per_socket: int = Field(ge=1, le=512, description="Cores a socket.", examples=[56])
    threads_per_core: int = Field(default=1, ge=1, le=8, description="Hardware threads a core.", examples=[2])
    memory_gib: float = Field(gt=0, le=65536, description="Memory, in GiB.", examples=[2048])
    gpus: Gpus | None = Field(default=None, description="GPUs; absent where there are none.")


class Bmc(Block):
    """The node's management controller."""

    address: AddressRange = Field(
        description="Its address: the first of the range, or a range of the same length.",
        examples=["10.78.0.31"],
    )


class Defaults(Block):
    """What a node group has when it does not say otherwise. A group's own value replaces the whole of it."""

    platform: Platform | None = Field(default=None, description="See nodes.", examples=["metal"])
    distribution: Distribution | None = Field(default=None, description="See nodes.", examples=["debian-13"])
    hardware: Hardware | None = Field(default=None, description="See nodes.")


class NodeGroup(Defaults):
    """One node, or a range of nodes that are alike."""

    name: Annotated[Text, AfterValidator(_names)] = Field(
        description="A node or a range, in ClusterShell's notation.", examples=["gpu[01-12]"]
    )
    kind: Kind = Field(description="What the nodes are for; gives them their functions.", examples=["gpu"])
    address: AddressRange = Field(
        description="Address on the network `cluster`: the first node's (the others follow by their number), "
        "or a range of the same length.",
        examples=["10.77.0.31", "10.77.0.[31-33]"],
    )
    mac: Macs | None = Field(
        default=None,
        description="MAC address on the network `cluster`; for a range a list in the nodes' order.",
        examples=["52:54:00:12:34:56"],
    )
    bmc: Bmc | None = Field(default=None, description="Management controllers, one a node.")
    functions: list[FunctionName] | None = Field(
        None, description="Replaces the functions that the kind gives.", examples=[["slurm_worker"]]
    )


class Features(Block):
    """What the cluster has."""

    scheduler: Scheduler = Field(default="slurm", description="Workload manager.")
    home_backend: HomeBackend = Field(
        default="nfs",
        description="nfs: the home server exports /home. provided: something outside puts it on every node.",
    )


class PluginOptions(Block):
    """Ansible's own options of any inventory plugin that can cache; see docs/inventory.md."""

    cache: bool | None = Field(default=None, description="Keep the parsed inventory in Ansible's cache.")
    cache_plugin: Text | None = Field(default=None, description="Which cache plugin.", examples=["jsonfile"])
    cache_timeout: int | None = Field(
        default=None, ge=0, description="Seconds that a cached inventory lives."
    )
    cache_connection: Text | None = Field(default=None, description="Where the cache plugin keeps its data.")
    cache_prefix: Text | None = Field(default=None, description="Prefix of the cache plugin's entries.")


class ClusterFile(PluginOptions):
    """A whole cluster.yml."""

    plugin: Literal["coldiron.cluster.cluster"] = Field(
        description="Says that this inventory plugin reads the file.", examples=[PLUGIN]
    )
    name: Annotated[Text, AfterValidator(_word)] = Field(
        description="The cluster's name.", examples=["hopper"]
    )
    domain: Annotated[Text, AfterValidator(_domain)] = Field(
        description="DNS domain of the nodes.", examples=["hopper.internal"]
    )
    networks: dict[str, Network] = Field(
        description="Networks by name; `cluster` is one of them.",
        examples=[{"cluster": {"subnet": "10.77.0.0/24"}}],
    )
    features: Features = Field(default_factory=Features, description="What the cluster has.")
    defaults: Defaults = Field(default_factory=Defaults, description="What every node group has.")
    nodes: list[NodeGroup] = Field(
        min_length=1,
        description="The nodes.",
        examples=[[{"name": "head01", "kind": "head", "address": "10.77.0.1"}]],
    )


__all__ = [
    "PLUGIN",
    "Block",
    "Bmc",
    "ClusterFile",
    "Defaults",
    "Features",
    "Gpus",
    "Hardware",
    "Network",
    "NodeGroup",
    "PluginOptions",
    "Wrong",
    "check_host_name",
]
