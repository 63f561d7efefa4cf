"""Playbooks through ansible-runner: the same as by ansible-playbook, event by event, and Ctrl-C ends them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.run import engine
from coldiron.run.engine import Job, Stop
from tests.unit.run.samples import PLAY, write_play


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_play(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("ANSIBLE_"):
            monkeypatch.delenv(name)
    return tmp_path


def run(job: Job, stop: Stop | None = None, **handlers: Any) -> tuple[int, list[dict[str, Any]], str]:
    events: list[dict[str, Any]] = []
    printed: list[str] = []
    private = Path("private")
    private.mkdir()
    code = engine.run(
        job,
        private,
        {"ANSIBLE_NOCOLOR": "1"},
        handlers.get("on_event", lambda event: events.append(dict(event))),
        handlers.get("on_output", printed.append),
        stop or Stop(),
    )
    return code, events, "\n".join(printed)


def test_everything_arrives(play: Path) -> None:
    job = Job(
        ["play.yml"], Path("hosts.yml"), ["one"], ["wait"], {"given": ["a b", "c'd"]}, check=True, diff=True
    )
    code, events, printed = run(job)
    assert code == 0
    assert json.loads((play / "seen.json").read_text()) == [["a b", "c'd"], True, "one", ["wait"]]
    assert "TASK [Write it down]" in printed
    assert "\x1b[" not in printed
    assert "+++ after" in printed
    assert [event["event"] for event in events if event["event"].startswith("runner_on_ok")]


def test_exit_codes_and_what_a_failure_says(play: Path) -> None:
    code, _, printed = run(Job(["play.yml"], Path("hosts.yml"), ["one"], (), {"given": [], "fail": True}))
    assert code == 2
    assert "as asked" in printed


def test_a_handler_that_fails_ends_the_run(play: Path) -> None:
    def full(_event: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run(Job(["play.yml"], Path("hosts.yml"), ["one"], (), {"given": [], "wait": 60}), on_event=full)


def test_a_word_on_stopping_that_fails_ends_the_run(play: Path) -> None:
    def closed(_count: int) -> None:
        raise BrokenPipeError(32, "nobody reads")

    stop = Stop(closed)
    stop.ask()
    with pytest.raises(BrokenPipeError):
        run(Job(["play.yml"], Path("hosts.yml"), ["one"], (), {"given": [], "wait": 60}), stop)


def test_without_ansible_playbook(play: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ColdironError, match="there is no ansible-playbook") as caught:
        run(Job(["play.yml"], Path("hosts.yml")))
    assert caught.value.exit_code == ExitCode.ENVIRONMENT


RUNNER = f"""\
import os, sys
from pathlib import Path
from coldiron.run import engine
class Loud(engine.Stop):
    def ask(self):
        super().ask()
        os.write(1, b"heard\\n")
stop = Loud(lambda count: print("asked", count, flush=True))
Path("private").mkdir()
job = engine.Job(["play.yml"], Path("hosts.yml"), ["one"], (), {{"given": [], "wait": 60}})
with stop.listening():
    code = engine.run(job, Path("private"), {{"ANSIBLE_NOCOLOR": "1", "MARK": sys.argv[1]}},
                      lambda event: None, lambda text: None, stop)
print("ended", code, stop.count, flush=True)
"""  # noqa: F541 - the braces above are doubled


def _marked(mark: str) -> list[int]:
    """Processes with ``mark`` in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


# Passes over the first SIGINT, as Python does what is raised in the midst of a fork; the next one ends it.
DEAF_ONCE = """\
import signal, time
def pass_over(number, frame):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    print("passed over", flush=True)
signal.signal(signal.SIGINT, pass_over)
print("ready", flush=True)
time.sleep(120)
"""


def test_who_passes_over_the_first_word_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DEAF_ONCE], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        stop = Stop()
        stop.runs_as(process.pid)
        stop.ask()
        assert process.stdout.readline() == "passed over\n"
        assert not stop.over()
        assert process.poll() is None
        monkeypatch.setattr(engine, "_AGAIN_SECONDS", 0.0)
        assert not stop.over()
        assert process.wait(60) == -signal.SIGINT


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_the_run_and_leaves_nothing(play: Path, times: int) -> None:
    mark = f"coldiron-test-{os.getpid()}-{times}"
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, mark], stdout=subprocess.PIPE, text=True, cwd=play
    )
    deadline = time.monotonic() + 60
    while not (play / "seen.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (play / "seen.json").exists()
    assert process.stdout is not None
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        # Two signals that nobody has looked at in between are one.
        assert "heard\n" in iter(process.stdout.readline, "")
    output, _ = process.communicate(timeout=50)
    ended = output.splitlines()[-1].split()
    assert ended[0] == "ended"
    assert ended[1] != "0"
    assert int(ended[2]) == times
    left = [pid for pid in _marked(mark) if pid != process.pid]
    deadline = time.monotonic() + 10
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        left = _marked(mark)
    assert not left


def test_a_stop_before_the_first_word_kills_at_once() -> None:
    stop = Stop()
    assert not stop.over()
    stop.ask()
    assert stop.over()


def test_a_stop_is_told_outside_the_signal() -> None:
    told: list[int] = []
    stop = Stop(told.append)
    stop.runs_as(2**22 + 1)
    stop.ask()
    assert told == []
    assert not stop.over()
    assert told == [1]
    stop.ask()
    assert stop.over()
    assert told == [1, 2]


def test_plain_command() -> None:
    job = Job(
        ["a.b.c"], Path("inv/x y"), ["n1", "g"], ["time"], {"k": ["v"]}, check=True, diff=True, verbosity=2
    )
    assert shlex.split(job.plain()) == [
        *("ansible-playbook", "a.b.c", "-i", "inv/x y", "-l", "n1,g", "-t", "time"),
        *("-e", '{"k": ["v"]}', "--check", "--diff", "-vv"),
    ]
    assert Job(["a.b.c"], Path("inv")).plain() == "ansible-playbook a.b.c -i inv"


def test_the_sample_is_a_playbook() -> None:
    assert PLAY.startswith("- name:")
