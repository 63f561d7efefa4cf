"""``coldiron schema`` and ``coldiron nodes``: what editors and spreadsheets need of a cluster.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_path
from coldiron.text import counted

DEFAULT_INVENTORY = Path("inventories/virtual")

nodes_app = typer.Typer(name="nodes", help="The nodes as a table for a spreadsheet.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the verbs ``schema`` and ``nodes export`` to ``app``."""
    app.command()(schema)
    app.add_typer(nodes_app, name="nodes")


def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it into this file; an old one is replaced.")
    ] = None,
) -> None:
    """Print the JSON schema of cluster.yml, by which an editor completes and checks it while you type."""
    # The models take a while to import: other verbs, and the list of verbs, need not wait for them.
    from coldiron.inventory.json_schema import schema_text

    if output is None:
        typer.echo(schema_text(), nl=False)
        return
    write_file(output, schema_text())
    typer.echo(f"{shown_path(output)}: written")


@nodes_app.callback()
def _nodes() -> None:
    """The nodes as a table for a spreadsheet."""


@nodes_app.command()
def export(
    inventory: Annotated[
        Path, typer.Option("--inventory", "-i", help="Inventory directory, or its cluster.yml.")
    ] = DEFAULT_INVENTORY,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it into this file, which must be new.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put it in place of the file's content.")
    ] = False,
) -> None:
    """Print every node's addresses, MACs, serial and place as CSV.

    Filled in, the file lies beside cluster.yml and is named there: `nodes_csv: nodes.csv`.
    """
    from coldiron.inventory import find, load
    from coldiron.inventory.table import written

    cluster = load(find(inventory))
    text = written(cluster)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_file(output, text, new=not replace)
    typer.echo(f"{shown_path(output)}: {counted(len(cluster.nodes), 'node')} written")


def write_file(path: Path, text: str, *, new: bool = False) -> None:
    """Write ``text`` as UTF-8 into ``path``; with ``new`` a file that is there is refused. Raises ColdironError."""
    try:
        with path.open("x" if new else "w", encoding="utf-8", newline="") as file:
            file.write(text)
    except FileExistsError:
        raise ColdironError(
            f"{shown_path(path)} is there already; name another file, or add --replace", ExitCode.REFUSED
        ) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise ColdironError(f"{shown_path(path)} cannot be written: {why or error}") from None
