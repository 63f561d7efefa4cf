"""``coldiron secrets``: the verbs over the vault file beside the inventory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldiron.errors import ColdironError
from coldiron.inventory.findings import shown_path

if TYPE_CHECKING:
    from coldiron.secrets.store import Store

app = typer.Typer(help="Make and edit the cluster's secrets.", no_args_is_help=True)

InventoryOption = Annotated[
    Path, typer.Option("--inventory", "-i", help="Inventory directory, or its cluster.yml.")
]
PasswordFileOption = Annotated[
    Path | None, typer.Option("--vault-password-file", help="File that holds the vault password.")
]
DEFAULT_INVENTORY = Path("inventories/virtual")


@app.callback()
def _root() -> None:
    """Make and edit the cluster's secrets."""


@app.command()
def init(
    inventory: InventoryOption = DEFAULT_INVENTORY,
    vault_password_file: PasswordFileOption = None,
    generate_password: Annotated[
        bool,
        typer.Option(
            "--generate-password",
            help="Make a vault password in .vault-password if there is none; a virtual cluster always does.",
        ),
    ] = False,
) -> None:
    """Make the secrets that the inventory does not have yet, encrypted in group_vars/all/vault.yml.

    What is there stays as it is, and no secret is ever shown.
    """
    directory = inventory_directory(inventory)
    store = _open(directory, vault_password_file, may_generate=generate_password or is_virtual(directory))
    added = store.add_missing()
    where = shown_path(store.file)
    typer.echo(f"{where}: made {', '.join(added)}" if added else f"{where}: nothing is missing")


@app.command()
def edit(
    inventory: InventoryOption = DEFAULT_INVENTORY, vault_password_file: PasswordFileOption = None
) -> None:
    """Open the secrets in $EDITOR. A text with placeholders or empty values is not kept."""
    store = _open(inventory_directory(inventory), vault_password_file, may_generate=False)
    changed = store.edit(_edit_again)
    typer.echo(f"{shown_path(store.file)}: {'saved' if changed else 'nothing changed'}")


def inventory_directory(inventory: Path) -> Path:
    """The directory that ``inventory`` (a directory or a file in it) means. Raises ColdironError."""
    directory = inventory if inventory.is_dir() else inventory.parent
    if not inventory.exists():
        raise ColdironError(
            f"{shown_path(inventory)} does not exist; name an inventory, e.g. -i inventories/virtual"
        )
    return directory


def is_virtual(directory: Path) -> bool:
    """Whether the inventory has a cluster.yml without a node of metal: its secrets guard nothing real."""
    from coldiron.inventory import FILE_NAMES, find, load

    if not any((directory / name).exists() for name in FILE_NAMES):
        return False
    return all(node.platform != "metal" for node in load(find(directory)).expand())


def _open(directory: Path, password_file: Path | None, *, may_generate: bool) -> Store:
    # Ansible takes a third of a second to import: only who needs it pays.
    from coldiron.secrets.password import PASSWORD_FILE, find_password
    from coldiron.secrets.store import VAULT_FILE, Store

    own = directory / PASSWORD_FILE
    had_one = own.exists()
    new = not (directory / VAULT_FILE).exists()
    password = find_password(directory, password_file, os.environ, may_generate=may_generate, new=new)
    if own.exists() and not had_one:
        typer.echo(f"{shown_path(own)}: made a vault password; keep it safe, and out of version control")
        _warn_if_git_would_take(own)
    return Store(directory, password)


def _warn_if_git_would_take(file: Path) -> None:
    """Say so where the file lies in a git repository that does not ignore it."""
    try:
        # 0: ignored; 1: not ignored; 128: no repository.
        done = subprocess.run(
            ["git", "-C", str(file.parent), "check-ignore", "-q", file.name], capture_output=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode == 1:
        typer.echo(f"git would take {shown_path(file)}: add `{file.name}` to .gitignore", err=True)


def _edit_again(faults: list[str]) -> bool:
    for fault in faults:
        typer.echo(fault, err=True)
    return sys.stdin.isatty() and typer.confirm("Edit again?", default=True, err=True)
