"""testinfra's ssh backend with a journal, a time limit, and the read-only view of a node where one is wanted."""

from __future__ import annotations

import base64
import functools
import os
import shlex
import signal
import subprocess
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testinfra.backend.base import CommandResult
from testinfra.backend.ssh import SshBackend
from testinfra.host import Host

if TYPE_CHECKING:
    from coldiron.testing.ssh import Connections

#: The longest that a test of a role waits for one command, srun's patience for a free node included.
COMMAND_SECONDS = 300
SSH_FAILED = 255
TIMED_OUT = 124


@dataclass(frozen=True)
class Ran:
    """A command that a test ran: where, what, its return code, what it said, and how long it took."""

    node: str
    command: str
    rc: int
    stdout: str
    stderr: str
    seconds: float


@dataclass
class Watch:
    """What holds for the commands of the test that runs now, and the journal of them."""

    read_only: bool = False
    journal: list[Ran] = field(default_factory=list)


class NodeSilentError(RuntimeError):
    """ssh itself failed: the node cannot be asked."""


@functools.cache
def onlooker() -> str:
    """Return the words that run a command read-only on a node; the command, quoted, follows them."""
    source = Path(__file__).with_name("onlooker.py").read_text(encoding="utf-8")
    packed = base64.b64encode(zlib.compress(source.encode(), 9)).decode()
    program = f"import binascii,zlib;exec(zlib.decompress(binascii.a2b_base64('{packed}')))"
    return f'python3 -I -S -c "{program}"'


def read_only(command: str) -> str:
    """Return the shell command that runs ``command`` without letting it change its node."""
    return f"{onlooker()} {shlex.quote(command)}"


class NodeBackend(SshBackend):  # type: ignore[misc]
    """A node of the site, as testinfra reaches it."""

    def __init__(self, name: str, connections: Connections, sudo: bool) -> None:
        super().__init__(name, ssh_config=str(connections.config), controlpersist=0, sudo=sudo)
        self._watch = connections.watch
        # Asking the node for its encoding would be a command that no test ran.
        self._encoding = "UTF-8"

    def get_sudo_command(self, command: str, sudo_user: str | None) -> str:
        """Return the command under sudo, the read-only view inside of it: that needs root."""
        inner = command if sudo_user or not self._watch.read_only else read_only(command)
        return str(super().get_sudo_command(inner, sudo_user))

    def run(self, command: str, *args: str, **kwargs: Any) -> CommandResult:
        """Run a command; a node that ssh cannot reach raises NodeSilentError."""
        asked = self.quote(command, *args)
        sent = self.get_command(command, *args)
        if self._watch.read_only and not self.sudo:
            sent = read_only(sent)
        words, arguments = self._build_ssh_command(sent)
        start = time.monotonic()
        result = self.run_local(" ".join(words), *arguments)
        result.command = self.encode(asked)
        said, complained = (
            text.decode(errors="replace") for text in (result.stdout_bytes, result.stderr_bytes)
        )
        seconds = time.monotonic() - start
        self._watch.journal.append(Ran(self.host.name, asked, result.rc, said, complained, seconds))
        if result.rc == SSH_FAILED:
            raise NodeSilentError(
                f"{self.host.name} cannot be asked over ssh: {complained.strip() or 'no reason'}"
            )
        return result

    def run_local(self, command: str, *args: str) -> CommandResult:
        """Run a command of this machine, at most for COMMAND_SECONDS; past that its return code is 124."""
        words = self.encode(self.quote(command, *args))
        with subprocess.Popen(
            words,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                stdout, stderr = process.communicate(timeout=COMMAND_SECONDS)
                status = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                stdout, stderr = process.communicate()
                status = TIMED_OUT
                stderr += f"coldiron: no end within {COMMAND_SECONDS} s\n".encode()
        return self.result(status, words, stdout, stderr)


def node(name: str, connections: Connections, sudo: bool) -> Any:
    """Return the testinfra host of a node."""
    return Host(NodeBackend(name, connections, sudo))
