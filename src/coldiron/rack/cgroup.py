"""Control groups: what makes a node's processes findable, and killable, whatever became of their parents.

Only groups below ``coldiron/`` of the unified hierarchy are made, and only they are removed. The host's
mounts stay as they are: beside cgroup v1 controllers the unified hierarchy has no controllers (nodes then
cannot set limits); on a pure v2 host the controllers that the host hands out are handed on.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.host import wait_until


def unified_root(mountinfo: str) -> Path:
    """Where the unified hierarchy is mounted, from the text of /proc/self/mountinfo.

    Raises ColdironError where it is not: the rack mounts nothing of its own.
    """
    roots = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if right.split(" ")[0] == "cgroup2" and len(fields) >= 5 and fields[3] == "/":
            roots.append(fields[4])
    for preferred in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if preferred in roots:
            return Path(preferred)
    if roots:
        return Path(roots[0])
    raise ColdironError(
        "/proc/self/mountinfo: no cgroup2 file system is mounted, and the rack mounts none itself; "
        "boot the host with systemd.unified_cgroup_hierarchy=1",
        ExitCode.ENVIRONMENT,
    )


class Cgroup:
    """One control group and all below it."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.path = root / name

    def make(self) -> None:
        """Create it, and hand on the controllers of every group above it that is ours."""
        current = self.root
        for part in self.path.relative_to(self.root).parts:
            parent, current = current, current / part
            current.mkdir(exist_ok=True)
            if parent != self.root:
                _hand_on(parent)

    def exists(self) -> bool:
        return self.path.is_dir()

    def populated(self) -> bool:
        """Whether a process lives in it or below it."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text()
        except OSError:
            return False

    def pids(self) -> list[int]:
        """The processes in it and below it."""
        found = []
        for directory, _, _ in os.walk(self.path):
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in (Path(directory) / "cgroup.procs").read_text().split()]
        return found

    def kill(self, seconds: float = 20.0) -> None:
        """Kill every process in it and wait until none is left. Raises ColdironError after ``seconds``."""
        if not self.exists():
            return
        # Linux before 5.14 lacks the file; the loop below then does it alone.
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1")

        def gone() -> bool:
            if not self.populated():
                return True
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return False

        if not wait_until(gone, seconds):
            raise ColdironError(
                f"{self.path}: processes {self.pids()} do not end, even killed; the kernel's log may say why",
                ExitCode.ENVIRONMENT,
            )

    def remove(self) -> None:
        """Remove it and all below it; nothing may live in it."""
        for directory, _, _ in os.walk(self.path, topdown=False):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(directory)


def _hand_on(group: Path) -> None:
    """Give the groups below ``group`` the controllers that it has. One that cannot be given is left out."""
    try:
        controllers = (group / "cgroup.controllers").read_text().split()
    except OSError:
        return
    for controller in controllers:
        with contextlib.suppress(OSError):
            (group / "cgroup.subtree_control").write_text(f"+{controller}")
