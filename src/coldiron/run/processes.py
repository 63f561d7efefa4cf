"""A process with all that it started: Ansible gives each of its workers a session of its own, beyond its group."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_PROC = Path("/proc")
# A process that is killed is gone within moments; this many looks bound what keeps starting others.
_SWEEPS = 50
_SWEEP_SECONDS = 0.1
# A process that is stopped has stopped within moments, unless it waits for a disk.
_STOP_SECONDS = 0.01


def stat_words(pid: int, proc: Path = _PROC) -> list[str]:
    """What /proc's ``stat`` says of a process from its state on, its parent next; nothing where it is gone."""
    try:
        # The name before the last bracket may hold anything.
        return (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def descendants(pid: int, proc: Path = _PROC) -> list[int]:
    """The processes that ``pid`` started, and those that they started; ``pid`` itself is not among them."""
    children: dict[int, list[int]] = {}
    for path in proc.glob("[0-9]*/stat"):
        child = int(path.parent.name)
        with contextlib.suppress(IndexError, ValueError):
            children.setdefault(int(stat_words(child, proc)[1]), []).append(child)
    found: list[int] = []
    left = [pid]
    while left:
        started = children.get(left.pop(), [])
        found += started
        left += started
    return found


def marked(mark: str, proc: Path = _PROC) -> list[int]:
    """The processes that have ``mark``, such as ``NAME=value``, in their environment as far as this user may read."""
    found = []
    for path in proc.glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def kill_marked(mark: str) -> None:
    """Kill whatever has ``mark`` in its environment, and what that starts meanwhile."""
    for _ in range(_SWEEPS):
        if not (found := [pid for pid in marked(mark) if pid != os.getpid()]):
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_SWEEP_SECONDS)


def _runs(pid: int) -> bool:
    """Whether a process is neither stopped nor gone, and may start others."""
    words = stat_words(pid)
    return bool(words) and words[0] not in "TtZX"


def kill_tree(pid: int) -> None:
    """Kill ``pid``, its process group and all that it started. Nothing happens where it is gone."""
    # Stopped first, until a look finds nothing that runs: what it would start meanwhile would not be seen.
    stopped: set[int] = set()
    for _ in range(_SWEEPS):
        found = {pid, *descendants(pid)}
        for one in found - stopped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGSTOP)
        if found <= stopped and not any(_runs(one) for one in found):
            break
        stopped |= found
        time.sleep(_STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for one in stopped:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)
