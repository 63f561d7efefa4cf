"""Repairing nodes from the command line, or for a webhook: runs of playbooks/repair.yml until every node is at an end.

The playbooks do the work and keep the journal; here is only what goes around them: the locks, a batch at a time, a run
again where the table says that a state is tried again, and the end of what a node dropped out of.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import find, load
from coldiron.node.plan import limit
from coldiron.repair import journal, keep, steps, target
from coldiron.repair.batch import Limits, may_begin
from coldiron.repair.machine import ENDS, ROWS, Kind, State
from coldiron.repair.view import Repair, repairs
from coldiron.run.cli import run_recorded
from coldiron.run.engine import shown_command
from coldiron.run.state import Outcome, RunState
from coldiron.run.store import Runs

PLAYBOOKS = {
    Kind.REPAIR: "coldiron.cluster.repair",
    Kind.REIMAGE: "coldiron.cluster.reimage",
    Kind.WEBHOOK: "coldiron.cluster.diagnose",
}
VERBS = {Kind.REPAIR: "repair", Kind.REIMAGE: "reimage", Kind.WEBHOOK: "diagnose"}
TELL_PLAYBOOK = "coldiron.cluster.repair_tell"
DRAIN_POLICIES = ("wait", "requeue", "deadline")
# More runs than the table's attempts can ask for: whatever goes wrong here must not go on for ever.
_MOST_RUNS = sum(row.attempts for row in ROWS)


@dataclass(frozen=True)
class Options:
    """How to repair. ``consent``: serials of disks that may be wiped. ``drain_seconds``: the longest wait for jobs."""

    consent: Sequence[str] = ()
    reason: str = ""
    drain: str = "wait"
    drain_seconds: int = 86400
    stop_when_unclear: bool = False
    limits: Limits = field(default_factory=Limits)
    verbose: int = 0


def run_repair(
    inventory: Path,
    names: Sequence[str],
    kind: Kind,
    options: Options | None = None,
    say: Callable[[str], None] = typer.echo,
) -> list[Repair]:
    """Repair the nodes ``names``, and return how each repair stands that was begun.

    A webhook's ends held, or with a ticket. Raises ColdironError where a node may not be repaired, somebody else
    repairs it, or a run cannot be begun; typer.Exit where a person stopped it. What was begun then goes on with the
    same call.
    """
    options = options or Options()
    cluster = load(find(inventory))
    nodes = {node.name: node for node in target.check(cluster, names, kind)}
    # The provisioner takes the machines' orders; where there are none, there is no such group.
    told = ["netboot_server"] if any(node.bare_metal for node in nodes.values()) else []
    where = keep.prepare(cluster.directory)
    states: dict[str, State] = {}
    while True:
        choice = may_begin(list(nodes), states, options.limits)
        if choice.stopped:
            say(choice.stopped)
        if not choice.begin:
            break
        wave = list(choice.begin)
        with ExitStack() as stack:
            command = shown_command(["coldiron", *sys.argv[1:]])
            for name in wave:
                held = journal.take(where, name, command, time.time())
                stack.callback(held.release)
            alerted = _unfinished(where, wave, kind)
            if alerted:
                # An alert's repair that was cut off only drains and diagnoses: it is brought to its end first.
                _Wave(inventory, where, alerted, Kind.WEBHOOK, options, told, say).run()
            _Wave(inventory, where, wave, kind, options, told, say).run()
        stand = {one.node: one for one in repairs(where, wave)}
        for name in wave:
            states[name] = State(stand[name].state) if name in stand and stand[name].ended else State.FAILED
    return repairs(where, list(states))


def _unfinished(where: Path, names: Sequence[str], kind: Kind) -> list[str]:
    """Those of ``names`` whose webhook was cut off, where ``kind`` is another.

    Raises ColdironError where something else has been begun with a node and has no end.
    """
    found = [one for one in repairs(where, names) if not one.ended and one.kind != kind]
    for one in found:
        if one.kind != Kind.WEBHOOK:
            raise ColdironError(
                f"{one.node}: a {one.kind} was cut off in {one.state}; go on with that one first: "
                f"coldiron node {one.kind} {one.node}",
                ExitCode.REFUSED,
            )
    return [one.node for one in found]


class _Wave:
    """Nodes that are repaired side by side, under their locks."""

    def __init__(
        self,
        inventory: Path,
        where: Path,
        names: list[str],
        kind: Kind,
        options: Options,
        told: list[str],
        say: Callable[[str], None],
    ) -> None:
        self.inventory = inventory
        self.where = where
        self.names = names
        self.kind = kind
        self.options = options
        self.told = told
        self.say = say

    def run(self) -> None:
        """Run the playbook until all are at an end, or a run brings none of them further."""
        going = list(self.names)
        playbook = PLAYBOOKS[self.kind]
        for _ in range(_MOST_RUNS):
            before = self._lines(going)
            state = self._play(playbook, going)
            settled = self._settle(going, state)
            going = [name for name in going if self._state(name) not in ENDS]
            if any(self._state(name) in ENDS for name in settled):
                self._play(TELL_PLAYBOOK, [name for name in settled if self._state(name) in ENDS])
            if not going or self._lines(going) == before:
                return
            for name in going:
                self.say(steps.where(self.where, name)["msg"])

    def _play(self, playbook: str, names: list[str]) -> RunState | None:
        """One recorded run; what came of it, None where all went well. Raises typer.Exit where it was stopped."""
        options = self.options
        extravars: dict[str, Any] = {
            "coldiron_nodes": names,
            "coldiron_consent": list(options.consent),
            "coldiron_repair_kind": self.kind.value,
            "coldiron_repair_drain": options.drain,
            "coldiron_repair_drain_seconds": options.drain_seconds,
            "coldiron_repair_stop_when_unclear": options.stop_when_unclear,
        }
        if options.reason:
            extravars["coldiron_repair_reason"] = options.reason
        try:
            run_recorded(
                f"node {VERBS[self.kind]}",
                self.inventory,
                [playbook],
                limit=[*limit(names), *self.told],
                extravars=extravars,
                verbose=options.verbose,
                announce=playbook != TELL_PLAYBOOK,
            )
        except typer.Exit as error:
            if error.exit_code == ExitCode.INTERRUPTED:
                raise
            newest = Runs(find(self.inventory).parent).current()
            return newest.state() if newest else None
        return None

    def _settle(self, names: list[str], state: RunState | None) -> list[str]:
        """End what nodes dropped out of, with the reason that the run gives; returns those nodes."""
        if state is None or state.outcome is Outcome.INTERRUPTED:
            return []
        settled = []
        for name in names:
            with contextlib.suppress(ColdironError):
                if steps.settle(self.where, name, _why(state, name))["settled"]:
                    settled.append(name)
        return settled

    def _state(self, name: str) -> str:
        return str(steps.where(self.where, name)["next"])

    def _lines(self, names: Sequence[str]) -> list[int]:
        """How much each journal says beyond having been taken up."""
        return [
            sum(
                event.kind in (journal.BEGIN, journal.END)
                for event in journal.read(journal.path_of(self.where, name))
            )
            for name in names
        ]


def _why(state: RunState, node: str) -> str:
    """Why a run did not come through for ``node``: its own failure, else that of another."""
    failures = [failure for failure in state.failures if not failure.ignored]
    own = [failure for failure in failures if failure.host == node] or failures
    if not own:
        return f"the run ended: {state.outcome}"
    first = own[-1]
    who = "" if first.host == node else f"{first.host}: "
    return f"{who}{first.task.rpartition(' | ')[2] or first.task}: {first.sentence}"
