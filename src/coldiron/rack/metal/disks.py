"""A machine's disks: sparse files that are empty until the machine writes to them."""

from __future__ import annotations

import os

from coldiron.rack.metal.places import Places
from coldiron.rack.metal.spec import MachineSpec


def make_disks(places: Places, spec: MachineSpec) -> None:
    """Make the disks that are not there. What a disk holds is never touched."""
    for disk in spec.disks:
        path = places.disk(spec.name, disk)
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        with partial.open("wb") as file:
            os.truncate(file.fileno(), disk.size)
        partial.chmod(0o600)
        os.replace(partial, path)
