"""What a person sees of repairs: the plan of one, one line a node, one repair step by step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coldiron.errors import ColdironError
from coldiron.inventory.findings import shown_path
from coldiron.repair.journal import BEGIN, END, OPEN, RESUMED, lock_file, read
from coldiron.repair.machine import ENDS, Policy, plan
from coldiron.repair.target import WipedDisk
from coldiron.run import lock
from coldiron.run.events import Event
from coldiron.run.words import columns, when


@dataclass(frozen=True)
class Repair:
    """How the last repair of a node stands. ``state`` is an end, or the state that is under way or due."""

    node: str
    kind: str
    state: str
    since: float
    reason: str
    by: str
    on: bool
    """Whether somebody works on it now."""

    @property
    def ended(self) -> bool:
        return self.state in ENDS


def last_repair(events: Sequence[Event]) -> list[Event]:
    """The events of the last repair in a journal."""
    starts = [number for number, event in enumerate(events) if event.kind == OPEN]
    return list(events[starts[-1] :]) if starts else []


def repair_of(node: str, events: Sequence[Event], on: bool) -> Repair | None:
    """The last repair among ``events``; None where there is none."""
    own = last_repair(events)
    if not own:
        return None
    state, reason = "", ""
    for event in own:
        if "next" in event.data:
            state, reason = str(event.data["next"]), str(event.data.get("reason", ""))
        elif event.kind == BEGIN:
            state = str(event.data["state"])
    by = [str(event.data["by"]) for event in own if "by" in event.data][-1]
    kind = str(own[0].data["policy"]["kind"])
    return Repair(node, kind, state, own[-1].time, reason, by, on)


def repairs(directory: Path, names: Sequence[str] = ()) -> list[Repair]:
    """The last repair of each node that has one, by name; of ``names`` alone where some are given."""
    found = []
    for path in sorted(directory.glob("*.jsonl")):
        if names and path.stem not in names:
            continue
        on = lock.held_by([lock_file(directory, path.stem)]) is not None
        if (repair := repair_of(path.stem, read(path), on)) is not None:
            found.append(repair)
    return found


def listed(found: Sequence[Repair]) -> list[str]:
    """One line a repair. The reason of one that is not done has a line of its own."""
    rows = [[one.node, one.kind, _stands(one), when(one.since), one.by] for one in found]
    lines = columns(rows, ("node", "kind", "state", "since", "by"))
    out = lines[:1]
    for one, line in zip(found, lines[1:], strict=True):
        out.append(line)
        if one.reason:
            out.append(f"  {one.reason}")
    return out


def _stands(one: Repair) -> str:
    if one.ended:
        return one.state
    return f"{one.state}, {'under way' if one.on else 'cut off'}"


def steps(node: str, events: Sequence[Event]) -> list[str]:
    """The last repair of a node, step by step."""
    lines = []
    for event in last_repair(events):
        at = time.strftime("%H:%M:%S", time.localtime(event.time))
        lines.append(f"{at}  {node}  {_said(event)}")
    return lines


def _said(event: Event) -> str:
    data = event.data
    why = f": {data['reason']}" if data.get("reason") else ""
    if event.kind == OPEN:
        return f"{data['policy']['kind']} begun by {data['by']}{why}"
    if event.kind == RESUMED:
        return f"taken up by {data['by']}"
    if event.kind == BEGIN:
        return f"{data['state']} begins" + (f", attempt {data['attempt']}" if data["attempt"] > 1 else "")
    if event.kind == END:
        return f"{data['state']} {data['outcome']}{why}; next: {data['next']}"
    return f"stopped{why}"


def planned(node: str, policy: Policy, wiped: Sequence[WipedDisk]) -> list[str]:
    """What a repair would do: every state, what is left out and why, and the disks that would be wiped."""
    lines = [f"{node}: {policy.kind}; nothing is touched now"]
    for step in plan(policy):
        lines.append(f"  {step.state:<9} " + (f"left out: {step.skipped}" if step.skipped else step.does))
        if step.wipes or (wiped and step.state == "deploy" and not step.skipped):
            lines += [f"            would wipe {disk.told()}" for disk in wiped]
    return lines


def ended_lines(found: Sequence[Repair], directory: Path, command: str) -> list[str]:
    """How the repairs ended, a line each, and what to do about those that are not done."""
    lines = []
    for one in found:
        if one.state == "done":
            lines.append(f"{one.node}: done; {one.reason or 'it takes jobs again'}")
        elif not one.ended:
            lines.append(
                f"{one.node}: cut off in {one.state}; the same command goes on from there: {command}"
            )
        else:
            lines.append(f"{one.node}: {one.state}: {ENDS_SAID[one.state]}")
            if one.reason:
                lines.append(f"  {one.reason}")
            ticket = _ticket(directory, one)
            if ticket is not None:
                lines.append(f"  the ticket's text: {shown_path(ticket)}")
                lines.append(f"  once the part is replaced: coldiron node reimage {one.node}")
    return lines


ENDS_SAID: Mapping[str, str] = {end.state.value: end.means for end in ENDS.values()}


def _ticket(directory: Path, one: Repair) -> Path | None:
    if one.state != "ticket":
        return None
    found = sorted((directory / one.node).glob("*/ticket.txt"))
    return found[-1] if found else None


def journal_steps(directory: Path, node: str) -> list[str]:
    """``steps`` of the journal in ``directory``. Raises ColdironError where there is none."""
    events = read(directory / f"{node}.jsonl")
    if not events:
        raise ColdironError(f"{node} has not been repaired by coldiron")
    return steps(node, events)
