"""``coldiron rack``: bring the nodes of an inventory up as containers, and take them away."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_path
from coldiron.inventory.ranges import RangeError, expand
from coldiron.rack import requirements as needed
from coldiron.rack.build import Builder, Wishes
from coldiron.rack.faults import fault as node_fault
from coldiron.rack.gpu.faults import fault as gpu_fault
from coldiron.rack.host import Host
from coldiron.rack.imaged import Images
from coldiron.rack.layout import Layout, Machine
from coldiron.rack.metal import verbs
from coldiron.rack.metal.client import REDFISH_RESET
from coldiron.rack.preserve import forget, take
from coldiron.rack.preserve import reset as reset_nodes
from coldiron.rack.rack import Rack
from coldiron.rack.remote import log_in, run_everywhere
from coldiron.rack.report import Report
from coldiron.rack.snapshot import find as find_snapshot
from coldiron.rack.snapshot import listing
from coldiron.rack.spec import from_cluster, inventory_directory
from coldiron.rack.state import RackState, Registry
from coldiron.rack.teardown import down as take_down

_COMMAND = "coldiron.rack.command"


class _WithCommand(TyperCommand):
    """A verb whose words after ``--`` are a command for nodes: they are nobody's options here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta[_COMMAND] = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(ctx, args)


app = typer.Typer(
    help="The virtual rack: the nodes of an inventory as containers on this machine.", no_args_is_help=True
)

Inventory = Annotated[
    Path, typer.Option("-i", "--inventory", help="The inventory's directory, or its cluster.yml.")
]
Nodes = Annotated[
    list[str] | None, typer.Argument(help="Nodes, also as ranges (gpu[01-03]); all if none is named.")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the outcome as JSON, progress on the other channel.")
]
DEFAULT = Path("inventories/virtual")


def _names(nodes: Sequence[str] | None) -> list[str]:
    """Node names with ranges written out, each once."""
    names: dict[str, None] = {}
    for text in nodes or ():
        try:
            names.update(dict.fromkeys(expand(text)))
        except RangeError as error:
            raise ColdironError(str(error)) from None
    return list(names)


def _rack(inventory: Path, as_json: bool = False) -> Rack:
    """The rack of an inventory, called as its state says if it is up, else as its cluster.yml says."""
    directory = inventory_directory(inventory)
    state = RackState.load(Layout("", directory).state)
    if state is None:
        name = next((rack for rack, owner in _registered().items() if owner == str(directory)), None)
    else:
        name = state.name
    return _open(name or from_cluster(directory).name, directory, as_json)


def _open(name: str, directory: Path, as_json: bool = False) -> Rack:
    """The rack called ``name``; with JSON on one channel, progress goes to the other."""
    console = Console(file=sys.stderr if as_json else sys.stdout)
    return Rack(Layout(name, directory), report=Report(console))


def _elapsed(since: float) -> float:
    """Seconds since ``time.monotonic()`` said ``since``, to a tenth."""
    return round(time.monotonic() - since, 1)


def _registered() -> dict[str, str]:
    """The racks of this machine, by name with their inventories."""
    return Registry.load(Machine().registry).racks


def _print(data: Any) -> None:
    print(json.dumps(data, indent=2))


@app.command()
def up(
    nodes: Nodes = None,
    inventory: Inventory = DEFAULT,
    prune: Annotated[bool, typer.Option("--prune", help="Remove nodes that have left cluster.yml.")] = False,
    rebuild_base: Annotated[bool, typer.Option("--rebuild-base", help="Bake the base image anew.")] = False,
    from_snapshot: Annotated[
        str, typer.Option("--from-snapshot", help="Nodes that are new start as they were in this snapshot.")
    ] = "",
    or_bare: Annotated[
        bool, typer.Option("--or-bare", help="Without that snapshot they start from the base image.")
    ] = False,
    image: Annotated[
        bool,
        typer.Option(
            "--image", help="Nodes that are new start from their class's baked image, where it has one."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring up what is missing of the rack; what runs is left alone."""
    since = time.monotonic()
    if image and from_snapshot:
        raise ColdironError(
            "--image and --from-snapshot: a node starts from one of them; leave the other out"
        )
    spec = from_cluster(inventory)
    rack = _rack(inventory, as_json)
    frozen = None
    if from_snapshot:
        try:
            frozen = find_snapshot(rack.layout, from_snapshot)
        except ColdironError:
            if not or_bare:
                raise
    with rack.report:
        images = _images(spec.directory) if image else None
        state = Builder(rack, spec, Wishes(_names(nodes), prune, rebuild_base, frozen, images)).up()
    if as_json:
        _print(
            {
                "rack": state.name,
                "up": True,
                "seconds": _elapsed(since),
                "nodes": list(state.nodes),
                "machines": list(state.machines),
            }
        )
    else:
        rack.report.say(
            f"rack {state.name}: {_counted(state)}, simulated on this machine ({_elapsed(since)} s)"
        )


def _images(directory: Path) -> Images:
    """The images of an inventory. Raises ColdironError where none is baked."""
    from coldiron.provision.bake_inputs import site_key
    from coldiron.provision.images import public_key
    from coldiron.provision.store import DEPLOY, STORE_DIRECTORY, Store

    store = Store(directory / STORE_DIRECTORY)
    if not any(one.node_class != DEPLOY for one in store.images()):
        raise ColdironError(
            f"{shown_path(directory)} has no image; type: coldiron image bake CLASS -i {shown_path(directory)}, with "
            "CLASS as cpu-debian-13"
        )
    return Images(store, public_key(site_key(directory)))


def _counted(state: RackState) -> str:
    nodes = f"{len(state.nodes)} nodes up"
    if not state.machines:
        return nodes
    return (
        f"{nodes}, {len(state.machines)} machines with their BMCs (`coldiron rack status` shows their power)"
    )


@app.command()
def down(
    nodes: Nodes = None,
    inventory: Inventory = DEFAULT,
    name: Annotated[
        str, typer.Option("--name", help="The rack of this name, whosever inventory made it.")
    ] = "",
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove base images, kept snapshots, packages too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Take the rack away, or only the nodes named. Nothing of it is left on this machine."""
    since = time.monotonic()
    if name:
        owner = _registered().get(name)
        if owner is None:
            raise ColdironError(f"no rack called {name} is up on this machine")
        rack = _open(name, Path(owner), as_json)
    else:
        rack = _rack(inventory, as_json)
    with rack.report:
        was_there = take_down(rack, _names(nodes))
        if purge:
            rack.keeper.purge()
    if as_json:
        _print({"rack": rack.layout.name, "was_up": was_there, "seconds": _elapsed(since)})
    elif was_there:
        what = ", ".join(_names(nodes)) or f"rack {rack.layout.name}"
        rack.report.say(f"{what}: taken away ({_elapsed(since)} s)")
    else:
        rack.report.say(f"rack {rack.layout.name}: was not up")


@app.command()
def reset(
    nodes: Nodes = None,
    inventory: Inventory = DEFAULT,
    to: Annotated[
        str, typer.Option("--to", help="Back to this snapshot; to the base image if none is named.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Throw away what the nodes have written, all of them if none is named, and boot them afresh."""
    since = time.monotonic()
    rack = _rack(inventory, as_json)
    names = _names(nodes)
    with rack.report:
        state = reset_nodes(rack, names, to)
    chosen = names or list(state.nodes)
    if as_json:
        _print({"rack": state.name, "to": to or None, "seconds": _elapsed(since), "nodes": chosen})
    else:
        rack.report.say(f"{len(chosen)} nodes reset to {to or 'their base image'} ({_elapsed(since)} s)")


@app.command()
def snapshot(
    name: Annotated[
        str | None, typer.Argument(help="The snapshot's name; lists snapshots if none is given.")
    ] = None,
    nodes: Nodes = None,
    inventory: Inventory = DEFAULT,
    keep: Annotated[
        bool, typer.Option("--keep", help="It outlives the rack: `up --from-snapshot` takes it.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="In place of one of that name.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the snapshot of that name.")] = False,
    as_json: Json = False,
) -> None:
    """Freeze the nodes as they are, all of them if none is named; each is shut down and booted again."""
    since = time.monotonic()
    rack = _rack(inventory, as_json)
    if name is None:
        _list_snapshots(rack, as_json)
        return
    with rack.report:
        if remove:
            forget(rack, name)
            rack.report.say(f"snapshot {name}: removed")
            return
        taken = take(rack, name, _names(nodes), keep=keep, replace=replace)
    if as_json:
        _print(
            {
                "rack": taken.rack,
                "snapshot": name,
                "kept": keep,
                "seconds": _elapsed(since),
                "nodes": list(taken.nodes),
            }
        )
    else:
        rack.report.say(f"snapshot {name} of {len(taken.nodes)} nodes taken ({_elapsed(since)} s)")


def _list_snapshots(rack: Rack, as_json: bool) -> None:
    """Show the rack's snapshots and the kept ones."""
    found = [
        {
            "name": one.name,
            "kept": store == rack.machine.kept,
            "nodes": list(one.nodes),
            "created": one.created,
        }
        for store in (rack.layout.snapshots, rack.machine.kept)
        for one in listing(store)
    ]
    if as_json:
        _print(found)
        return
    for one in found:
        kept = " (kept)" if one["kept"] else ""
        print(f"{one['name']}{kept}: {', '.join(one['nodes'])}")  # type: ignore[arg-type]


@app.command()
def purge() -> None:
    """Remove what outlives racks on purpose: base images, kept snapshots, the package cache."""
    rack = _open("", Path("/"))
    rack.keeper.purge()
    rack.keeper.leave()


@app.command()
def status(inventory: Inventory = DEFAULT, as_json: Json = False) -> None:
    """Show what stands. The exit code is 0 if every node is up, else 1."""
    rack = _rack(inventory, as_json)
    found = rack.status()
    if as_json:
        _print(found)
    else:
        _show(found, rack.report.console)
    if not found["up"]:
        raise typer.Exit(int(ExitCode.HOSTS_FAILED))


def _show(found: dict[str, Any], console: Console) -> None:
    if not found["nodes"] and not found["machines"]:
        console.print(f"rack {found['rack']} ({found['inventory']}): down", highlight=False, soft_wrap=True)
        return
    table = Table(title=f"rack {found['rack']}, simulated on this machine", title_justify="left", box=None)
    for column in ("node", "state", "address", "kind", "GPUs (simulated)", "from"):
        table.add_column(column)
    for node in found["nodes"]:
        gpus = f"{node['gpu_count']} x {node['gpu_type']}" if node["gpu_count"] else "-"
        origin = f"snapshot {node['snapshot']}" if node["snapshot"] else node["base"]
        table.add_row(node["name"], node["state"], node["address"], node["kind"], gpus, origin)
    console.print(table)
    _show_machines(found["machines"], console)
    console.print(f"/home: {found['home']}", highlight=False, soft_wrap=True)
    console.print(
        f"network {found['subnet']}, MTU {found['mtu']}; packages from {found['apt_mirror']} through "
        f"{found['apt_proxy']} ({found['package_cache']})",
        highlight=False,
        soft_wrap=True,
    )


def _show_machines(machines: list[dict[str, Any]], console: Console) -> None:
    if not machines:
        return
    table = Table(title="machines", title_justify="left", box=None)
    for column in ("node", "power", "address", "firmware", "disks", "BMC", "faults"):
        table.add_column(column, overflow="fold")
    for one in machines:
        bmc = one["bmc"] if one["bmc_state"] == "running" else f"{one['bmc']} (stopped)"
        firmware = f"{one['firmware']} {one['boot']}"
        faults = ", ".join(name.partition(":")[0] for name in one["faults"]) or "-"
        disks = str(len(one["disks"]))
        table.add_row(one["name"], one["state"], one["address"], firmware, disks, bmc, faults)
    console.print(table)


@app.command(cls=_WithCommand)
def ssh(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="The node.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[--] [COMMAND]...", help="A login if there is none.")
    ] = None,
    inventory: Inventory = DEFAULT,
) -> None:
    """Log in to a node as root, or run one command there; its words are joined as ssh joins them."""
    rack = _rack(inventory)
    state = rack.standing()
    log_in(state, rack.reachable(state, [node])[0], [*(words or []), *context.meta.get(_COMMAND, [])])


@app.command("exec", cls=_WithCommand)
def execute(
    context: typer.Context,
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="[NODE]... -- COMMAND...", help="All if none is named.")
    ] = None,
    inventory: Inventory = DEFAULT,
    as_json: Json = False,
) -> None:
    """Run a command on nodes side by side, each line with its node's name in front.

    A single word is a line for the node's shell. The exit code is the highest of the nodes'.
    """
    command = context.meta.get(_COMMAND, [])
    if not command:
        raise ColdironError("write the command after --, e.g.: coldiron rack exec gpu[01-03] -- uptime")
    rack = _rack(inventory, as_json)
    state = rack.standing()
    chosen = rack.reachable(state, _names(nodes))
    width = max(len(node.name) for node in chosen)
    lock = threading.Lock()
    lines: dict[str, list[str]] = {node.name: [] for node in chosen}

    def show(node: str, line: str) -> None:
        with lock:
            lines[node].append(line)
            if not as_json:
                print(f"{node:<{width}} | {line}", flush=True)

    codes = run_everywhere(state, chosen, command, show)
    if as_json:
        _print({node: {"exit_code": codes[node], "output": lines[node]} for node in codes})
    if any(codes.values()):
        raise typer.Exit(max(codes.values()))


@app.command()
def power(
    nodes: Annotated[
        list[str], typer.Argument(metavar="NODE... [on|off|cycle]", help="Machines, and what to do.")
    ],
    inventory: Inventory = DEFAULT,
    as_json: Json = False,
) -> None:
    """Switch machines through their BMCs, or say which are on. Off is at once, as by holding the button."""
    verb = nodes[-1] if len(nodes) > 1 and nodes[-1] in REDFISH_RESET else ""
    found = verbs.power(_rack(inventory, as_json), _names(nodes[:-1] if verb else nodes), verb)
    if as_json:
        _print(found)
    else:
        for name, on in found.items():
            print(f"{name}: {'on' if on else 'off'}")


@app.command()
def console(
    node: Annotated[str, typer.Argument(help="The machine.")],
    inventory: Inventory = DEFAULT,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="So many lines from the end; 0: all.")
    ] = 40,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="And what it says from now on.")] = False,
) -> None:
    """Print what a machine's serial console has said."""
    rack = _rack(inventory)
    path = rack.machines(rack.standing()).places.console(verbs.one_machine(rack, node).name)
    print(verbs.tail(path, lines), end="", flush=True)
    for text in verbs.follow(path) if follow else ():
        print(text, end="", flush=True)


@app.command()
def fault(
    node: Annotated[str, typer.Argument(help="The node.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FAULT] | FAULT UNIT | gpu N [FAULT]",
            help="What to break; lists the faults if none is named.",
        ),
    ] = None,
    inventory: Inventory = DEFAULT,
    disk: Annotated[
        str, typer.Option("--disk", help="The disk's serial; the first system disk if none is named.")
    ] = "",
    clear: Annotated[bool, typer.Option("--clear", help="Mend it; everything if no fault is named.")] = False,
) -> None:
    """Break something of a node or of a simulated GPU on purpose, or mend it."""
    rack = _rack(inventory)
    name, *rest = words or [""]
    if name == "gpu":
        if disk:
            raise ColdironError("--disk says nothing to a GPU; leave it out")
        lines = gpu_fault(rack, node, rest, clear=clear)
    elif node in rack.standing().nodes:
        if disk:
            raise ColdironError("--disk says nothing to a container; leave it out")
        lines = node_fault(rack, node, words or [], clear=clear)
    elif rest:
        raise ColdironError(
            f"{' '.join(words or ())}: write one fault, or `gpu`, the GPU's number and a fault"
        )
    elif not name and not clear:
        lines = verbs.catalogue(verbs.one_machine(rack, node))
    else:
        lines = verbs.fault(rack, node, name, disk, clear=clear)
    for line in lines:
        print(line)


@app.command()
def requirements(
    missing: Annotated[bool, typer.Option("--missing", help="Only those that are not here.")] = False,
    inventory: Annotated[
        Path | None,
        typer.Option("-i", "--inventory", help="With those that this inventory's machines need."),
    ] = None,
) -> None:
    """Print the Debian packages that the rack needs, one a line."""
    spec = from_cluster(inventory) if inventory else None
    table = (
        needed.needed(spec.machines, gpus=spec.simulates_gpus, elastic=spec.elastic)
        if spec
        else needed.needed(())
    )
    for name in needed.missing(Host(), table) if missing else [one.package for one in table]:
        print(name)
