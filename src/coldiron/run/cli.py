"""``coldiron apply``, ``status``, ``runs``, ``report`` and ``export-runner``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import load
from coldiron.inventory.findings import shown_path
from coldiron.run.complete import complete_host, complete_run, complete_stage
from coldiron.run.state import CellStatus, Outcome, RunState

if TYPE_CHECKING:
    from coldiron.run.store import Runs

DEFAULT_INVENTORY = Path("inventories/virtual")

InventoryOption = Annotated[
    Path,
    typer.Option(
        "--inventory", "-i", help="Inventory directory, its cluster.yml, or a hand-written hosts.yml."
    ),
]
CheckOption = Annotated[bool, typer.Option("--check", help="Only say what would change.")]
DiffOption = Annotated[bool, typer.Option("--diff", help="Show at the end how files changed.")]
VerboseOption = Annotated[
    int, typer.Option("--verbose", "-v", count=True, help="Ansible's own output; -vv, -vvv: more of it.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's name, its beginning or its end; last, last-1.",
        autocompletion=complete_run,
    ),
]

runs_app = typer.Typer(
    help="Recorded runs: who ran what, when, and what it changed.",
    no_args_is_help=True,
    epilog="Example:  coldiron runs show last --diff -i inventories/hopper",
)


def register(app: typer.Typer) -> None:
    """Add the verbs of this module to the command line."""
    app.command(
        epilog="Examples:  coldiron apply -i inventories/hopper  |  coldiron apply base storage --limit gpu01  |  "
        "coldiron apply --check --diff"
    )(apply)
    app.command(
        epilog="Examples:  coldiron status -i inventories/hopper --json  |  coldiron status --html status.html"
    )(status)
    app.add_typer(runs_app, name="runs")
    app.command(epilog="Examples:  coldiron report last  |  coldiron report DIR -o public")(report)
    app.command(
        "export-runner",
        epilog="Example:  coldiron export-runner ci -i inventories/hopper && ansible-runner run ci -p site.yml",
    )(export_runner)


def apply(
    stages: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STAGE...", help="Stages to run; all when none is named.", autocompletion=complete_stage
        ),
    ] = None,
    inventory: InventoryOption = DEFAULT_INVENTORY,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", "-l", help="Only these nodes or groups.", autocompletion=complete_host),
    ] = None,
    tags: Annotated[list[str] | None, typer.Option("--tags", "-t", help="Only what has these tags.")] = None,
    check: CheckOption = False,
    diff: DiffOption = False,
    fail_on_drift: Annotated[
        bool, typer.Option("--fail-on-drift", help="With --check: end with 1 if something would change.")
    ] = False,
    verbose: VerboseOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Make the cluster what its inventory says. What is right already is left alone."""
    from coldiron.run.catalog import Catalog

    if fail_on_drift and not check:
        raise ColdironError("--fail-on-drift only looks: type it together with --check")
    check_inventory(inventory)
    catalog = Catalog()
    chosen = catalog.chosen(stages or [])
    only = _words(tags)
    catalog.check_tags(only)
    playbooks = catalog.playbooks(chosen)
    run_recorded(
        "apply",
        inventory,
        playbooks,
        text=catalog.one_playbook(chosen) if len(playbooks) > 1 else "",
        limit=_words(limit),
        tags=only,
        check=check,
        diff=diff,
        fail_on_drift=fail_on_drift,
        verbose=verbose,
        as_json=as_json,
    )


def check_inventory(inventory: Path) -> None:
    """Raise ColdironError where there is no inventory, or its cluster.yml cannot be used."""
    from coldiron.run.survey import has_cluster_file
    from coldiron.secrets.cli import inventory_directory

    inventory_directory(inventory)
    if has_cluster_file(inventory):
        load(inventory)


def run_recorded(
    verb: str,
    inventory: Path,
    playbooks: list[str],
    *,
    text: str = "",
    limit: list[str],
    tags: list[str] | None = None,
    extravars: dict[str, Any] | None = None,
    check: bool = False,
    diff: bool = False,
    fail_on_drift: bool = False,
    verbose: int = 0,
    as_json: bool = False,
    announce: bool = False,
    may_be_dead: Collection[str] = (),
    machines: Sequence[str] = (),
) -> RunState:
    """Run playbooks of the collection, recorded and shown; returns how they ended when all went well.

    ``announce`` prints the plain command first. That a host of ``may_be_dead`` is out of reach is no failure.
    Where ``machines`` are installed, they and the steps of a deployment are shown for nodes and stages.
    Raises typer.Exit with the run's exit code otherwise, and ColdironError where it could not begin.
    """
    from coldiron.run import session
    from coldiron.run.catalog import Catalog
    from coldiron.run.engine import Job
    from coldiron.run.watch import Shown
    from coldiron.run.words import change_lines, state_data

    plain = " && ".join(
        Job([playbook], inventory, limit, tags or (), extravars or {}, check, diff).plain()
        for playbook in playbooks
    )
    request = session.Request(
        verb=verb,
        inventory=inventory,
        playbooks=playbooks,
        plays=Catalog().plays(playbooks),
        command=["coldiron", *sys.argv[1:]],
        plain=plain,
        playbook_text=text,
        limit=limit,
        tags=tags or (),
        extravars=extravars or {},
        check=check,
        diff=diff,
        verbosity=verbose,
    )
    console = Console(soft_wrap=False)
    if announce and not as_json:
        typer.echo(plain)
    watcher = session.Watcher()
    if not as_json:
        watcher = Shown(console, request.directory, verbose=bool(verbose), machines=machines)
    state, stored = session.run(request, watcher)
    silent = {host.name for host in state.hosts.values() if host.status is CellStatus.UNREACHABLE}
    forgiven = state.outcome is Outcome.UNREACHABLE and silent <= set(may_be_dead)
    code = ExitCode.OK if forgiven else session.EXIT_CODES[state.outcome]
    if as_json:
        typer.echo(json.dumps(state_data(state)))
    else:
        from coldiron.display import print_end

        if diff:
            for line in change_lines(state.changes, diffs=True):
                typer.echo(line)
        print_end(state, console, log=stored.log, go_on="" if forgiven else session.go_on(state))
        for line in session.left(state):
            typer.echo(line)
    if not code and fail_on_drift and state.changes:
        code = ExitCode.HOSTS_FAILED
    if code:
        raise typer.Exit(int(code))
    return state


def status(
    inventory: InventoryOption = DEFAULT_INVENTORY,
    as_json: JsonOption = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Instead ask the cluster's own Prometheus how nodes, alerts and GPUs are, and write that as a page.",
        ),
    ] = None,
) -> None:
    """How the run that is on stands, or how the newest one ended, host by host.

    With --html: how the cluster is now.
    """
    from coldiron.run.words import host_lines, state_data, status_line

    if html is not None:
        if as_json:
            raise ColdironError("--json and --html say different things; leave one out", ExitCode.USAGE)
        from coldiron.status.write import write_status

        typer.echo(write_status(inventory, html))
        return
    runs = _runs(inventory)
    newest = runs.current()
    if newest is None:
        if as_json:
            typer.echo("null")
        else:
            where = shown_path(inventory)
            typer.echo(f"{where} has no recorded run; `coldiron apply -i {where}` records one")
        return
    state = newest.state()
    if as_json:
        typer.echo(json.dumps(state_data(state)))
        return
    typer.echo(status_line(state, time.time()))
    for line in host_lines(state):
        typer.echo(line)
    typer.echo(f"all of it: coldiron runs show {newest.id} -i {shown_path(inventory)}")


@runs_app.command("list", epilog="Example:  coldiron runs list --most 5")
def runs_list(
    inventory: InventoryOption = DEFAULT_INVENTORY,
    most: Annotated[int, typer.Option("--most", "-n", min=1, help="At most so many, newest first.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """The recorded runs, newest first."""
    from dataclasses import asdict

    from coldiron.run.words import listed

    summaries = _runs(inventory).summaries(most)
    if as_json:
        typer.echo(json.dumps([asdict(summary) for summary in summaries]))
        return
    for line in listed(summaries):
        typer.echo(line)


@runs_app.command("show", epilog="Examples:  coldiron runs show last  |  coldiron runs show last-1 --diff")
def runs_show(
    run: RunArgument = "last",
    inventory: InventoryOption = DEFAULT_INVENTORY,
    diff: Annotated[bool, typer.Option("--diff", help="Show how files changed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """One run: stages, slowest tasks, changes, failures, and how to go on."""
    from coldiron.display import print_end
    from coldiron.run import session, words

    stored = _runs(inventory).open(run)
    state = stored.state()
    if as_json:
        typer.echo(json.dumps(words.state_data(state)))
        return
    parts = [
        words.header_lines(state.header),
        words.stage_lines(state),
        words.host_lines(state),
        words.slowest_lines(state),
        words.change_lines(state.changes, diffs=diff),
        [f"warning: {text}" for text in state.warnings],
    ]
    if state.damaged:
        parts.append(
            [f"{state.damaged} lines of {shown_path(stored.events)} are damaged and were passed over"]
        )
    for lines in parts:
        if lines:
            typer.echo("\n".join(lines) + "\n")
    print_end(state, Console(), log=stored.log, go_on=session.go_on(state))
    for line in session.left(state) if state.finished else []:
        typer.echo(line)


@runs_app.command("replay", epilog="Example:  coldiron runs replay last --speed 20")
def runs_replay(
    run: RunArgument = "last",
    inventory: InventoryOption = DEFAULT_INVENTORY,
    speed: Annotated[
        float, typer.Option("--speed", help="How many times faster than it was.", min=0.1)
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the events as they are.")] = False,
) -> None:
    """Play a recorded run as it was seen."""
    from coldiron.display import make_view, print_end
    from coldiron.run import session
    from coldiron.run.events import read_events
    from coldiron.run.reducer import Reducer

    stored = _runs(inventory).open(run)
    if as_json:
        for event in read_events(stored.events):
            typer.echo(event.line())
        return
    console = Console()
    reducer = Reducer()
    before: float | None = None
    # The run's own clock: its times are those of the day it was recorded.
    with make_view(console, clock=lambda: reducer.state.last_event or time.time()) as view:
        for event in read_events(stored.events):
            if before is not None and console.is_terminal:
                time.sleep(min(5.0, max(0.0, event.time - before) / speed))
            before = event.time
            reducer.feed(event)
            view.update(reducer.state)
    state = stored.state()
    print_end(state, console, log=stored.log, go_on=session.go_on(state))


@runs_app.command("diff", epilog="Example:  coldiron runs diff last-1 last")
def runs_diff(
    one: RunArgument,
    other: RunArgument = "last",
    inventory: InventoryOption = DEFAULT_INVENTORY,
    as_json: JsonOption = False,
) -> None:
    """What differs between two runs: what was asked, how hosts came out, what failed and what changed."""
    from coldiron.run.words import compare, compare_lines

    runs = _runs(inventory)
    found = compare(runs.open(one).state(), runs.open(other).state())
    if as_json:
        typer.echo(json.dumps(found))
        return
    for line in compare_lines(found):
        typer.echo(line)


@runs_app.command("prune", epilog="Example:  coldiron runs prune --keep 10 --days 7")
def runs_prune(
    inventory: InventoryOption = DEFAULT_INVENTORY,
    keep: Annotated[int | None, typer.Option("--keep", min=0, help="Keep so many of the newest.")] = None,
    days: Annotated[int | None, typer.Option("--days", min=0, help="Keep what is younger.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Remove old runs. Each run does that at its end: 100 are kept, and all of the last 30 days."""
    from coldiron.run.store import retention

    standard, standard_days = retention()
    gone = _runs(inventory).prune(
        standard if keep is None else keep, standard_days if days is None else float(days), time.time()
    )
    if as_json:
        typer.echo(json.dumps(gone))
        return
    for name in gone:
        typer.echo(name)
    typer.echo(f"{len(gone)} removed")


def report(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DIR|RUN",
            help="A run's name or directory, or a private data directory of ansible-runner with its artifacts.",
            autocompletion=complete_run,
        ),
    ] = "last",
    inventory: InventoryOption = DEFAULT_INVENTORY,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Directory for the report; else it lies with the run."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run's report: index.html for people, junit.xml for machines."""
    from coldiron.report import write_run_report
    from coldiron.run.artifacts import state_of
    from coldiron.run.words import state_data

    state, place = state_of(source, inventory)
    target = output or place / "report"
    try:
        target.mkdir(parents=True, exist_ok=True)
        files = write_run_report(state, target)
    except OSError as error:
        raise ColdironError(
            f"{shown_path(target)}: the report cannot be written: {error.strerror or error}",
            ExitCode.ENVIRONMENT,
        ) from None
    if as_json:
        typer.echo(json.dumps({"files": [str(file) for file in files], "run": state_data(state)}))
        return
    for file in files:
        typer.echo(shown_path(file))


def export_runner(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory.")],
    inventory: InventoryOption = DEFAULT_INVENTORY,
    limit: Annotated[
        list[str] | None, typer.Option("--limit", "-l", help="Only these nodes or groups.")
    ] = None,
    check: CheckOption = False,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy the inventory in place of a link to it, for another machine.")
    ] = False,
) -> None:
    """Write a private data directory, with which `ansible-runner run DIR -p site.yml` does what apply does."""
    from coldiron.run.export import export

    check_inventory(inventory)
    for line in export(directory, inventory, limit=_words(limit), check=check, copy=copy):
        typer.echo(line)


def _words(given: list[str] | None) -> list[str]:
    """Values that may be given one by one or with commas."""
    return [word for text in given or [] for word in text.split(",") if word]


def _runs(inventory: Path) -> Runs:
    from coldiron.run.store import Runs
    from coldiron.secrets.cli import inventory_directory

    return Runs(inventory_directory(inventory))
