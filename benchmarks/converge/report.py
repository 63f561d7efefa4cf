"""The figures as JSON and as a Markdown table."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.converge.ways import Measured, Run

WORDS = {
    "floor": "plain ssh and shell (the floor)",
    "site": "site.yml as shipped",
    "stock": "site.yml, stock settings",
}


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    memory = Path("/proc/meminfo").read_text(encoding="utf-8").split("MemTotal:")[1].split()[0]
    return {
        "processors": os.cpu_count(),
        "memory_gib": round(int(memory) / 1048576),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "ansible_core": version("ansible-core"),
    }


def middle(runs: list[Run], what: str) -> float | None:
    """The median of one figure; None where nothing was measured."""
    return median(float(getattr(run, what)) for run in runs) if runs else None


def cells(measured: Measured, least: Measured, nodes: int) -> list[str]:
    """One row's figures: for the first and the second run clock, processors, both against the floor, and the share."""
    row = []
    for runs, floor_runs in ((measured.first, least.first), (measured.again, least.again)):
        for what in ("wall", "all_cpu"):
            took, floor_took = middle(runs, what), middle(floor_runs, what)
            ratio = f" ({took / floor_took:.1f}x)" if took is not None and floor_took else ""
            row.append("-" if took is None else f"{took:.1f}{ratio}")
        here = middle(runs, "cpu")
        row.append("-" if here is None else f"{here / nodes:.2f}")
    return row


def table(results: Mapping[int, Mapping[str, Measured]]) -> str:
    """Markdown: a row for each size and way."""
    half = "run, s by the clock | s of all processors | controller's s a node"
    lines = [f"| workers | way | first {half} | second {half} |", "|---|---|---|---|---|---|---|---|"]
    for workers, ways in results.items():
        for name, measured in ways.items():
            row = [str(workers), WORDS[name], *cells(measured, ways.get("floor", Measured()), workers + 1)]
            lines.append(f"| {' | '.join(row)} |")
    loads = [run.load for ways in results.values() for one in ways.values() for run in one.first + one.again]
    if loads:
        lines += ["", f"Load average before the runs: {min(loads):.1f} to {max(loads):.1f}."]
    return "\n".join(lines)
