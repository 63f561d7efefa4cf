"""Errors on a running machine's disks, through QEMU's own error injection (blkdebug).

Runs by itself too, with the distribution's Python: libvirt's hook calls ``inject.py QMP-SOCKET FAULTS`` when a machine
has started, so that a fault outlives a power cycle. ``FAULTS`` is the JSON list of the machine's faults. Standard
library only.
"""

from __future__ import annotations

import errno
import json
import socket
import sys
from pathlib import Path
from typing import Any

_SECONDS = 20.0
# What a disk with each fault answers, by the kind of access.
ERRORS = {
    "disk-gone": {"read": errno.EIO, "write": errno.EIO, "flush": errno.EIO},
    "disk-read-only": {"write": errno.EROFS},
    "disk-full": {"write": errno.ENOSPC},
}


class Monitor:
    """A QMP connection. Raises OSError where QEMU refuses or does not answer."""

    def __init__(self, path: str) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(_SECONDS)
        self.connection.connect(path)
        self.file = self.connection.makefile("rw", encoding="utf-8")
        self.file.readline()
        self("qmp_capabilities")

    def __call__(self, command: str, arguments: dict[str, Any] | None = None) -> Any:
        self.file.write(json.dumps({"execute": command, "arguments": arguments or {}}) + "\n")
        self.file.flush()
        while line := self.file.readline():
            answer = json.loads(line)
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise OSError(f"{command}: {answer['error'].get('desc', answer['error'])}")
        raise OSError(f"{command}: QEMU has ended")

    def close(self) -> None:
        """End the connection: QEMU serves one at a time."""
        self.file.close()
        self.connection.close()


def rules(errors: dict[str, int]) -> list[dict[str, Any]]:
    """blkdebug's rules for ``errors``, by the kind of access: each holds until it is taken away."""
    return [{"event": "none", "iotype": kind, "errno": number} for kind, number in errors.items()]


def set_errors(monitor: Any, disk: str, errors: dict[str, int]) -> None:
    """Let every access to the disk in the file ``disk`` fail as ``errors`` says; none where it is empty."""
    nodes = monitor("query-named-block-nodes")
    here = [node for node in nodes if Path(node["file"]).name == disk]
    form = next((node for node in here if node["drv"] == "raw"), None)
    store = next((node for node in here if node["drv"] == "file"), None)
    if form is None or store is None:
        return
    name = f"fault-{Path(disk).stem}"
    options = {
        "driver": "raw",
        "node-name": form["node-name"],
        "read-only": form["ro"],
        "discard": "unmap",
        "cache": {"direct": False, "no-flush": True},
    }
    if any(node["node-name"] == name for node in nodes):
        monitor("blockdev-reopen", {"options": [{**options, "file": store["node-name"]}]})
        monitor("blockdev-del", {"node-name": name})
    if errors:
        monitor(
            "blockdev-add",
            {
                "driver": "blkdebug",
                "node-name": name,
                "image": store["node-name"],
                "inject-error": rules(errors),
            },
        )
        monitor("blockdev-reopen", {"options": [{**options, "file": name}]})


def disk_errors(faults: list[str]) -> dict[str, dict[str, int]]:
    """The errors of each disk, by its file's name, that a machine with these faults has."""
    found: dict[str, dict[str, int]] = {}
    for fault in faults:
        kind, _, target = fault.partition(":")
        if kind in ERRORS and target:
            found.setdefault(f"disk-{target}.raw", {}).update(ERRORS[kind])
    return found


def main(path: str, faults: str) -> None:
    """Set the errors that the file ``faults`` asks for, if it asks for any."""
    wanted = disk_errors(json.loads(Path(faults).read_text()))
    if not wanted:
        return
    monitor = Monitor(path)
    for disk, errors in wanted.items():
        set_errors(monitor, disk, errors)
    monitor.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
