"""Playbooks through ansible-runner, in the user's own directory and with the user's own ansible.cfg.

The only module that knows ansible-runner. What it is told comes out event by event and line by line; what
becomes of them is the caller's.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.run.processes import kill_marked, kill_tree

# Seconds between two looks at whether the user has asked to stop.
_LOOK_SECONDS = 1
# Seconds that ansible-playbook has to end by itself once it was asked to; then it is killed.
GRACE_SECONDS = 20
# And until it is asked again: what Python raises in the midst of a fork, it passes over.
_AGAIN_SECONDS = 5
# Names the run in the environment of all that it starts.
_MARK = "COLDIRON_RUN_PROCESSES"
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

RawEvent = Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """What ansible-playbook is to do. ``playbooks`` are paths or collection names; secrets have no place here."""

    playbooks: Sequence[str]
    inventory: Path
    limit: Sequence[str] = ()
    tags: Sequence[str] = ()
    extravars: Mapping[str, Any] = field(default_factory=dict)
    check: bool = False
    diff: bool = False
    verbosity: int = 0

    def plain(self) -> str:
        """What a user types to do the same without coldiron's command line."""
        words = ["ansible-playbook", *self.playbooks, "-i", str(self.inventory)]
        if self.limit:
            words += ["-l", ",".join(self.limit)]
        if self.tags:
            words += ["-t", ",".join(self.tags)]
        if self.extravars:
            words += ["-e", json.dumps(self.extravars)]
        return shlex.join([*words, *self.flags()])

    def flags(self) -> list[str]:
        """The options without a value."""
        verbose = [f"-{'v' * self.verbosity}"] if self.verbosity else []
        return ["--check"] * self.check + ["--diff"] * self.diff + verbose


class Stop:
    """Requests to stop a run: the first is passed on to ansible-playbook, the second kills it."""

    def __init__(self, told: Callable[[int], None] = lambda _count: None) -> None:
        self.count = 0
        self._told = told
        self._untold = 0
        self._pid = 0
        self._since = 0.0

    def runs_as(self, pid: int) -> None:
        """Note the process of ansible-playbook, which leads a group of its own."""
        if not self._pid:
            self._pid = pid
            if self.count:
                self._pass_on()

    def ask(self) -> None:
        """Ask once more."""
        self.count += 1
        if self.count == 1:
            self._since = time.monotonic()
        self._pass_on()
        self._untold = self.count

    def tell(self) -> None:
        """Say what was asked for. Not in the signal's own handler: it may have come in the midst of a print."""
        if self._untold:
            count, self._untold = self._untold, 0
            self._told(count)

    def over(self) -> bool:
        """Whether what is left of the run is to be killed now. Asked about once a second."""
        self.tell()
        if not self.count:
            return False
        # Before its first word ansible-playbook has touched nothing.
        over = self.count > 1 or not self._pid or time.monotonic() - self._since > GRACE_SECONDS
        if over and self._pid:
            # ansible-runner, which is told so, would kill its process group only.
            kill_tree(self._pid)
        elif time.monotonic() - self._since > _AGAIN_SECONDS:
            self._pass_on()
        return over

    def _pass_on(self) -> None:
        if self._pid and self.count > 1:
            kill_tree(self._pid)
        elif self._pid:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGINT)

    @contextmanager
    def listening(self) -> Iterator[Stop]:
        """Take SIGINT, SIGTERM and SIGHUP for requests while inside.

        ansible-playbook runs in a session of its own, so the terminal's Ctrl-C does not reach it.
        """

        def note(_number: int, _frame: FrameType | None) -> None:
            self.ask()

        before = {number: signal.signal(number, note) for number in _STOP_SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def shown_command(words: Sequence[str]) -> str:
    """A command as it is typed."""
    return shlex.join(words)


def find_ansible_playbook() -> str:
    """The ansible-playbook beside this Python, else the first in PATH. Raises ColdironError."""
    beside = Path(sys.executable).parent / "ansible-playbook"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("ansible-playbook")
    if not found:
        raise ColdironError(
            "there is no ansible-playbook beside coldiron's Python nor in PATH; type: pip install ansible-core",
            ExitCode.ENVIRONMENT,
        )
    return found


def run(
    job: Job,
    private: Path,
    environment: Mapping[str, str],
    on_event: Callable[[RawEvent], None],
    on_output: Callable[[str], None],
    stop: Stop,
) -> int:
    """Run a job to its end and return ansible-playbook's exit code, negative where a signal ended it.

    0 all is well, 2 a host failed, 4 a host was out of reach or the inventory could not be read, 1 and others
    an error before that. ``private`` is an empty directory for ansible-runner, with the environment in it: only
    its owner may read it. ``environment`` is added to the user's own. ``on_event`` gets each event as
    ansible-runner has it, ``on_output`` the text that ansible-playbook printed, in the same order. Whatever
    either raises ends the run and is raised here.
    """
    import ansible_runner

    program = find_ansible_playbook()
    # Where the system can do it, ansible-playbook is stopped when this process dies, whatever killed it.
    setpriv = shutil.which("setpriv")
    words = [*([setpriv, "--pdeathsig", "INT", "--"] if setpriv else []), program]
    failed: list[BaseException] = []
    mark = str(private.resolve())

    def take(event: dict[str, Any]) -> bool:
        try:
            if isinstance(pid := event.get("pid"), int):
                stop.runs_as(pid)
            stop.tell()
            on_event(event)
            if text := event.get("stdout"):
                on_output(str(text))
        except BaseException as error:
            # ansible-runner would pass over an OSError, such as that of a full disk.
            if not failed:
                failed.append(error)
                stop.ask()
        return False

    def asked() -> bool:
        try:
            return stop.over()
        except BaseException as error:
            # Whatever is told to the user when a run is stopped may fail as well.
            failed.append(error)
            return True

    result = ansible_runner.run(
        private_data_dir=str(private),
        # The working directory: relative paths and ansible.cfg mean what they mean to ansible-playbook.
        project_dir=os.getcwd(),
        # Named as a program: ansible-runner itself knows of one playbook only.
        binary=words[0],
        cmdline=shlex.join([*words[1:], *job.playbooks, *job.flags()]),
        inventory=os.path.abspath(job.inventory),
        limit=",".join(job.limit) or None,
        tags=",".join(job.tags) or None,
        extravars=dict(job.extravars),
        # This Python's own commands first: the right ansible-playbook's own helpers, in an activated venv or not.
        envvars={"PATH": os.pathsep.join([str(Path(program).parent), os.environ.get("PATH", os.defpath)])}
        | {_MARK: mark}
        | dict(environment),
        settings={"pexpect_timeout": _LOOK_SECONDS, "suppress_output_file": True},
        quiet=True,
        event_handler=take,
        cancel_callback=asked,
    )
    if stop.count:
        # A worker that ansible-playbook forked in the very moment of its signal never hears of it.
        kill_marked(f"{_MARK}={mark}")
    if failed:
        raise failed[0]
    return -1 if result.rc is None else int(result.rc)
