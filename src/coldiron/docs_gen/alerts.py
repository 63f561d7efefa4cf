"""The list of all alerts, from the rules that the roles bring and the first sentence of each alert's page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from coldiron.docs_gen.page import Page
from coldiron.docs_gen.tables import cell
from coldiron.errors import ColdironError

FOLDER = Path("docs/runbooks")
SEVERITIES = {
    "page": "Somebody has to act now, at night too.",
    "ticket": "A working day is soon enough.",
    "info": "Good to know, and nobody is called.",
}
_FIRST = re.compile(r"^## What it means\n(.+?[.!?:])(?=\s)", re.MULTILINE | re.DOTALL)

_HEAD = """# Alerts

What Prometheus tells of, by how soon somebody has to act. Each alert has a page: what it means, what to look at, what
to do, and whether it can wait; its annotation `runbook` leads there. Commands stand there without `-i`: add your
inventory. `gpu01` and `head01` stand for your nodes.

- Labels: `severity`; `node`, where it is one node's; `rack`, where `cluster.yml` names racks.
- `inhibits: node` and `inhibits: rack`: while one of these fires, Alertmanager holds the lesser ones of the same node
  or rack back.
- `coldiron_repair: "true"`: where `coldiron webhook` runs, the node is drained and looked at ([Repair](../repair.md)).

The rules lie beside the roles that they belong to (`roles/ROLE/files/*.rules.yml`), and so do yours, in a file of your
own. For each alert `tests/rules/cases` says when it fires and when it stays quiet, by Debian's `promtool`; then each of
its comparisons, thresholds, metrics and waiting times is broken, and the tests must notice.
"""


@dataclass(frozen=True)
class Alert:
    """An alert: its name, its severity, the role that brings it."""

    name: str
    severity: str
    role: str


def alerts(root: Path) -> Iterator[Alert]:
    """Yield the alerts of a checkout's roles, in the order of their files."""
    for path in sorted((root / "roles").glob("*/files/*.rules.yml")):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                if "alert" in rule:
                    yield Alert(rule["alert"], rule["labels"]["severity"], path.parts[-3])


def meaning(root: Path, alert: Alert) -> str:
    """Return the first sentence of an alert's page. An alert without one is a ColdironError."""
    path = root / FOLDER / f"{alert.name}.md"
    found = _FIRST.search(path.read_text(encoding="utf-8")) if path.is_file() else None
    if found is None:
        raise ColdironError(f"{FOLDER / path.name}: has no section 'What it means' with a sentence")
    # Links inside a table's cell would be read as the page's own.
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(found[1].split())).rstrip(":")


def page(root: Path) -> Page:
    """Return the list of all alerts, by severity."""
    found = list(alerts(root))
    text = _HEAD
    for severity, said in SEVERITIES.items():
        rows = [
            f"| [{alert.name}]({alert.name}.md) | {cell(meaning(root, alert))} | {alert.role} |"
            for alert in found
            if alert.severity == severity
        ]
        if rows:
            text += f"\n## {severity}\n\n{said}\n\n| alert | what it means | role |\n|---|---|---|\n"
            text += "\n".join(rows) + "\n"
    return Page("runbooks/index.md", text, "docs/runbooks/index.md")
