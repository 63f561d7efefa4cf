"""cluster.yml: what the cluster is. Read with line numbers, checked as a whole, handed on as plain models.

``load`` reads and checks (``read`` and ``build`` are its halves), ``find`` locates the file of an inventory,
``schema`` gives the JSON schema.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldiron.errors import ColdironError
from coldiron.inventory.findings import Finding, InventoryError, shown_path

if TYPE_CHECKING:
    from coldiron.inventory.check import build
    from coldiron.inventory.cluster import Cluster, Node
    from coldiron.inventory.source import read

FILE_NAMES = ("cluster.yml", "cluster.yaml")
# The models take half a second to import, and who only prints a finding needs none of them.
_WHERE = {"build": "check", "Cluster": "cluster", "Node": "cluster", "read": "source"}

__all__ = [
    "FILE_NAMES",
    "Cluster",
    "Finding",
    "InventoryError",
    "Node",
    "build",
    "find",
    "load",
    "read",
    "schema",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"coldiron.inventory.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find(path_or_dir: Path) -> Path:
    """The cluster.yml that ``path_or_dir`` means: itself, or the one in that directory.

    Raises ColdironError when there is none, or two.
    """
    where = shown_path(path_or_dir)
    # os.path, unlike Path, calls a name that cannot be one simply absent.
    if os.path.isdir(path_or_dir):
        found = [path_or_dir / name for name in FILE_NAMES if (path_or_dir / name).exists()]
        if len(found) > 1:
            raise ColdironError(f"{where} has a cluster.yml and a cluster.yaml; keep one of them")
        if found:
            return found[0]
        raise ColdironError(f"{where} has no cluster.yml; begin with `coldiron init {where}`")
    if not os.path.exists(path_or_dir):
        raise ColdironError(f"{where} does not exist; name an inventory, e.g. -i inventories/virtual")
    if path_or_dir.name not in FILE_NAMES:
        raise ColdironError(
            f"{where} is not called cluster.yml; name an inventory's directory or cluster.yml"
        )
    return path_or_dir


def load(path: Path) -> Cluster:
    """Read and check the cluster.yml at ``path`` (a directory stands for the one in it).

    Raises InventoryError, with all findings, when it cannot be used.
    """
    from coldiron.inventory.check import build
    from coldiron.inventory.source import read

    file = find(path) if os.path.isdir(path) and path.name not in FILE_NAMES else path
    return build(read(file), file)


def schema() -> dict[str, Any]:
    """The JSON schema of a cluster.yml, for editors and tests."""
    from coldiron.inventory.json_schema import schema as made

    return made()
