"""What the action plugin ``repair_state`` does: a step of one node's repair, written to its journal.

Each call is a process of its own, so everything is read anew from the journal, under the lock that a process above
this one holds (``coldiron.repair.keep``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_path
from coldiron.repair import bundle, keep, target
from coldiron.repair.journal import Journal, path_of, read
from coldiron.repair.machine import ENDS, Consent, Kind, Outcome, Policy, State
from coldiron.repair.view import last_repair
from coldiron.run.events import Event


@dataclass(frozen=True)
class Wanted:
    """What the play says of the repair: its kind, and the serials that somebody has agreed to wipe."""

    kind: Kind
    consent: Sequence[str] = ()
    stop_when_unclear: bool = False


def open_repair(
    repairs: Path, node: str, wanted: Wanted, variables: Mapping[str, Any], command: str, owner: int
) -> dict[str, Any]:
    """Begin the repair of ``node``, or take up the one that has no end. Raises ColdironError where it is refused.

    ``variables`` are the node's own, ``owner`` is the process that the repair lasts with.
    """
    wiped = target.disks(
        node, str(variables.get("coldiron_platform", "metal")), variables.get("coldiron_disks") or []
    )
    names = () if wanted.kind is Kind.WEBHOOK else target.serials(node, wiped, wanted.consent)
    policy = Policy(wanted.kind, names, Consent(frozenset(wanted.consent)), wanted.stop_when_unclear)
    keep.hold(repairs, node, command, owner, time.time())
    with Journal.open(repairs, node, policy, command, locked=True) as journal:
        found = journal.resume()
        by = journal.events[0].data["by"]
    if found.next is State.REFUSED:
        raise ColdironError(f"{node}: {found.reason}", ExitCode.REFUSED)
    said = f"{node}: the {policy.kind} goes on at {found.next}" if found.next not in ENDS else ""
    return {"next": found.next.value, "reason": found.reason, "by": by, "msg": said}


def begin(repairs: Path, node: str, state: State) -> dict[str, Any]:
    """Begin ``state`` if it is due; ``due`` says whether it is. Raises ColdironError where it may not.

    ``evidence`` is the folder that a diagnosis may write to.
    """
    keep.check_ours(repairs, node)
    if not _under_way(repairs, node):
        return {"due": False}
    with Journal.join(repairs, node) as journal:
        found = journal.where()
        if found.next is not state:
            return {"due": False, "next": found.next.value}
        event = journal.begin(state)
    attempt = int(event.data["attempt"])
    again = f", attempt {attempt}" if attempt > 1 else ""
    said = {"due": True, "attempt": attempt, "msg": f"{node}: {state} begins{again}"}
    return said | {"evidence": str(bundle.begin(_place(repairs, node)))} if state is State.DIAGNOSE else said


def end(repairs: Path, node: str, state: State, outcome: Outcome, reason: str) -> dict[str, Any]:
    """Write how ``state`` ended; ``next`` is what follows. Raises ColdironError where the repair is another's."""
    keep.check_ours(repairs, node)
    with Journal.join(repairs, node) as journal:
        event = journal.end(state, outcome, reason)
    return {"next": event.data["next"], "msg": told(node, event)}


def judge(
    repairs: Path,
    node: str,
    files: Mapping[str, str],
    about: Mapping[str, str],
    mask: Callable[[str], str],
) -> dict[str, Any]:
    """Keep and judge the evidence, and end the diagnosis with what it says."""
    keep.check_ours(repairs, node)
    place = _place(repairs, node)
    found = bundle.gather(place, files, about, mask)
    ended = end(repairs, node, State.DIAGNOSE, found.outcome, f"{found.reason}; see {shown_path(place)}")
    return ended | {"bundle": str(place), "verdict": found.verdict.value}


def where(repairs: Path, node: str) -> dict[str, Any]:
    """Where the last repair of ``node`` stands; nothing is written."""
    events = last_repair(read(path_of(repairs, node)))
    if not events:
        return {"next": "", "reason": "", "msg": f"{node}: no repair", "ended": True, "well": True}
    follows, reason, state = "", "", ""
    for event in events:
        if "next" in event.data:
            follows, reason = str(event.data["next"]), str(event.data.get("reason", ""))
            state = str(event.data.get("state", ""))
    ended = follows in ENDS
    before = f" in {state}" if follows == State.FAILED and state else ""
    said = f"{node}: {follows}{before}" if ended else f"{node}: goes on at {follows}"
    return {
        "next": follows,
        "reason": reason,
        "state": state,
        "ended": ended,
        "well": follows in (State.DONE, State.HELD),
        "drained": ended and ENDS[State(follows)].drained,
        "msg": f"{said}: {reason}" if reason else said,
    }


def settle(repairs: Path, node: str, reason: str) -> dict[str, Any]:
    """End a state as failed that a run began and never ended, as its node dropped out. Under the caller's lock."""
    if not _under_way(repairs, node):
        return {"settled": False}
    with Journal.join(repairs, node) as journal:
        found = journal.where()
        if found.cut is None:
            return {"settled": False}
        event = journal.end(found.cut, Outcome.FAILED, reason)
    return {"settled": True, "next": event.data["next"], "msg": told(node, event)}


def told(node: str, event: Event) -> str:
    """How a state ended, in a line."""
    data = event.data
    why = f": {data['reason']}" if data.get("reason") else ""
    return f"{node}: {data['state']} {data['outcome']}{why}; next: {data['next']}"


def _place(repairs: Path, node: str) -> Path:
    return bundle.place(repairs, node, last_repair(read(path_of(repairs, node)))[0].time)


def _under_way(repairs: Path, node: str) -> bool:
    events = last_repair(read(path_of(repairs, node)))
    with contextlib.suppress(StopIteration):
        return str(next(e.data["next"] for e in reversed(events) if "next" in e.data)) not in ENDS
    return False
