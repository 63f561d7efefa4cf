"""How the deploy program calls others: bounded in time, tried again where that helps, one line where it fails.

It runs on a machine that has no system yet, in memory only, with Python's standard library. Output of programs is
never passed on whole: their last line is enough to know why.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown

# The whole environment of every program: nothing is inherited, so nothing leaks into it.
_ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "HOME": "/root",
    "TERM": "linux",
}
_LONGEST_OUTPUT = 16 * 1024 * 1024


class DeployFailed(ColdironError):
    """The machine is not what was ordered, or something on it does not work. One line."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.HOSTS_FAILED) -> None:
        super().__init__(message, exit_code)


class CommandFailed(DeployFailed):
    """A program that failed, hung, or is not there."""


@dataclass
class Places:
    """Where things are: all below ``root`` (the RAM environment's own root; another one in tests)."""

    root: Path = Path("/")
    # The installed system, while it is written.
    target: Path = Path("/target")
    environment: dict[str, str] = field(default_factory=lambda: dict(_ENVIRONMENT))

    def at(self, path: str) -> Path:
        """``path``, absolute, below the root."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str:
        """What the file says, stripped; "" where there is none."""
        try:
            return self.at(path).read_text(encoding="utf-8", errors="replace").strip("\0 \n\t")
        except OSError:
            return ""


@dataclass
class Tools:
    """Runs programs on this machine."""

    places: Places
    sleep: Callable[[float], None] = time.sleep

    def run(self, *command: str, timeout: float = 60, attempts: int = 1, given: bytes | None = None) -> bytes:
        """What ``command`` printed. ``timeout`` in seconds, each attempt.

        Raises CommandFailed, one line: which program, and what its last words were.
        """
        for attempt in range(attempts):
            try:
                return self._once(command, timeout, given)
            except CommandFailed:
                if attempt + 1 == attempts:
                    raise
                self.sleep(min(2**attempt, 8))
        raise AssertionError(attempts)

    def try_run(self, *command: str, timeout: float = 60) -> str:
        """Run it where its failure is no reason to stop; what went wrong, or ""."""
        try:
            self._once(command, timeout, None)
        except CommandFailed as error:
            return error.message
        return ""

    def chroot(self, *command: str, timeout: float = 300) -> bytes:
        """Run a program of the installed system in it."""
        return self.run("chroot", str(self.places.target), *command, timeout=timeout)

    def _once(self, command: Sequence[str], timeout: float, given: bytes | None) -> bytes:
        name = command[2] if command[0] == "chroot" else command[0]
        try:
            with subprocess.Popen(
                command,
                stdin=subprocess.PIPE if given is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.places.environment,
                start_new_session=True,
            ) as process:
                try:
                    out, err = process.communicate(given, timeout)
                except subprocess.TimeoutExpired:
                    kill_group(process)
                    raise CommandFailed(f"{name} did not end within {timeout:g} s") from None
        except OSError as error:
            raise CommandFailed(f"{name} cannot be started: {error.strerror}") from None
        if process.returncode:
            raise CommandFailed(f"{name} failed ({_ended(process.returncode)}): {last_line(err or out)}")
        if len(out) > _LONGEST_OUTPUT:
            raise CommandFailed(f"{name} printed {len(out)} bytes, which is nothing that can be read")
        return out


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, 9)
    process.kill()


def last_line(output: bytes) -> str:
    """The last line that says something, fit for a message."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return shown(lines[-1]) if lines else "it said nothing"


def waited(what: Callable[[], bool], seconds: float, sleep: Callable[[float], None]) -> bool:
    """Whether ``what`` came true within ``seconds``; it is asked every tenth of a second."""
    for _ in _ticks(seconds):
        if what():
            return True
        sleep(0.1)
    return what()


def _ticks(seconds: float) -> Iterator[None]:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        yield None


def _ended(code: int) -> str:
    return f"exit {code}" if code > 0 else f"signal {-code}"
