"""The tables of docs/repair.md, from the state machine and the rules that they describe.

Each stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; NAME is one of ``TABLES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from coldiron.errors import ColdironError
from coldiron.repair import diagnose
from coldiron.repair.machine import ENDS, ROWS, Outcome

PAGE = Path("docs/repair.md")


def states() -> str:
    """What follows what."""
    lines = [
        "| state | what it does | " + " | ".join(f"`{one}`" for one in Outcome) + " |",
        "|---|---|" + "---|" * len(Outcome),
    ]
    for row in ROWS:
        to = " | ".join(f"{row.to[one]}" if one in row.to else "" for one in Outcome)
        lines.append(f"| `{row.state}` | {row.does} | {to} |")
    return "\n".join(lines)


def again() -> str:
    """What is tried again, and where a repair goes on that was cut off."""
    lines = ["| state | attempts | goes on at | why that is safe | left out |", "|---|---|---|---|---|"]
    for row in ROWS:
        skipped = "; ".join(f"{kind}: {why}" for kind, why in row.skipped.items())
        lines.append(f"| `{row.state}` | {row.attempts} | `{row.again}` | {row.why} | {skipped} |")
    return "\n".join(lines)


def ends() -> str:
    """How a repair ends."""
    lines = ["| end | what it means | drained by it |", "|---|---|---|"]
    lines += [f"| `{end.state}` | {end.means} | {'yes' if end.drained else 'no'} |" for end in ENDS.values()]
    return "\n".join(lines)


def rules() -> str:
    """What the evidence means."""
    lines = ["| severity | looked for in | what it means | rule |", "|---|---|---|---|"]
    order = list(diagnose.Severity)
    for rule in sorted(diagnose.load(), key=lambda one: order.index(one.severity)):
        files = ", ".join(rule.files)
        lines.append(f"| {rule.severity} | {files} | {rule.means} | [{rule.id}]({rule.source}) |")
    return "\n".join(lines)


TABLES: Mapping[str, Callable[[], str]] = {"states": states, "again": again, "ends": ends, "rules": rules}


def filled(text: str) -> str:
    """The page's text with its tables in it. A table without its marks is a ColdironError."""
    for name, table in TABLES.items():
        opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, found, rest = text.partition(opening)
        _, closed, after = rest.partition(closing)
        if not (found and closed):
            raise ColdironError(f"{PAGE}: has no place for the table: write {opening} and {closing}")
        text = f"{before}{opening}\n{table()}\n{closing}{after}"
    return text


def stale(root: Path) -> dict[Path, str]:
    """The page as it should be, if it is not; a checkout without the page has nothing to bring up to date."""
    path = root / PAGE
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8")
    current = filled(text)
    return {} if text == current else {PAGE: current}
