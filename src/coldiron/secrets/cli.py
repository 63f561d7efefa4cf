"""``coldiron secrets``: the verbs over the vault file beside the inventory."""

from __future__ import annotations

import typer

app = typer.Typer(help="Make and edit the cluster's secrets.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Make and edit the cluster's secrets."""
