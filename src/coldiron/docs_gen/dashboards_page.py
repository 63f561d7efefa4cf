"""The outline of docs/dashboards.md: every panel of every dashboard, from the files that Grafana reads.

It stands between ``<!-- outline -->`` and ``<!-- /outline -->``.
"""

from __future__ import annotations

from pathlib import Path

from coldiron.dashboards.read import Dashboard, dashboards, panels, variables
from coldiron.errors import ColdironError

PAGE = Path("docs/dashboards.md")
FOLDER = Path("roles/grafana/files/dashboards")
OPENING, CLOSING = "<!-- outline -->", "<!-- /outline -->"
KINDS = {"stat": "number", "timeseries": "graph", "table": "table", "bargauge": "bars", "logs": "lines"}
# In the order in which somebody looks at them.
ORDER = ("cluster", "node", "gpu", "slurm", "fabric", "storage", "power", "logs")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _one(dashboard: Dashboard) -> str:
    choices = [one["label"] for one in variables(dashboard) if one["type"] != "datasource"]
    lines = [f"### {dashboard['title']}", "", _cell(dashboard["description"])]
    if choices:
        lines.append(f"To choose: {', '.join(choices)}.")
    lines += ["", "| row | panel | as | what it shows |", "|---|---|---|---|"]
    row = ""
    for panel in panels(dashboard):
        shown = "" if panel.row == row else panel.row
        row = panel.row
        lines.append(f"| {shown} | {_cell(panel.title)} | {KINDS[panel.kind]} | {_cell(panel.about)} |")
    return "\n".join(lines)


def outline(folder: Path) -> str:
    """Every dashboard of a folder: what it is, what can be chosen, and its panels row by row."""
    found = dashboards(folder)
    names = [name for name in ORDER if name in found] + sorted(set(found) - set(ORDER))
    return "\n\n".join(_one(found[name]) for name in names)


def filled(text: str, folder: Path) -> str:
    """The page's text with its outline in it. A page without the marks is a ColdironError."""
    before, found, rest = text.partition(OPENING)
    _, closed, after = rest.partition(CLOSING)
    if not (found and closed):
        raise ColdironError(f"{PAGE}: has no place for the outline: write {OPENING} and {CLOSING}")
    return f"{before}{OPENING}\n{outline(folder)}\n{CLOSING}{after}"


def stale(root: Path) -> dict[Path, str]:
    """The page as it should be, if it is not; a checkout without the page has nothing to bring up to date."""
    path = root / PAGE
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8")
    current = filled(text, root / FOLDER)
    return {} if text == current else {PAGE: current}
