"""The edge to the host: running commands, taking locks, reading /proc. Tests put a recorder in its place."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode

_SBIN = ("/usr/sbin", "/sbin")
_LOCK_WAIT_SECONDS = 600.0


class CommandError(ColdironError):
    """A command failed. ``output`` is what it said last."""

    def __init__(self, what: str, output: str) -> None:
        last = [line.strip() for line in output.splitlines() if line.strip()][-3:]
        if "No space left on device" in output:
            text = f"{what}: no space left on the device; free some, then run the same command again"
        else:
            text = f"{what}: {'; '.join(last) or 'it said nothing'}"
        super().__init__(text, ExitCode.ENVIRONMENT)
        self.output = output


def search_path() -> str:
    """PATH with the system directories that an ordinary user's lacks."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*path, *(directory for directory in _SBIN if directory not in path)])


class Host:
    """Commands on this machine.

    While a lock is held, its file descriptor is handed to every command: a command that outlives a killed
    ``coldiron`` keeps the lock until it has ended, so nobody cleans up under its feet.
    """

    def __init__(self) -> None:
        self._lock_fds: list[int] = []

    def which(self, command: str) -> str | None:
        """The path of ``command``, or None."""
        return shutil.which(command, path=search_path())

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str | None = None,
        check: bool = True,
        what: str = "",
        timeout_seconds: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Raises CommandError if it fails, unless ``check`` is off."""
        label = what or " ".join(argv[:3])
        try:
            done = subprocess.run(
                argv,
                input=stdin if stdin is not None else "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_seconds,
                pass_fds=self._lock_fds,
                env=os.environ | {"LC_ALL": "C.UTF-8", "PATH": search_path()},
                check=False,
            )
        except FileNotFoundError:
            raise CommandError(
                label, f"{argv[0]} is not installed; `coldiron rack requirements` lists what is needed"
            ) from None
        except subprocess.TimeoutExpired:
            raise CommandError(label, f"no end after {timeout_seconds:.0f} s") from None
        if check and done.returncode != 0:
            raise CommandError(label, done.stderr or done.stdout)
        return done

    def spawn(
        self, argv: Sequence[str], *, cgroup: Path, log: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command that outlives this process, in ``cgroup`` from its first instruction.

        The shell in between holds the lock until it has entered the control group: whoever takes the lock
        afterwards finds the process there.
        """
        # Standard input is the lock until the command itself starts; then it is /dev/null.
        script = 'echo 0 > "$0/cgroup.procs" && exec "$@" </dev/null'
        stdin = self._lock_fds[0] if self._lock_fds else subprocess.DEVNULL
        with log.open("ab") as output:
            return subprocess.Popen(
                ["/bin/sh", "-c", script, str(cgroup), *argv],
                stdin=stdin,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
                env={"PATH": search_path(), "LC_ALL": "C.UTF-8", **(env or {})},
            )

    @contextlib.contextmanager
    def lock(self, path: Path, on_wait: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Hold ``path`` locked. Waits ten minutes at most for its holder, then raises ColdironError."""
        deadline = time.monotonic() + _LOCK_WAIT_SECONDS
        told = False
        while True:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # the last user of the directory removed it in between
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                if not told:
                    on_wait("waiting for another coldiron command that works on the same thing")
                    told = True
                if time.monotonic() > deadline:
                    raise ColdironError(
                        f"{path}: another coldiron command has held this lock {_LOCK_WAIT_SECONDS:.0f} s; "
                        "let it end, then type the same again",
                        ExitCode.REFUSED,
                    ) from None
                time.sleep(0.1)
                continue
            if _same_file(descriptor, path):
                break
            os.close(descriptor)  # the last holder removed the file in between
        self._lock_fds.append(descriptor)
        try:
            yield
        finally:
            self._lock_fds.remove(descriptor)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            os.close(descriptor)


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def mount_points(mountinfo: str, below: Path) -> list[Path]:
    """The mount points at or below a directory, the deepest first, from the text of /proc/self/mountinfo."""
    points = []
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) < 5:
            continue
        # The kernel writes blanks and backslashes in octal.
        point = Path(fields[4].encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace"))
        if point == below or below in point.parents:
            points.append(point)
    return sorted(points, key=lambda point: len(point.parts), reverse=True)


def wait_until(condition: Callable[[], bool], seconds: float, interval_seconds: float = 0.03) -> bool:
    """Whether ``condition`` came true within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval_seconds)
    return True
