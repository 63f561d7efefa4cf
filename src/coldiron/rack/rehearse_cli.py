"""``coldiron rehearse``: the verb."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from coldiron.errors import ColdironError
from coldiron.inventory.findings import shown, shown_path
from coldiron.rack.rehearsal import POOL


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command(
        epilog="Examples:  coldiron rehearse -i inventories/starter  |  coldiron rehearse -i inventories/hgx-h200-256 "
        "--sample 2"
    )(rehearse)


def rehearse(
    inventory: Annotated[
        Path,
        typer.Option("-i", "--inventory", help="The site's inventory, its directory or its cluster.yml."),
    ],
    sample: Annotated[
        int | None,
        typer.Option("--sample", min=1, metavar="N", help="Only the first N nodes of each node group."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the nodes up at the end, also after a failure.")
    ] = False,
    down: Annotated[
        bool, typer.Option("--down", help="Only take away what an earlier rehearsal left.")
    ] = False,
    subnet: Annotated[
        str, typer.Option("--subnet", metavar="CIDR", help="Take the nodes' subnet from this one.")
    ] = str(POOL),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the outcome as JSON, progress on the other channel.")
    ] = False,
) -> None:
    """Run a site's inventory on the virtual rack: bare nodes, all stages, jobs, tests, and a second run.

    The site itself is not contacted. Needs root. Exit code 0: every step did what it must.
    """
    from coldiron.rack.rehearse import Rehearsal, end, told
    from coldiron.rack.report import Report

    report = Report(Console(file=sys.stderr if as_json else sys.stdout))
    # A rehearsal that is told to end takes its rack away, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if down:
        there = end(inventory, report)
        report.say(f"rehearsal of {shown_path(inventory)}: {'taken away' if there else 'there is none'}")
        return
    rehearsal = Rehearsal(inventory, report, most=sample, pool=_pool(subnet))
    outcome = rehearsal.play(keep=keep)
    if as_json:
        print(json.dumps(asdict(outcome), indent=2))
    for line in told(outcome, shown_path(inventory)):
        report.say(line)


def _pool(text: str) -> IPv4Network:
    try:
        return IPv4Network(text)
    except ValueError:
        raise ColdironError(f"--subnet `{shown(text)}` is no IPv4 subnet; write e.g. {POOL}") from None
