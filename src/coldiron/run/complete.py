"""What the shell may offer after Tab: stages, nodes, runs. A broken inventory offers nothing, and says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from coldiron.inventory import load

Complete = Callable[[typer.Context, str], list[str]]


def _offered(names: Callable[[typer.Context], Iterable[str]]) -> Complete:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        try:
            return [f"{before}{comma}{name}" for name in names(ctx) if name.startswith(last)]
        except Exception:
            # The line that is being typed must survive whatever is wrong; running it will say what.
            return []

    return complete


def _inventory(ctx: typer.Context) -> Path:
    given: Any = ctx.params.get("inventory")
    return Path(given or "inventories/virtual")


def _stages(ctx: typer.Context) -> list[str]:
    from coldiron.run.catalog import Catalog

    used = ctx.params.get("stages") or []
    return [stage for stage in Catalog().stages if stage not in used]


def _hosts(ctx: typer.Context) -> list[str]:
    from coldiron.run.survey import ask, has_cluster_file

    inventory = _inventory(ctx)
    if has_cluster_file(inventory):
        cluster = load(inventory)
        return [*(node.name for node in cluster.expand()), *cluster.groups()]
    seen = ask(inventory)
    return [*seen.everyone, *seen.groups]


def _run_ids(ctx: typer.Context) -> list[str]:
    from coldiron.run.store import LAST, Runs

    inventory = _inventory(ctx)
    return [LAST, *Runs(inventory if inventory.is_dir() else inventory.parent).ids()]


complete_stage = _offered(_stages)
complete_host = _offered(_hosts)
complete_run = _offered(_run_ids)
