"""Files of a node, for the collection's modules."""

from __future__ import annotations

import os


def read(path: str) -> str:
    """Return a file's text, empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def replace(path: str, content: bytes, mode: int) -> None:
    """Put a file in place by a rename, on the disk before it is seen."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    staged = f"{path}.coldiron-new"
    with open(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.chmod(staged, mode)
    os.rename(staged, path)
