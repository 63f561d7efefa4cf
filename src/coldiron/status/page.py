"""The page that `coldiron status --html` writes: one file, for sites and moments without Grafana."""

from __future__ import annotations

from collections.abc import Iterable

from coldiron.report.page import folded, render
from coldiron.status.overview import Alert, Node, Overview
from coldiron.text import counted, duration

_GIB = 1024**3
_DAY = 86400
# From here on a share is told as one to look at, and as one that is nearly all.
MUCH, NEARLY_ALL = 0.85, 0.95


def headline(overview: Overview) -> str:
    """How many nodes are up and how many alerts fire, in some words."""
    up, firing = sum(node.up is True for node in overview.nodes), len(_firing(overview))
    return f"{up} of {counted(len(overview.nodes), 'node')} up, " + (
        f"{counted(firing, 'alert')} firing" if firing else "no alert"
    )


def _dark(overview: Overview) -> list[str]:
    return [node.name for node in overview.nodes if node.up is False]


def _unwatched(overview: Overview) -> list[str]:
    return [node.name for node in overview.nodes if node.up is None]


def _firing(overview: Overview) -> list[Alert]:
    return [alert for alert in overview.alerts if alert.state == "firing" and not alert.quiet]


def overview_page(overview: Overview, source: str) -> str:
    """Return the page. ``source`` says which server was asked."""
    nodes = overview.nodes
    dark, unwatched = _dark(overview), _unwatched(overview)
    racks: dict[str, list[Node]] = {}
    for node in nodes:
        racks.setdefault(node.rack, []).append(node)
    return render(
        "status.html.j2",
        title=f"{overview.cluster}: {headline(overview)}",
        overview=overview,
        sentence=headline(overview),
        lede=_lede(overview, dark, unwatched),
        wrong=bool(dark) or any(alert.grave for alert in overview.alerts),
        source=source,
        counts=[
            ("ok", len(nodes) - len(dark) - len(unwatched)),
            ("failed", len(dark)),
            ("waiting", len(unwatched)),
        ],
        racks=racks if any(racks) else {},
        gpus=[gpu for gpu in overview.gpus if not gpu.mig],
        instances=[gpu for gpu in overview.gpus if gpu.mig],
        by_rack=[
            (
                name or "no rack",
                len(group),
                _sum(node.watts for node in group),
                _sum(_gpu_watts(node) for node in group),
            )
            for name, group in sorted(racks.items())
        ],
        share=share,
        look=look,
        age=age,
        gib=lambda value: "" if value is None else f"{value / _GIB:.0f}",
        whole=lambda value: "" if value is None else f"{value:.0f}",
    )


def share(value: float | None) -> str:
    """A ratio in percent; nothing where nobody measures it."""
    return "" if value is None else f"{100 * value:.0f} %"


def look(value: float | None) -> str:
    """The class of a share's cell."""
    if value is None or value < MUCH:
        return ""
    return "bad" if value >= NEARLY_ALL else "changed"


def age(seconds: float) -> str:
    """How long ago, as a person says it: from two days on in days."""
    return duration(seconds) if seconds < 2 * _DAY else f"{seconds / _DAY:.0f} d"


def _lede(overview: Overview, dark: list[str], unwatched: list[str]) -> str:
    words = []
    if dark:
        words.append(f"Not up: {folded(dark)}.")
    if unwatched:
        words.append(f"Not watched: {folded(unwatched)}.")
    if overview.jobs:
        words.append(
            f"{counted(overview.jobs.get('running', 0), 'job')} running, {overview.jobs.get('pending', 0)} waiting."
        )
    whole = [gpu for gpu in overview.gpus if not gpu.mig and gpu.utilization is not None]
    if whole:
        busy = sum(gpu.utilization or 0 for gpu in whole) / len(whole)
        words.append(f"{counted(len(whole), 'GPU')}, busy by {busy:.0f} % on the whole.")
    if not overview.alive:
        words.append(
            "The alert that always fires does not: alerts are not being worked out, or their rules are away."
        )
    return " ".join(words) or "All nodes answer."


def _gpu_watts(node: Node) -> float | None:
    return _sum(gpu.power for gpu in node.gpus if not gpu.mig)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
