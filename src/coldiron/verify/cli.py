"""``coldiron verify``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from coldiron.errors import ExitCode
from coldiron.inventory.findings import shown_path

DEFAULT = Path("inventories/virtual")


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("verify")(verify)


def verify(
    inventory: Annotated[
        list[Path] | None,
        typer.Option("-i", "--inventory", help=f"Inventory directory or file; default {DEFAULT}."),
    ] = None,
    limit: Annotated[
        str,
        typer.Option(
            "--limit", "-l", metavar="PATTERN", help="Only nodes that this Ansible pattern matches."
        ),
    ] = "",
    role: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE,…", help="Only the tests of these roles.")
    ] = None,
    matching: Annotated[
        str, typer.Option("-k", metavar="TEXT", help="Only tests with this in their name.")
    ] = "",
    active: Annotated[
        bool, typer.Option("--active", help="Also the tests that act: they run jobs and write files.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON, all else on the other channel.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="DIR", help="Where the report goes, instead of beside the inventory."
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            "--processes", min=0, max=8, help="Tests at a time; 0: as many as this machine carries."
        ),
    ] = 0,
) -> None:
    """Test the live cluster with every role's own tests, changing nothing on it.

    Exit code 0: all is as declared; 1: a test failed or a node does not answer.
    """
    # Ansible, pytest and testinfra are loaded by those alone who verify.
    from coldiron.testing.site import load_site
    from coldiron.verify import display, store
    from coldiron.verify.run import Wish, inventory_folder
    from coldiron.verify.run import verify as run

    sources = tuple(path.resolve() for path in inventory or [DEFAULT])
    roles = tuple(name for text in role or [] for name in text.split(",") if name)
    wish = Wish(sources, limit, roles, matching, active, processes)
    site = load_site(sources)
    folder = inventory_folder(sources[0])
    store.writable(output or folder)
    console = Console(stderr=as_json, highlight=False)
    progress = display.make_progress(console)
    try:
        found = run(wish, site, progress, ["coldiron", *sys.argv[1:]])
    finally:
        progress.end()
    page = store.write(found, output) if output else store.keep(found, folder)
    if as_json:
        print(json.dumps(found.as_json(), ensure_ascii=False))
    display.print_end(found, console, shown_path(page))
    if not found.green:
        raise typer.Exit(int(ExitCode.HOSTS_FAILED))
