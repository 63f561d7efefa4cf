"""What the checks of a node's hardware share: which kinds of node they look at, and what a GPU may draw."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from coldiron.catalog.model import Gpu
from coldiron.inventory.cluster import Node
from coldiron.inventory.ranges import fold
from coldiron.plan.design import Design, Kind

# Chassis that people build themselves, or buy for an office.
OFFICE = ("tower", "desktop")
# GPUs that are soldered or screwed onto a board of their own instead of sitting in a slot.
MODULES = ("sxm", "superchip")


def stated(design: Design) -> Iterator[Kind]:
    """The kinds of node of which somebody says what they are made of.

    A container or a virtual machine that names nothing of the catalog only pretends its hardware; it is left out.
    """
    for kind in design.kinds:
        build = kind.build
        named = build.server is not None or build.gpu is not None
        if named or (build.hardware.model_fields_set and kind.nodes[0].platform == "metal"):
            yield kind


def with_gpus(design: Design) -> Iterator[tuple[Kind, Gpu, int]]:
    """Those of them whose GPUs the catalog knows: the kind, the GPU, and how many a node has."""
    for kind in stated(design):
        if kind.build.gpu is not None and kind.build.gpu_count:
            yield kind, kind.build.gpu, kind.build.gpu_count


def with_cards(design: Design) -> Iterator[tuple[Kind, Gpu, int]]:
    """Those whose GPUs are cards in slots, and are not the ones that the machine is sold with."""
    for kind, gpu, count in with_gpus(design):
        if gpu.form_factor.mount == "pcie" and not sold_with(kind):
            yield kind, gpu, count


def sold_with(kind: Kind) -> bool:
    """Whether the catalog's server is sold with this very GPU, so that its maker has seen to the fit."""
    server, gpu = kind.build.server, kind.build.gpu
    return server is not None and gpu is not None and server.gpu == gpu.name


def alike(nodes: Sequence[Node], key: Callable[[Node], Hashable]) -> list[tuple[Node, ...]]:
    """The nodes, grouped by ``key``, in their order."""
    groups: dict[Hashable, list[Node]] = {}
    for node in nodes:
        groups.setdefault(key(node), []).append(node)
    return [tuple(group) for group in groups.values()]


def folded(kind: Kind, nodes: Sequence[Node]) -> str:
    """Some nodes of a kind, or all, as a range."""
    return kind.hosts if len(nodes) == len(kind.nodes) else fold([node.name for node in nodes])


def a(name: str) -> str:
    """``name`` with its article, as the letters are spoken: an rtx-4090, a t4."""
    return f"{'an' if name[0] in 'aefhilmnorsx8' else 'a'} {name}"


def number(value: float) -> str:
    """A number as people write it: no decimals where there are none, one otherwise."""
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"


@dataclass(frozen=True)
class Draw:
    """Watts of one machine at its peak, behind the supplies where that is known, else at the wall.

    ``gpu_watts`` is what one GPU may draw, None where nobody says; ``rest`` is all but the GPUs.
    """

    watts: float
    gpu_watts: float | None
    gpus: int

    @property
    def rest(self) -> float:
        """What all but the GPUs draw."""
        return self.watts - (self.gpu_watts or 0) * self.gpus


def draw(kind: Kind, cap: float | None) -> Draw | None:
    """The peak of a machine of this kind with each GPU held to ``cap`` watts; None where nobody gives its figures."""
    hardware, gpu, count = kind.build.hardware, kind.build.gpu, kind.build.gpu_count
    full = gpu.tdp_watts if gpu else None
    each = full if cap is None else cap
    if hardware.base_watts is not None and (not count or each is not None):
        return Draw(hardware.base_watts + (each or 0) * count, each, count)
    if hardware.draw_watts is None:
        return None
    saved = (full - each) * count if full is not None and each is not None else 0
    return Draw(hardware.draw_watts - saved, each, count)


def cap_of(design: Design, node: Node) -> float | None:
    """The power limit of each of the node's GPUs, in watts: the file's, else the one that the plan found."""
    if node.power.gpu_cap_watts is not None:
        return node.power.gpu_cap_watts
    return design.power.caps.get(node.name) if node.power.fit_circuit else None
