"""What a node has written, as directories: frozen, copied, put back."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from coldiron.rack.host import Host

# Directories of a node that lie on the host's own file system: container engines cannot stack overlays.
ENGINE_DIRECTORIES = ("docker", "containerd")


def freeze(host: Host, upper: Path, layer: Path) -> None:
    """Make an upper layer a frozen one, unless that is done already. The node does not run."""
    if layer.exists() or not upper.exists():
        return
    layer.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(upper, layer)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        partial = layer.with_name(f".{layer.name}")
        shutil.rmtree(partial, ignore_errors=True)
        copy(host, upper, partial)
        os.rename(partial, layer)
        shutil.rmtree(upper)


def copy(host: Host, source: Path, target: Path) -> None:
    """Copy a directory with owners, modes, extended attributes and device files."""
    target.parent.mkdir(parents=True, exist_ok=True)
    host.run(
        ["cp", "--archive", "--reflink=auto", "--no-target-directory", str(source), str(target)],
        what=f"copying {source}",
        timeout_seconds=1800.0,
    )


def save_engines(host: Host, own: Path, target: Path) -> None:
    """Copy what a node's container engines have stored."""
    for name in ENGINE_DIRECTORIES:
        if (own / name).is_dir() and any((own / name).iterdir()):
            copy(host, own / name, target / name)


def restore_engines(host: Host, source: Path, own: Path) -> None:
    """Put a copy back in place of directories that were discarded."""
    for name in ENGINE_DIRECTORIES:
        if (source / name).is_dir():
            shutil.rmtree(own / name, ignore_errors=True)
            copy(host, source / name, own / name)
