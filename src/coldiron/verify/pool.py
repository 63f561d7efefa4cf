"""A pytest loop over forks: tests are collected once, then run in several processes that share all of it.

Each process takes one unit of tests (a role on a node) after another, so that a node that waits holds up
nobody. A process that dies costs the tests of its unit, which say so, and is replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

#: Called in the process that ran a test, with its reports; what it returns is sent as JSON.
Tell = Callable[[pytest.Item, list[pytest.TestReport]], Any]
#: Called in the process that waits: the test's number and what was told, None where its process died.
Hear = Callable[[int, Any], None]


@dataclass
class _Worker:
    pid: int
    link: socket.socket
    open: list[int] = field(default_factory=list)  # tests of its unit that it has not told of
    heard: bytes = b""


class Pool:
    """A pytest plugin that replaces pytest's loop. ``unit_of`` groups tests that share fixtures."""

    def __init__(self, size: int, unit_of: Callable[[pytest.Item], Any], tell: Tell, hear: Hear) -> None:
        self.size = size
        self._unit_of = unit_of
        self._tell = tell
        self._hear = hear
        self._reports: list[pytest.TestReport] = []
        self._items: list[pytest.Item] = []
        self._workers: list[_Worker] = []
        self._waiting: deque[list[int]] = deque()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what came of a phase of the test that runs."""
        self._reports.append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the collected tests."""
        if session.testsfailed:
            raise session.Interrupted("tests could not be collected")
        self._items = session.items
        units: dict[Any, list[int]] = {}
        for number, item in enumerate(session.items):
            units.setdefault(self._unit_of(item), []).append(number)
        self._waiting.extend(units.values())
        try:
            for _ in range(min(self.size, len(units))):
                self._hire()
            while self._workers:
                self._listen()
        finally:
            for worker in self._workers:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
        return True

    def _hire(self) -> None:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            status = 70
            with contextlib.suppress(BaseException):
                ours.close()
                for other in self._workers:
                    other.link.close()
                # A group of its own: an interrupt is for the one that waits, which ends the others.
                os.setpgid(0, 0)
                self._serve(theirs)
                status = 0
            os._exit(status)
        theirs.close()
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        worker = _Worker(pid, ours)
        self._workers.append(worker)
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        """Give a process its next unit, or let it go."""
        if not self._waiting:
            self._dismiss(worker)
            return
        worker.open = list(self._waiting.popleft())
        with contextlib.suppress(OSError):  # It died: that is noticed where it is listened to.
            worker.link.sendall(json.dumps(worker.open).encode() + b"\n")

    def _dismiss(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.link.close()
        os.waitpid(worker.pid, 0)

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.link, selectors.EVENT_READ, worker)
            for key, _ in selector.select():
                self._receive(key.data)

    def _receive(self, worker: _Worker) -> None:
        try:
            data = worker.link.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            lost = worker.open
            self._dismiss(worker)
            for number in lost:
                self._hear(number, None)
            if self._waiting:
                self._hire()
            return
        *lines, worker.heard = (worker.heard + data).split(b"\n")
        for line in lines:
            number, told = json.loads(line)
            worker.open.remove(number)
            self._hear(number, told)
        if not worker.open:
            self._give(worker)

    def _serve(self, link: socket.socket) -> None:
        """Run the units that come, in a process of the pool."""
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        for line in _lines(link):
            numbers = json.loads(line)
            for number, following in zip(numbers, [*numbers[1:], None], strict=True):
                item = self._items[number]
                after = None if following is None else self._items[following]
                self._reports.clear()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                link.sendall(json.dumps([number, self._tell(item, self._reports)]).encode() + b"\n")


def _lines(link: socket.socket) -> Iterator[bytes]:
    with link.makefile("rb") as stream:
        yield from stream
