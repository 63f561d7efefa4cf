"""How long a plan of 10 to 10,000 nodes takes, and how much memory; and `ansible-inventory --list` of the same.

    python benchmarks/plan/run.py --nodes 10,100,1000,10000 --repeat 3 --json figures.json

Each size is measured in processes of its own, the fastest of the repeats counts, and the peak of memory is the worst.
Told is also how much longer a node takes at the largest size than at the one before: 1 is linear. Nothing is asserted
here. `--keep DIR` keeps the inventories.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from site_of import cluster_yml

HERE = Path(__file__).parent


def measured(directory: Path, repeat: int) -> dict[str, Any]:
    """The fastest plan of ``repeat``."""
    found = []
    for _ in range(repeat):
        done = subprocess.run(
            [sys.executable, str(HERE / "measure.py"), str(directory)],
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(json.loads(done.stdout))
    best: dict[str, Any] = min(found, key=lambda one: one["total"])
    best["peak_mb"] = max(one["peak_mb"] for one in found)
    return best


def listed(directory: Path, repeat: int) -> dict[str, Any]:
    """Seconds, memory and output of `ansible-inventory --list`."""
    command = [
        str(Path(sys.executable).parent / "ansible-inventory"),
        "-i",
        str(directory / "cluster.yml"),
        "--list",
    ]
    seconds, clock, peaks = [], [], []
    out = directory / "list.json"
    for _ in range(repeat):
        begun = time.perf_counter()
        with out.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, env=os.environ | {"ANSIBLE_NOCOLOR": "1"})
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        clock.append(time.perf_counter() - begun)
        seconds.append(usage.ru_utime + usage.ru_stime)
        peaks.append(usage.ru_maxrss // 1024)
    size = out.stat().st_size
    out.unlink()
    return {
        "seconds": round(min(seconds), 3),
        "wall": round(min(clock), 3),
        "peak_mb": max(peaks),
        "megabytes": round(size / 1e6, 2),
    }


def shown(figures: list[dict[str, Any]]) -> Table:
    """The figures as a table: a size each column."""
    table = Table(title="Load and check a site: processor seconds")
    table.add_column("")
    for one in figures:
        table.add_column(f"{one['asked']:,} nodes", justify="right")
    for name in ("racks", "switches", "links"):
        table.add_row(name, *(f"{one[name]:,}" for one in figures))
    table.add_row("cluster.yml, MB", *(f"{one['megabytes']:.2f}" for one in figures), end_section=True)
    for name in figures[0]["seconds"]:
        table.add_row(name, *(f"{one['seconds'][name]:.3f}" for one in figures))
    table.add_row("load and all checks", *(f"{one['total']:.3f}" for one in figures))
    table.add_row("by the clock", *(f"{one['wall']:.3f}" for one in figures), end_section=True)
    table.add_row("peak memory, MB", *(f"{one['peak_mb']:,}" for one in figures), end_section=True)
    table.add_row("ansible-inventory --list", *(f"{one['list']['seconds']:.2f}" for one in figures))
    table.add_row("by the clock", *(f"{one['list']['wall']:.2f}" for one in figures))
    table.add_row("its peak memory, MB", *(f"{one['list']['peak_mb']:,}" for one in figures))
    return table


def main() -> None:
    """Measure all sizes; print a table, write JSON."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--nodes", default="10,100,1000,10000")
    words.add_argument("--repeat", type=int, default=3)
    words.add_argument("--json", type=Path)
    words.add_argument("--keep", type=Path)
    given = words.parse_args()
    figures = []
    with tempfile.TemporaryDirectory() as scratch:
        for nodes in map(int, given.nodes.split(",")):
            directory = (given.keep or Path(scratch)) / f"nodes-{nodes}"
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "cluster.yml").write_text(cluster_yml(nodes))
            figures.append(
                {"asked": nodes, **measured(directory, given.repeat), "list": listed(directory, given.repeat)}
            )
    console = Console(width=110)
    console.print(shown(figures))
    if len(figures) > 1:
        a_node = [one["total"] / one["nodes"] for one in figures]
        console.print(
            f"a node at {figures[-1]['asked']:,} nodes takes {a_node[-1] / a_node[-2]:.2f} times what it takes "
            f"at {figures[-2]['asked']:,}"
        )
    for name, seconds in figures[-1]["slowest"].items():
        console.print(f"  {seconds:8.3f} s  {name}")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
