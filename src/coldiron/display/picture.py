"""A run at one moment, counted: all that a frame needs, taken from the state in one pass.

The state is changed by another thread while frames are drawn. So everything that can grow is copied first, by
calls that the interpreter does not interrupt, and a frame is drawn from the picture alone: its numbers agree
with each other even where the next event is already being noted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coldiron.display.symbols import BAD, ORDER
from coldiron.display.words import group_of
from coldiron.run.state import CellStatus, Counts, Failure, Host, Outcome, RunState, TaskTiming


@dataclass
class Tally:
    """The hosts of a row in one stage: how many stand how, tasks that changed something, earliest start."""

    statuses: dict[CellStatus, int] = field(default_factory=dict)
    changed: int = 0
    started: float | None = None

    def note(self, status: CellStatus, changed: int, started: float | None) -> None:
        """Count one host more."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.changed += changed
        if started is not None and (self.started is None or started < self.started):
            self.started = started

    def add(self, other: Tally) -> None:
        """Count another stage's hosts as well."""
        for status, number in other.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + number
        self.changed += other.changed

    @property
    def worst(self) -> CellStatus:
        """The status that a reader must know first."""
        return next((status for status in ORDER if self.statuses.get(status)), CellStatus.WAITING)


@dataclass
class Row:
    """One host, or the hosts of a group. ``tallies`` has a key for each stage that some of them take part in."""

    names: tuple[str, ...]
    group: str
    tallies: dict[str, Tally] = field(default_factory=dict)

    def note(self, host: Host) -> None:
        """Count ``host``."""
        for stage, cell in list(host.cells.items()):
            tally = self.tallies.get(stage)
            if tally is None:
                tally = self.tallies[stage] = Tally()
            tally.note(cell.status, cell.counts.changed, cell.started)


@dataclass(frozen=True)
class Now:
    """A task that runs on some hosts, and since when on the first of them."""

    role: str
    task: str
    hosts: tuple[str, ...]
    started: float


@dataclass(frozen=True)
class StageTime:
    """A stage and when it began and ended."""

    name: str
    started: float | None
    ended: float | None


@dataclass(frozen=True)
class Picture:
    """What a frame shows."""

    verb: str
    cluster: str
    check: bool
    outcome: Outcome
    started: float
    ended: float | None
    stage: str
    stages: tuple[StageTime, ...]
    hosts: tuple[Host, ...]
    counts: Counts
    statuses: dict[CellStatus, int]
    now: tuple[Now, ...]
    slowest: tuple[TaskTiming, ...]
    failures: tuple[Failure, ...]

    @property
    def bad(self) -> list[Host]:
        """Hosts that failed or were out of reach, in the inventory's order."""
        return [host for host in self.hosts if host.status in BAD]


def take(state: RunState) -> Picture:
    """The picture of ``state`` as it is now.

    Raises RuntimeError where the state grew at the very moment; the next frame will do.
    """
    header = state.header
    stages = [StageTime(stage.name, stage.started, stage.ended) for stage in list(state.stages.values())]
    known = dict.fromkeys(stage.name for stage in stages)
    stages += [StageTime(name, None, None) for name in header.stages if name not in known]
    hosts = tuple(state.hosts.values())
    counts = Counts()
    statuses: dict[CellStatus, int] = {}
    running: dict[tuple[str, str, str], list[str]] = {}
    since: dict[tuple[str, str, str], float] = {}
    for host in hosts:
        own = host.counts
        counts.ok += own.ok
        counts.changed += own.changed
        counts.skipped += own.skipped
        counts.failed += own.failed
        counts.unreachable += own.unreachable
        counts.rescued += own.rescued
        counts.ignored += own.ignored
        statuses[host.status] = statuses.get(host.status, 0) + 1
        if (at := host.running) is not None:
            key = (at.stage, at.role, at.task)
            running.setdefault(key, []).append(host.name)
            since[key] = min(since.get(key, at.started), at.started)
    order = {name: place for place, name in enumerate(dict.fromkeys([*header.stages, *known]))}
    stages.sort(key=lambda stage: order[stage.name])
    return Picture(
        verb=header.verb,
        cluster=header.cluster,
        check=header.check,
        outcome=state.outcome,
        started=header.started,
        ended=state.ended,
        stage=state.stage,
        stages=tuple(stages),
        hosts=hosts,
        counts=counts,
        statuses=statuses,
        now=tuple(
            Now(key[1], key[2], tuple(running[key]), since[key])
            for key in sorted(since, key=since.__getitem__)
        ),
        slowest=slowest(list(state.tasks), 3),
        failures=tuple(failure for failure in list(state.failures) if not failure.ignored),
    )


def slowest(tasks: Iterable[TaskTiming], most: int) -> tuple[TaskTiming, ...]:
    """The finished tasks that took longest, at most ``most``; those under a second are not worth a line."""
    finished = [task for task in tasks if task.ended is not None and task.seconds >= 1]
    return tuple(sorted(finished, key=lambda task: -task.seconds)[:most])


def rows_of_hosts(picture: Picture) -> list[Row]:
    """A row for each host."""
    rows = []
    for host in picture.hosts:
        row = Row((host.name,), host.group or group_of(host.name))
        row.note(host)
        rows.append(row)
    return rows


def rows_of_groups(picture: Picture) -> list[Row]:
    """A row for each group, in the order of their first hosts."""
    members: dict[str, list[Host]] = {}
    for host in picture.hosts:
        members.setdefault(host.group or group_of(host.name), []).append(host)
    rows = []
    for group, hosts in members.items():
        row = Row(tuple(host.name for host in hosts), group)
        for host in hosts:
            row.note(host)
        rows.append(row)
    return rows
