"""What a dashboard's file says: its choices, its panels, and what each asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Dashboard = Mapping[str, Any]
# The name of a label in a legend: {{rack}}.
IN_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
VALUE = re.compile(r"Value(?: #(\w+))?")


@dataclass(frozen=True)
class Panel:
    """A panel. ``columns`` are the labels and values that a table shows; ``may_be_empty`` is what it says if it is."""

    id: int
    row: str
    title: str
    kind: str
    about: str
    unit: str
    may_be_empty: str
    columns: tuple[str, ...]
    targets: tuple[Mapping[str, Any], ...]

    @property
    def of_logs(self) -> bool:
        """Whether Elasticsearch is asked, and not Prometheus."""
        return any((target.get("datasource") or {}).get("type") == "elasticsearch" for target in self.targets)


def dashboards(folder: Path) -> dict[str, Dashboard]:
    """The dashboards of a folder by the names of their files, without the ending."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def panels(dashboard: Dashboard) -> Iterator[Panel]:
    """The panels of a dashboard, row by row."""
    row = ""
    for one in dashboard["panels"]:
        if one["type"] == "row":
            row = one["title"]
            continue
        defaults = (one.get("fieldConfig") or {}).get("defaults") or {}
        # The builders' default for a panel without columns is no list at all.
        wanted = [
            step["options"]["include"]["names"]
            for step in one.get("transformations") or []
            if step["id"] == "filterFieldsByName"
        ]
        yield Panel(
            id=one["id"],
            row=row,
            title=one["title"],
            kind=one["type"],
            about=one.get("description") or "",
            unit=defaults.get("unit") or "",
            may_be_empty=defaults.get("noValue") or "",
            columns=tuple(name for names in wanted for name in names),
            targets=tuple(one["targets"]),
        )


def variables(dashboard: Dashboard) -> list[Mapping[str, Any]]:
    """The dashboard's choices, in their order: a later one may ask with an earlier one's value."""
    return list((dashboard.get("templating") or {}).get("list") or [])


def labels_shown(panel: Panel, target: Mapping[str, Any]) -> set[str]:
    """Labels that the panel shows of a target's answers: in the legend, or as a table's columns."""
    if panel.columns:
        return {name for name in panel.columns if not VALUE.fullmatch(name)}
    return set(IN_LEGEND.findall(target.get("legendFormat") or ""))


def lost_columns(panel: Panel) -> list[str]:
    """Columns of values that no target answers: Grafana numbers them where there are several targets."""
    refs = [target["refId"] for target in panel.targets]
    there = {"Value"} if len(refs) == 1 else {f"Value #{ref}" for ref in refs}
    return [name for name in panel.columns if VALUE.fullmatch(name) and name not in there]
