"""``coldiron node repair``, ``reimage``, ``diagnose`` and ``repairs``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster, find, load
from coldiron.inventory.findings import shown_path
from coldiron.node import plan
from coldiron.repair import keep, target, view
from coldiron.repair.batch import Limits
from coldiron.repair.machine import Consent, Kind, Policy, refusal
from coldiron.repair.run import DRAIN_POLICIES, Options, run_repair
from coldiron.run.cli import VerboseOption
from coldiron.run.engine import shown_command

InventoryOption = Annotated[
    Path, typer.Option("--inventory", "-i", help="Inventory directory, or its cluster.yml.")
]
NodesArgument = Annotated[
    list[str], typer.Argument(metavar="NODE...", help="Nodes or ranges: gpu04, gpu[04-06].")
]
YesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--yes", metavar="SERIAL", help="This disk may be wiped; once a disk. Without it you are asked."
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only say each state, and the disks that would be wiped.")
]
DrainOption = Annotated[
    str,
    typer.Option(
        "--drain",
        help="wait: for running jobs; requeue: queue them again now; deadline: after --drain-seconds.",
    ),
]
DrainSecondsOption = Annotated[
    int, typer.Option("--drain-seconds", min=0, help="How long running jobs are waited for.")
]
ReasonOption = Annotated[
    str, typer.Option("--reason", help="Why; sinfo -R shows it while the node is drained.")
]
DEFAULT_INVENTORY = Path("inventories/virtual")
_DAY = 86400


def register(app: typer.Typer) -> None:
    """Add the verbs to ``coldiron node``."""
    app.command()(repair)
    app.command()(reimage)
    app.command()(diagnose)
    app.command("repairs")(repairs)


def repair(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node: gpu02.")],
    inventory: InventoryOption = DEFAULT_INVENTORY,
    yes: YesOption = None,
    reason: ReasonOption = "",
    drain: DrainOption = "wait",
    drain_seconds: DrainSecondsOption = _DAY,
    stop_when_unclear: Annotated[
        bool,
        typer.Option("--stop-when-unclear", help="End where the evidence says nothing, and wipe nothing."),
    ] = False,
    dry_run: DryRunOption = False,
    status: Annotated[
        bool, typer.Option("--status", help="Only show the node's last repair, step by step.")
    ] = False,
    verbose: VerboseOption = 0,
) -> None:
    """Drain a node, look what is wrong, install it anew, test it, and give it jobs again.

    Where the evidence says hardware it ends there, with the text of a ticket. A repair that was cut off goes on with
    the same command. Other nodes are left alone.
    """
    names = plan.named([node])
    if len(names) != 1:
        raise ColdironError(f"{node} is more than one node; coldiron node reimage takes many")
    if status:
        for line in view.journal_steps(keep.directory(find(inventory)), names[0]):
            typer.echo(line)
        return
    options = Options(yes or (), reason, drain, drain_seconds, stop_when_unclear, verbose=verbose)
    _carry_out(inventory, names, Kind.REPAIR, options, dry_run)


def reimage(
    nodes: NodesArgument,
    inventory: InventoryOption = DEFAULT_INVENTORY,
    yes: YesOption = None,
    reason: ReasonOption = "",
    drain: DrainOption = "wait",
    drain_seconds: DrainSecondsOption = _DAY,
    batch: Annotated[int, typer.Option("--batch", help="So many nodes at once; the first goes alone.")] = 1,
    max_failures: Annotated[
        int, typer.Option("--max-failures", help="Begin no other node once so many have failed.")
    ] = 1,
    dry_run: DryRunOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Install nodes anew, whatever their state: as repair, without looking what is wrong.

    One node goes first, alone; the others follow once it takes jobs again.
    """
    options = Options(
        yes or (), reason, drain, drain_seconds, limits=Limits(batch, max_failures), verbose=verbose
    )
    _carry_out(inventory, plan.named(nodes), Kind.REIMAGE, options, dry_run)


def diagnose(
    nodes: NodesArgument,
    inventory: InventoryOption = DEFAULT_INVENTORY,
    reason: ReasonOption = "",
    verbose: VerboseOption = 0,
) -> None:
    """Drain nodes and look what is wrong with them, and no more: what an alert's webhook may do.

    Their jobs run on. Each node stays drained, with what was found as the reason, until a person repairs it.
    """
    names = plan.named(nodes)
    # Nothing is wiped, so none needs to go first.
    limits = Limits(batch=len(names), canary=False)
    found = run_repair(inventory, names, Kind.WEBHOOK, Options(reason=reason, limits=limits, verbose=verbose))
    _tell(inventory, found)
    if any(one.state not in ("held", "ticket") for one in found):
        raise typer.Exit(int(ExitCode.HOSTS_FAILED))


def repairs(
    inventory: InventoryOption = DEFAULT_INVENTORY,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """The last repair of each node: its state, since when, why, and who began it."""
    found = view.repairs(keep.directory(find(inventory)))
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found]))
        return
    if not found:
        typer.echo(f"no node of {shown_path(find(inventory).parent)} has been repaired")
        return
    for line in view.listed(found):
        typer.echo(line)


def _carry_out(inventory: Path, names: Sequence[str], kind: Kind, options: Options, dry_run: bool) -> None:
    if options.drain not in DRAIN_POLICIES:
        raise ColdironError(
            f"--drain {options.drain}: write {', '.join(DRAIN_POLICIES[:-1])} or {DRAIN_POLICIES[-1]}"
        )
    cluster = load(find(inventory))
    nodes = target.check(cluster, names, kind)
    if dry_run:
        for node in nodes:
            wiped = target.disks_of(node)
            serials = tuple(disk.serial for disk in wiped if disk.serial)
            for line in view.planned(node.name, Policy(kind, serials), wiped):
                typer.echo(line)
        return
    given = list(options.consent)
    for node in nodes:
        given += _asked(cluster, node.name, kind, given)
    found = run_repair(
        inventory,
        names,
        kind,
        Options(
            tuple(dict.fromkeys(given)),
            options.reason,
            options.drain,
            options.drain_seconds,
            options.stop_when_unclear,
            options.limits,
            options.verbose,
        ),
    )
    _tell(inventory, found)
    not_begun = [name for name in names if name not in [one.node for one in found]]
    if not_begun:
        typer.echo(f"not begun: {', '.join(not_begun)}")
    if not_begun or any(one.state != "done" for one in found):
        raise typer.Exit(int(ExitCode.HOSTS_FAILED))


def _tell(inventory: Path, found: Sequence[view.Repair]) -> None:
    where = keep.directory(find(inventory))
    for line in view.ended_lines(found, where, shown_command(["coldiron", *sys.argv[1:]])):
        typer.echo(line)


def _asked(cluster: Cluster, name: str, kind: Kind, given: Sequence[str]) -> list[str]:
    """The serials that a person types for the disks of a node, beyond those ``given``. Raises ColdironError."""
    wiped = target.disks_of(cluster.node(name))
    if not wiped:
        raise ColdironError(
            f"{name} has no disk for the system in {shown_path(cluster.path)}: write its `disks`",
            ExitCode.REFUSED,
        )
    missing = [disk for disk in wiped if disk.serial and disk.serial not in given]
    if missing and not sys.stdin.isatty():
        why = refusal(
            Policy(kind, tuple(disk.serial for disk in wiped if disk.serial), Consent(frozenset(given))), 0
        )
        flags = " ".join(f"--yes {disk.serial}" for disk in missing)
        line = shown_command(["coldiron", *sys.argv[1:]])
        raise ColdironError(f"{name}: {why.partition(';')[0]}; type: {line} {flags}", ExitCode.REFUSED)
    typed = []
    for disk in missing:
        typer.echo(f"{name}: everything on {disk.told()} will be lost.")
        answer = typer.prompt("Type its serial to go on", default="", show_default=False).strip()
        if answer != disk.serial:
            raise ColdironError(
                f"{answer or 'nothing'} is not {disk.serial}: nothing was touched", ExitCode.REFUSED
            )
        typed.append(answer)
    target.serials(name, wiped, [*given, *typed])
    return typed
