"""One run at a time on one cluster: a lock beside the inventory, and one of the machine for its clones.

The kernel holds the locks (flock), so they are gone with the process, whatever ended it. What the file says is
only for people: who holds it, or who died with it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import hashlib
import json
import os
import platform
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown, shown_path
from coldiron.run.processes import stat_words

MACHINE_DIRECTORIES = (Path("/run/lock"), Path("/tmp"))
_LONGEST_TEXT = 4096
_ATTEMPTS = 4
# What a coldiron that was killed leaves behind is interrupted with it, and ends within moments.
_ENDING_SECONDS = 10.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Holder:
    """Who holds a lock. ``since`` in seconds since the epoch; ``group`` is ansible-playbook's process group."""

    run: str
    user: str
    machine: str
    pid: int
    command: str
    since: float
    group: int = 0
    group_start: str = ""

    def told(self, now: float) -> str:
        """The holder in words."""
        at = time.strftime("%H:%M", time.localtime(self.since))
        return (
            f"{shown(self.user)} on {shown(self.machine)} (pid {self.pid}) since {at}, "
            f"{span(now - self.since)} ago: {shown(self.command)}"
        )


def span(seconds: float) -> str:
    """A length of time as a person says it."""
    minutes = int(max(0, seconds) // 60)
    if minutes < 1:
        return f"{int(max(0, seconds))} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def holder(run: str, command: str, now: float) -> Holder:
    """This process as a holder."""
    return Holder(run, user(), platform.node(), os.getpid(), command, now)


def user() -> str:
    """Whoever runs this; the one behind sudo where there is one."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


class Lock:
    """The locks of one cluster, held; ``died`` is the holder that ended without giving one of them back."""

    def __init__(self, descriptors: list[int], who: Holder, died: Holder | None) -> None:
        self._descriptors = descriptors
        self._who = who
        self.died = died

    def runs_as(self, group: int) -> None:
        """Note ansible-playbook's process group: it may outlive a coldiron that is killed."""
        fields = asdict(self._who) | {"group": group, "group_start": _start_of(group)}
        self._who = Holder(**fields)
        self._say(json.dumps(fields))

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The open files that hold the locks: a process that inherits them holds the locks on."""
        return tuple(self._descriptors)

    def release(self) -> None:
        """Give the locks back."""
        self._say("")
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []

    def _say(self, text: str) -> None:
        for descriptor in self._descriptors:
            # Another user's file, open for reading: its text stays, the lock holds all the same.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, text.encode(), 0)


def paths(base: Path, cluster: str, address: str) -> list[Path]:
    """The lock files of a cluster: beside its runs, and the machine's own for all clones of its inventory."""
    digest = hashlib.sha256(f"{cluster}\0{address}".encode()).hexdigest()[:12]
    name = re.sub(r"[^A-Za-z0-9-]", "-", cluster)[:40]
    machine = next((place for place in MACHINE_DIRECTORIES if os.access(place, os.W_OK)), None)
    return [base / "lock", *([machine / f"coldiron-{name}-{digest}.lock"] if machine else [])]


def take(files: list[Path], who: Holder, now: float) -> Lock:
    """Take the locks ``files`` for ``who``. Raises ColdironError, which names the holder, where one is held."""
    taken: list[int] = []
    died = None
    try:
        for file in files:
            descriptor = _open(file)
            taken.append(descriptor)
            if not _flock(descriptor, file):
                raise _held(file, _read(descriptor), now)
            died = died or _read(descriptor)
        if died is not None and died.machine == who.machine and _stays(died):
            raise ColdironError(
                f"run {shown(died.run)} lost its coldiron, but its ansible-playbook still works on the cluster; wait "
                f"until it has ended, or end it: kill -- -{died.group}",
                ExitCode.REFUSED,
            )
        lock = Lock(taken, who, died)
        lock._say(json.dumps(asdict(who)))
        taken = []
        return lock
    finally:
        for descriptor in taken:
            os.close(descriptor)


def _flock(descriptor: int, file: Path) -> bool:
    """Take the kernel's lock; False where another process holds it.

    Whoever only looks (``held_by``) holds it for a moment: so it is tried more than once.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(0.05)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError as error:
            raise _cannot(file, error) from None
        return True
    return False


def held_by(files: list[Path]) -> Holder | None:
    """Who holds one of the locks now; None where they are free."""
    for file in files:
        with contextlib.suppress(OSError):
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _read(descriptor) or Holder("", "somebody", platform.node(), 0, "", 0.0)
            finally:
                os.close(descriptor)
    return None


def take_or_tell(file: Path, who: Holder, now: float, told: Callable[[Holder], str]) -> Lock:
    """Take one lock; where somebody holds it, the ColdironError (refused) says what ``told`` makes of the holder."""
    try:
        return take([file], who, now)
    except ColdironError:
        other = held_by([file])
        if other is None:
            raise
        raise ColdironError(told(other), ExitCode.REFUSED) from None


@contextlib.contextmanager
def holding(files: list[Path], who: Holder, now: float) -> Iterator[Lock]:
    """Hold the locks while inside. Raises ColdironError where one is held by another run."""
    lock = take(files, who, now)
    try:
        yield lock
    finally:
        lock.release()


def _open(file: Path) -> int:
    """A descriptor of the lock file, made where it is missing; a link or another thing in its place is refused."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | flags, 0o644)
        except PermissionError:
            # Another user's, in a directory that everybody may write to: reading is enough for the lock.
            descriptor = os.open(file, os.O_RDONLY | flags)
    except OSError as error:
        raise _cannot(file, error) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ColdironError(f"{shown_path(file)} is no plain file; remove it", ExitCode.ENVIRONMENT)
    return descriptor


def _cannot(file: Path, error: OSError) -> ColdironError:
    why = "is a link; remove it" if error.errno == errno.ELOOP else f"cannot be locked: {error.strerror}"
    return ColdironError(f"{shown_path(file)} {why}", ExitCode.ENVIRONMENT)


def _held(file: Path, who: Holder | None, now: float) -> ColdironError:
    if who is None:
        return ColdironError(
            f"another run holds {shown_path(file)}, and has not said who it is; try again", ExitCode.REFUSED
        )
    return ColdironError(
        f"a run is on: {who.told(now)}; watch it with `coldiron status`, and try again when it has ended",
        ExitCode.REFUSED,
    )


def _read(descriptor: int) -> Holder | None:
    try:
        fields = json.loads(os.pread(descriptor, _LONGEST_TEXT, 0).decode())
        known = {name: fields[name] for name in Holder.__dataclass_fields__}
        found = Holder(**known)
        float(found.since)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    typed = all(isinstance(known[name], str) for name in ("run", "user", "machine", "command", "group_start"))
    return found if typed and isinstance(found.pid, int) and isinstance(found.group, int) else None


def _start_of(pid: int) -> str:
    """When a process of this machine began, in the kernel's words: a number that is used again differs in it.

    Nothing of one that has ended and only waits to be buried: a container's first process may take its time.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        words = stat_words(pid)
        return "" if words[0] in "ZX" else f"{boot} {words[19]}"
    except (OSError, IndexError):
        return ""


def _lives(who: Holder) -> bool:
    return bool(who.group and who.group_start and _start_of(who.group) == who.group_start)


def _stays(who: Holder) -> bool:
    """Whether it lives on, and not only until it has ended as it was told to."""
    end = time.monotonic() + _ENDING_SECONDS
    while _lives(who):
        if time.monotonic() > end:
            return True
        time.sleep(_LOOK_SECONDS)
    return False
