"""Whether the nodes have the ports that fabrics and networks ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from coldiron.catalog.model import Nic
from coldiron.inventory.model import PortGroup
from coldiron.inventory.ranges import fold
from coldiron.plan.design import Check, Design, Result
from coldiron.plan.fabric import Plane, purpose


@dataclass(frozen=True)
class Demand:
    """Ports that one fabric or network asks of each of its nodes. ``layer``: what the ports must speak."""

    plane: Plane
    layer: str

    @property
    def gbit_per_s(self) -> float:
        """Their least speed; 0 where the file does not say."""
        return self.plane.gbit_per_s or 0.0

    def __str__(self) -> str:
        number = self.plane.rails
        if self.plane.fabric is None:
            return f"{number} for `{self.plane.name}`"
        return f"{number} for the rail{'s' * (number > 1)} of `{self.plane.name}`"


def demands(design: Design) -> list[Demand]:
    """What asks for ports of nodes. A BMC's port is its own."""
    found = []
    for plane in design.cabling.planes.values():
        if plane.fabric is not None:
            layer = "infiniband" if plane.fabric.link_layer == "infiniband" else "ethernet"
        elif purpose(plane.name, design.cluster.networks[plane.name]) == "bmc":
            continue
        else:
            layer = "ethernet"
        found.append(Demand(plane, layer))
    return found


def _speaks(port: PortGroup, layer: str, nics: Mapping[str, Nic]) -> bool:
    """Whether a port may speak a link layer; one whose adapter is not known may."""
    nic = nics.get(port.nic) if port.nic else None
    return nic is None or nic.link_layers is None or layer in nic.link_layers


@dataclass(frozen=True)
class Lack:
    """More ports of at least this speed are wanted than there are. ``gbit_per_s`` 0 is any speed."""

    gbit_per_s: float
    wanted: int
    there: int
    by: tuple[Demand, ...]


def lacking(ports: Sequence[PortGroup], wanted: Sequence[Demand], nics: Mapping[str, Nic]) -> Lack | None:
    """The fastest ports that there are too few of; None where all demands can be met.

    For each speed the ports of at least that speed are held against all demands for at least that speed, for
    InfiniBand, Ethernet and both together.
    """
    for speed in sorted({demand.gbit_per_s for demand in wanted}, reverse=True):
        for layers in (("infiniband",), ("ethernet",), ("infiniband", "ethernet")):
            by = tuple(one for one in wanted if one.gbit_per_s >= speed and one.layer in layers)
            there = sum(
                port.count
                for port in ports
                if port.gbit_per_s >= speed and any(_speaks(port, layer, nics) for layer in layers)
            )
            number = sum(one.plane.rails for one in by)
            if number > there:
                return Lack(speed, number, there, by)
    return None


def node_ports(design: Design) -> Iterator[Result]:
    """CL115: nodes with fewer ports than the fabrics and networks that they are on."""
    wanted = demands(design)
    on = [{node.name for node in demand.plane.nodes} for demand in wanted]
    for kind in design.kinds:
        alike: dict[tuple[int, ...], list[str]] = {}
        for node in kind.nodes:
            name = node.name
            alike.setdefault(tuple(index for index, names in enumerate(on) if name in names), []).append(name)
        ports = kind.build.hardware.ports
        for which, names in alike.items():
            asked = [wanted[index] for index in which]
            fabrics = [demand.plane.name for demand in asked if demand.plane.fabric]
            if ports is None:
                if fabrics:
                    yield design.unknown(
                        kind.label, "hardware.ports", f"its ports for {_listed(fabrics)}", kind.path
                    )
                continue
            lack = lacking(ports, asked, design.cluster.catalog.nics)
            if lack is None:
                continue
            speed = f" of {lack.gbit_per_s:g} Gbit/s" if lack.gbit_per_s else ""
            advice = "write what the machine has under `hardware.ports`"
            if any(demand.plane.fabric is None for demand in lack.by):
                advice += ", or `port_of` where networks share a port"
            yield design.refuse(
                "CL115",
                (*kind.path, "hardware", "ports") if kind.group.hardware else kind.path,
                f"{lack.wanted} ports{speed} are wanted ({', '.join(map(str, lack.by))}), "
                f"and {kind.group.model or 'the machine'} has {lack.there}",
                advice,
                hosts=fold(names),
                ports=lack.there,
                wanted=lack.wanted,
                gbit_per_s=lack.gbit_per_s,
            )


def _listed(names: Iterable[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


CHECKS: tuple[Check, ...] = (node_ports,)
