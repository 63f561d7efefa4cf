"""A whole plan as plain data: its findings, its verdict, what the site comes to in figures, and what a run would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coldiron.inventory import Cluster
from coldiron.inventory.findings import shown_path
from coldiron.plan.design import Design
from coldiron.plan.findings import ORDER, Finding, Severity
from coldiron.plan.links import link_data
from coldiron.plan.load import power_data
from coldiron.plan.steps import Step
from coldiron.text import counted


@dataclass
class Plan:
    """``hosts`` are the nodes within the limit. ``complete``: everything could be looked at.

    ``strict`` lets warnings refuse too. ``design`` is there once cluster.yml is sound.
    """

    inventory: Path
    cluster: Cluster | None = None
    hosts: tuple[str, ...] = ()
    limit: tuple[str, ...] = ()
    steps: list[Step] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    complete: bool = True
    strict: bool = False
    design: Design | None = None

    @property
    def refused(self) -> bool:
        """Whether a run must not begin."""
        return refused(self.findings, strict=self.strict)

    @property
    def verdict(self) -> str:
        """The plan on one line: whether a run may begin, and how much there is to read."""
        return verdict(self.findings, strict=self.strict)

    def of(self, severity: Severity) -> list[Finding]:
        """The findings of one severity, in their order."""
        return [finding for finding in self.findings if finding.severity is severity]

    def as_data(self) -> dict[str, Any]:
        """The plan as JSON types."""
        return {
            "inventory": shown_path(self.inventory),
            "cluster": self.cluster.name if self.cluster else None,
            "limit": list(self.limit),
            "nodes": list(self.hosts),
            "verdict": self.verdict,
            "refused": self.refused,
            "strict": self.strict,
            "complete": self.complete,
            "counts": {str(severity): len(self.of(severity)) for severity in ORDER},
            "findings": [finding.as_data() for finding in self.findings],
            "site": site_data(self.design) if self.design else None,
            "design": design_data(self.design) if self.design else None,
            "steps": [{"stage": s.stage, "role": s.role, "nodes": list(s.hosts)} for s in self.steps],
        }


def refused(findings: Iterable[Finding], *, strict: bool = False) -> bool:
    """Whether ``findings`` keep a run from beginning; ``strict`` lets warnings do so too."""
    against = {Severity.REFUSE, Severity.WARN} if strict else {Severity.REFUSE}
    return any(finding.severity in against for finding in findings)


def verdict(findings: Iterable[Finding], *, strict: bool = False) -> str:
    """``refused: 3 to mend, 2 warnings, 1 advice``, or ``sound: …``."""
    found = list(findings)
    number = Counter(finding.severity for finding in found)
    parts = [f"{number[Severity.REFUSE]} to mend"] if number[Severity.REFUSE] else []
    if number[Severity.WARN]:
        parts.append(counted(number[Severity.WARN], "warning"))
    if number[Severity.ADVICE]:
        parts.append(f"{number[Severity.ADVICE]} advice")
    if refused(found, strict=strict):
        said = ", ".join(parts)
        return f"refused: {said}" if number[Severity.REFUSE] else f"refused by --strict: {said}"
    return f"sound: nothing to mend{''.join(', ' + part for part in parts)}"


def site_data(design: Design) -> dict[str, Any]:
    """The site in figures: how much there is of each thing, and what it draws. None is unknown, or not there.

    ``draw_kw`` is the most at the wall of those whose figure is known, ``without_draw`` how many have none. ``feeds``
    and ``caps_watts`` are the plan's, ``energy_kwh`` and ``cost`` a year's.
    """
    power = design.power
    gpus: Counter[str] = Counter()
    for kind in design.kinds:
        hardware = kind.build.hardware
        if hardware.gpus:
            name = (
                kind.build.gpu.name if kind.build.gpu else hardware.gpus.model or hardware.gpus.type or "GPU"
            )
            gpus[name] += hardware.gpus.count * len(kind.nodes)
    machines = len(design.nodes) + len(design.switches)
    drawn = {**power.nodes, **power.switches}
    return {
        "nodes": dict(Counter(node.kind for node in design.nodes.values())),
        "gpus": dict(gpus),
        "racks": len(design.racks),
        "switches": len(design.switches),
        "links": dict(Counter(link.network for link in design.links)),
        "draw_kw": round(sum(drawn.values()) / 1000, 3) if drawn else None,
        "without_draw": machines - len(drawn),
        "breakers_over": sum(
            1 for one in power.circuits if max(one.watts, one.failover_watts) > one.limit_watts + 1e-6
        ),
        "breakers": len(power.circuits),
        "feeds": [asdict(feed) for feed in power.feeds],
        "caps_watts": dict(power.caps),
        "heat_kw": round(sum(power.heat_kw.values()), 3) or None,
        "energy_kwh": power.energy_kwh,
        "cost": power.cost,
        "currency": design.cluster.site.currency,
    }


def design_data(design: Design) -> dict[str, Any]:
    """What the plan worked out, thing by thing: positions, links, and what each breaker carries."""
    links = link_data(design, every=True)
    return {
        "positions": [asdict(position) for position in design.positions.values()],
        "links": links.pop("list"),
        "cabling": links,
        "circuits": [asdict(circuit) for circuit in design.power.circuits],
        "power": power_data(design),
        "node_watts": dict(design.power.nodes),
        "switch_watts": dict(design.power.switches),
        "heat_kw": dict(design.power.heat_kw),
    }
