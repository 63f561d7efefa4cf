"""``coldiron node``: the verbs that add and remove nodes, with those of coldiron.repair that repair them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import find, load
from coldiron.inventory.findings import did_you_mean, shown_path
from coldiron.node import plan
from coldiron.rack.connection import rack_nodes
from coldiron.repair import cli as repair_cli
from coldiron.run.cli import CheckOption, DiffOption, VerboseOption, run_recorded
from coldiron.run.state import CellStatus, RunState

app = typer.Typer(help="Add nodes to a running cluster, take them out, repair them.", no_args_is_help=True)

NodesArgument = Annotated[
    list[str], typer.Argument(metavar="NODE...", help="Nodes or ranges: gpu04, gpu[04-06].")
]
InventoryOption = Annotated[
    Path, typer.Option("--inventory", "-i", help="Inventory directory, or its cluster.yml.")
]
DEFAULT_INVENTORY = Path("inventories/virtual")


@app.callback()
def _root() -> None:
    """Add nodes to a running cluster, take them out, repair them."""


@app.command()
def add(
    nodes: NodesArgument,
    inventory: InventoryOption = DEFAULT_INVENTORY,
    check: CheckOption = False,
    diff: DiffOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Bring nodes that cluster.yml has gained into the running cluster. No other node is disturbed."""
    cluster = load(find(inventory))
    names = plan.named(nodes)
    plan.check_added(cluster, names)
    plan.check_racked(cluster, names, rack_nodes(cluster.directory))
    _run("node add", plan.ADD_PLAYBOOK, inventory, names, names, check=check, diff=diff, verbose=verbose)
    if not check:
        typer.echo(f"{', '.join(names)}: in the cluster {cluster.name}")


@app.command()
def remove(
    nodes: NodesArgument,
    inventory: InventoryOption = DEFAULT_INVENTORY,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    check: CheckOption = False,
    diff: DiffOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Drain nodes, take them out of the cluster, and say which lines of cluster.yml to delete then.

    A node that has left cluster.yml already can be removed by its name as well.
    """
    cluster = load(find(inventory))
    leaving = plan.leaving(cluster, plan.named(nodes))
    known = [node.name for node in cluster.expand()]
    for name in leaving.unknown:
        typer.echo(
            f"{shown_path(cluster.path)} has no node `{name}` (any more); {did_you_mean(name, known)}",
            err=True,
        )
    if not yes and not check:
        _confirm(leaving.names, cluster.name)
    state = _run(
        "node remove",
        plan.REMOVE_PLAYBOOK,
        inventory,
        leaving.names,
        leaving.known,
        check=check,
        diff=diff,
        verbose=verbose,
        may_be_dead=leaving.known,
    )
    if check:
        return
    typer.echo(f"{', '.join(leaving.names)}: gone from the cluster {cluster.name}")
    for host in state.hosts.values():
        if host.status is CellStatus.UNREACHABLE:
            typer.echo(
                f"{host.name} was out of reach: what runs on it was not stopped. Keep it off the network until it is "
                "installed anew."
            )
    if leaving.known:
        typer.echo("What is left to do, by hand, or the next run of the site brings them back:")
        for line in plan.to_delete(cluster, leaving.known):
            typer.echo(f"  {line}")


def _confirm(names: list[str], cluster: str) -> None:
    if not sys.stdin.isatty():
        raise ColdironError("nobody is there to ask; say --yes to remove without asking", ExitCode.REFUSED)
    question = f"Drain {', '.join(names)} and take them out of {cluster}?"
    if not typer.confirm(question, default=False):
        raise ColdironError("nothing was changed", ExitCode.REFUSED)


def _run(
    verb: str,
    playbook: str,
    inventory: Path,
    names: list[str],
    reached: list[str],
    *,
    check: bool,
    diff: bool,
    verbose: int,
    may_be_dead: Sequence[str] = (),
) -> RunState:
    """Run ``playbook`` about ``names``, of which those ``reached`` are hosts. Raises typer.Exit, ColdironError."""
    return run_recorded(
        verb,
        inventory,
        [playbook],
        limit=plan.limit(reached),
        extravars={"coldiron_nodes": names},
        check=check,
        diff=diff,
        verbose=verbose,
        announce=True,
        may_be_dead=may_be_dead,
    )


repair_cli.register(app)
