"""From the events of a run to what is known of it. Pure: no file, no clock, no process; any event is survived."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from coldiron.run.events import END, START, STOP, Event
from coldiron.run.state import (
    Cell,
    CellStatus,
    Change,
    Counts,
    Failure,
    Header,
    Host,
    Outcome,
    Running,
    RunState,
    Stage,
    TaskTiming,
)
from coldiron.run.why import explain

# The stage of plays that belong to none: the first look, which every run begins with.
CHECK_STAGE = "check"
_NUMBER = re.compile(r"[-_.]?\d+$")
_UNIT_WORDS = ("restarted", "reloaded", "started", "stopped", "enabled", "disabled", "masked", "unmasked")


def no_header() -> Header:
    """The header of a run of which nothing is known."""
    return Header(
        id="", verb="", command=[], plain="", started=0.0, user="", machine="", pid=0, cluster="",
        inventory="", playbooks=[],
    )  # fmt: skip


def header_from(fields: object) -> Header:
    """A Header from its fields as JSON has them; what is missing or of another type is left empty."""
    header = no_header()
    if not isinstance(fields, Mapping):
        return header
    for field in dataclasses.fields(Header):
        empty, value = getattr(header, field.name), fields.get(field.name)
        if isinstance(empty, bool) or isinstance(value, bool):
            fits = isinstance(empty, bool) and isinstance(value, bool)
        elif isinstance(empty, float):
            fits = isinstance(value, int | float)
        else:
            fits = type(value) is type(empty)
        if not fits:
            continue
        if isinstance(value, list):
            value = [str(item) for item in value]
        elif isinstance(value, dict):
            value = {str(key): str(item) for key, item in value.items()}
        setattr(header, field.name, value)
    return header


def reduce(events: Iterable[Event]) -> RunState:
    """The state after all of ``events``. Without an end among them the outcome is RUNNING."""
    reducer = Reducer()
    for event in events:
        reducer.feed(event)
    return reducer.state


class Reducer:
    """Takes the events of one run, in their order, into ``state``."""

    def __init__(self, header: Header | None = None) -> None:
        self.state = RunState(header or no_header())
        self._stage_of: dict[str, str] = {}  # by the play's name
        self._takes_part: dict[str, list[str]] = {}  # by stage
        self._tasks: dict[str, TaskTiming] = {}
        self._handlers: set[str] = set()
        self._plays_seen: set[str] = set()
        # Failures that may yet be rescued, by host: a rescue is not told, only seen when the host goes on.
        self._open: dict[str, list[Failure]] = {}
        self._stats: Mapping[str, Any] | None = None
        if header:
            self._lay_out()

    def feed(self, event: Event) -> None:
        """Take one event in. An event of an unknown kind only counts."""
        state = self.state
        state.events += 1
        state.last_event = max(state.last_event, event.time)
        handler = self._KINDS.get(event.kind)
        if handler is not None:
            handler(self, event)

    # What frames the run.

    def _start(self, event: Event) -> None:
        self.state.header = header_from(event.data.get("header"))
        plays = event.data.get("plays")
        for play in plays if isinstance(plays, list) else []:
            if isinstance(play, Mapping) and (name := _word(play, "name")):
                self._stage_of.setdefault(name, _word(play, "stage") or CHECK_STAGE)
        parts = event.data.get("takes_part")
        for stage, hosts in parts.items() if isinstance(parts, Mapping) else ():
            if isinstance(hosts, list):
                self._takes_part[str(stage)] = [str(host) for host in hosts]
        self._lay_out()

    def _lay_out(self) -> None:
        """What is known before the first task: the stages, the hosts, and who takes part in what."""
        header = self.state.header
        for stage in header.stages:
            self.state.stages.setdefault(stage, Stage(stage))
        for name in header.hosts:
            host = self._host(name)
            for stage in header.stages:
                if name in self._takes_part.get(stage, header.hosts):
                    host.cells.setdefault(stage, Cell())
        for play, stage in self._stage_of.items():
            if (known := self.state.stages.get(stage)) and play not in known.plays:
                known.plays.append(play)

    def _stopping(self, event: Event) -> None:
        self.state.stopping = event.time

    def _end(self, event: Event) -> None:
        state = self.state
        if state.ended is not None:
            return
        try:
            state.outcome = Outcome(_word(event.data, "outcome"))
        except ValueError:
            state.outcome = Outcome.ERROR
        code = event.data.get("exit_code")
        state.exit_code = code if isinstance(code, int) else None
        state.ended = event.time
        if text := _word(event.data, "message"):
            state.messages.append(text)
        cut_off = state.outcome in (Outcome.INTERRUPTED, Outcome.ERROR, Outcome.KILLED)
        self._settle_rescues()
        if state.stage and (not cut_off or self._stats is not None):
            self._close_stage(event.time)
        for host in state.hosts.values():
            if not cut_off:
                host.running = None
            self._restate(host)

    # Plays and tasks.

    def _play(self, event: Event) -> None:
        name = _word(event.data, "play")
        stage = self._stage_of.get(name)
        if stage is None:
            # Nobody said what belongs where (a bare ansible-runner run): each play is a stage of its own.
            stage = (self.state.stage or CHECK_STAGE) if self._stage_of else (name or CHECK_STAGE)
        if stage != self.state.stage:
            if self.state.stage:
                self._close_stage(event.time)
            self.state.stage = stage
        self._plays_seen.add(name)
        known = self.state.stages.setdefault(stage, Stage(stage))
        if name and name not in known.plays:
            known.plays.append(name)
        if known.started is None:
            known.started = event.time
        known.ended = None

    def _task(self, event: Event) -> None:
        if stage := self.state.stages.get(self.state.stage):
            stage.tasks_started += 1
        timing = self._timing(event)
        if event.data.get("handler") is True:
            self._handlers.add(timing.uuid)

    def _timing(self, event: Event) -> TaskTiming:
        data = event.data
        uuid = _word(data, "task_uuid") or f"{_word(data, 'play')}/{_word(data, 'task')}"
        if uuid not in self._tasks:
            timing = TaskTiming(
                uuid=uuid,
                stage=self.state.stage,
                play=_word(data, "play"),
                role=short_role(_word(data, "role")),
                name=_word(data, "task") or "(no name)",
                path=_word(data, "task_path"),
                started=event.time,
            )
            self._tasks[uuid] = timing
            self.state.tasks.append(timing)
        return self._tasks[uuid]

    def _host_start(self, event: Event) -> None:
        host = self._host_of(event)
        timing = self._timing(event)
        if host is None:
            return
        if failures := self._open.get(host.name):
            # It goes on after a failure: something rescued it. The recap at the end has the last word.
            for failure in failures:
                if not failure.ignored:
                    failure.ignored = True
                    self._move(host, failure, "failed", "rescued")
        host.running = Running(host.name, timing.stage, timing.role, timing.name, timing.path, event.time)
        cell = self._cell(host)
        cell.started = cell.started if cell.started is not None else event.time
        if not cell.counts.failed and not cell.counts.unreachable:
            cell.status = CellStatus.RUNNING
        self._restate(host)

    def _result(self, event: Event) -> None:
        result = event.data.get("result")
        result = result if isinstance(result, Mapping) else {}
        timing = self._timing(event)
        changed = result.get("changed") is True
        word = {
            "runner_on_ok": "changed" if changed else "ok",
            "runner_on_skipped": "skipped",
            "runner_on_unreachable": "unreachable",
        }.get(event.kind, "failed")
        ignored = event.kind == "runner_on_failed" and event.data.get("ignored") is True
        if ignored:
            word = "ignored"
        host = self._host_of(event, anyway=word in ("failed", "unreachable") or changed)
        began = event.data.get("start")
        ended = event.data.get("end")
        ended = float(ended) if isinstance(ended, int | float) and 0 <= ended < 1e11 else event.time
        taken = ended - began if isinstance(began, int | float) and 0 <= began <= ended else 0.0
        timing.ended = max(timing.ended or 0.0, ended)
        timing.hosts += 1
        timing.changed += word == "changed"
        timing.failed += word in ("failed", "unreachable", "ignored")
        if taken > timing.slowest_seconds or not timing.slowest_host:
            timing.slowest_host, timing.slowest_seconds = _word(event.data, "host"), taken
        if host is None:
            return
        host.running = None
        cell = self._cell(host)
        cell.started = cell.started if cell.started is not None else event.time
        for counts in (host.counts, cell.counts):
            self._count(counts, word, 1)
        if changed:
            self.state.changes += self._changes(host.name, timing, result)
        if word in ("failed", "unreachable", "ignored"):
            self._failed(host, timing, result, word, event.number)
        self._restate(host)

    def _failed(
        self, host: Host, timing: TaskTiming, result: Mapping[str, Any], word: str, number: int
    ) -> None:
        told, item = result, ""
        items = result.get("results")
        for each in items if isinstance(items, list) else []:
            if isinstance(each, Mapping) and (each.get("failed") or each.get("unreachable")):
                told, item = each, _shown(each.get("item"))
                break
        sentence, hint = explain(told, host.name, unreachable=word == "unreachable")
        failure = Failure(
            host=host.name,
            stage=timing.stage,
            role=timing.role,
            task=timing.name,
            path=timing.path,
            sentence=sentence,
            hint=hint,
            item=item,
            unreachable=word == "unreachable",
            ignored=word == "ignored",
            handler=timing.uuid in self._handlers,
            event=number,
        )
        self.state.failures.append(failure)
        if word == "failed":
            self._open.setdefault(host.name, []).append(failure)

    def _changes(self, host: str, timing: TaskTiming, result: Mapping[str, Any]) -> list[Change]:
        """What a changed result says that it changed; the task's own name where it does not say."""
        items = result.get("results")
        if isinstance(items, list) and items:
            changed = [item for item in items if isinstance(item, Mapping) and item.get("changed") is True]
            return [change for item in changed for change in self._changes(host, timing, item)]
        listed = result.get("diffs")
        diffs = [
            (_word(diff, "what"), _word(diff, "diff"))
            for diff in (listed if isinstance(listed, list) else [])
            if isinstance(diff, Mapping)
        ]
        texts = {what: text for what, text in diffs if what}
        named: dict[str, str] = {}
        for kind, label in (
            ("paths", ""),
            ("packages", "package "),
            ("users", "user "),
            ("sysctl", "sysctl "),
        ):
            names = result.get(kind)
            for name in names if isinstance(names, list) else []:
                named[f"{label}{_shown(name)}"] = texts.get(_shown(name), "") if kind == "paths" else ""
        units = result.get("units")
        for verb in _UNIT_WORDS:
            names = units.get(verb) if isinstance(units, Mapping) else None
            for name in names if isinstance(names, list) else []:
                named[f"unit {_shown(name)} {verb}"] = ""
        if not named:
            path = _word(result, "dest") or _word(result, "path")
            rest = "\n".join(text for _, text in diffs)
            named = {path: rest} if path else dict(texts)
        if not named:
            item = _shown(result.get("item")) if "item" in result else ""
            named = {f"{timing.name} ({item})" if item else timing.name: "\n".join(text for _, text in diffs)}
        return [
            Change(host, timing.stage, timing.role, timing.name, what, diff) for what, diff in named.items()
        ]

    def _recap(self, event: Event) -> None:
        self._stats = event.data
        self._settle_rescues()

    def _said(self, event: Event) -> None:
        text = _word(event.data, "text")
        if event.kind in ("error", "verbose"):
            text = re.sub(r"^\[ERROR\]:\s*", "", text)
            # What it says while it is being stopped is about the stopping.
            if text and self.state.stopping is None:
                self.state.messages.append(text)
            return
        text = re.sub(r"^\[(?:DEPRECATION )?WARNING\]:\s*", "", " ".join(text.split()))
        if text and text not in self.state.warnings:
            self.state.warnings.append(text)

    # Bookkeeping.

    def _host_of(self, event: Event, anyway: bool = False) -> Host | None:
        """The host of an event; None for the controller's own tasks where the run is about other hosts."""
        name = _word(event.data, "host")
        known = self.state.header.hosts
        if not name or (known and name not in known and name not in self.state.hosts and not anyway):
            return None
        return self._host(name)

    def _host(self, name: str) -> Host:
        if name not in self.state.hosts:
            self.state.hosts[name] = Host(name, group=_NUMBER.sub("", name) or name)
        return self.state.hosts[name]

    def _cell(self, host: Host) -> Cell:
        return host.cells.setdefault(self.state.stage or CHECK_STAGE, Cell())

    def _close_stage(self, time: float) -> None:
        """The stage is over: a host with nothing in it was passed over, unless it had dropped out before.

        Where Ansible gave up on the whole run, plays of the stage are left, and so are their hosts.
        """
        stage = self.state.stages.get(self.state.stage)
        whole = stage is not None and self._plays_seen.issuperset(stage.plays)
        if stage is not None:
            stage.ended = time
        for host in self.state.hosts.values():
            cell = host.cells.get(self.state.stage)
            if cell is None:
                continue
            if cell.status is CellStatus.RUNNING or cell.counts.done:
                cell.ended = time
                cell.status = _settled(cell.counts)
            elif whole and not host.counts.failed and not host.counts.unreachable:
                cell.status = CellStatus.SKIPPED
            self._restate(host)

    def _restate(self, host: Host) -> None:
        if host.counts.failed:
            host.status = CellStatus.FAILED
        elif host.counts.unreachable:
            host.status = CellStatus.UNREACHABLE
        elif not self.state.finished:
            begun = host.running or any(cell.status is not CellStatus.WAITING for cell in host.cells.values())
            host.status = CellStatus.RUNNING if begun else CellStatus.WAITING
        else:
            seen = {cell.status for cell in host.cells.values()} - {CellStatus.WAITING}
            host.status = max(seen, key=list(CellStatus).index, default=CellStatus.WAITING)
        cell = host.cells.get(self.state.stage)
        if cell is not None and (cell.counts.failed or cell.counts.unreachable):
            cell.status = _settled(cell.counts)

    @staticmethod
    def _count(counts: Counts, word: str, by: int) -> None:
        # Ansible counts an ignored and a rescued failure as such, and the former as an ok task too.
        if word == "ignored":
            counts.ok += by
        setattr(counts, word, max(0, getattr(counts, word) + by))

    def _move(self, host: Host, failure: Failure, before: str, after: str) -> None:
        for counts in (host.counts, host.cells.setdefault(failure.stage or CHECK_STAGE, Cell()).counts):
            self._count(counts, before, -1)
            self._count(counts, after, 1)

    def _settle_rescues(self) -> None:
        """Ansible's recap says how many failures of a host stand; the last ones are those."""
        if self._stats is None:
            return
        standing = self._stats.get("failures")
        standing = standing if isinstance(standing, Mapping) else {}
        for name, failures in self._open.items():
            host = self._host(name)
            left = standing.get(name, 0)
            left = left if isinstance(left, int) and not isinstance(left, bool) else 0
            for place, failure in enumerate(reversed(failures)):
                rescued = place >= left
                if rescued != failure.ignored:
                    failure.ignored = rescued
                    self._move(host, failure, *(("failed", "rescued") if rescued else ("rescued", "failed")))
            for cell in host.cells.values():
                if cell.ended is not None:
                    cell.status = _settled(cell.counts)
            self._restate(host)

    _KINDS = {  # noqa: RUF012 - a table of the methods above
        START: _start,
        STOP: _stopping,
        END: _end,
        "playbook_on_play_start": _play,
        "playbook_on_task_start": _task,
        "playbook_on_stats": _recap,
        "runner_on_start": _host_start,
        "runner_on_ok": _result,
        "runner_on_failed": _result,
        "runner_on_skipped": _result,
        "runner_on_unreachable": _result,
        "warning": _said,
        "system_warning": _said,
        "deprecated": _said,
        "error": _said,
        "verbose": _said,
    }


def short_role(role: str) -> str:
    """A role's name without its collection."""
    return role.rsplit(".", 1)[-1]


def _settled(counts: Counts) -> CellStatus:
    """How a host stands in a stage that is over."""
    if counts.failed:
        return CellStatus.FAILED
    if counts.unreachable:
        return CellStatus.UNREACHABLE
    if counts.changed:
        return CellStatus.CHANGED
    return CellStatus.OK if counts.ok or counts.rescued else CellStatus.SKIPPED


def _word(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _shown(value.get("name", value.get("path", ", ".join(map(str, value)))))
    return "" if value is None else str(value)
