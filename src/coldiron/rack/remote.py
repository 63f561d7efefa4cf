"""Commands on a rack's nodes over ssh, with the rack's own keys and known hosts."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from coldiron.rack.connection import ssh_options
from coldiron.rack.metal.spec import MachineSpec
from coldiron.rack.state import NodeState, RackState

_AT_ONCE = 32


def ssh_command(state: RackState, node: NodeState | MachineSpec, command: Sequence[str] = ()) -> list[str]:
    """The ssh command that reaches ``node``. As ssh has it, the words of ``command`` make one shell line."""
    inventory = Path(state.inventory)
    key = str(inventory / ".rack" / "id_ed25519")
    return ["ssh", *ssh_options(inventory, state.sockets), "-i", key, f"root@{node.address}", *command]


def as_line(command: Sequence[str]) -> list[str]:
    """``command`` for ssh such that several words reach the node as they are; one alone is a shell line."""
    return list(command) if len(command) == 1 else [shlex.join(command)]


def log_in(state: RackState, node: NodeState | MachineSpec, command: Sequence[str]) -> None:
    """Become ssh: a login, or one command, with this process's own terminal. Does not return."""
    argv = ssh_command(state, node, command)
    os.execvp(argv[0], argv)


def run_everywhere(
    state: RackState,
    nodes: Sequence[NodeState | MachineSpec],
    command: Sequence[str],
    show: Callable[[str, str], None],
) -> dict[str, int]:
    """Run a command on nodes side by side, return exit codes. ``show`` gets each node's lines at once."""

    def run(node: NodeState | MachineSpec) -> int:
        with subprocess.Popen(
            ssh_command(state, node, as_line(command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                show(node.name, line.rstrip("\n"))
        return process.returncode

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip((node.name for node in nodes), pool.map(run, nodes), strict=True))
