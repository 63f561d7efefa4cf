"""The benchmark's course: a rack for each size, the ways in turn, a report; the rack is gone in the end."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.converge.report import machine, table
from benchmarks.converge.scratch import ROOT, Failed, Scratch, interrupts_raise
from benchmarks.converge.ways import STOCK, Floor, Measured, Playbook, measure


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="First and second run of site.yml beside plain ssh scripts.")
    parser.add_argument("--workers", default="1,4", help="GPU nodes beside the head, sizes by comma [1,4]")
    parser.add_argument("--repeat", type=int, default=3, help="second runs of each way [3]")
    parser.add_argument("--first", type=int, default=1, help="first runs of each way [1]")
    parser.add_argument("--ways", default="floor,site,stock", help="of floor, site, stock [all]")
    parser.add_argument("--net", default="10.77.107", help="first three bytes of a free /24 [10.77.107]")
    parser.add_argument("--distribution", default="debian-13", help="of the nodes [debian-13]")
    parser.add_argument("--minutes", type=float, default=40, help="no run is begun later than this [40]")
    parser.add_argument("--run-seconds", type=int, default=900, help="the most that one run may take [900]")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    return parser.parse_args()


def say(words: str) -> None:
    """Progress, beside the report."""
    print(words, file=sys.stderr, flush=True)


class LateError(Failed):
    """The time that the whole benchmark may take is over."""


def one_size(
    rack: Scratch,
    workers: int,
    options: argparse.Namespace,
    until: float,
    found: dict[str, Measured],
    differ: list[str],
) -> None:
    """Measure one size into ``found``; where the floor's end state differs from the site's goes into ``differ``."""
    say(f"{workers} workers: the rack, and one untimed run to learn from")
    rack.up(workers)
    site, least = Playbook(rack, ROOT / "ansible.cfg"), Floor(rack)
    least.learn(site)
    every: dict[str, Playbook | Floor] = {"floor": least, "site": site, "stock": Playbook(rack, STOCK)}
    ways = {name: way for name, way in every.items() if name in options.ways.split(",")}

    def after_first(name: str) -> None:
        say(f"{workers} workers: first run by {name} done")
        if name == "floor":
            differ.extend(least.differences())
        if time.monotonic() > until:
            raise LateError(f"{options.minutes:g} minutes are over: what follows is not measured")

    measure(rack, ways, options.first, options.repeat, found, after_first)
    rack.down()


def document(results: dict[int, dict[str, Measured]], differences: dict[int, list[str]]) -> dict[str, Any]:
    """Everything measured, as JSON takes it."""
    sizes = {
        str(workers): {
            "ways": {name: one.plain() for name, one in ways.items()},
            "differences_of_end_states": differences.get(workers, []),
        }
        for workers, ways in results.items()
    }
    return {"machine": machine(), "measured": time.strftime("%Y-%m-%d %H:%M"), "workers": sizes}


def main() -> int:
    """Measure, report; 0 if every size was measured."""
    options = arguments()
    until = time.monotonic() + options.minutes * 60
    results: dict[int, dict[str, Measured]] = {}
    differences: dict[int, list[str]] = {}
    code = 0
    try:
        with interrupts_raise(), Scratch(options.net, options.distribution, options.run_seconds) as rack:
            for workers in (int(size) for size in options.workers.split(",")):
                results[workers], differences[workers] = {}, []
                one_size(rack, workers, options, until, results[workers], differences[workers])
                say(table({workers: results[workers]}))
    except Failed as error:
        say(f"error: {error}")
        code = 1
    except KeyboardInterrupt:
        say("interrupted; the rack is taken away")
        code = 130
    print(f"{machine()}\n\n{table(results)}")
    for workers, lines in differences.items():
        if "floor" not in results[workers] or not results[workers]["floor"].first:
            continue
        print(
            f"\nEnd states at {workers} workers: {'the same' if not lines else f'{len(lines)} differences'}"
        )
        print("\n".join(f"  {line}" for line in lines))
    if options.json:
        options.json.write_text(json.dumps(document(results, differences), indent=2) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
