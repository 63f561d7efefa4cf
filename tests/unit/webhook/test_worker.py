"""What was accepted is done by a command: when it is put off, cut off, too late, or over before its turn."""

from __future__ import annotations

import json
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coldiron.webhook.ledger import Ledger, Task
from coldiron.webhook.worker import Patience, Worker

# Notes how it was called, waits while there is a file `wait`, and ends with the codes in `codes`, then with 0.
PROGRAM = """#!{python}
import json, pathlib, sys, time
home = pathlib.Path({home!r})
with (home / "calls").open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
while (home / "wait").exists():
    time.sleep(0.02)
codes = json.loads((home / "codes").read_text())
(home / "codes").write_text(json.dumps(codes[1:]))
sys.exit(codes[0] if codes else 0)
"""


class Desk:
    """A worker, its ledger, and the command that stands for ``coldiron``."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / ".coldiron").mkdir()
        (home / "codes").write_text("[]")
        self.program = home / "program"
        self.program.write_text(PROGRAM.format(python=sys.executable, home=str(home)))
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)
        self.ledger = Ledger(home, "test", time.time())
        self.worker = self.made(Patience())

    def made(self, patience: Patience) -> Worker:
        self.worker = Worker(self.ledger, self.home, patience, [str(self.program)])
        return self.worker

    def accept(self, *tasks: Task, at: float | None = None) -> None:
        for task in tasks:
            self.ledger.accept(time.time() if at is None else at, task)
        self.worker.wake()

    def calls(self) -> list[list[str]]:
        path = self.home / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def events(self, kind: str) -> list[dict[str, Any]]:
        found = (self.home / ".coldiron" / "webhook.jsonl").read_text().splitlines()
        return [one["data"] for one in map(json.loads, found) if one["kind"] == f"webhook_{kind}"]

    def until(self, seen: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not seen():
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(tmp_path)
    yield found
    (tmp_path / "wait").unlink(missing_ok=True)
    if found.worker.ident is not None:
        found.worker.stop()
    found.ledger.close()


ONE, TWO, OTHER = (
    Task("cpu01", "NodeDown", "a@1"),
    Task("cpu02", "NodeDown", "b@1"),
    Task("gpu02", "Xid", "c@1"),
)


def test_the_nodes_of_one_alert_are_looked_at_together(desk: Desk) -> None:
    desk.accept(ONE, OTHER, TWO)
    desk.worker.start()
    desk.until(lambda: not desk.ledger.unfinished)
    home = str(desk.home)
    assert desk.calls() == [
        ["node", "diagnose", "cpu01", "cpu02", "-i", home, "--reason", "alert NodeDown"],
        ["node", "diagnose", "gpu02", "-i", home, "--reason", "alert Xid"],
    ]
    assert [one["nodes"] for one in desk.events("end")] == [["cpu01", "cpu02"], ["gpu02"]]


def test_a_command_that_failed_is_not_tried_again(desk: Desk) -> None:
    (desk.home / "codes").write_text("[1]")
    desk.accept(ONE)
    desk.worker.start()
    desk.until(lambda: not desk.ledger.unfinished)
    assert desk.events("end")[0]["code"] == 1
    assert len(desk.calls()) == 1


def test_while_another_run_is_on_it_is_tried_again(desk: Desk) -> None:
    (desk.home / "codes").write_text("[3, 4, 5]")
    desk.made(Patience(again=0.05))
    desk.accept(ONE)
    desk.worker.start()
    desk.until(lambda: not desk.ledger.unfinished)
    assert len(desk.calls()) == 4
    assert [one["code"] for one in desk.events("end")] == [0]


def test_it_is_given_up_after_a_while(desk: Desk) -> None:
    (desk.home / "codes").write_text(json.dumps([3] * 1000))
    desk.made(Patience(again=0.05, give_up=1.0))
    desk.accept(ONE)
    desk.worker.start()
    desk.until(lambda: not desk.ledger.unfinished)
    assert desk.events("dropped")[0]["nodes"] == ["cpu01"]


def test_what_is_over_before_its_turn_is_dropped_and_what_has_begun_is_not(desk: Desk) -> None:
    (desk.home / "wait").touch()
    desk.accept(ONE, OTHER)
    desk.worker.start()
    desk.until(lambda: len(desk.calls()) == 1)
    desk.worker.resolved({ONE.key, OTHER.key, "unknown@1"})
    assert [one["nodes"] for one in desk.events("dropped")] == [["gpu02"]]
    assert desk.ledger.unfinished == [ONE]
    (desk.home / "wait").unlink()
    desk.until(lambda: not desk.ledger.unfinished)
    assert len(desk.calls()) == 1


def test_a_receiver_that_is_stopped_takes_its_work_up_again(desk: Desk) -> None:
    (desk.home / "wait").touch()
    desk.accept(ONE)
    desk.worker.start()
    desk.until(lambda: len(desk.calls()) == 1)
    desk.worker.stop()
    assert not desk.worker.is_alive()
    assert desk.ledger.unfinished == [ONE]
    (desk.home / "wait").unlink()
    desk.made(Patience()).start()
    desk.until(lambda: not desk.ledger.unfinished)
    assert len(desk.calls()) == 2


def test_what_waited_for_a_day_is_an_old_story(desk: Desk) -> None:
    desk.accept(ONE, at=time.time() - 86400)
    desk.worker.start()
    desk.until(lambda: not desk.ledger.unfinished)
    assert desk.calls() == []


def test_a_program_that_cannot_be_started_does_not_end_the_worker(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.program.chmod(0o600)
    desk.made(Patience(again=0.05))
    desk.accept(ONE)
    desk.worker.start()
    desk.until(lambda: "looking at cpu01" in caplog.text)
    desk.program.chmod(0o700)
    desk.until(lambda: not desk.ledger.unfinished)
