"""``coldiron rack``: bring the nodes of an inventory up as containers, and take them away."""

from __future__ import annotations

import typer

app = typer.Typer(help="The virtual rack.", no_args_is_help=True)


@app.callback()
def _rack() -> None:
    """The virtual rack: the nodes of an inventory as containers on this machine."""
