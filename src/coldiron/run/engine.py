"""Playbooks through ansible-runner, in the user's own directory and with the user's own ansible.cfg."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from coldiron.errors import ColdironError, ExitCode

# Seconds between two looks at whether the user has asked to stop.
_LOOK_SECONDS = 1


def run_playbook(
    playbook: str,
    inventory: Path,
    limit: Sequence[str] = (),
    tags: Sequence[str] = (),
    extravars: Mapping[str, Any] | None = None,
    check: bool = False,
    diff: bool = False,
) -> int:
    """Run ``playbook`` (a path or collection name) over ``inventory`` and show its output as it comes.

    Returns the exit code of ansible-playbook: 0 all is well, 2 a host failed, 4 a host was out of reach or
    the inventory could not be read, 1 and others an error before that. Raises ColdironError when it was
    interrupted or cannot be started. Secrets have no place in ``extravars``.
    """
    import ansible_runner

    with tempfile.TemporaryDirectory(prefix="coldiron-run-") as private, _interruptible() as interrupted:
        result = ansible_runner.run(
            private_data_dir=private,
            # The working directory: relative paths and ansible.cfg mean what they mean to ansible-playbook.
            project_dir=os.getcwd(),
            playbook=playbook,
            inventory=os.path.abspath(inventory),
            limit=",".join(limit) or None,
            tags=",".join(tags) or None,
            extravars=dict(extravars or {}),
            cmdline=" ".join(_flags(check, diff)) or None,
            envvars=_environment(),
            settings={"pexpect_timeout": _LOOK_SECONDS},
            cancel_callback=lambda: bool(interrupted),
        )
    if interrupted:
        raise ColdironError("interrupted; the same command goes on from here", ExitCode.INTERRUPTED)
    if result.rc is None or result.rc == 127:
        raise ColdironError(
            "ansible-playbook could not be started; is ansible-core installed beside coldiron?",
            ExitCode.ENVIRONMENT,
        )
    return int(result.rc)


def plain_command(
    playbook: str,
    inventory: Path,
    limit: Sequence[str] = (),
    tags: Sequence[str] = (),
    extravars: Mapping[str, Any] | None = None,
    check: bool = False,
    diff: bool = False,
) -> str:
    """What a user types to do the same as ``run_playbook`` without coldiron's command line."""
    words = ["ansible-playbook", playbook, "-i", str(inventory)]
    if limit:
        words += ["-l", ",".join(limit)]
    if tags:
        words += ["-t", ",".join(tags)]
    if extravars:
        words += ["-e", json.dumps(extravars)]
    return shlex.join([*words, *_flags(check, diff)])


def _flags(check: bool, diff: bool) -> list[str]:
    return ["--check"] * check + ["--diff"] * diff


def _environment() -> dict[str, str]:
    """What the run's environment has beyond the user's own."""
    # This Python's own commands first: the right ansible-playbook, in an activated venv or not.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    # ansible-runner gives it a terminal; where ours goes into a file or a pipe, colours are noise.
    plain = {} if sys.stdout.isatty() or os.environ.get("ANSIBLE_FORCE_COLOR") else {"ANSIBLE_NOCOLOR": "1"}
    return {"PATH": path, **plain}


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Collects the signals that ask to stop; ansible-runner then ends its own process group.

    ansible-playbook runs in a session of its own, so the terminal's Ctrl-C does not reach it.
    """
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
