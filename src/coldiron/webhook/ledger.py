"""What the receiver was told and did, as events in the shape of a run's: the audit, and its memory over a restart.

``<inventory>/.coldiron/webhook.jsonl``. Kinds: ``webhook_start``, ``webhook_refused`` (a request), ``webhook_heard``
(a request's alerts, counted), ``webhook_accepted`` (one alert), ``webhook_begin``, ``webhook_end`` (of nodes),
``webhook_dropped`` (an alert that went before its turn).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_path
from coldiron.run import lock
from coldiron.run.events import Event, EventWriter, read_events
from coldiron.webhook.policy import Known

START, REFUSED, HEARD, ACCEPTED, BEGIN, END, DROPPED = (
    f"webhook_{word}" for word in ("start", "refused", "heard", "accepted", "begin", "end", "dropped")
)
# Refused requests that are written in a minute; the others are counted: who knows no token must not fill the disk.
_REFUSALS_A_MINUTE = 10


@dataclass(frozen=True)
class Task:
    """A node that an alert wants looked at. ``alert`` is its name, ``key`` this firing of it."""

    node: str
    alert: str
    key: str


class Ledger:
    """The events of one inventory's receiver, and what follows from them. One process has it at a time."""

    def __init__(self, inventory: Path, command: str, now: float) -> None:
        """``inventory`` is its directory, whose ``.coldiron`` is there. Raises ColdironError where another has it."""
        self.path = inventory / ".coldiron" / "webhook.jsonl"
        self._lock = threading.Lock()
        self._held = _take(self.path.with_suffix(".lock"), command, now)
        self._begun: dict[str, float] = {}
        self._keys: set[str] = set()
        self._open: dict[str, Task] = {}
        self._refused: list[float] = []
        self._passed_over = 0
        number = 0
        if self.path.exists():
            for event in read_events(self.path):
                number = max(number, event.number)
                self._learn(event)
            _end_last_line(self.path)
        try:
            self._writer = EventWriter(self.path)
        except OSError as error:
            raise self._cannot(error) from None
        self._writer.number = number

    @property
    def known(self) -> Known:
        """What decisions are made by."""
        with self._lock:
            waiting = frozenset(task.node for task in self._open.values())
            return Known(frozenset(self._keys), dict(self._begun), waiting)

    @property
    def unfinished(self) -> list[Task]:
        """What was accepted and has no end yet, in its order."""
        with self._lock:
            return list(self._open.values())

    def write(self, now: float, kind: str, data: Mapping[str, Any]) -> None:
        """Append an event. Raises ColdironError where the file takes no more."""
        with self._lock:
            try:
                self._learn(self._writer.write(now, kind, data))
            except OSError as error:
                raise self._cannot(error) from None

    def accept(self, now: float, task: Task) -> None:
        """Note that a task will be done."""
        self.write(now, ACCEPTED, {"node": task.node, "alert": task.alert, "key": task.key})

    def refuse(self, now: float, status: int, why: str, peer: str) -> None:
        """Note a request that was refused, unless too many were within a minute: then the next one counts them."""
        with self._lock:
            self._refused = [at for at in self._refused if now - at < 60]
            if len(self._refused) >= _REFUSALS_A_MINUTE:
                self._passed_over += 1
                return
            self._refused.append(now)
            passed, self._passed_over = self._passed_over, 0
        self.write(now, REFUSED, {"status": status, "why": why, "peer": peer, "passed_over": passed})

    def close(self) -> None:
        """Bring the events to the disk and give the lock back."""
        self._writer.close()
        self._held.release()

    def _learn(self, event: Event) -> None:
        data = event.data
        if event.kind == ACCEPTED:
            task = Task(str(data.get("node")), str(data.get("alert")), str(data.get("key")))
            self._keys.add(task.key)
            self._begun[task.node] = event.time
            self._open[task.key] = task
        elif event.kind in (END, DROPPED):
            for key in data.get("keys") or []:
                self._open.pop(str(key), None)

    def _cannot(self, error: OSError) -> ColdironError:
        return ColdironError(
            f"{shown_path(self.path)} cannot be written: {error.strerror or error}", ExitCode.ENVIRONMENT
        )


def _take(file: Path, command: str, now: float) -> lock.Lock:
    return lock.take_or_tell(
        file,
        lock.holder("webhook", command, now),
        now,
        lambda other: f"a receiver of this inventory is on already: {other.told(now)}",
    )


def _end_last_line(path: Path) -> None:
    """A line that was torn by a crash must not swallow the next one."""
    with path.open("r+b") as stream:
        if stream.seek(0, os.SEEK_END) and (stream.seek(-1, os.SEEK_END), stream.read(1))[1] != b"\n":
            stream.write(b"\n")
