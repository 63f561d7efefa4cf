"""What the questions of ``coldiron init`` were answered, checked, and the addresses that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from coldiron.catalog.load import Catalog
from coldiron.errors import ColdironError
from coldiron.inventory.findings import did_you_mean, shown
from coldiron.inventory.model import Scheduler
from coldiron.inventory.values import DomainName, Ipv4Text, SubnetText, Word

MOST_NODES = 10_000
# What stands in the file where nobody said it: marked there as an example to replace.
EXAMPLE_CORES, EXAMPLE_MEMORY_GIB = 32, 512
VIRTUAL_CORES, VIRTUAL_MEMORY_GIB = 2, 2

Kind = Literal["head", "login", "storage", "cpu", "gpu"]


@dataclass(frozen=True)
class Answers:
    """What the cluster shall be. Empty texts and None: not said."""

    name: str
    domain: str
    scheduler: str = "slurm"
    virtual: bool = False
    heads: int = 1
    logins: int = 1
    storage: int = 1
    cpu_nodes: int = 0
    gpu_nodes: int = 0
    model: str = ""
    gpu: str = ""
    gpus_per_node: int = 0
    cores: int | None = None
    memory_gib: int | None = None
    racks: int = 0
    subnet: str = ""
    bmc_subnet: str = ""
    dns: tuple[str, ...] = ()

    @property
    def numbers(self) -> dict[Kind, int]:
        """How many nodes of each kind, in the order in which they get their addresses."""
        return {
            "head": self.heads,
            "login": self.logins,
            "storage": self.storage,
            "cpu": self.cpu_nodes,
            "gpu": self.gpu_nodes,
        }


@dataclass(frozen=True)
class Group:
    """A line of `nodes`: its range of names, and the addresses of its first node."""

    kind: Kind
    name: str
    number: int
    address: IPv4Address
    bmc: IPv4Address | None


def checked(answers: Answers, catalog: Catalog) -> Answers:
    """``answers`` if a cluster can be made of them. Raises ColdironError that names the option to mend."""
    for option, kind in (
        ("name", Word),
        ("domain", DomainName),
        ("subnet", SubnetText),
        ("bmc_subnet", SubnetText),
    ):
        value = getattr(answers, option)
        if value or option in ("name", "domain"):
            _check(option, kind, value)
    for server in answers.dns:
        _check("dns", Ipv4Text, server)
    if answers.scheduler not in get_args(Scheduler):
        raise _wrong(
            "scheduler",
            f"{shown(answers.scheduler)} is none; {did_you_mean(answers.scheduler, get_args(Scheduler))}",
        )
    for field in fields(answers):
        value = getattr(answers, field.name)
        if isinstance(value, int) and not isinstance(value, bool) and not 0 <= value <= MOST_NODES:
            raise _wrong(field.name, f"{value} must be from 0 to {MOST_NODES}")
    if sum(answers.numbers.values()) > MOST_NODES:
        raise ColdironError(f"{sum(answers.numbers.values())} nodes are too many; at most {MOST_NODES}")
    if not answers.heads:
        raise _wrong("heads", "a cluster needs a head; write 1, or 3 for heads that stand in for each other")
    if answers.scheduler != "none" and not answers.cpu_nodes + answers.gpu_nodes:
        raise ColdironError("no node runs jobs; write --gpu-nodes or --cpu-nodes, or --scheduler none")
    if not answers.gpu_nodes and (answers.model or answers.gpu or answers.gpus_per_node):
        raise _wrong("gpu_nodes", "how many nodes have these GPUs? write a number")
    _hardware(answers, catalog)
    return answers


def _hardware(answers: Answers, catalog: Catalog) -> None:
    for option, what, name, known in (
        ("model", "server", answers.model, catalog.servers),
        ("gpu", "GPU", answers.gpu, catalog.gpus),
    ):
        if name and name not in known:
            raise _wrong(option, f"the catalog has no {what} {shown(name)}; {did_you_mean(name, known)}")
    if not answers.gpu_nodes:
        return
    server = catalog.servers.get(answers.model)
    if not answers.gpu and (server is None or server.gpu is None):
        raise _wrong("gpu", "which GPU? `coldiron catalog list gpus` shows the names")
    if not answers.gpus_per_node and (server is None or not server.gpu_count):
        raise _wrong("gpus_per_node", "how many GPUs are in one node? write a number")
    if answers.gpus_per_node > 32:
        raise _wrong("gpus_per_node", f"{answers.gpus_per_node} must be at most 32")


def groups(answers: Answers) -> tuple[Group, ...]:
    """The node groups with their addresses. Raises ColdironError where a subnet is too small."""
    numbers = {kind: number for kind, number in answers.numbers.items() if number}
    subnet = IPv4Network(answers.subnet)
    cluster = _firsts(list(numbers.values()), subnet, "subnet")
    bmc: list[IPv4Address] | list[None] = [None] * len(numbers)
    if answers.bmc_subnet:
        network = IPv4Network(answers.bmc_subnet)
        if network.overlaps(subnet):
            raise _wrong("bmc_subnet", f"{network} overlaps {subnet}; give the BMCs a subnet of their own")
        bmc = _firsts(list(numbers.values()), network, "bmc_subnet")
    return tuple(
        Group(kind, names(kind, number), number, first, other)
        for (kind, number), first, other in zip(numbers.items(), cluster, bmc, strict=True)
    )


def names(stem: str, number: int) -> str:
    """``number`` things called ``stem``, as a range: ``gpu[01-12]``."""
    width = max(2, len(str(number)))
    return f"{stem}{1:0{width}}" if number == 1 else f"{stem}[{1:0{width}}-{number:0{width}}]"


def gateway(answers: Answers) -> IPv4Address:
    """The address that is kept free for the way out: the last, which on a rack is this machine's."""
    return IPv4Network(answers.subnet).broadcast_address - 1


def _firsts(numbers: list[int], network: IPv4Network, option: str) -> list[IPv4Address]:
    """The first address of each group: at the next ten if there is room, so that they are easily told apart."""
    room = network.num_addresses - 3
    for step in (10, 1):
        found, at = [], 1
        for number in numbers:
            found.append(network.network_address + at)
            at = -(-(at + number - 1) // step) * step + 1
        # The last group ends before the next one would begin.
        if int(found[-1]) - int(network.network_address) + numbers[-1] - 1 <= room:
            return found
    wanted = sum(numbers)
    prefix = 32 - (wanted + 3 - 1).bit_length()
    raise _wrong(
        option,
        f"{network} has room for {room} nodes, and there are {wanted}; write one with a prefix of /{prefix} or less",
    )


def _check(option: str, kind: Any, value: str) -> None:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0].get("ctx", {}).get("error", "this cannot be")
        raise _wrong(option, str(reason)) from None


def _wrong(option: str, text: str) -> ColdironError:
    return ColdironError(f"--{option.replace('_', '-')}: {text}")
