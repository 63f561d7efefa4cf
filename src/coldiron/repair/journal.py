"""The journal of a node's repairs: what began and how it ended, on the disk before anything else happens.

One file a node, one JSON object a line, in the shape of the run's events (``coldiron.run.events``) and one field more,
``sum``: it is taken over the line and the sum before it, so a line that is garbled, missing or out of its place is
noticed. A line is brought to the disk before ``begin`` or ``end`` returns; a last line that was torn had not been
promised to anybody, and is taken away. Events: ``repair_open``, ``repair_resumed``, ``repair_begin``, ``repair_end``,
``repair_stop``; those that lead somewhere say so in ``next``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown, shown_path
from coldiron.plan.findings import one_line
from coldiron.repair.machine import (
    ENDS,
    TABLE,
    Consent,
    Kind,
    Outcome,
    Policy,
    State,
    after_cut,
    next_state,
    refusal,
    start,
    still,
)
from coldiron.run import lock
from coldiron.run.events import Event, parse

OPEN, RESUMED, BEGIN, END, STOP = (f"repair_{word}" for word in ("open", "resumed", "begin", "end", "stop"))
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_LONGEST_REASON = 500


@dataclass(frozen=True)
class Position:
    """Where a repair stands. ``next`` is the state to begin now, or the end it has come to, for ``reason``.

    ``cut``: the state that began and has no end, if there is one. ``failures``: how often ``cut``, or else ``next``,
    has failed since it last went well.
    """

    next: State
    reason: str = ""
    cut: State | None = None
    failures: int = 0


def position(events: Sequence[Event], policy: Policy, now: float) -> Position:
    """Where the last repair among ``events`` stands at ``now`` (seconds since the epoch). Pure."""
    follows, reason, cut = start(policy, now), "", None
    for event in events:
        if "next" in event.data:
            follows, reason, cut = State(event.data["next"]), str(event.data.get("reason", "")), None
        elif event.kind == BEGIN:
            cut = State(event.data["state"])
    if cut is None and follows in ENDS:
        return Position(follows, reason)
    held = after_cut(cut, policy, now) if cut else still(follows, policy, now)
    why = refusal(policy, now) if held in ENDS else ""
    return Position(held, why, cut, failures(events, cut or held))


def failures(events: Sequence[Event], state: State) -> int:
    """How often ``state`` has failed since it last went well."""
    count = 0
    for event in events:
        if event.kind == END and event.data["state"] == state:
            count = count + 1 if event.data["outcome"] == Outcome.FAILED else 0
    return count


def policy_data(policy: Policy) -> dict[str, Any]:
    """The policy as JSON types. Consent without an end has no ``until``."""
    consent: dict[str, Any] = {"serials": sorted(policy.consent.serials)}
    if policy.consent.until != float("inf"):
        consent["until"] = policy.consent.until
    return {
        "kind": policy.kind.value,
        "disks": list(policy.disks),
        "consent": consent,
        "stop_when_unclear": policy.stop_when_unclear,
    }


def policy_of(data: Mapping[str, Any]) -> Policy:
    """The policy that ``policy_data`` wrote. Raises KeyError, TypeError or ValueError where it did not."""
    consent = Consent(
        frozenset(map(str, data["consent"]["serials"])), float(data["consent"].get("until", "inf"))
    )
    return Policy(
        Kind(data["kind"]), tuple(map(str, data["disks"])), consent, bool(data["stop_when_unclear"])
    )


class Journal:
    """The journal of one node, open for the one repair that holds its lock. Made by ``Journal.open``."""

    def __init__(
        self,
        node: str,
        path: Path,
        descriptor: int,
        read: _Read,
        held: lock.Lock | None,
        policy: Policy,
        clock: Callable[[], float],
    ) -> None:
        self.node = node
        self.path = path
        self.policy = policy
        self.lock = held
        """The node's lock; ``died`` in it is who ended without giving it back. None where another holds it for us."""
        self._descriptor = descriptor
        self._sum = read.sum
        self._number = read.events[-1].number if read.events else 0
        self._events = list(read.repair)
        self._clock = clock

    @classmethod
    def open(
        cls,
        directory: Path,
        node: str,
        policy: Policy,
        command: str = "",
        clock: Callable[[], float] = time.time,
        *,
        locked: bool = False,
    ) -> Journal:
        """Begin a repair of ``node``, or take up the one that did not come to an end.

        ``locked``: the caller answers for the node's lock, as a process above this one holds it.

        One that is taken up keeps its kind and its disks; the consent to wipe is the one given now, where one is.
        Raises ColdironError where another repair of the node is on (it names the holder), where the one that did not
        end is another than ``policy`` says, and where the file is damaged or cannot be written.
        """
        if not _NODE.fullmatch(node):
            raise ColdironError(f"{shown(node)} is no name of a node")
        now = clock()
        path = path_of(directory, node)
        held = None if locked else take(directory, node, command, now)
        try:
            read = _recover(path)
            last, unfinished = read.policy, read.unfinished
            if unfinished and last is not None:
                policy = _taken_up(node, last, policy)
            descriptor = _opened(path)
            journal = cls(node, path, descriptor, read, held, policy, clock)
            try:
                journal._opened_for(unfinished)
            except BaseException:
                os.close(descriptor)
                raise
        except BaseException:
            if held is not None:
                held.release()
            raise
        return journal

    @classmethod
    def join(cls, directory: Path, node: str, clock: Callable[[], float] = time.time) -> Journal:
        """Go on writing the journal of a repair that another process of the same run has opened.

        The caller answers for the node's lock. Raises ColdironError where no repair is under way.
        """
        path = path_of(directory, node)
        read = _recover(path)
        if read.policy is None or not read.unfinished:
            raise ColdironError(f"{node}: no repair is under way", ExitCode.REFUSED)
        return cls(node, path, _opened(path), read, None, read.policy, clock)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of this repair, the ones before it was cut off included."""
        return tuple(self._events)

    def where(self) -> Position:
        """Where the repair stands now; nothing is written."""
        return position(self._events, self.policy, self._clock())

    def resume(self) -> Position:
        """Where to go on. A repair that may not go on, as its consent has run out, is ended, and that is written."""
        found = self.where()
        if found.next in ENDS and not self._ended():
            self._write(STOP, {"state": (found.cut or ""), "next": found.next, "reason": found.reason})
        return found

    def begin(self, state: State) -> Event:
        """Write that ``state`` begins. Raises ValueError where it is not the state that is due.

        Raises ColdironError where it would wipe a disk that nobody has agreed to, now; nothing is written then.
        """
        found = self.where()
        if TABLE[state].wipes and (why := refusal(self.policy, self._clock())):
            raise ColdironError(f"{self.node}: {why}", ExitCode.REFUSED)
        if found.next is not state:
            raise ValueError(f"{self.node}: {found.next} is due, not {state}")
        return self._write(BEGIN, {"state": state, "attempt": failures(self._events, state) + 1})

    def end(self, state: State, outcome: Outcome, reason: str = "") -> Event:
        """Write how ``state`` ended; ``next`` in the event's data is what follows. The reason is cut to one line.

        Raises ValueError where ``state`` is not under way, the table knows no such outcome of it, or an outcome other
        than ok has no reason: a node must not stay drained without one.
        """
        found = self.where()
        if found.cut is not state:
            raise ValueError(f"{self.node}: {state} is not under way")
        reason = one_line(reason)[:_LONGEST_REASON]
        if outcome is not Outcome.OK and not reason:
            raise ValueError(f"{self.node}: {state} ended with {outcome} for no reason")
        now = self._clock()
        follows = next_state(state, outcome, self.policy, failures=found.failures, now=now)
        if follows is State.FAILED and (outcome is Outcome.OK or TABLE[state].wipes):
            # The road would go on, and the missing consent ends it.
            reason = "; ".join(filter(None, (reason, refusal(self.policy, now))))
        data = {"state": state, "outcome": outcome, "reason": reason, "next": follows}
        return self._write(END, data)

    def close(self) -> None:
        """Give the lock back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if self.lock is not None:
                self.lock.release()

    def _ended(self) -> bool:
        return bool(self._events) and self._events[-1].data.get("next") in ENDS

    def _opened_for(self, unfinished: bool) -> None:
        data: dict[str, Any] = {"node": self.node, "policy": policy_data(self.policy), "by": lock.user()}
        if unfinished:
            self._write(RESUMED, data)
            return
        self._events = []
        now = self._clock()
        self._write(OPEN, data | {"next": start(self.policy, now), "reason": refusal(self.policy, now)})

    def _write(self, kind: str, data: Mapping[str, Any]) -> Event:
        event = Event(self._number + 1, round(float(self._clock()), 4), kind, json.loads(json.dumps(data)))
        line, total = _sealed(event, self._sum)
        left = line
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise _cannot(self.path, error) from None
        self._number, self._sum = event.number, total
        self._events.append(event)
        return event


@dataclass(frozen=True)
class _Read:
    """What a journal holds. ``good``: the bytes up to the end of its last whole line."""

    events: tuple[Event, ...] = ()
    sum: str = ""
    good: int = 0

    @property
    def repair(self) -> tuple[Event, ...]:
        """The events of the last repair."""
        opened = [number for number, event in enumerate(self.events) if event.kind == OPEN]
        return self.events[opened[-1] :] if opened else ()

    @property
    def policy(self) -> Policy | None:
        """What the last repair was to do."""
        told = [event.data["policy"] for event in self.repair if "policy" in event.data]
        return policy_of(told[-1]) if told else None

    @property
    def unfinished(self) -> bool:
        """Whether the last repair has come to no end."""
        follows = [event.data.get("next") for event in self.repair if event.kind != RESUMED]
        return bool(follows) and follows[-1] not in ENDS


def path_of(directory: Path, node: str) -> Path:
    """The journal of ``node`` in ``directory``."""
    return directory / f"{node}.jsonl"


def read(path: Path) -> tuple[Event, ...]:
    """Every event in a journal, for whoever only looks. Raises ColdironError where it is damaged."""
    return _read(path).events


def _sealed(event: Event, before: str) -> tuple[bytes, str]:
    # A reason may quote what a node said: what is no text there becomes a question mark.
    text = event.line().encode("utf-8", errors="replace").decode()
    total = hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()[:16]
    return f'{text[:-1]},"sum":"{total}"}}\n'.encode(), total


def _read(path: Path) -> _Read:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return _Read()
    except OSError as error:
        raise _cannot(path, error) from None
    lines = content.split(b"\n")
    events: list[Event] = []
    total, good = "", 0
    for number, line in enumerate(lines[:-1], 1):
        event = parse(line)
        if event is None or _sealed(event, total)[0] != line + b"\n" or not _sound(event):
            if number == len(lines) - 1 and not lines[-1]:
                break
            raise ColdironError(
                f"{shown_path(path)}:{number}: this line of the journal is damaged; see what the node is, then move "
                "the file away and repair it anew",
                ExitCode.ENVIRONMENT,
            )
        events.append(event)
        total = _sealed(event, total)[1]
        good += len(line) + 1
    return _Read(tuple(events), total, good)


def _sound(event: Event) -> bool:
    """Whether the event says what this module understands."""
    data = event.data
    try:
        if event.kind in (OPEN, RESUMED):
            policy_of(data["policy"])
        if event.kind in (BEGIN, END):
            TABLE[State(data["state"])]
        if event.kind == END:
            Outcome(data["outcome"])
        if event.kind in (OPEN, END, STOP):
            State(data["next"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return event.kind in (OPEN, RESUMED, BEGIN, END, STOP)


def _recover(path: Path) -> _Read:
    """What the journal holds, a torn last line taken away: what is written next would be glued to it."""
    found = _read(path)
    try:
        if path.exists() and path.stat().st_size > found.good:
            with path.open("r+b") as stream:
                stream.truncate(found.good)
                os.fsync(stream.fileno())
    except OSError as error:
        raise _cannot(path, error) from None
    return found


def _opened(path: Path) -> int:
    """A descriptor to append with. The directory is brought to the disk too: a new file is nothing without its name."""
    try:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        above = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(above)
        finally:
            os.close(above)
    except OSError as error:
        raise _cannot(path, error) from None
    return descriptor


def _taken_up(node: str, last: Policy, wanted: Policy) -> Policy:
    """The policy of a repair that is taken up: what it was, with the consent that is given now."""
    if (last.kind, last.disks) != (wanted.kind, wanted.disks):
        disks = ", ".join(map(shown, last.disks)) or "no disk"
        raise ColdironError(
            f"{node}: a {last.kind} ({disks}) has not come to its end; go on with that one first",
            ExitCode.REFUSED,
        )
    return last if wanted.consent == Consent() else replace(last, consent=wanted.consent)


def take(directory: Path, node: str, command: str, now: float, pid: int | None = None) -> lock.Lock:
    """Take the lock of ``node``, in the name of process ``pid`` (else this one). Raises ColdironError, which names
    the holder, where it is held."""
    file = lock_file(directory, node)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot(file, error) from None
    who = lock.holder(node, command, now)
    return lock.take_or_tell(
        file,
        who if pid is None else replace(who, pid=pid),
        now,
        lambda other: f"{node} is being repaired: {other.told(now)}; try again when that has ended",
    )


def lock_file(directory: Path, node: str) -> Path:
    """The file of the lock of ``node``."""
    return directory / f"{node}.lock"


def _cannot(path: Path, error: OSError) -> ColdironError:
    return ColdironError(
        f"{shown_path(path)}: the journal cannot be kept: {error.strerror or error}", ExitCode.ENVIRONMENT
    )
