"""What is known of a run at one moment: plain data, made from its events by `coldiron.run.reducer` alone.

The live view, `coldiron status`, `coldiron runs` and the reports all read this and nothing else, so a run
that is on, one that ended and one whose machine died look the same to them. Times are seconds since the
epoch as the events tell them; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a run stands or ended."""

    RUNNING = "running"
    OK = "ok"  # done, nothing failed
    FAILED = "failed"  # a host failed
    UNREACHABLE = "unreachable"  # no host failed, but one was out of reach
    REFUSED = "refused"  # nothing was touched: the inventory, an option or the plan is wrong
    INTERRUPTED = "interrupted"  # a person stopped it
    KILLED = "killed"  # its last event is not an end, and its process is gone
    ERROR = "error"  # ansible-playbook itself ended with an error


class CellStatus(StrEnum):
    """How a host stands in a stage, worst last where several apply."""

    WAITING = "waiting"
    RUNNING = "running"
    SKIPPED = "skipped"  # the stage had no task for it
    OK = "ok"
    CHANGED = "changed"
    UNREACHABLE = "unreachable"
    FAILED = "failed"


@dataclass
class Counts:
    """Finished tasks by their outcome, one a host and task (loop items are not counted one by one)."""

    ok: int = 0
    changed: int = 0
    skipped: int = 0
    failed: int = 0
    unreachable: int = 0
    rescued: int = 0
    ignored: int = 0

    @property
    def done(self) -> int:
        """All finished tasks; a changed one is not an ok one here."""
        return self.ok + self.changed + self.skipped + self.failed + self.unreachable


@dataclass
class Cell:
    """One host in one stage."""

    status: CellStatus = CellStatus.WAITING
    counts: Counts = field(default_factory=Counts)
    started: float | None = None
    ended: float | None = None


@dataclass
class Running:
    """What a host is doing now."""

    host: str
    stage: str
    role: str
    task: str
    path: str  # file:line
    started: float


@dataclass
class Host:
    """One host over the whole run. ``cells`` has a key for each stage it takes part in."""

    name: str
    group: str = ""  # the node group it folds into where hosts are many: its name without the number
    cells: dict[str, Cell] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    running: Running | None = None
    status: CellStatus = CellStatus.WAITING


@dataclass
class TaskTiming:
    """One task of the playbook. ``seconds`` is from its first host's start to its last host's end."""

    uuid: str
    stage: str
    play: str
    role: str
    name: str
    path: str  # file:line, below the collection where it lies there: roles/time/tasks/configure.yml:4
    started: float
    ended: float | None = None
    hosts: int = 0  # that finished it, whatever the outcome
    changed: int = 0
    failed: int = 0
    slowest_host: str = ""
    slowest_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it took; 0 while it runs."""
        return (self.ended or self.started) - self.started


@dataclass
class Change:
    """A thing that a task changed on a host. ``diff`` is a unified diff, secrets masked; it may be empty."""

    host: str
    stage: str
    role: str
    task: str
    what: str  # a path, ``package chrony``, ``unit chrony.service`` …, or the task's name
    diff: str = ""


@dataclass
class Failure:
    """A task that failed on a host, or a host that was out of reach."""

    host: str
    stage: str
    role: str
    task: str
    path: str  # file:line
    sentence: str  # one sentence why
    hint: str = ""  # what the role advises
    item: str = ""  # the loop's item that failed
    unreachable: bool = False
    ignored: bool = False  # ignore_errors, or rescued later: the run went on
    handler: bool = False
    event: int = 0  # number of the event, where the full result lies


@dataclass
class Stage:
    """One stage of the run, in the order of the playbook."""

    name: str
    plays: list[str] = field(default_factory=list)
    started: float | None = None
    ended: float | None = None
    tasks_started: int = 0

    @property
    def seconds(self) -> float | None:
        """How long it took; None while it has not ended."""
        return None if self.started is None or self.ended is None else self.ended - self.started


@dataclass
class Header:
    """What was known when the run began."""

    id: str
    verb: str  # apply, node add, …
    command: list[str]  # what the person typed
    plain: str  # the same with ansible-playbook alone
    started: float
    user: str
    machine: str
    pid: int
    cluster: str
    inventory: str
    playbooks: list[str]
    stages: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # within the limit, in the inventory's order
    limit: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    check: bool = False
    diff: bool = False
    revision: str = (
        ""  # git revision of the inventory; ends in `+` with uncommitted changes, empty outside git
    )
    versions: dict[str, str] = field(default_factory=dict)  # coldiron, ansible-core, ansible-runner, python


@dataclass
class RunState:
    """All that is known of a run."""

    header: Header
    outcome: Outcome = Outcome.RUNNING
    exit_code: int | None = None
    ended: float | None = None
    last_event: float = 0.0  # time of the newest event
    events: int = 0
    stages: dict[str, Stage] = field(default_factory=dict)
    stage: str = ""  # the one that runs now
    hosts: dict[str, Host] = field(default_factory=dict)
    tasks: list[TaskTiming] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)  # what ansible-playbook said outside any task
    damaged: int = 0  # lines of the event file that could not be read
    stopping: float | None = None  # when a person asked it to stop

    @property
    def finished(self) -> bool:
        """Whether an outcome stands."""
        return self.outcome is not Outcome.RUNNING

    def count(self, status: CellStatus) -> int:
        """Return how many hosts stand so."""
        return sum(host.status is status for host in self.hosts.values())
