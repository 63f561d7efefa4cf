"""A provisioning run as nodes and steps: the run's own state, drawn with the steps of a deployment for stages.

The events of a run name plays and tasks; which step a machine is at is in its task's name. What is made here is a
`RunState` like any other, so the live view, the plain lines and the summary show it without knowing.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from coldiron.run.state import Cell, CellStatus, Counts, Host, Outcome, RunState, Stage

# The columns, in the order in which a machine goes through them. The steps between are those that machines report.
ORDER = "order"
POWER = "power"
SSH = "ssh"
STEPS = (
    ORDER, POWER, "up", "redeem", "disks", "partition", "stream", "system", "identity", "boot", "done", SSH
)  # fmt: skip
STAGE = "provision"
_STEP = re.compile(r"Wait for step (\w+)")
_TASKS = {
    "Ensure the provisioner has the machine's order": ORDER,
    "Wait for ssh": SSH,
}
_BAD = (CellStatus.FAILED, CellStatus.UNREACHABLE)


def step_of(role: str, task: str) -> str | None:
    """The step that a task of stage provision is; None for one that is none of a machine's."""
    words = task.rpartition("| ")[2]
    if found := _STEP.search(words):
        return found[1] if found[1] in STEPS else None
    if words in _TASKS:
        return _TASKS[words]
    return POWER if role == "bmc" else None


@dataclass
class _Machine:
    """Where one machine is, and since when in seconds since the epoch."""

    at: str = ""
    times: dict[str, tuple[float, float | None]] = field(default_factory=dict)

    def move(self, step: str, now: float) -> None:
        if step == self.at:
            return
        # Role bmc is asked again while a machine is up, to take its network boot back: that is no step back.
        if self.at in STEPS and step == POWER and STEPS.index(self.at) > STEPS.index(POWER):
            return
        if self.at:
            self.times[self.at] = (self.times[self.at][0], now)
        if self.at and STEPS.index(step) < STEPS.index(self.at):
            # It was started once more.
            self.times = {
                name: time for name, time in self.times.items() if STEPS.index(name) < STEPS.index(step)
            }
        self.at = step
        self.times[step] = (now, None)


class Steps:
    """Remembers where each machine was, since a state only says where it is."""

    def __init__(self, machines: Sequence[str]) -> None:
        self._machines = {name: _Machine() for name in machines}

    def view(self, state: RunState) -> RunState:
        """``state`` with the machines for hosts and the steps for stages, once the first machine has begun."""
        for name, machine in self._machines.items():
            host = state.hosts.get(name)
            at = host.running if host else None
            if at is not None and (step := step_of(at.role, at.task)):
                machine.move(step, at.started)
        if not any(machine.at for machine in self._machines.values()):
            return state
        return self._drawn(state)

    def _drawn(self, state: RunState) -> RunState:
        hosts = {
            name: self._host(name, machine, state)
            for name, machine in self._machines.items()
            if machine.at or name in state.hosts
        }
        stages = {step: self._stage(step) for step in STEPS}
        header = dataclasses.replace(state.header, stages=list(STEPS), hosts=list(hosts))
        furthest = max((machine.at for machine in self._machines.values() if machine.at), key=STEPS.index)
        return dataclasses.replace(state, header=header, stages=stages, hosts=hosts, stage=furthest)

    def _host(self, name: str, machine: _Machine, state: RunState) -> Host:
        real = state.hosts.get(name) or Host(name)
        bad = real.status if real.status in _BAD else None
        cells: dict[str, Cell] = {}
        for step in STEPS:
            begun, ended = machine.times.get(step, (None, None))
            status = CellStatus.WAITING
            if begun is not None:
                status = CellStatus.OK if ended is not None or step != machine.at else CellStatus.RUNNING
            elif machine.at and STEPS.index(step) < STEPS.index(machine.at):
                status = CellStatus.OK
            if step == machine.at:
                # Its other tasks, such as those of the stages after, are not this step's.
                over = real.running is None or step_of(real.running.role, real.running.task) is None
                done = over and (step == SSH or state.finished)
                status = bad or (CellStatus.OK if done else CellStatus.RUNNING)
                if status is CellStatus.RUNNING and state.outcome is not Outcome.RUNNING:
                    status = CellStatus.OK
            cells[step] = Cell(status, Counts(), begun, ended)
        return dataclasses.replace(real, cells=cells)

    def _stage(self, step: str) -> Stage:
        times = [machine.times[step] for machine in self._machines.values() if step in machine.times]
        ends = [ended for _, ended in times]
        behind = [
            machine
            for machine in self._machines.values()
            if not machine.at or STEPS.index(machine.at) <= STEPS.index(step)
        ]
        return Stage(
            step,
            started=min((begun for begun, _ in times), default=None),
            ended=max((ended for ended in ends if ended is not None), default=None) if not behind else None,
        )
