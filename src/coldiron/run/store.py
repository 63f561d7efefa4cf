"""The recorded runs of an inventory: where they lie, which there are, and what is known of each."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import did_you_mean, shown, shown_path
from coldiron.run.events import read_events
from coldiron.run.reducer import reduce
from coldiron.run.state import CellStatus, Outcome, RunState

DIRECTORY = ".coldiron"
EVENTS = "events.jsonl"
LOG = "output.log"
SUMMARY = "summary.json"
PLAYBOOK = "playbook.yml"
LAST = "last"
# How many of the newest runs are kept, and how many days any run is; COLDIRON_KEEP_RUNS and _DAYS say otherwise.
KEEP_RUNS = 100
KEEP_DAYS = 30
# How far back a run that is on is looked for.
_LOOKED_AT = 20
# Before the name of a run that has not begun yet.
_HIDDEN = "."
_ID = re.compile(r"\d{8}T\d{6}Z-[a-z0-9-]+-[0-9a-f]{4}")


@dataclass(frozen=True)
class RunSummary:
    """One line about a run. Times in seconds since the epoch."""

    id: str
    verb: str
    outcome: str
    started: float
    ended: float | None
    user: str
    cluster: str
    stages: list[str]
    limit: list[str]
    check: bool
    revision: str
    hosts: int
    changed: int  # hosts
    failed: int  # hosts, out of reach included
    command: list[str]

    @staticmethod
    def of(state: RunState) -> RunSummary:
        """The summary of a state."""
        header = state.header
        return RunSummary(
            id=header.id,
            verb=header.verb,
            outcome=state.outcome.value,
            started=header.started,
            ended=state.ended,
            user=header.user,
            cluster=header.cluster,
            stages=list(header.stages),
            limit=header.limit,
            check=header.check,
            revision=header.revision,
            hosts=len(state.hosts),
            changed=sum(host.counts.changed > 0 for host in state.hosts.values()),
            failed=state.count(CellStatus.FAILED) + state.count(CellStatus.UNREACHABLE),
            command=header.command,
        )


@dataclass(frozen=True)
class StoredRun:
    """A run on disk."""

    directory: Path

    @property
    def id(self) -> str:
        """The run's name."""
        return self.directory.name

    @property
    def log(self) -> Path:
        """All that ansible-playbook printed, secrets masked."""
        return self.directory / LOG

    @property
    def events(self) -> Path:
        """The run's events."""
        return self.directory / EVENTS

    def is_on(self) -> bool:
        """Whether the run's process still writes it, on this machine or on one that shares the directory."""
        try:
            descriptor = os.open(self.events, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return False

    def state(self) -> RunState:
        """What is known of the run. One that has no end and whose process is gone was killed.

        Raises ColdironError where its events cannot be read.
        """
        # Asked first: a run that ends in between has its end among the events.
        on = self.is_on()
        events = read_events(self.events)
        state = reduce(events)
        state.damaged = events.damaged
        state.header.id = state.header.id or self.id
        if not state.finished and not on:
            state.outcome = Outcome.KILLED
            state.exit_code = None
        return state

    def summary(self) -> RunSummary:
        """One line about the run, from its summary where it has one."""
        try:
            fields = json.loads((self.directory / SUMMARY).read_text(encoding="utf-8"))
            found = RunSummary(**{name: fields[name] for name in RunSummary.__dataclass_fields__})
            if isinstance(found.started, int | float) and isinstance(found.outcome, str):
                return found
        except (OSError, ValueError, TypeError, KeyError):
            pass
        return RunSummary.of(self.state())

    def keep_summary(self, state: RunState) -> None:
        """Write the one line down, so that a list need not read all events. Raises OSError."""
        path = self.directory / SUMMARY
        temporary = path.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(asdict(RunSummary.of(state)), stream)
        temporary.replace(path)


class Runs:
    """The runs of the inventory in ``inventory_dir``, kept in ``base``."""

    def __init__(self, inventory_dir: Path) -> None:
        self.inventory_dir = inventory_dir
        self.base = base_of(inventory_dir)
        self.directory = self.base / "runs"

    def ids(self) -> list[str]:
        """The names of the runs, newest first."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ColdironError(
                f"{shown_path(self.directory)} cannot be read: {error.strerror}", ExitCode.ENVIRONMENT
            ) from None
        return sorted((name for name in names if _ID.fullmatch(name)), reverse=True)

    def summaries(self, most: int | None = None) -> list[RunSummary]:
        """One line about each of the newest runs, newest first; those that cannot be read are left out."""
        found = []
        for name in self.ids()[:most]:
            try:
                found.append(StoredRun(self.directory / name).summary())
            except ColdironError:
                continue
        return found

    def current(self) -> StoredRun | None:
        """The run that is on, a changing one first; else the newest; None where there is none."""
        runs = [StoredRun(self.directory / name) for name in self.ids()[:_LOOKED_AT]]
        on = [run for run in runs if run.is_on()]
        return min(on, key=lambda run: run.state().header.check, default=runs[0] if runs else None)

    def open(self, reference: str) -> StoredRun:
        """The run that ``reference`` means: its name, the beginning or the end of it, or ``last``, ``last-1`` ….

        Raises ColdironError.
        """
        names = self.ids()
        where = shown_path(self.inventory_dir)
        if not names:
            raise ColdironError(f"{where} has no recorded run; `coldiron apply -i {where}` records one")
        if back := re.fullmatch(rf"{LAST}(?:[-~](\d{{1,6}}))?", reference):
            place = int(back[1] or 0)
            if place >= len(names):
                raise ColdironError(f"{where} has only {len(names)} recorded runs; see `coldiron runs list`")
            return StoredRun(self.directory / names[place])
        fitting = [name for name in names if reference and name.startswith(reference)]
        fitting = fitting or [name for name in names if reference and name.endswith(reference)]
        if len(fitting) > 1:
            raise ColdironError(
                f"`{shown(reference)}` fits {len(fitting)} runs, {fitting[0]} among them; write more of the name"
            )
        if not fitting:
            raise ColdironError(
                f"{where} has no run `{shown(reference)}`; {did_you_mean(reference, [LAST, *names[:5]])}"
            )
        return StoredRun(self.directory / fitting[0])

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[StoredRun]:
        """A new run of that name, to be begun in the block; others find it once the block has ended.

        So nobody ever finds a run without its header. What the block yields lies elsewhere until then. Raises
        ColdironError where it cannot be made.
        """
        hidden = self.directory / f"{_HIDDEN}{name}"
        try:
            hidden.mkdir(mode=0o700)
        except OSError as error:
            raise cannot_write(self.directory, error) from None
        try:
            yield StoredRun(hidden)
            hidden.rename(self.directory / name)
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise

    def prepare(self) -> None:
        """Make the directory, which git is told to ignore. Raises ColdironError."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            ignore = self.base / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise cannot_write(self.directory, error) from None

    def prune(self, keep: int, days: float, now: float) -> list[str]:
        """Remove the runs that are neither among the newest ``keep`` nor younger than ``days``; returns them.

        A run that is on stays. Raises ColdironError.
        """
        gone = []
        self._prune_unborn(now)
        edge = _moment(now - days * 86400)
        for name in self.ids()[max(0, keep) :]:
            run = StoredRun(self.directory / name)
            if name >= edge or run.is_on():
                continue
            try:
                shutil.rmtree(run.directory)
            except OSError as error:
                raise cannot_write(run.directory, error) from None
            gone.append(name)
        return gone

    def _prune_unborn(self, now: float) -> None:
        """Remove what runs that were killed before others could find them left behind a day ago."""
        edge = _moment(now - 86400)
        for hidden in self.directory.glob(f"{_HIDDEN}*"):
            name = hidden.name.removeprefix(_HIDDEN)
            if _ID.fullmatch(name) and name < edge:
                shutil.rmtree(hidden, ignore_errors=True)

    def list(self) -> Sequence[RunSummary]:
        """One line about each run, newest first."""
        return self.summaries()


def _moment(when: float) -> str:
    """How the name of a run begins that begins at ``when``."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(max(0.0, when)))


def new_name(verb: str, now: float) -> str:
    """A name for a run that begins at ``now``: names sort by time."""
    return f"{_moment(now)}-{verb.replace(' ', '-')}-{secrets.token_hex(2)}"


def cannot_write(path: Path, error: OSError) -> ColdironError:
    """What to say where the record of a run cannot be written."""
    return ColdironError(
        f"{shown_path(path)}: the run cannot be recorded: {error.strerror or error}", ExitCode.ENVIRONMENT
    )


def retention() -> tuple[int, float]:
    """How many runs are kept and for how many days, from the environment. Raises ColdironError."""
    values = []
    for name, default in (("COLDIRON_KEEP_RUNS", KEEP_RUNS), ("COLDIRON_KEEP_DAYS", KEEP_DAYS)):
        text = os.environ.get(name, str(default))
        if not text.isascii() or not text.isdigit() or len(text) > 6:
            raise ColdironError(f"{name} is `{shown(text)}`; write a whole number, such as {default}")
        values.append(int(text))
    return values[0], float(values[1])


def base_of(inventory_dir: Path) -> Path:
    """Where coldiron keeps what it knows of an inventory: in it, else in the user's own state directory."""
    own = inventory_dir / DIRECTORY
    if os.access(own if own.exists() else inventory_dir, os.W_OK):
        return own
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    absolute = os.path.abspath(inventory_dir)
    digest = hashlib.sha256(os.fsencode(absolute)).hexdigest()[:12]
    fallback = home / "coldiron" / f"{os.path.basename(absolute)}-{digest}"
    # Runs that were recorded while the directory could be written to are still there to be read.
    return own if own.is_dir() and not fallback.exists() and not os.access(home, os.W_OK) else fallback
