"""``coldiron plan`` and ``coldiron explain``: what is wrong, what would be done, and what a code means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import did_you_mean, shown, shown_path
from coldiron.plan.codes import pages

DEFAULT_INVENTORY = Path("inventories/virtual")


def register(app: typer.Typer) -> None:
    """Add the verbs ``plan`` and ``explain`` to ``app``."""
    app.command()(plan)
    app.command()(explain)


def plan(
    inventory: Annotated[
        Path, typer.Option("--inventory", "-i", help="Inventory directory, or its cluster.yml.")
    ] = DEFAULT_INVENTORY,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", "-l", help="Only these nodes or groups, as Ansible takes them."),
    ] = None,
    vault_password_file: Annotated[
        Path | None, typer.Option("--vault-password-file", help="Where the vault password is.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Say all that is wrong with an inventory, and what a run would do. No node is contacted."""
    # Ansible takes a second to import: other verbs, and the list of verbs, need not wait for it.
    from coldiron.plan.make import make
    from coldiron.plan.show import shown_findings, shown_plan

    made = make(inventory, limit or (), vault_password_file)
    if as_json:
        typer.echo(json.dumps(made.as_data(), indent=2))
        raise typer.Exit(ExitCode.REFUSED if made.refused else ExitCode.OK)
    if made.refused:
        raise ColdironError(shown_findings(made), ExitCode.REFUSED)
    for line in shown_plan(made):
        typer.echo(line)
    typer.echo(f"\nnothing found that speaks against it; to do it: coldiron apply -i {shown_path(inventory)}")


def explain(
    code: Annotated[
        str | None, typer.Argument(help="A code, as CI101; all are listed if none is named.")
    ] = None,
) -> None:
    """Explain the code of a finding: what it means, why it matters, what to type."""
    from coldiron.plan.show import shown_list, shown_page

    known = pages()
    if code is None:
        lines = shown_list(known.values())
    elif (page := known.get(code.strip("[] ").upper())) is not None:
        lines = shown_page(page)
    else:
        raise ColdironError(
            f"there is no code {shown(code)}; {did_you_mean(code, known)}; `coldiron explain` lists them all"
        )
    for line in lines:
        typer.echo(line)
