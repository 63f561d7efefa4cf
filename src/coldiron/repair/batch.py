"""Which nodes of a batch may begin now: a canary first, so many at once, and no more after so many failures. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coldiron.errors import ColdironError
from coldiron.inventory.findings import shown
from coldiron.repair.machine import ENDS, State


@dataclass(frozen=True)
class Limits:
    """``batch``: how many nodes at once. ``max_failures``: no node begins once this many have failed."""

    batch: int = 1
    max_failures: int = 1
    canary: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers below 1 with a ColdironError."""
        for name, value in (("--batch", self.batch), ("--max-failures", self.max_failures)):
            if value < 1:
                raise ColdironError(f"{name} {value}: give a number of nodes from 1")


@dataclass(frozen=True)
class Choice:
    """The nodes that may begin, in the order given; ``stopped`` says why no other will, or is empty."""

    begin: tuple[str, ...]
    stopped: str = ""


def may_begin(nodes: Sequence[str], states: Mapping[str, State], limits: Limits) -> Choice:
    """Which of ``nodes`` may begin, given the state of those that have; one without a state has not begun.

    Only failures count against ``max_failures``: a ticket, a hold or a refusal says something of that node and nothing
    of the road. For the same reason they prove nothing, and the next node is the canary. Raises ColdironError where a
    node is named twice.
    """
    twice = next((node for number, node in enumerate(nodes) if node in nodes[:number]), None)
    if twice is not None:
        raise ColdironError(f"{shown(twice)} is named twice; name each node once")
    known = [states[node] for node in nodes if node in states]
    waiting = [node for node in nodes if node not in states]
    failed, proven = known.count(State.FAILED), State.DONE in known
    if not waiting:
        return Choice(())
    if failed >= limits.max_failures:
        return Choice((), f"{failed} of {len(nodes)} nodes failed; {len(waiting)} were not begun")
    if limits.canary and failed and not proven:
        return Choice((), f"the first node failed; {len(waiting)} were not begun")
    at_once = 1 if limits.canary and not proven else limits.batch
    under_way = sum(state not in ENDS for state in known)
    return Choice(tuple(waiting[: max(0, at_once - under_way)]))
