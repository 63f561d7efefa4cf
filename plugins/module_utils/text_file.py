"""Text files of a node, for the collection's modules."""

from __future__ import annotations


def read(path: str) -> str:
    """Return a file's text, empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
