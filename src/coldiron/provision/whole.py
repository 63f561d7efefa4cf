"""Files that are there whole or not at all, whatever ends the process or the machine that writes them.

The standard library alone: it travels with ``coldiron-deployd``.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(file: Path, text: str, mode: int = 0o600) -> None:
    """Replace ``file`` by ``text``; it is on the disk when this returns. Raises OSError, and then nothing is left."""
    # mkstemp's mode is 0600 from the first moment.
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_directory(file.parent)


def sync_directory(directory: Path) -> None:
    """A rename is on the disk only when its directory is."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
