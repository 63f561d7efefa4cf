"""The state machine of one node's repair: the table of its states, and the pure functions that read it.

The table is the only place that says what follows what, what is tried again and how often, where a repair that was
cut off goes on, and what is left out for whom. docs/repair.md shows it; a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from coldiron.inventory.findings import shown


class State(StrEnum):
    """What is being done to a node, in the order of the road; then the ends."""

    DRAIN = "drain"
    DIAGNOSE = "diagnose"
    POWER = "power"
    DEPLOY = "deploy"
    CONVERGE = "converge"
    ACCEPT = "accept"
    RESUME = "resume"
    DONE = "done"
    FAILED = "failed"
    TICKET = "ticket"
    HELD = "held"
    REFUSED = "refused"


class Outcome(StrEnum):
    """How a state ended. ``UNCLEAR``: the evidence says neither hardware nor software. ``REFUSED``: it did nothing."""

    OK = "ok"
    UNCLEAR = "unclear"
    HARDWARE = "hardware"
    REFUSED = "refused"
    FAILED = "failed"


class Kind(StrEnum):
    """Who wants what: a person repairs or reimages a node, an alert's webhook may only drain and diagnose it."""

    REPAIR = "repair"
    REIMAGE = "reimage"
    WEBHOOK = "webhook"


@dataclass(frozen=True)
class End:
    """An end of the road. ``drained``: the node takes no jobs afterwards, because of this repair."""

    state: State
    drained: bool
    means: str


@dataclass(frozen=True)
class Row:
    """One state. ``attempts``: how often it may end with ``failed`` before that is its outcome.

    ``again``: where a repair goes on that failed or was cut off in this state, and ``why`` that is safe. ``skipped``:
    for which kinds it is left out, each with the reason. ``wipes``: it destroys what is on the disks that the policy
    names, and so neither begins nor goes on without consent.
    """

    state: State
    does: str
    to: Mapping[Outcome, State]
    attempts: int
    again: State
    why: str
    skipped: Mapping[Kind, str] = field(default_factory=lambda: MappingProxyType({}))
    wipes: bool = False


_ONLY_LOOKS = "a webhook may drain and diagnose only"
_BY_ORDER = "a reimage is ordered by a person, whatever the evidence"


def _row(
    state: State,
    does: str,
    to: dict[Outcome, State],
    attempts: int,
    again: State,
    why: str,
    skipped: dict[Kind, str] | None = None,
    wipes: bool = False,
) -> Row:
    return Row(
        state, does, MappingProxyType(to), attempts, again, why, MappingProxyType(skipped or {}), wipes
    )


ROWS: tuple[Row, ...] = (
    _row(
        State.DRAIN,
        "no new jobs; running ones are waited for, requeued or ended at a deadline",
        {Outcome.OK: State.DIAGNOSE, Outcome.FAILED: State.FAILED},
        attempts=3,
        again=State.DRAIN,
        why="draining a drained node changes nothing",
    ),
    _row(
        State.DIAGNOSE,
        "gather the evidence and judge it",
        {
            Outcome.OK: State.POWER,
            Outcome.UNCLEAR: State.POWER,
            Outcome.HARDWARE: State.TICKET,
            Outcome.FAILED: State.FAILED,
        },
        attempts=2,
        again=State.DIAGNOSE,
        why="it only reads",
        skipped={Kind.REIMAGE: _BY_ORDER},
    ),
    _row(
        State.POWER,
        "set the one-time boot, power-cycle, see that it took",
        {Outcome.OK: State.DEPLOY, Outcome.FAILED: State.FAILED},
        attempts=3,
        again=State.POWER,
        why="the node is drained and nothing of worth runs on it; the boot is set anew",
        skipped={Kind.WEBHOOK: _ONLY_LOOKS},
    ),
    _row(
        State.DEPLOY,
        "partition the named disks, write the image, boot it",
        {
            Outcome.OK: State.CONVERGE,
            Outcome.HARDWARE: State.TICKET,
            # Not the end of that name: this node has been drained by now, and stays so.
            Outcome.REFUSED: State.FAILED,
            Outcome.FAILED: State.FAILED,
        },
        attempts=2,
        # The deploy environment may have been left half-way, or have booted already: it is entered by power.
        again=State.POWER,
        why="it writes the same image to the same disks, so a half-written one is written over; only while the consent "
        "to wipe holds, since the disks may be others by now",
        skipped={Kind.WEBHOOK: _ONLY_LOOKS},
        wipes=True,
    ),
    _row(
        State.CONVERGE,
        "the stages of site.yml, this node only",
        {Outcome.OK: State.ACCEPT, Outcome.FAILED: State.FAILED},
        attempts=2,
        again=State.CONVERGE,
        why="what is done is left alone, and restarts still owed are made up for",
        skipped={Kind.WEBHOOK: _ONLY_LOOKS},
    ),
    _row(
        State.ACCEPT,
        "the roles' own tests and the health check",
        {Outcome.OK: State.RESUME, Outcome.HARDWARE: State.TICKET, Outcome.FAILED: State.FAILED},
        attempts=2,
        again=State.ACCEPT,
        why="it only looks",
        skipped={Kind.WEBHOOK: _ONLY_LOOKS},
    ),
    _row(
        State.RESUME,
        "take the drain back",
        {Outcome.OK: State.DONE, Outcome.FAILED: State.FAILED},
        attempts=3,
        # Nobody knows how long ago the proof was, nor who has drained the node since.
        again=State.ACCEPT,
        why="a node that may have been drained anew meanwhile is proven again before it takes jobs",
        skipped={Kind.WEBHOOK: _ONLY_LOOKS},
    ),
)
TABLE: Mapping[State, Row] = MappingProxyType({row.state: row for row in ROWS})
ENDS: Mapping[State, End] = MappingProxyType(
    {
        end.state: end
        for end in (
            End(State.DONE, False, "accepted, and takes jobs again"),
            End(State.FAILED, True, "a state failed; the node stays drained with the reason"),
            End(State.TICKET, True, "the evidence says hardware: open a ticket; the node stays drained"),
            End(State.HELD, True, "drained and diagnosed; the rest is for a person to begin"),
            End(State.REFUSED, False, "nothing was begun; the node is as it was"),
        )
    }
)


@dataclass(frozen=True)
class Consent:
    """Which disks may be wiped, by serial, as somebody typed them; ``until`` in seconds since the epoch."""

    serials: frozenset[str] = frozenset()
    until: float = math.inf


@dataclass(frozen=True)
class Policy:
    """What is wanted of one node's repair. ``disks``: the serials that deploy would wipe, all of them and no other.

    ``stop_when_unclear``: end as failed where the evidence says nothing, instead of reimaging.
    """

    kind: Kind
    disks: tuple[str, ...] = ()
    consent: Consent = Consent()
    stop_when_unclear: bool = False


@dataclass(frozen=True)
class Step:
    """A state as ``plan`` tells it. ``skipped`` says why it is left out, or is empty; ``wipes`` names disks."""

    state: State
    does: str
    skipped: str
    wipes: tuple[str, ...]


def plan(policy: Policy) -> tuple[Step, ...]:
    """Every state in order, with what is left out and why, and the disks that would be wiped: ``--dry-run``."""
    steps = []
    for row in ROWS:
        skipped = row.skipped.get(policy.kind, "")
        steps.append(Step(row.state, row.does, skipped, policy.disks if row.wipes and not skipped else ()))
    return tuple(steps)


def refusal(policy: Policy, now: float) -> str:
    """Why the disks may not be wiped at ``now`` (seconds since the epoch); empty where they may, or none would be."""
    if not any(row.wipes and policy.kind not in row.skipped for row in ROWS):
        return ""
    if not policy.disks:
        return "no disk is named to deploy to; give the node's system disk a serial"
    missing = [serial for serial in policy.disks if serial not in policy.consent.serials]
    if missing:
        flags = " ".join(f"--yes {shown(serial)}" for serial in missing)
        return f"deploy would wipe {', '.join(map(shown, missing))}; type the serial, or give {flags}"
    if now >= policy.consent.until:
        return f"the consent to wipe {', '.join(map(shown, policy.disks))} has run out; give it again"
    return ""


def start(policy: Policy, now: float) -> State:
    """The first state; REFUSED where a disk would be wiped that nobody has agreed to: before the node is touched."""
    return State.REFUSED if refusal(policy, now) else _forward(ROWS[0].state, policy)


def next_state(
    state: State, outcome: Outcome, policy: Policy, *, failures: int = 0, now: float = 0.0
) -> State:
    """What follows ``state``, which ended with ``outcome`` at ``now`` (seconds since the epoch).

    ``failures``: how often it has failed before, since it last went well. Raises ValueError where the table knows no
    such state or outcome: that is a mistake in the caller, not in the repair.
    """
    row = TABLE.get(state)
    if row is None or outcome not in row.to:
        raise ValueError(f"the table has no row for {state} that ends with {outcome}")
    if outcome is Outcome.FAILED and failures + 1 < row.attempts:
        return after_cut(state, policy, now)
    if outcome is Outcome.UNCLEAR and policy.stop_when_unclear and policy.kind is not Kind.WEBHOOK:
        return State.FAILED
    follows = row.to[outcome]
    return follows if follows in ENDS else _guarded(_forward(follows, policy), policy, now)


def after_cut(state: State, policy: Policy, now: float) -> State:
    """Where a repair goes on that began ``state`` and did not come through: it failed, or nobody knows how it ended."""
    row = TABLE[state]
    if row.wipes and refusal(policy, now):
        return State.FAILED
    return _guarded(row.again, policy, now)


def still(state: State, policy: Policy, now: float) -> State:
    """``state`` as the next one, after a pause: FAILED where it wipes and the consent does not hold any more."""
    return state if state in ENDS else _guarded(state, policy, now)


def _forward(state: State, policy: Policy) -> State:
    """``state``, or the next that is not left out. Who leaves out the resuming ends held, never done."""
    while state in TABLE and policy.kind in TABLE[state].skipped:
        state = TABLE[state].to[Outcome.OK]
    return State.HELD if state is State.DONE else state


def _guarded(state: State, policy: Policy, now: float) -> State:
    return State.FAILED if state in TABLE and TABLE[state].wipes and refusal(policy, now) else state
