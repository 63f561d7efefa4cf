"""``coldiron image``: the verbs that bake images and say which one nodes are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldiron.errors import ColdironError
from coldiron.text import counted, duration, moment

if TYPE_CHECKING:
    from coldiron.provision.bake import Baked
    from coldiron.provision.store import Store, StoredImage

app = typer.Typer(help="Bake the images that nodes are installed from.", no_args_is_help=True)

InventoryOption = Annotated[
    Path, typer.Option("--inventory", "-i", help="Inventory directory, or its cluster.yml.")
]
ClassArgument = Annotated[
    str,
    typer.Argument(
        metavar="CLASS",
        help="KIND-DISTRIBUTION of nodes, as cpu-debian-13, or deploy: what machines boot to be installed.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
DEFAULT_INVENTORY = Path("inventories/virtual")
_DIGITS = 12
_MIB = 1024 * 1024


@app.callback()
def _root() -> None:
    """Bake the images that nodes are installed from."""


@app.command()
def bake(
    node_class: ClassArgument,
    inventory: InventoryOption = DEFAULT_INVENTORY,
    again: Annotated[
        bool, typer.Option("--again", help="Bake even if there is an image of the same inputs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bake the image of a class of nodes, sign it, and make it the current one. Root is needed.

    It holds what the install halves of exactly the roles install that the class runs. Where there is an image of the
    same inputs (roles, options, state of the archive), nothing is baked.
    """
    from coldiron.provision.bake import Baker
    from coldiron.provision.bake_deploy import DeployBaker
    from coldiron.provision.store import DEPLOY

    def say(line: str) -> None:
        typer.echo(line, err=as_json)

    baker = (DeployBaker if node_class == DEPLOY else Baker)(inventory, node_class, say=say)
    baked = baker.bake(again=again)
    for warning in baked.warnings:
        typer.echo(warning, err=True)
    if as_json:
        typer.echo(json.dumps(_baked_data(baked)))
        return
    typer.echo(_told(baked))


@app.command("list")
def list_images(inventory: InventoryOption = DEFAULT_INVENTORY, as_json: AsJson = False) -> None:
    """List the images there are, with the one that nodes are given and the one before it."""
    store = _store(inventory)
    rows = [_data(store, image) for image in store.images()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        typer.echo("no image yet; coldiron image bake CLASS makes one")
    for row in rows:
        typer.echo(
            f"{row['class']:<22} {row['sha256'][:_DIGITS]}  {row['size_bytes'] / _MIB:5.0f} MiB  "
            f"{counted(row['packages'], 'package'):>13}  {moment(row['created'])}  {row['state']}".rstrip()
        )


@app.command()
def show(
    image: Annotated[str, typer.Argument(help="The first characters of its digest, or a class.")],
    inventory: InventoryOption = DEFAULT_INVENTORY,
    packages: Annotated[
        bool, typer.Option("--packages", help="Every package with its version, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what an image is, and whether it is still what was signed."""
    store = _store(inventory)
    found = _find(store, image)
    manifest = found.manifest
    key = _public_key(inventory)
    store.verified(found, [key])
    if as_json:
        typer.echo(found.manifest_path.read_text(encoding="utf-8").rstrip())
        return
    data = _data(store, found)
    for name, value in (
        ("digest", found.sha256),
        ("class", found.node_class),
        ("state", data["state"] or "kept"),
        ("made", moment(manifest.created)),
        ("size", f"{manifest.size_bytes / _MIB:.0f} MiB"),
        ("system", f"{manifest.distribution}, kernel {manifest.kernel}"),
        ("roles", ", ".join(manifest.roles) or "none"),
        ("packages", str(len(manifest.packages))),
        ("inputs", manifest.inputs),
        ("where", str(found.directory)),
        ("signed", "by the site's key; every byte is what was signed"),
    ):
        typer.echo(f"{name:<9} {value}")
    for name, version in manifest.packages.items() if packages else ():
        typer.echo(f"  {name} {version}")


@app.command()
def promote(
    image: Annotated[str, typer.Argument(help="The first characters of its digest.")],
    inventory: InventoryOption = DEFAULT_INVENTORY,
) -> None:
    """Make an image the current one of its class. The one before becomes the way back."""
    store = _store(inventory)
    found = store.find(image)
    store.verified(found, [_public_key(inventory)])
    store.promote(found.node_class, found.sha256)
    typer.echo(
        f"{found.node_class}: {found.sha256[:_DIGITS]} is current; nodes get it when they are installed next"
    )


@app.command()
def rollback(node_class: ClassArgument, inventory: InventoryOption = DEFAULT_INVENTORY) -> None:
    """Make the previous image of a class the current one again."""
    pair = _store(inventory).roll_back(node_class)
    typer.echo(
        f"{node_class}: {pair.current[:_DIGITS]} is current again; nodes get it when they are installed next"
    )


@app.command()
def prune(
    inventory: InventoryOption = DEFAULT_INVENTORY,
    keep: Annotated[int, typer.Option("--keep", min=0, help="So many of the newest of each class stay.")] = 2,
    on_node: Annotated[
        list[str] | None, typer.Option("--on-node", metavar="DIGEST", help="A node has it: it stays.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Remove images that are neither current, previous, on a node nor among the newest of their class."""
    store = _store(inventory)
    nodes = [store.find(digest).sha256 for digest in on_node or ()]
    found = store.prunable(nodes, keep) if dry_run else store.prune(nodes, keep)
    for image in found.gone:
        typer.echo(f"{image.node_class:<22} {image.sha256[:_DIGITS]}  {image.size_bytes / _MIB:5.0f} MiB  "
                   f"{moment(image.created)}")  # fmt: skip
    verb = "would go" if dry_run else "gone"
    freed = f"{found.bytes_freed / _MIB:.0f} MiB"
    typer.echo(f"{counted(len(found.gone), 'image')} {verb}, {freed}; {len(found.kept)} kept")


def _store(inventory: Path) -> Store:
    from coldiron.provision.store import STORE_DIRECTORY, Store
    from coldiron.secrets.cli import inventory_directory

    return Store(inventory_directory(inventory) / STORE_DIRECTORY)


def _public_key(inventory: Path) -> bytes:
    from coldiron.provision.bake_inputs import site_key
    from coldiron.provision.images import public_key

    return public_key(site_key(inventory))


def _find(store: Store, name: str) -> StoredImage:
    """The image of a digest's first characters, else the current one of a class."""
    if any(image.node_class == name for image in store.images()):
        return store.current(name)
    try:
        return store.find(name)
    except ColdironError as error:
        classes = sorted({image.node_class for image in store.images()})
        listed = f"; or name a class: {', '.join(classes)}" if classes else ""
        raise ColdironError(f"{error.message}{listed}") from None


def _state(store: Store, image: StoredImage) -> str:
    pair = store.pointers().get(image.node_class)
    if pair is None:
        return ""
    return {pair.current: "current", pair.previous: "previous"}.get(image.sha256, "")


def _data(store: Store, image: StoredImage) -> dict[str, Any]:
    manifest = image.manifest
    return {
        "class": image.node_class,
        "sha256": image.sha256,
        "state": _state(store, image),
        "size_bytes": manifest.size_bytes,
        "created": manifest.created,
        "kernel": manifest.kernel,
        "roles": list(manifest.roles),
        "packages": len(manifest.packages),
        "directory": str(image.directory),
    }


def _baked_data(baked: Baked) -> dict[str, Any]:
    return {
        "class": baked.image.node_class,
        "sha256": baked.image.sha256,
        "baked": baked.fresh,
        "current": baked.current,
        "seconds": {name: round(seconds, 2) for name, seconds in baked.seconds.items()},
        "warnings": baked.warnings,
    }


def _told(baked: Baked) -> str:
    manifest = baked.image.manifest
    digest = baked.image.sha256[:_DIGITS]
    if not baked.fresh and baked.current:
        return f"{manifest.node_class}: {digest} is current, nothing baked"
    if not baked.fresh:
        return (
            f"{manifest.node_class}: {digest} was made from the same inputs and is not current; "
            f"coldiron image promote {digest} makes it so, --again bakes another"
        )
    steps = ", ".join(
        f"{name} {duration(seconds)}" for name, seconds in baked.seconds.items() if seconds >= 0.5
    )
    return (
        f"{manifest.node_class}: {digest}, {manifest.size_bytes / _MIB:.0f} MiB, "
        f"{counted(len(manifest.packages), 'package')}, in {duration(sum(baked.seconds.values()))} ({steps})"
    )
