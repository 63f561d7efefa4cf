"""One measurement in a process of its own, so that its memory is its own: load a cluster.yml and run all checks.

    python benchmarks/plan/measure.py DIRECTORY

Prints JSON: processor seconds of each part, which a busy machine does not change much, the wall clock's of all, the
verdict, and the peak of resident memory.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from coldiron.inventory import build, read
from coldiron.plan.checks import CHECKS
from coldiron.plan.data import verdict
from coldiron.plan.design import Design, run
from coldiron.plan.pause import without_collector

FAMILIES = ("node", "power", "space", "network", "software")

SECONDS: dict[str, float] = {}


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Note under ``name`` how long the block takes the processor."""
    begun = time.process_time()
    yield
    SECONDS[name] = round(time.process_time() - begun, 4)


def main() -> None:
    """Measure, and print."""
    begun_all = time.perf_counter()
    file = Path(sys.argv[1]) / "cluster.yml"
    with timed("read"):
        document = read(file)
    with timed("build"):
        cluster = build(document, file)
    design = Design(cluster)
    # Each is worked out once, by whichever check asks first; here it has a line of its own.
    for part in ("kinds", "positions", "links", "power"):
        with timed(part):
            getattr(design, part)
    findings = []
    slowest = {}
    for family in FAMILIES:
        with timed(f"{family} checks"):
            for check in import_module(f"coldiron.plan.checks.{family}").CHECKS:
                begun = time.process_time()
                findings += run(design, [check])
                slowest[f"{check.__module__.removeprefix('coldiron.plan.')}.{check.__name__}"] = round(
                    time.process_time() - begun, 4
                )
    ours = sum(len(import_module(f"coldiron.plan.checks.{family}").CHECKS) for family in FAMILIES)
    assert ours == len(CHECKS), "a family of checks is not measured"
    print(
        json.dumps(
            {
                "nodes": len(cluster.nodes),
                "racks": len(cluster.racks),
                "switches": len(cluster.switches),
                "links": len(design.links),
                "megabytes": round(file.stat().st_size / 1e6, 2),
                "seconds": SECONDS,
                "total": round(sum(SECONDS.values()), 3),
                "wall": round(time.perf_counter() - begun_all, 3),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "verdict": verdict(findings),
                "slowest": dict(sorted(slowest.items(), key=lambda one: -one[1])[:5]),
            }
        )
    )


if __name__ == "__main__":
    # As `coldiron plan` does.
    with without_collector():
        main()
