"""Does what was accepted, one command at a time: ``coldiron node diagnose`` as a process of its own.

The command has its locks, its journal and its record, so that whatever ends it, or this receiver, leaves a repair that
goes on. What waits is what the ledger says has no end yet; a receiver that is started again takes it up.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from coldiron.errors import ExitCode
from coldiron.repair import keep
from coldiron.repair.view import repairs
from coldiron.webhook.ledger import BEGIN, DROPPED, END, Ledger, Task

# Nodes of one alert that are looked at side by side.
_AT_ONCE = 16
# A command that ended so has done its work, or says that it never can.
_FINAL = (ExitCode.OK, ExitCode.HOSTS_FAILED, ExitCode.USAGE)
_STOP_SECONDS = 60

log = logging.getLogger("coldiron-webhook")


@dataclass(frozen=True)
class Patience:
    """Seconds: until a command that was refused is tried again, as another run is on; and until it is given up."""

    again: float = 60.0
    give_up: float = 3600.0


class Worker(threading.Thread):
    """Looks at the nodes that ``ledger`` says are due."""

    def __init__(
        self,
        ledger: Ledger,
        inventory: Path,
        patience: Patience | None = None,
        program: Sequence[str] = (sys.executable, "-m", "coldiron"),
    ) -> None:
        super().__init__(name="worker", daemon=True)
        self._ledger = ledger
        self._inventory = inventory
        self._patience = patience or Patience()
        self._program = list(program)
        self._wake = threading.Condition()
        self._stopping = False
        self._running: frozenset[str] = frozenset()
        self._later: dict[str, float] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def wake(self) -> None:
        """There may be something to do."""
        with self._wake:
            self._wake.notify_all()

    def resolved(self, keys: Collection[str]) -> None:
        """Drop what waits for alerts that are over; what has begun comes to its end."""
        with self._wake:
            gone = [
                task for task in self._ledger.unfinished if task.key in keys and task.key not in self._running
            ]
            if gone:
                self._drop(gone, "resolved before its turn")

    def stop(self) -> None:
        """End, and the command that is on too: it goes on when a receiver is started again."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
            process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        self.join(_STOP_SECONDS)

    def run(self) -> None:
        """Work until ``stop``."""
        while (wave := self._next()) is not None:
            try:
                self._look(wave)
            except Exception:
                # Whatever it is, the other alerts must still be heard; this one is tried again.
                log.exception("looking at %s", ", ".join(task.node for task in wave))
                self._put_off(wave)
            finally:
                with self._wake:
                    self._running = frozenset()

    def _next(self) -> list[Task] | None:
        """The tasks to do now, those of one alert together; None once it is time to stop."""
        with self._wake:
            while not self._stopping:
                now = time.time()
                begun = self._ledger.known.begun
                tasks = self._ledger.unfinished
                old = [task for task in tasks if now - begun.get(task.node, 0) > self._patience.give_up]
                if old:
                    self._drop(old, "its turn did not come within the hour that an alert is worth")
                    continue
                due = [task for task in tasks if self._later.get(task.key, 0) <= now]
                if due:
                    wave = [task for task in due if task.alert == due[0].alert][:_AT_ONCE]
                    self._running = frozenset(task.key for task in wave)
                    return wave
                waits = [at - now for task in tasks if (at := self._later.get(task.key, 0)) > now]
                self._wake.wait(min(waits, default=None))
            return None

    def _look(self, wave: list[Task]) -> None:
        nodes, keys = [task.node for task in wave], [task.key for task in wave]
        words = [*self._program, "node", "diagnose", *nodes, "-i", str(self._inventory)]
        words += ["--reason", f"alert {wave[0].alert}"]
        self._ledger.write(time.time(), BEGIN, {"nodes": nodes, "keys": keys})
        log.info("alert %s: looking at %s", wave[0].alert, ", ".join(nodes))
        with self._wake:
            if self._stopping:
                return
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        code = self._process.wait()
        with self._wake:
            self._process = None
            if self._stopping:
                return
        if code not in _FINAL:
            log.warning("%s: put off by %.0f s (exit code %d)", ", ".join(nodes), self._patience.again, code)
            self._put_off(wave)
            return
        found = {one.node: one.state for one in repairs(keep.directory(self._inventory), nodes)}
        self._ledger.write(time.time(), END, {"nodes": nodes, "keys": keys, "code": code, "states": found})
        log.info("%s", ", ".join(f"{node}: {found.get(node, 'not begun')}" for node in nodes))

    def _put_off(self, wave: list[Task]) -> None:
        until = time.time() + self._patience.again
        with self._wake:
            self._later.update({task.key: until for task in wave})

    def _drop(self, tasks: list[Task], why: str) -> None:
        nodes = [task.node for task in tasks]
        self._ledger.write(
            time.time(), DROPPED, {"nodes": nodes, "keys": [task.key for task in tasks], "why": why}
        )
        for task in tasks:
            self._later.pop(task.key, None)
        log.info("%s: %s", ", ".join(nodes), why)
