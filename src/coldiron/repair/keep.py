"""Where repairs are kept, and who holds a node: one lock a node over all the processes of one run.

``coldiron`` holds the lock itself, and what it starts works under it. A plain ansible-playbook forks a process a task,
and a lock would end with each: there a small process holds it (``coldiron.repair.keeper``) for as long as that
ansible-playbook lives.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.repair import journal
from coldiron.run import lock
from coldiron.run.processes import stat_words
from coldiron.run.store import Runs


def directory(inventory: Path) -> Path:
    """Where the repairs of an inventory lie; ``inventory`` is its directory or a file in it."""
    home = inventory if inventory.is_dir() else inventory.parent
    return home / ".coldiron" / "repairs"


def prepare(inventory: Path) -> Path:
    """The same, made where it is missing, out of git's sight. Raises ColdironError."""
    found = directory(inventory)
    Runs(found.parent.parent).prepare()
    return found


def ancestors(pid: int) -> list[int]:
    """``pid`` and the processes above it, as far as /proc tells."""
    found: list[int] = []
    while pid > 0 and pid not in found:
        found.append(pid)
        try:
            pid = int(stat_words(pid)[1])
        except (ValueError, IndexError):
            break
    return found


def ours(repairs: Path, node: str) -> bool:
    """Whether this process, or one above it, holds the lock of ``node``."""
    who = lock.held_by([journal.lock_file(repairs, node)])
    return who is not None and who.machine == platform.node() and who.pid in ancestors(os.getpid())


def hold(repairs: Path, node: str, command: str, owner: int, now: float) -> None:
    """Have the lock of ``node`` held while process ``owner`` lives, unless one above this process holds it.

    Raises ColdironError, which names the holder, where another repair has it.
    """
    if ours(repairs, node):
        return
    held = journal.take(repairs, node, command, now, pid=owner)
    try:
        # A session of its own: the terminal's Ctrl-C is for ansible-playbook, which may take a while to end.
        subprocess.Popen(
            [sys.executable, "-m", "coldiron.repair.keeper", str(owner), *map(str, held.descriptors)],
            pass_fds=held.descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        held.release()
        raise ColdironError(
            f"{node}: its lock cannot be held: {error.strerror or error}", ExitCode.ENVIRONMENT
        ) from None
    for descriptor in held.descriptors:
        os.close(descriptor)


def check_ours(repairs: Path, node: str) -> None:
    """Raise ColdironError where the repair of ``node`` belongs to nobody above this process."""
    if not ours(repairs, node):
        raise ColdironError(
            f"{node}: the repair that this belongs to has ended; begin it again with coldiron node repair",
            ExitCode.REFUSED,
        )
