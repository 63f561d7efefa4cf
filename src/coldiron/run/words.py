"""What is known of runs, in lines for a person: a list, one run, the difference of two."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from coldiron.run.lock import span
from coldiron.run.state import CellStatus, Change, Failure, Header, Outcome, RunState
from coldiron.run.store import RunSummary

_SLOWEST = 5
_HEADER_FIELDS = (
    "verb", "inventory", "cluster", "revision", "limit", "tags", "check", "stages", "user", "machine",
)  # fmt: skip


def state_data(state: RunState) -> dict[str, Any]:
    """A state as JSON has it. The keys are the fields of `coldiron.run.state`."""
    return asdict(state)


def when(moment: float) -> str:
    """A moment in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def taken(started: float, ended: float | None) -> str:
    """How long something took."""
    if ended is None or not started:
        return "-"
    seconds = max(0.0, ended - started)
    return f"{seconds:.0f} s" if seconds < 120 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def cut(text: str, most: int = 44) -> str:
    """``text``, shortened to ``most`` characters where it must share a line."""
    return text if len(text) <= most else text[: most - 1] + "…"


def columns(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> list[str]:
    """Rows in columns that are as wide as their widest cell."""
    every = [list(head), *map(list, rows)] if head else list(map(list, rows))
    widths = [max(len(row[place]) for row in every) for place in range(len(every[0]))] if every else []
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]


def listed(summaries: Sequence[RunSummary]) -> list[str]:
    """One line a run, newest first."""
    rows = [
        [
            one.id,
            one.outcome,
            taken(one.started, one.ended),
            str(one.hosts),
            str(one.changed),
            str(one.failed),
            one.user,
            ("--check " if one.check else "") + ",".join(one.limit),
        ]
        for one in summaries
    ]
    return columns(rows, ("run", "outcome", "took", "hosts", "changed", "failed", "by", "only"))


def status_line(state: RunState, now: float) -> str:
    """One line on how the newest run stands."""
    header = state.header
    what = f"{header.verb}{' --check' if header.check else ''} on {header.cluster}"
    if state.outcome is Outcome.RUNNING:
        quiet = now - state.last_event
        silence = f", nothing heard for {span(quiet)}" if quiet > 60 else ""
        stage = f", now in {state.stage}" if state.stage else ""
        return (
            f"{what} is running since {when(header.started)} ({span(now - header.started)}){stage}{silence}"
        )
    end = state.ended or state.last_event
    return f"{what} ended {state.outcome.value} at {when(end)}, after {taken(header.started, end)}"


def host_lines(state: RunState) -> list[str]:
    """One line a host: how it stands, its counts, and what it does or where it stopped."""
    rows = []
    for host in state.hosts.values():
        counts = host.counts
        where = ""
        if host.running:
            where = f"{host.running.stage}: {host.running.task}"
        failure = next((one for one in state.failures if one.host == host.name and not one.ignored), None)
        if failure:
            where = f"{failure.role or failure.stage}: {failure.sentence}"
        rows.append(
            [
                host.name,
                host.status.value,
                str(counts.ok),
                str(counts.changed),
                str(counts.failed + counts.unreachable),
                where,
            ]
        )
    return columns(rows, ("host", "stands", "ok", "changed", "failed", ""))


def header_lines(header: Header) -> list[str]:
    """Who ran what, when and with which versions."""
    pairs = [
        ("run", header.id),
        ("by", f"{header.user} on {header.machine}, {when(header.started)}"),
        ("command", " ".join(header.command)),
        ("plainly", header.plain),
        ("inventory", header.inventory + (f" at {header.revision}" if header.revision else "")),
        ("with", ", ".join(f"{name} {version}" for name, version in header.versions.items())),
    ]
    return [f"{name:<10} {text}" for name, text in pairs if text.strip()]


def stage_lines(state: RunState) -> list[str]:
    """One line a stage: how long it took, and how its hosts came out of it."""
    rows = []
    for stage in state.stages.values():
        cells = Counter(
            host.cells[stage.name].status for host in state.hosts.values() if stage.name in host.cells
        )
        told = ", ".join(f"{cells[status]} {status.value}" for status in CellStatus if cells[status])
        rows.append([stage.name, taken(stage.started or 0.0, stage.ended), told])
    return columns(rows, ("stage", "took", "hosts"))


def slowest_lines(state: RunState) -> list[str]:
    """The tasks that took longest."""
    tasks = sorted(state.tasks, key=lambda task: -task.seconds)[:_SLOWEST]
    rows = [
        [
            f"{task.seconds:.1f} s",
            task.stage,
            cut(task.name),
            f"{task.slowest_host} {task.slowest_seconds:.1f} s",
        ]
        for task in tasks
        if task.seconds >= 0.05
    ]
    return columns(rows, ("took", "stage", "task", "slowest host"))


def change_lines(changes: Iterable[Change], *, diffs: bool) -> list[str]:
    """What was changed, host by host; with ``diffs`` how."""
    lines: list[str] = []
    host = ""
    for change in sorted(changes, key=lambda one: one.host):
        if change.host != host:
            host = change.host
            lines.append(host)
        lines.append(f"  {change.role or change.stage}: {change.what}")
        if diffs and change.diff:
            lines += [f"    {line}" for line in change.diff.splitlines()]
    return lines


def compare(one: RunState, other: RunState) -> dict[str, Any]:
    """What differs between two runs: ``[of one, of other]`` for each thing that is not the same in both."""
    a, b = one.header, other.header
    header = {
        name: [getattr(a, name), getattr(b, name)]
        for name in _HEADER_FIELDS
        if getattr(a, name) != getattr(b, name)
    }
    versions = {
        name: [a.versions.get(name, ""), b.versions.get(name, "")]
        for name in sorted({*a.versions, *b.versions})
        if a.versions.get(name) != b.versions.get(name)
    }
    hosts = {}
    for name in sorted({*one.hosts, *other.hosts}):
        stands = [state.hosts[name].status.value if name in state.hosts else "" for state in (one, other)]
        if stands[0] != stands[1]:
            hosts[name] = stands
    return {
        "runs": [a.id, b.id],
        "outcome": [one.outcome.value, other.outcome.value],
        "seconds": [_seconds(one), _seconds(other)],
        "header": header,
        "versions": versions,
        "hosts": hosts,
        "failed": _only(_failed(one.failures), _failed(other.failures)),
        "changed": _only(_changed(one.changes), _changed(other.changes)),
        "diffs": _other_diffs(one.changes, other.changes),
    }


def compare_lines(found: Mapping[str, Any]) -> list[str]:
    """What ``compare`` found, for a person."""
    lines = [f"{'':<12}{found['runs'][0]}  ->  {found['runs'][1]}"]

    def pair(name: str, values: Sequence[Any]) -> None:
        told = [", ".join(map(str, value)) if isinstance(value, list) else str(value) for value in values]
        lines.append(f"{name:<12}{told[0] or '-'}  ->  {told[1] or '-'}")

    pair("outcome", found["outcome"])
    pair("seconds", [f"{value:.0f}" if value is not None else "-" for value in found["seconds"]])
    for part in ("header", "versions", "hosts"):
        for name, values in found[part].items():
            pair(name, values)
    for part, word in (("failed", "failed"), ("changed", "changed")):
        for place, run in enumerate(("first", "second")):
            for thing in found[part][place]:
                lines.append(f"{word} only in the {run}: {thing}")
    lines += [f"changed in another way: {thing}" for thing in found["diffs"]]
    return lines


def _seconds(state: RunState) -> float | None:
    return None if state.ended is None else round(state.ended - state.header.started, 1)


def _failed(failures: Iterable[Failure]) -> list[str]:
    return [
        f"{one.host}: {one.role or one.stage}: {one.task}: {one.sentence}"
        for one in failures
        if not one.ignored
    ]


def _changed(changes: Iterable[Change]) -> list[str]:
    return [f"{one.host}: {one.role or one.stage}: {one.what}" for one in changes]


def _only(one: list[str], other: list[str]) -> list[list[str]]:
    """What is in one list alone, and in the other alone."""
    return [
        [thing for thing in dict.fromkeys(one) if thing not in set(other)],
        [thing for thing in dict.fromkeys(other) if thing not in set(one)],
    ]


def _other_diffs(one: Iterable[Change], other: Iterable[Change]) -> list[str]:
    """What both runs changed, but not in the same way."""
    diffs = {(change.host, change.what): change.diff for change in one}
    return [
        f"{change.host}: {change.what}"
        for change in other
        if diffs.get((change.host, change.what), change.diff) != change.diff
    ]
