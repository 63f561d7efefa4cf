"""Faults of simulated GPUs: asked for from here, made by the node's own simulated driver."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.rack import Rack
from coldiron.rack.remote import as_line, ssh_command

TOOL = "simulated-gpu"
USAGE = "write the GPU's number from 0 and a fault, e.g.: coldiron rack fault gpu02 gpu 3 xid79"
_SECONDS = 60
_NOT_FOUND = 127
_SSH_FAILED = 255


def command(words: Sequence[str], *, clear: bool) -> list[str]:
    """The node's command for ``GPU [FAULT]``. Raises ColdironError for other words."""
    if not words or not words[0].isdigit() or len(words) > 2:
        raise ColdironError(USAGE)
    return [TOOL, "fault", *words, *(["--clear"] if clear else [])]


def fault(rack: Rack, name: str, words: Sequence[str], *, clear: bool) -> list[str]:
    """Break or mend something of a node's GPU, or list what can be broken; returns what the node says of it.

    ``words``: the GPU's number, and the fault's name. Raises ColdironError for a node without simulated GPUs.
    """
    wanted = command(words, clear=clear)
    state = rack.standing()
    node = rack.reachable(state, [name])[0]
    ran = subprocess.run(
        ssh_command(state, node, as_line(wanted)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if ran.returncode == _NOT_FOUND:
        raise ColdironError(
            f"{name} has no simulated driver: its GPUs break once `site.yml` has installed one, where cluster.yml says "
            "`features: {gpus: managed}`"
        )
    if ran.returncode == _SSH_FAILED:
        raise ColdironError(f"{name} does not answer: {ran.stderr.strip()}", ExitCode.HOSTS_FAILED)
    if ran.returncode:
        raise ColdironError(f"{name}: {ran.stderr.strip().removeprefix(f'{TOOL}: ')}")
    return [f"{name}: {line}" if words[1:] or clear else line for line in ran.stdout.splitlines()]
