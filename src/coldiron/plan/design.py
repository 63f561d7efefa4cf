"""What the offline checks read: a sound cluster.yml, its machines grouped by what they are made of, and findings.

Pure: nothing here touches a file, a network or a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from coldiron.inventory.cluster import AUTO, Cluster, Node, Rack, SwitchUnit
from coldiron.inventory.hardware import Build
from coldiron.inventory.model import NodeGroup
from coldiron.inventory.ranges import fold
from coldiron.inventory.source import KeyPath
from coldiron.plan.findings import Figure, Finding, Severity
from coldiron.plan.results import Link, Position, PowerPlan

if TYPE_CHECKING:
    from coldiron.plan.grid import Grid
    from coldiron.plan.links import Cabling


@dataclass(frozen=True)
class Unknown:
    """A figure that a check wanted and nobody gives: of which ``thing`` (a catalog name or a node group), ``figure`` as
    cluster.yml calls it (``hardware.depth_mm``), and ``check``, what could not be looked at, in a few words.
    """

    thing: str
    figure: str
    check: str
    where: str


Result = Finding | Unknown
Check = Callable[["Design"], Iterable[Result]]


@dataclass(frozen=True, eq=False)
class Kind:
    """Nodes of one group that are made alike: what most checks look at once instead of once a node."""

    group: NodeGroup
    path: KeyPath
    build: Build
    nodes: tuple[Node, ...]

    @cached_property
    def hosts(self) -> str:
        """Its nodes, folded: once, as ten thousand names take most of a second."""
        return fold([node.name for node in self.nodes])

    @property
    def label(self) -> str:
        """What a message calls the machine: its model, else the range it was written in."""
        return self.group.model or self.group.name


@dataclass(eq=False)
class Design:
    """A cluster as the checks see it."""

    cluster: Cluster
    _places: dict[KeyPath, str] = field(default_factory=dict, repr=False)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The nodes, grouped by node group and by what they are made of, in the file's order."""
        groups = {("nodes", index): group for index, group in enumerate(self.cluster.node_groups)}
        found: dict[tuple[KeyPath, int], list[Node]] = {}
        for node in self.cluster.nodes:
            found.setdefault((node.path, id(node.build)), []).append(node)
        return tuple(
            Kind(groups[path], path, nodes[0].build, tuple(nodes))  # type: ignore[index]
            for (path, _), nodes in found.items()
        )

    @cached_property
    def racks(self) -> dict[str, Rack]:
        """The racks by name, in the file's order."""
        return {rack.name: rack for rack in self.cluster.racks}

    @cached_property
    def switches(self) -> dict[str, SwitchUnit]:
        """The switches by name, in the file's order."""
        return {switch.name: switch for switch in self.cluster.switches}

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """The nodes by name, in the file's order."""
        return {node.name: node for node in self.cluster.nodes}

    @cached_property
    def positions(self) -> Mapping[str, Position]:
        """Where each node and switch stands that stands anywhere; by the file, else as the plan places it."""
        from coldiron.plan.place import positions

        return positions(self)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Every link of the fabrics and networks that have switches."""
        from coldiron.plan.links import links

        return links(self)

    @cached_property
    def cabling(self) -> Cabling:
        """The links with what they are made of: ports, cages, leaves and spines."""
        from coldiron.plan.links import cabling

        return cabling(self)

    @cached_property
    def grid(self) -> Grid:
        """Machines, racks and feeds as their electricity has them; what the checks of power read."""
        from coldiron.plan.grid import Grid

        return Grid(self)

    @cached_property
    def power(self) -> PowerPlan:
        """What circuits, racks and feeds carry."""
        from coldiron.plan.load import power

        return power(self)

    def rack_of(self, thing: Node | SwitchUnit) -> str | None:
        """The rack that a node or a switch stands in, by the plan where the file leaves it open."""
        position = self.positions.get(thing.name)
        if position is not None:
            return position.rack
        return thing.rack if thing.rack != AUTO else None

    def where(self, path: KeyPath) -> str:
        """The place of ``path`` as an editor takes it: ``FILE:LINE``."""
        if path not in self._places:
            self._places[path] = self.cluster.document.where(path)
        return self._places[path]

    def place(self, kind: Kind, *keys: str) -> str:
        """The line to mend of a kind of node: of ``keys`` (as ``"hardware", "u"``), else the nearest around."""
        return self.where((*kind.path, *keys))

    def refuse(self, code: str, path: KeyPath, what: str, advice: str, **more: object) -> Finding:
        """A finding that keeps a run from beginning; ``more`` as ``finding`` takes it."""
        return self.finding(code, Severity.REFUSE, path, what, advice, **more)

    def warn(self, code: str, path: KeyPath, what: str, advice: str, **more: object) -> Finding:
        """A finding that wants a look; ``more`` as ``finding`` takes it."""
        return self.finding(code, Severity.WARN, path, what, advice, **more)

    def advise(self, code: str, path: KeyPath, what: str, advice: str, **more: object) -> Finding:
        """A finding that says what would be better; ``more`` as ``finding`` takes it."""
        return self.finding(code, Severity.ADVICE, path, what, advice, **more)

    def finding(
        self, code: str, severity: Severity, path: KeyPath, what: str, advice: str, **more: object
    ) -> Finding:
        """A finding at ``path``. ``more``: ``hosts`` and ``subject`` as Finding has them; all else are its figures."""
        hosts, subject = str(more.pop("hosts", "")), str(more.pop("subject", ""))
        figures = tuple((name, _figure(value)) for name, value in more.items())
        return Finding(code, severity, self.where(path), what, advice, hosts, subject, figures)

    def unknown(self, thing: str, figure: str, check: str, path: KeyPath) -> Unknown:
        """A figure that ``check`` wanted and nobody gives."""
        return Unknown(thing, figure, check, self.where(path))


def _figure(value: object) -> Figure:
    return value if isinstance(value, (str, int, float)) or value is None else str(value)


def run(design: Design, checks: Iterable[Check]) -> list[Finding]:
    """All findings of ``checks``, the worst first; figures that nobody gives as one advice a thing."""
    found: list[Finding] = []
    unknown: dict[str, list[Unknown]] = {}
    for check in checks:
        for result in check(design):
            if isinstance(result, Unknown):
                unknown.setdefault(result.thing, []).append(result)
            else:
                found.append(result)
    found.extend(_unknown(unknown))
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _unknown(unknown: dict[str, list[Unknown]]) -> Iterator[Finding]:
    for thing, missing in unknown.items():
        figures = list(dict.fromkeys(one.figure for one in missing))
        checks = list(dict.fromkeys(one.check for one in missing))
        yield Finding(
            "CA101",
            Severity.ADVICE,
            missing[0].where,
            f"not known of {thing}: {', '.join(figures)}; not looked at: {', '.join(checks)}",
            "write them under `hardware`, or with their source in a file under `site.catalog`",
            subject=thing,
        )
