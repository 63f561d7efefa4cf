"""How long a run will still take, from earlier runs of the same cluster.

An earlier run is asked how long it took from the task that runs now to its end. First runs take minutes and
later ones seconds, so the runs asked first are those whose finished stages took about as long as this one's, and
what they say is taken as much faster or slower as those stages were.
Where nothing is known nothing is said.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from coldiron.run.state import RunState

# Hosts that Ansible works on side by side; up to here more hosts take hardly longer, beyond it each adds.
_SIDE_BY_SIDE = 32
_ASKED_AT_MOST = 3
# Runs that went twice as fast or slow as the one most alike are not asked; ln 2.
_AS_NEAR = 0.7
_SPEED_AT_MOST = 20.0

TaskKey = tuple[str, str, str]


@dataclass(frozen=True)
class StagePast:
    """A finished stage: seconds, hosts that took part, and the seconds left of it when each task began."""

    seconds: float
    hosts: int
    left: dict[TaskKey, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Past:
    """What one earlier run tells."""

    verb: str
    check: bool
    tags: tuple[str, ...]
    stages: dict[str, StagePast]


@dataclass(frozen=True)
class Remaining:
    """Seconds that are left, and from how many earlier runs this was guessed."""

    seconds: float
    runs: int


@dataclass(frozen=True)
class Estimate:
    """What earlier runs tell, newest first."""

    runs: tuple[Past, ...] = ()

    def remaining(self, state: RunState, now: float) -> Remaining | None:
        """How long ``state``'s run will still take at ``now`` (seconds since the epoch); None if unknown."""
        header = state.header
        ahead = [
            name
            for name in (state.stages or dict.fromkeys(header.stages))
            if name not in state.stages or state.stages[name].ended is None
        ]
        alike = [
            past
            for past in self.runs
            if (past.verb, past.check, past.tags) == (header.verb, header.check, tuple(header.tags))
            and all(name in past.stages for name in ahead)
        ]
        if not alike or not ahead or state.finished:
            return None
        hosts = len(state.hosts) or len(header.hosts)
        far = {id(past): _unlike(past, state, hosts, now) for past in alike}
        alike.sort(key=lambda past: far[id(past)])
        near = [past for past in alike[:_ASKED_AT_MOST] if far[id(past)] <= far[id(alike[0])] + _AS_NEAR]
        guesses = [_left(past, state, ahead, hosts, now) for past in near]
        return Remaining(statistics.median(guesses), len(guesses))


def from_states(states: Iterable[RunState]) -> Estimate:
    """An estimate from earlier runs, given newest first. Stages that did not end, or failed, tell nothing."""
    return Estimate(tuple(past for state in states if (past := _past(state)).stages))


def _past(state: RunState) -> Past:
    failed = {failure.stage for failure in state.failures if not failure.ignored}
    stages: dict[str, StagePast] = {}
    for name, stage in state.stages.items():
        if stage.seconds is None or stage.ended is None or name in failed:
            continue
        stages[name] = StagePast(stage.seconds, len(state.hosts), {})
        for task in state.tasks:
            if task.stage == name:
                key = (task.play, task.role, task.name)
                stages[name].left.setdefault(key, max(0.0, stage.ended - task.started))
    header = state.header
    return Past(header.verb, header.check, tuple(header.tags), stages)


def _scale(now: int, then: int) -> float:
    """How much longer a stage takes with ``now`` hosts than with ``then``."""
    return max(now, _SIDE_BY_SIDE) / max(then, _SIDE_BY_SIDE)


def _unlike(past: Past, state: RunState, hosts: int, now: float) -> float:
    """How far ``past`` is from how this run goes: 0 is alike, 1 is e times slower or faster."""
    distances = []
    for name, stage in state.stages.items():
        if stage.started is None or name not in past.stages:
            continue
        was = past.stages[name].seconds * _scale(hosts, past.stages[name].hosts) + 1
        seconds = stage.seconds
        if seconds is not None:
            distances.append(abs(math.log((seconds + 1) / was)))
        elif now - stage.started + 1 > was:
            # A stage that is on says something only once it is later than it was.
            distances.append(math.log((now - stage.started + 1) / was))
    return statistics.fmean(distances) if distances else 0.0


def _speed(past: Past, state: RunState, hosts: int) -> float:
    """How many times as long as in ``past`` the finished stages took, within bounds."""
    now = then = 1.0  # a second each: where next to nothing is finished nothing can be said
    for name, stage in state.stages.items():
        if stage.seconds is not None and name in past.stages:
            now += stage.seconds
            then += past.stages[name].seconds * _scale(hosts, past.stages[name].hosts)
    return min(_SPEED_AT_MOST, max(1 / _SPEED_AT_MOST, now / then))


def _left(past: Past, state: RunState, ahead: list[str], hosts: int, now: float) -> float:
    """Seconds left if this run goes on like ``past``, as much faster or slower as its finished stages were."""
    total = 0.0
    speed = _speed(past, state, hosts)
    for name in ahead:
        known = past.stages[name]
        scale = _scale(hosts, known.hosts) * speed
        stage = state.stages.get(name)
        if stage is None or stage.started is None:
            total += known.seconds * scale
            continue
        left = known.seconds * scale - (now - stage.started)
        # The newest task that the earlier run had too says more than the clock.
        for task in reversed(state.tasks):
            if task.stage == name and (key := (task.play, task.role, task.name)) in known.left:
                left = known.left[key] * scale - (now - task.started)
                break
        total += max(0.0, left)
    return total
