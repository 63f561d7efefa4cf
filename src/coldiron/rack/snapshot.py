"""Snapshots: what nodes had written, frozen as layers that later roots are stacked on.

Nothing is copied for a node's root: its upper layer is renamed, becomes read-only and gets a new one on top.
Layers lie in one store for the whole machine and live as long as a rack, a rack's snapshot or a kept snapshot
names them. A snapshot names a layer before the layer exists, never the other way round, so whoever lists the
store first and reads the names afterwards never throws away a layer in use.

What does not lie in a node's root is copied: container engines' directories, and the shared /home of a
snapshot of the whole rack.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.layout import Layout, Machine
from coldiron.rack.state import VERSION, NodeState, RackState, Registry, read_json, write_atomically

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
FILE = "snapshot.json"


@dataclass
class NodeImage:
    """One node's root in a snapshot: layers, the topmost first, over a base."""

    distribution: str
    base: str
    layers: list[str]


@dataclass
class Snapshot:
    """A snapshot as its file has it. ``path`` is its directory, ``created`` in seconds since 1970."""

    name: str
    rack: str
    created: int
    nodes: dict[str, NodeImage]
    home: bool = False
    version: int = VERSION
    path: Path = field(default_factory=Path)

    @classmethod
    def load(cls, path: Path) -> Snapshot | None:
        """The snapshot in the directory ``path``, None where there is none."""
        data = read_json(path / FILE)
        if data is None:
            return None
        nodes = {name: NodeImage(**image) for name, image in data.pop("nodes").items()}
        return cls(nodes=nodes, path=path, **data)

    def save(self, path: Path) -> None:
        data = asdict(self)
        del data["path"]
        write_atomically(path / FILE, json.dumps(data, indent=2) + "\n")

    @property
    def home_copy(self) -> Path:
        return self.path / "home"

    def engines(self, node: str) -> Path:
        """Where a node's container engines' directories are copied to."""
        return self.path / "engines" / node

    def whole(self, node: str) -> bool:
        """Whether everything that ``node`` stands on is still there."""
        image = self.nodes[node]
        return all(Path(path).is_dir() for path in (image.base, *image.layers))


def check_name(name: str) -> str:
    """``name``. Raises ColdironError for one that could not be a directory's."""
    if not _NAME.fullmatch(name):
        raise ColdironError(
            f"`{name}` is no name for a snapshot; write up to 64 lower-case letters, digits, dots, - and _"
        )
    return name


def listing(directory: Path) -> list[Snapshot]:
    """The snapshots in a store, the oldest first."""
    found = [Snapshot.load(path.parent) for path in directory.glob(f"*/{FILE}")]
    return sorted((one for one in found if one), key=lambda one: (one.created, one.name))


def find(layout: Layout, name: str) -> Snapshot:
    """The rack's snapshot called ``name``, else the kept one. Raises ColdironError where there is neither."""
    check_name(name)
    for store in (layout.snapshots, layout.machine.kept):
        if found := Snapshot.load(store / name):
            return found
    known = [one.name for store in (layout.snapshots, layout.machine.kept) for one in listing(store)]
    raise ColdironError(f"there is no snapshot {name}; there are: {', '.join(known) or 'none'}")


def new_layer(machine: Machine, rack: str, node: str) -> Path:
    """A path in the store that no layer had before."""
    return machine.layers / f"{rack}.{node}.{time.time_ns()}"


def references(machine: Machine, registry: Registry) -> tuple[set[str], set[str]]:
    """The bases and the layers that a rack, a rack's snapshot or a kept snapshot names."""
    bases: set[str] = set()
    layers: set[str] = set()

    def note(images: Iterable[NodeState | NodeImage]) -> None:
        for image in images:
            bases.add(image.base)
            layers.update(image.layers)

    for name, inventory in registry.racks.items():
        layout = Layout(name, Path(inventory), machine)
        if state := RackState.load(layout.state):
            note(state.nodes.values())
        for one in listing(layout.snapshots):
            note(one.nodes.values())
    for one in listing(machine.kept):
        note(one.nodes.values())
    return bases, layers


def collect(machine: Machine, registry: Registry) -> None:
    """Throw away layers that nothing names any more."""
    present = [path for path in machine.layers.glob("[!.]*") if path.is_dir()]
    _, used = references(machine, registry)
    for layer in present:
        if str(layer) not in used:
            shutil.rmtree(layer, ignore_errors=True)


def refuse_taken(layout: Layout, name: str, *, keep: bool, replace: bool) -> None:
    """Raise ColdironError where a snapshot of that name exists and is not to be replaced."""
    store = layout.machine.kept if keep else layout.snapshots
    if (store / check_name(name) / FILE).exists() and not replace:
        raise ColdironError(
            f"{store / name}: there is a snapshot {name} already; write another name, or --replace",
            ExitCode.REFUSED,
        )


def publish(work: Path, final: Path) -> None:
    """Give a finished snapshot its name, in place of an older one."""
    if final.exists():
        old = final.with_name(f".{final.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        os.rename(final, old)
        os.rename(work, final)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.rename(work, final)
