"""``coldiron node``: the verbs that add and remove nodes."""

from __future__ import annotations

import typer

app = typer.Typer(help="Add a node to a running cluster, or take one out.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Add a node to a running cluster, or take one out."""
