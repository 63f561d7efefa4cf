"""``coldiron provision``: machines from power-off to ssh, shown as nodes and steps."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster, find, load
from coldiron.inventory.findings import shown_path
from coldiron.provision import wanted
from coldiron.run.cli import DEFAULT_INVENTORY, InventoryOption, JsonOption, VerboseOption, run_recorded
from coldiron.run.complete import complete_host

if TYPE_CHECKING:
    from coldiron.testing.site import Site

PLAYBOOK = "coldiron.cluster.provision"
PROVISIONER = "netboot_server"
COMMAND = "coldiron-deployd"
_ASK_SECONDS = 60
_TABLE = "{:<12} {:<10} {:<10} {:>9}  {}"


def register(app: typer.Typer) -> None:
    """Add the verb of this module to the command line."""
    app.command(
        epilog="Examples:  coldiron provision -i inventories/hopper  |  coldiron provision gpu02 --yes S6X1NE0T  |  "
        "coldiron provision --status"
    )(provision)


def provision(
    nodes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NODE...]",
            help="Machines or ranges; without one, those that are new and powered off.",
            autocompletion=complete_host,
        ),
    ] = None,
    inventory: InventoryOption = DEFAULT_INVENTORY,
    yes: Annotated[
        list[str] | None,
        typer.Option(
            "--yes", metavar="SERIAL", help="The disk of this serial may be wiped; once for each disk."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which machines would get which image on which disks.")
    ] = False,
    at_once: Annotated[
        int, typer.Option("--at-once", min=1, max=256, help="So many machines at a time.")
    ] = 16,
    status: Annotated[
        bool, typer.Option("--status", help="Only show what the provisioner says of each machine.")
    ] = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Install machines from power-off. Only blank disks are written, and those whose serial is given."""
    from coldiron.node.plan import named

    cluster = load(find(inventory))
    names = named(nodes or [])
    wanted.check(cluster, names)
    if status:
        _show_status(cluster, inventory, names, as_json)
        return
    if yes and not names:
        raise ColdironError(
            "--yes names a disk of a machine: name the machine too, e.g. coldiron provision gpu02"
        )
    asked = wanted.asked(cluster, names, _records(inventory, names) if names else {})
    ask = _typed if sys.stdin.isatty() and not dry_run else None
    agreed = list(yes or []) if dry_run else wanted.consent(asked, yes or [], ask)
    if dry_run:
        _show_plan(cluster, inventory, asked, agreed)
        return
    extravars: dict[str, Any] = {"provision_at_once": at_once}
    if names:
        extravars |= {"provision_nodes": names, "provision_consent": agreed}
    machines = names or [node.name for node in wanted.machines(cluster)]
    run_recorded(
        "provision",
        inventory,
        [PLAYBOOK],
        limit=[*names, PROVISIONER] if names else [],
        extravars=extravars,
        verbose=verbose,
        as_json=as_json,
        announce=True,
        machines=machines,
    )
    if not as_json:
        where = shown_path(inventory)
        typer.echo(f"the machines answer; what makes them nodes of {cluster.name}: coldiron apply -i {where}")


def _typed(question: str) -> str:
    return str(typer.prompt(question, default="", show_default=False))


def _site(inventory: Path) -> Site:
    from coldiron.testing.site import Site

    # Ansible would look for a relative path below the playbooks.
    return Site((inventory.absolute(),))


def _head(site: Site, inventory: Path) -> str:
    heads = site.hosts(PROVISIONER)
    if not heads:
        raise ColdironError(f"{shown_path(inventory)} has no host in group {PROVISIONER}")
    return heads[0]


def _told(inventory: Path, *words: str) -> Any:
    """What coldiron-deployd says on the provisioner; None where it is not there yet. Raises ColdironError."""
    site = _site(inventory)
    head = _head(site, inventory)
    line = f"command -v {COMMAND} >/dev/null || exit 127; sudo -n {COMMAND} {' '.join(words)}"
    done = site.connections.run(head, line.replace("sudo -n ", _sudo(site, head)), timeout=_ASK_SECONDS)
    if done.returncode == 127:
        return None
    if done.returncode:
        why = " ".join(done.stderr.split())[-300:]
        raise ColdironError(f"{head}, the provisioner, does not answer: {why}", ExitCode.ENVIRONMENT)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise ColdironError(f"{head}: {COMMAND} printed no JSON", ExitCode.ENVIRONMENT) from None


def _sudo(site: Site, head: str) -> str:
    return "" if site.hostvars(head).get("ansible_user") == "root" else "sudo -n "


def _records(inventory: Path, names: list[str]) -> dict[str, Any]:
    told = _told(inventory, "record")
    return {record["node"]: record for record in (told or {}).get("records", []) if record["node"] in names}


def _show_plan(cluster: Cluster, inventory: Path, asked: list[wanted.Asked], agreed: list[str]) -> None:
    from coldiron.provision.store import STORE_DIRECTORY, Store

    store = Store(cluster.directory / STORE_DIRECTORY)
    if not asked:
        names = [node.name for node in wanted.machines(cluster)]
        records = _records(inventory, names)
        asked = wanted.asked(cluster, [name for name in names if name not in records], {})
        typer.echo(
            "of these, those that are powered off:" if asked else "every machine has a record: none is new"
        )
    for one in asked:
        image_class = str(cluster.node(one.name).hostvars()["coldiron_image_class"])
        try:
            image = f"{store.current(image_class).sha256[:12]} ({image_class})"
        except ColdironError as error:
            image = f"none yet: {error.message}"
        for line in wanted.told(one, image, agreed):
            typer.echo(line)


def _show_status(cluster: Cluster, inventory: Path, names: list[str], as_json: bool) -> None:
    told = _told(inventory, "status", "--json")
    if told is None:
        raise ColdironError(
            f"nothing was provisioned yet; type: coldiron provision -i {shown_path(inventory)}",
            ExitCode.ENVIRONMENT,
        )
    if as_json:
        typer.echo(json.dumps(told))
        return
    lines = {line["node"]: line for line in told}
    typer.echo(_TABLE.format("node", "state", "step", "ago", ""))
    for name in names or [node.name for node in wanted.machines(cluster)]:
        line = lines.get(name, {})
        age = line.get("age_seconds")
        said = line.get("failed") or line.get("text") or ""
        if not said and line.get("record"):
            said = wanted.recorded(line["record"])
        typer.echo(
            _TABLE.format(
                name,
                line.get("state") or "new",
                line.get("step") or "-",
                f"{age:.0f} s" if isinstance(age, int | float) else "-",
                said,
            ).rstrip()
        )
