"""The report of a run: what was done to which node, what failed and why, what took long, what changed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from coldiron.report.junit import Case, Suite, write_junit
from coldiron.report.page import folded, render, told_versions
from coldiron.run.state import Cell, CellStatus, Failure, Host, Outcome, RunState
from coldiron.text import counted, cut, printable

SLOWEST = 15
#: Kinds of changes that are told, and characters of a diff.
CHANGES_TOLD = 1500
DIFF_START, DIFF_END = 6000, 2000
#: Characters of all diffs together; later ones only say that they are left out.
DIFFS_LIMIT = 4_000_000
FOLD_FROM = 25
SENTENCES = {
    Outcome.RUNNING: "is not done yet",
    Outcome.OK: "done",
    Outcome.FAILED: "failed",
    Outcome.UNREACHABLE: "done, but not on every node",
    Outcome.REFUSED: "was refused: nothing was touched",
    Outcome.INTERRUPTED: "was interrupted",
    Outcome.KILLED: "broke off",
    Outcome.ERROR: "ended with an error",
}


@dataclass
class Told:
    """A failure, on all nodes where it was the same."""

    failure: Failure
    nodes: list[str] = field(default_factory=list)


@dataclass
class Changed:
    """The same change on some nodes."""

    what: str
    task: str
    diff: str
    nodes: list[str] = field(default_factory=list)


@dataclass
class Group:
    """Nodes that fold together."""

    kind: str
    hosts: list[Host] = field(default_factory=list)

    def worst(self, stage: str) -> CellStatus | None:
        """How the group stands in a stage: as the worst of its nodes; None where none takes part."""
        order = list(CellStatus)
        found = [host.cells[stage].status for host in self.hosts if stage in host.cells]
        return max(found, key=order.index) if found else None

    def having(self, stage: str, status: CellStatus) -> int:
        """Return how many nodes stand so in a stage."""
        return sum(stage in host.cells and host.cells[stage].status is status for host in self.hosts)


def write_run_report(state: RunState, directory: Path) -> list[Path]:
    """Write index.html and junit.xml into a folder (made if it is not there); return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    page, junit = directory / "index.html", directory / "junit.xml"
    page.write_text(run_page(state), encoding="utf-8")
    write_junit(f"coldiron {state.header.verb} {state.header.cluster}", _suites(state), junit)
    return [page, junit]


def run_page(state: RunState) -> str:
    """Return the page of a run."""
    header = state.header
    lasting = [failure for failure in state.failures if not failure.ignored]
    changes = _changes(state)
    told = dict(list(changes.items())[:CHANGES_TOLD])
    by_role: dict[str, list[Changed]] = {}
    room = DIFFS_LIMIT
    for (role, *_), change in told.items():
        room -= len(change.diff)
        if room < 0:
            change.diff = "the run's record has this diff"
        by_role.setdefault(role, []).append(change)
    ended = state.ended or state.last_event or header.started
    groups: dict[str, Group] = {}
    for host in state.hosts.values():
        groups.setdefault(host.group or host.name, Group(host.group)).hosts.append(host)
    return render(
        "run.html.j2",
        title=f"{header.cluster}: {header.verb} {SENTENCES[state.outcome]}",
        state=state,
        header=header,
        sentence=SENTENCES[state.outcome],
        good=state.outcome is Outcome.OK,
        took=ended - header.started,
        command=shlex.join(header.command),
        versions=told_versions(header.versions),
        stages=list(state.stages) or header.stages,
        groups=list(groups.values()),
        folds=len(state.hosts) >= FOLD_FROM,
        failures=_failures(lasting),
        passed_over=_failures([failure for failure in state.failures if failure.ignored]),
        counts=[(str(status), state.count(status)) for status in _WORST_FIRST],
        slowest=sorted(state.tasks, key=lambda task: -task.seconds)[:SLOWEST],
        changes=by_role,
        changes_total=len(changes),
        more_changes=len(changes) - len(told),
        lede=_lede(state),
    )


_WORST_FIRST = (
    CellStatus.FAILED,
    CellStatus.UNREACHABLE,
    CellStatus.CHANGED,
    CellStatus.OK,
    CellStatus.SKIPPED,
    CellStatus.WAITING,
)


def _lede(state: RunState) -> str:
    bad = [
        host.name
        for host in state.hosts.values()
        if host.status in (CellStatus.FAILED, CellStatus.UNREACHABLE)
    ]
    changed = len({change.host for change in state.changes})
    words = [f"{counted(len(state.hosts), 'node')}, {counted(len(state.stages), 'stage')}"]
    things = "would have changed" if state.header.check else "changed"
    words.append(f"{counted(len(state.changes), 'thing')} {things} on {counted(changed, 'node')}")
    text = "; ".join(words) + "."
    if bad:
        text += f" It failed on {folded(bad)}."
    return text


def _failures(failures: list[Failure]) -> list[Told]:
    """Return failures gathered by task and sentence."""
    found: dict[tuple[str, ...], Told] = {}
    for failure in failures:
        sentence = failure.sentence.replace(failure.host, "NODE")
        key = (failure.stage, failure.role, failure.task, failure.item, sentence)
        found.setdefault(key, Told(failure)).nodes.append(failure.host)
    return list(found.values())


def _changes(state: RunState) -> dict[tuple[str, ...], Changed]:
    """Return changes gathered by role, thing and diff."""
    found: dict[tuple[str, ...], Changed] = {}
    for change in state.changes:
        diff = cut(printable(change.diff), DIFF_START, DIFF_END)
        key = (change.role, change.task, change.what, diff)
        nodes = found.setdefault(key, Changed(change.what, change.task, diff)).nodes
        if change.host not in nodes:
            nodes.append(change.host)
    return found


def _suites(state: RunState) -> list[Suite]:
    """Return a case for each host and stage."""
    failures: dict[tuple[str, str], list[Failure]] = {}
    for failure in state.failures:
        if not failure.ignored:
            failures.setdefault((failure.host, failure.stage), []).append(failure)
    suites = []
    for name, stage in state.stages.items():
        suite = Suite(name, stage.started or state.header.started)
        for host in state.hosts.values():
            if name in host.cells:
                suite.cases.append(_case(name, host, host.cells[name], failures.get((host.name, name), [])))
        suites.append(suite)
    return suites


def _case(stage: str, host: Host, cell: Cell, failures: list[Failure]) -> Case:
    seconds = max(0.0, (cell.ended or cell.started or 0.0) - (cell.started or 0.0))
    kind = {
        CellStatus.FAILED: "failure",
        CellStatus.UNREACHABLE: "error",
        CellStatus.SKIPPED: "skipped",
        CellStatus.WAITING: "skipped",
    }.get(cell.status, "")
    message = failures[0].sentence if failures else {"skipped": str(cell.status)}.get(kind, "")
    lines = [
        "\n".join(filter(None, (f"{one.role}: {one.task}", one.path, one.item, one.sentence, one.hint)))
        for one in failures
    ]
    return Case(stage, host.name, seconds, kind, message, "\n\n".join(lines))
