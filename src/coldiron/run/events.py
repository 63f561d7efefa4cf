"""What happened in a run, one JSON object a line: written as it comes, read back whatever became of the file.

A line is ``{"format": 1, "number": 7, "time": 1795280000.1, "kind": "runner_on_ok", "data": {…}}``. Kinds are
ansible-runner's names for what Ansible reports, cut down by `trim`, and coldiron's own: ``coldiron_start`` is
the first line (the run's header), ``coldiron_end`` the last (how it ended), ``coldiron_stop`` a request to stop.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from coldiron.errors import ColdironError, ExitCode

FORMAT = 1
START = "coldiron_start"
STOP = "coldiron_stop"
END = "coldiron_end"
# A garbled file may hold anything; no honest line is longer (results are cut by `trim`). Bytes.
LONGEST_LINE = 8_000_000
# Seconds since the epoch that no run will see.
LATEST = 1e11


@dataclass(frozen=True)
class Event:
    """One thing that happened. ``time`` is in seconds since the epoch, ``number`` counts from 1 in its file."""

    number: int
    time: float
    kind: str
    data: Mapping[str, Any]
    version: int = FORMAT

    def line(self) -> str:
        """The event as a line of the file, without its end."""
        fields = {
            "format": self.version,
            "number": self.number,
            "time": self.time,
            "kind": self.kind,
            "data": self.data,
        }
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=str)


def parse(line: bytes) -> Event | None:
    """The event in a line; None where the line is none. Raises ColdironError on a newer format."""
    try:
        fields = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    version, number, time = (fields.get(name) for name in ("format", "number", "time"))
    kind, data = fields.get("kind"), fields.get("data")
    if isinstance(version, int) and version > FORMAT:
        raise ColdironError(
            f"this run was recorded by a newer coldiron (format {version}, this one reads {FORMAT}); "
            "read it with that one",
            ExitCode.ENVIRONMENT,
        )
    # bool is an int to Python, not to us.
    if type(number) is not int or not isinstance(time, int | float) or isinstance(time, bool):
        return None
    if not isinstance(kind, str) or not isinstance(data, dict):
        return None
    if not 0 <= number < 2**53 or not 0 <= time < LATEST:
        return None
    return Event(number, float(time), kind, data)


class EventFile:
    """The events of a file, in its order. ``damaged`` counts the lines that were none, once it has been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0

    def __iter__(self) -> Iterator[Event]:
        self.damaged = 0
        try:
            with _open(self.path) as stream:
                while line := stream.readline(LONGEST_LINE):
                    if not line.strip():
                        continue
                    event = parse(line)
                    if event is None:
                        self.damaged += 1
                    else:
                        yield event
        except (EOFError, gzip.BadGzipFile):
            self.damaged += 1
        except OSError as error:
            raise ColdironError(
                f"{self.path}: the events cannot be read: {error.strerror or error}", ExitCode.ENVIRONMENT
            ) from None


def read_events(path: Path) -> EventFile:
    """The events in ``path`` (``.jsonl`` or ``.jsonl.gz``), read each time they are iterated over.

    Lines that were cut off or garbled are passed over and counted in ``damaged``. Iterating raises ColdironError
    where the file cannot be read, or is of a newer format.
    """
    return EventFile(path)


def _open(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


class EventWriter:
    """Appends events to a file that only its owner can read; each line is in the kernel's hands when it returns.

    A run that is killed loses nothing that was told; a machine that loses power may lose the last seconds.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.number = 0
        # Held as long as this process lives: how a reader tells a run that is on from one that was killed.
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def write(self, time: float, kind: str, data: Mapping[str, Any]) -> Event:
        """Append one event and return it. Raises OSError when the file takes no more."""
        event = Event(self.number + 1, round(time, 4), kind, data)
        left = event.line().encode("utf-8", errors="replace") + b"\n"
        while left:
            left = left[os.write(self._descriptor, left) :]
        self.number = event.number
        return event

    def close(self) -> None:
        """Bring what was written to the disk and close the file."""
        try:
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)
