"""What a rack is meant to be, written down before anything is made, and what was changed on the host for it.

Both files are replaced atomically. A name stands in them before the thing exists, so that whoever comes after
a crash knows what may be there.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.metal.spec import MachineSpec

VERSION = 1


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file by a new one that is complete on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The mapping in a file of ours, None where there is none. Raises ColdironError if it cannot be ours."""
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        loaded = None
    if not isinstance(loaded, dict) or loaded.get("version") != VERSION:
        raise ColdironError(
            f"{path}: not of this version of coldiron; take the rack down with the version that made it, "
            "or delete the file and run `coldiron rack down`",
            ExitCode.REFUSED,
        )
    return loaded


@dataclass
class NodeState:
    """One node as it was made. ``layers`` are the frozen layers over ``base``, the topmost first.

    ``snapshot`` is the directory of the snapshot that it stands on. ``renew``: what it has written since
    is to be thrown away before it boots. ``stopping``: it was told to shut down; what still runs of it does
    not count.
    """

    name: str
    address: str
    distribution: str
    kind: str
    base: str
    gpu_count: int = 0
    gpu_type: str | None = None
    layers: list[str] = field(default_factory=list)
    snapshot: str | None = None
    renew: bool = False
    stopping: bool = False
    serves_home: bool = False
    gpu_model: str | None = None


@dataclass
class RackState:
    """A rack as it was made. Paths are absolute.

    ``home_from``: what the shared home is to be replaced by before any node boots: a directory's copy, or
    nothing where it is empty. None leaves it alone.
    """

    name: str
    inventory: str
    domain: str
    subnet: str
    gateway: str
    mtu: int
    bridge: str
    home_backend: str
    sockets: str
    apt_proxy: str
    apt_mirror: str
    nodes: dict[str, NodeState] = field(default_factory=dict)
    machines: dict[str, MachineSpec] = field(default_factory=dict)
    home_from: str | None = None
    version: int = VERSION

    @classmethod
    def load(cls, path: Path) -> RackState | None:
        """The state in ``path``; None where there is no rack."""
        data = read_json(path)
        if data is None:
            return None
        nodes = {name: NodeState(**node) for name, node in data.pop("nodes").items()}
        machines = {name: MachineSpec.load(one) for name, one in data.pop("machines", {}).items()}
        return cls(nodes=nodes, machines=machines, **data)

    def save(self, path: Path) -> None:
        write_atomically(path, json.dumps(asdict(self), indent=2) + "\n")


@dataclass
class Registry:
    """The machine's racks by name with their inventories, and what is to be put back after the last.

    ``sysctl``: values before the first rack. ``netns_mount``: whether /run/netns became a mount point for us.
    ``cache_port``: the package cache's port on the loopback.
    """

    racks: dict[str, str] = field(default_factory=dict)
    sysctl: dict[str, str] = field(default_factory=dict)
    netns_mount: bool = False
    cache_port: int | None = None
    version: int = VERSION

    @classmethod
    def load(cls, path: Path) -> Registry:
        data = read_json(path)
        return cls(**data) if data else cls()

    def save(self, path: Path) -> None:
        write_atomically(path, json.dumps(asdict(self), indent=2) + "\n")
