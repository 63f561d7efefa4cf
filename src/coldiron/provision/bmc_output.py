"""What is written down of a BMC: logs, sensors and console, as files for the diagnosis."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_path
from coldiron.provision.bmc_trouble import Where
from coldiron.provision.whole import replace_file

# Bytes of a console that are read: its end is what matters.
_TAIL = 64 * 1024


def write(directory: str, texts: Mapping[str, str], where: Where, check: bool) -> list[str]:
    """Write ``texts`` by their names into ``directory``; the paths whose text is new. Without one, nothing."""
    if not directory:
        return []
    changed = []
    try:
        for name, text in sorted(texts.items()):
            path = Path(directory) / name
            if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
                continue
            changed.append(str(path))
            if not check:
                write_file(path, text)
    except OSError as error:
        raise ColdironError(
            where.told(f"{shown_path(Path(directory))} cannot be written: {error.strerror or error}"),
            ExitCode.ENVIRONMENT,
        ) from None
    return changed


def write_file(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text, 0o644)


def tail(file: str, where: Where) -> str:
    """The end of a console that is written to a file of this machine."""
    try:
        with open(file, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL))
            return stream.read().decode("utf-8", errors="replace")
    except OSError as error:
        raise ColdironError(
            where.told(
                f"the console file {shown_path(Path(file))} cannot be read: {error.strerror or error}"
            ),
            ExitCode.ENVIRONMENT,
        ) from None
