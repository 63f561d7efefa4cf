"""One recorded run from its request to its end: locks, events on disk, the state, and the view that shows it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldiron import __version__
from coldiron.errors import ColdironError, ExitCode
from coldiron.run import engine, lock, survey
from coldiron.run.catalog import PlayOf
from coldiron.run.events import END, START, STOP, EventWriter
from coldiron.run.mask import Mask
from coldiron.run.reducer import CHECK_STAGE, Reducer
from coldiron.run.state import CellStatus, Header, Outcome, RunState
from coldiron.run.store import PLAYBOOK, Runs, StoredRun, cannot_write, new_name, retention
from coldiron.run.trim import plain_text, trim

EXIT_CODES = {
    Outcome.OK: ExitCode.OK,
    Outcome.FAILED: ExitCode.HOSTS_FAILED,
    Outcome.UNREACHABLE: ExitCode.HOSTS_FAILED,
    Outcome.REFUSED: ExitCode.USAGE,
    Outcome.INTERRUPTED: ExitCode.INTERRUPTED,
    Outcome.KILLED: ExitCode.INTERRUPTED,
    Outcome.ERROR: ExitCode.ENVIRONMENT,
}
_COLLECTION_PART = f"ansible_collections{os.sep}coldiron{os.sep}cluster{os.sep}"


@dataclass(frozen=True)
class Request:
    """What to run. ``playbook_text`` is run in place of ``playbooks`` where one playbook cannot say it."""

    verb: str
    inventory: Path
    playbooks: Sequence[str]
    plays: Sequence[PlayOf]
    command: Sequence[str]
    plain: str
    playbook_text: str = ""
    limit: Sequence[str] = ()
    tags: Sequence[str] = ()
    extravars: Mapping[str, Any] = field(default_factory=dict)
    check: bool = False
    diff: bool = False
    verbosity: int = 0

    @property
    def directory(self) -> Path:
        """The inventory's directory."""
        return self.inventory if self.inventory.is_dir() else self.inventory.parent

    @property
    def stages(self) -> list[str]:
        """The stages of the plays, in their order."""
        return list(dict.fromkeys(play.stage for play in self.plays))


class Watcher:
    """Hears of a run while it is on; this one keeps to itself."""

    def begin(self, _state: RunState, _stored: StoredRun) -> None:
        """The run begins."""

    def update(self, _state: RunState) -> None:
        """Something happened."""

    def output(self, _text: str) -> None:
        """ansible-playbook printed text, colours and all, secrets masked."""

    def say(self, _text: str) -> None:
        """One line for the person at the terminal, before or while the run is on."""

    def end(self) -> None:
        """Nothing more comes."""


def run(request: Request, watcher: Watcher) -> tuple[RunState, StoredRun]:
    """Run a request to its end, recorded; returns its state and where it lies.

    A host that fails, a refusal by the first look and an interruption are outcomes in the state. Raises
    ColdironError when the run cannot be begun (wrong limit, locked, unreadable inventory) or recorded.
    """
    engine.find_ansible_playbook()
    keep, days = retention()
    seen = survey.ask(request.inventory, request.limit, [play.hosts for play in request.plays])
    now = time.time()
    runs = Runs(request.directory)
    runs.prepare()
    name = new_name(request.verb, now)
    files = lock.paths(runs.base, seen.cluster, seen.address)
    with ExitStack() as stack:
        held: lock.Lock | None = None
        if request.check:
            if other := lock.held_by(files):
                watcher.say(
                    f"a run is on: {other.told(now)}; --check only looks, and may see its work half done"
                )
        else:
            who = lock.holder(name, " ".join(request.command), now)
            held = stack.enter_context(lock.holding(files, who, now))
            if held.died:
                watcher.say(
                    f"run {held.died.run} of {held.died.user} ended without a word; this run takes its place"
                )
        _sweep(runs)
        stored = StoredRun(runs.directory / name)
        state = _Recorded(request, seen, runs, stored, watcher, held).run(now)
        with contextlib.suppress(OSError):
            stored.keep_summary(state)
        runs.prune(keep, days, time.time())
    return state, stored


class _Recorded:
    """A run whose every word goes to disk before anybody sees it."""

    def __init__(
        self,
        request: Request,
        seen: survey.Survey,
        runs: Runs,
        stored: StoredRun,
        watcher: Watcher,
        held: lock.Lock | None,
    ) -> None:
        self.request = request
        self.seen = seen
        self.runs = runs
        self.stored = stored
        self.watcher = watcher
        self.held = held
        self.mask = Mask(seen.secrets)
        self.reducer = Reducer()
        self.stop = engine.Stop(self._stopping)
        self.roots = _roots()
        self.group = 0

    def run(self, now: float) -> RunState:
        try:
            header = self._header(now)
            with ExitStack() as stack:
                with self.runs.create(self.stored.id) as begun:
                    self.events = EventWriter(begun.events)
                    stack.callback(self.events.close)
                    self._add(now, START, header)
                self.log = stack.enter_context(_private_text(self.stored.log))
                private = stack.enter_context(_private_directory(self.stored.id))
                # Last in, first out: the view is gone before anything else is said.
                self.watcher.begin(self.reducer.state, self.stored)
                stack.callback(self.watcher.end)
                stack.enter_context(self.stop.listening())
                self._work(private)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            room = "; make room" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else ""
            told = cannot_write(self.stored.directory, error)
            raise ColdironError(
                f"{told.message}{room}; ansible-playbook was stopped, and the same command goes on from there",
                told.exit_code,
            ) from None
        return self.reducer.state

    def _work(self, private: Path) -> None:
        request = self.request
        playbooks = list(request.playbooks)
        if request.playbook_text:
            own = self.stored.directory / PLAYBOOK
            own.write_text(request.playbook_text, encoding="utf-8")
            playbooks = [str(own)]
        job = engine.Job(
            playbooks,
            request.inventory,
            request.limit,
            request.tags,
            request.extravars,
            request.check,
            # Always: the record says what changed, whether or not it is shown now.
            diff=True,
            verbosity=max(0, request.verbosity - 1),
        )
        environment = dict(self.seen.environment)
        colours = request.verbosity and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        if not colours and not os.environ.get("ANSIBLE_FORCE_COLOR"):
            # ansible-runner gives it a terminal; anywhere else colours are noise.
            environment["ANSIBLE_NOCOLOR"] = "1"
        try:
            code = engine.run(job, private, environment, self._take, self._print, self.stop)
        except BaseException as error:
            # Whoever read what was shown has gone: rich ends the program then.
            unread = isinstance(error, BrokenPipeError | SystemExit)
            with contextlib.suppress(OSError):
                self._end(Outcome.INTERRUPTED if unread else Outcome.ERROR)
            raise
        self._end(outcome_of(code, self.reducer.state, stopped=self.stop.count > 0))

    def _header(self, now: float) -> dict[str, Any]:
        request, seen = self.request, self.seen
        header = Header(
            id=self.stored.id,
            verb=request.verb,
            command=[self.mask.text(word) for word in request.command],
            plain=self.mask.text(request.plain),
            started=now,
            user=lock.user(),
            machine=platform.node(),
            pid=os.getpid(),
            cluster=seen.cluster,
            inventory=str(request.inventory),
            playbooks=list(request.playbooks),
            stages=request.stages,
            hosts=seen.hosts,
            limit=list(request.limit),
            tags=list(request.tags),
            check=request.check,
            diff=request.diff,
            revision=revision(request.directory),
            versions=versions(),
        )
        takes_part = {
            stage: [
                host
                for host in seen.hosts
                if any(host in seen.patterns[play.hosts] for play in request.plays if play.stage == stage)
            ]
            for stage in request.stages
        }
        plays = [{"name": play.name, "stage": play.stage} for play in request.plays]
        return {"header": dataclasses.asdict(header), "plays": plays, "takes_part": takes_part}

    def _add(self, moment: float, kind: str, data: Mapping[str, Any]) -> None:
        self.reducer.feed(self.events.write(moment, kind, data))

    def _take(self, raw: engine.RawEvent) -> None:
        pid = raw.get("pid")
        if self.held and isinstance(pid, int) and pid != self.group:
            self.group = pid
            self.held.runs_as(pid)
        kept = trim(raw)
        if kept is None:
            return
        moment, kind, data = kept
        if path := data.get("task_path"):
            data["task_path"] = shorten(str(path), self.roots)
        self._add(moment or time.time(), kind, self.mask.data(data))
        self.watcher.update(self.reducer.state)

    def _print(self, text: str) -> None:
        masked = self.mask.text(text)
        self.log.write(plain_text(masked) + "\n")
        self.log.flush()
        self.watcher.output(masked)

    def _stopping(self, count: int) -> None:
        self._add(time.time(), STOP, {"count": count})
        self.watcher.update(self.reducer.state)
        if count == 1:
            self.watcher.say("stopping: what runs now may end; Ctrl-C again kills it")

    def _end(self, outcome: Outcome) -> None:
        self._add(time.time(), END, {"outcome": outcome.value, "exit_code": int(EXIT_CODES[outcome])})
        self.watcher.update(self.reducer.state)


def outcome_of(code: int, state: RunState, *, stopped: bool) -> Outcome:
    """How a run ended whose ansible-playbook ended with ``code`` (negative: by a signal)."""
    if stopped:
        return Outcome.INTERRUPTED
    if code == 0:
        return Outcome.OK
    failures = [failure for failure in state.failures if not failure.ignored]
    if not failures:
        # 2 and 4 are hosts' codes, but also those of a playbook or an inventory that cannot be read.
        return Outcome.ERROR
    if all(failure.unreachable for failure in failures):
        return Outcome.UNREACHABLE
    begun = any(stage.started is not None for name, stage in state.stages.items() if name != CHECK_STAGE)
    return Outcome.FAILED if begun or state.changes else Outcome.REFUSED


def go_on(state: RunState) -> str:
    """The command that goes on from where a run ended; empty where nothing is left to do.

    Where all other hosts came through, it is limited to those that did not.
    """
    header = state.header
    if state.outcome in (Outcome.OK, Outcome.RUNNING):
        return ""
    words = list(header.command)
    bad = [
        host.name
        for host in state.hosts.values()
        if host.status in (CellStatus.FAILED, CellStatus.UNREACHABLE)
    ]
    through = all(
        cell.status not in (CellStatus.WAITING, CellStatus.RUNNING)
        for host in state.hosts.values()
        if host.name not in bad
        for cell in host.cells.values()
    )
    ended = state.outcome in (Outcome.FAILED, Outcome.UNREACHABLE)
    if header.verb == "apply" and ended and through and 0 < len(bad) < len(state.hosts) and len(bad) <= 20:
        words = [*_without_limit(words), "--limit", ",".join(bad)]
    return engine.shown_command(words)


def left(state: RunState) -> list[str]:
    """What a run that did not come to its end left undone, in lines."""
    lines = []
    cut = [host.name for host in state.hosts.values() if host.running]
    if cut:
        lines.append(f"cut off in {state.stage}: {_some(cut)}")
    elif (stage := state.stages.get(state.stage)) and stage.ended is None:
        # Between two tasks, when no host was in one.
        lines.append(f"cut off in {state.stage}")
    open_stages = [
        name
        for name, begun in ((name, state.stages.get(name)) for name in state.header.stages)
        if name != state.stage
        and (begun is None or begun.ended is None)
        and any(
            cell.status is CellStatus.WAITING
            for host in state.hosts.values()
            if not host.counts.failed and not host.counts.unreachable
            for stage, cell in host.cells.items()
            if stage == name
        )
    ]
    if open_stages:
        lines.append(f"not begun: {', '.join(open_stages)}")
    return lines


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _without_limit(words: Sequence[str]) -> list[str]:
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in ("--limit", "-l"):
            next(rest, "")
        elif not word.startswith(("--limit=", "-l")):
            kept.append(word)
    return kept


def shorten(path: str, roots: Sequence[str]) -> str:
    """``path`` (file:line) below the collection or the working directory where it lies there."""
    if _COLLECTION_PART in path:
        return path.rpartition(_COLLECTION_PART)[2]
    for root in roots:
        if path.startswith(root):
            return path[len(root) :]
    return path


def _roots() -> list[str]:
    from coldiron.testing.stages import find_collection

    return [f"{find_collection()}{os.sep}", f"{os.getcwd()}{os.sep}"]


def revision(directory: Path) -> str:
    """The git revision of a directory, with a ``+`` where files in it differ; empty outside git."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(directory), *words], capture_output=True, text=True, timeout=20
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "--short=12", "HEAD")
    if not head:
        return ""
    changed = git("status", "--porcelain", "--untracked-files=normal", "--", ".")
    return head + ("+" if changed else "")


def versions() -> dict[str, str]:
    """The versions of what takes part in a run."""
    found = {"coldiron": __version__, "python": platform.python_version()}
    for name in ("ansible-core", "ansible-runner"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


@contextlib.contextmanager
def _private_text(path: Path) -> Iterator[Any]:
    """A new text file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    stream = os.fdopen(descriptor, "w", encoding="utf-8", errors="replace")
    try:
        yield stream
    finally:
        # What a full disk did not take was said when it was written.
        with contextlib.suppress(OSError):
            stream.close()


@contextlib.contextmanager
def _private_directory(name: str) -> Iterator[Path]:
    """A directory for ansible-runner, which writes the environment and each event into it for a moment."""
    path = _private_path(name)
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _private_path(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"coldiron-run-{name}"


def _sweep(runs: Runs) -> None:
    """Remove what runs that were killed left in the temporary directory."""
    for name in runs.ids():
        path = _private_path(name)
        if path.is_dir() and not StoredRun(runs.directory / name).is_on():
            shutil.rmtree(path, ignore_errors=True)
