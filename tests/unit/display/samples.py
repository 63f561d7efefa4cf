"""Runs built by hand: a small one and one of 500 nodes, each at a moment of the test's choice."""

from __future__ import annotations

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

BEGAN = 1_700_000_000.0
STAGES = ["validate", "base", "storage", "scheduler"]
ALL_STAGES = [
    *("validate", "provision", "base", "fabric", "gpu", "storage"),
    *("containers", "scheduler", "monitoring", "logging", "science", "acceptance"),
]
SMALL = ["head01", "login01", "storage01", "cpu01", "gpu01", "gpu02", "gpu03"]
LARGE = [
    *(f"head{n:02}" for n in range(1, 4)),
    *(f"login{n:02}" for n in range(1, 5)),
    *(f"storage{n:02}" for n in range(1, 4)),
    *(f"cpu{n:02}" for n in range(1, 11)),
    *(f"gpu{n:03}" for n in range(1, 481)),
]


def begun(names: list[str], stages: list[str] | None = None, check: bool = False) -> RunState:
    """A run that has its header and its hosts, and nothing more."""
    stages = stages or STAGES
    header = Header(
        id="20231114-221320",
        verb="apply",
        command=["coldiron", "apply"],
        plain="ansible-playbook site.yml",
        started=BEGAN,
        user="op",
        machine="desk",
        pid=1,
        cluster="hopper",
        inventory="inventories/hopper",
        playbooks=["coldiron.cluster.site"],
        stages=list(stages),
        hosts=list(names),
        check=check,
    )
    hosts = {
        name: Host(name, name.rstrip("0123456789"), {stage: Cell() for stage in stages}) for name in names
    }
    return RunState(header, hosts=hosts, stages={name: Stage(name) for name in stages}, last_event=BEGAN)


def finish_stage(state: RunState, name: str, started: float, ended: float, changed: int = 0) -> None:
    """Let every sound host be through stage ``name``, with ``changed`` tasks changed on each."""
    state.stages[name].started, state.stages[name].ended = started, ended
    for host in state.hosts.values():
        if host.status in (CellStatus.FAILED, CellStatus.UNREACHABLE):
            continue
        status = CellStatus.CHANGED if changed else CellStatus.OK
        host.cells[name] = Cell(status, Counts(ok=10, changed=changed, skipped=1), started, ended)
        host.counts.ok += 10
        host.counts.changed += changed
        host.counts.skipped += 1
        host.status = status
    state.last_event = ended


def start_stage(state: RunState, name: str, started: float, role: str, task: str) -> None:
    """Let every sound host be at ``task`` of stage ``name``."""
    state.stage = name
    state.stages[name].started = started
    path = f"roles/{role}/tasks/configure.yml:4"
    for host in state.hosts.values():
        if host.status in (CellStatus.FAILED, CellStatus.UNREACHABLE):
            continue
        host.cells[name] = Cell(CellStatus.RUNNING, Counts(), started)
        host.status = CellStatus.RUNNING
        host.running = Running(host.name, name, role, task, path, started)
    state.tasks.append(TaskTiming(f"u{len(state.tasks)}", name, name, role, task, path, started))
    state.last_event = started


def settle(state: RunState, names: list[str], status: CellStatus = CellStatus.CHANGED) -> None:
    """Let ``names`` be done with the task that runs, with ``status``."""
    for name in names:
        host = state.hosts[name]
        host.running = None
        host.status = status
        cell = host.cells[state.stage]
        cell.status = status
        cell.counts.changed += status is CellStatus.CHANGED
        host.counts.changed += status is CellStatus.CHANGED
    state.tasks[-1].hosts += len(names)


def fail(state: RunState, name: str, sentence: str, *, unreachable: bool = False, hint: str = "") -> None:
    """Let host ``name`` fail at the task that runs."""
    status = CellStatus.UNREACHABLE if unreachable else CellStatus.FAILED
    task = state.tasks[-1]
    settle(state, [name], status)
    task.failed += 1
    setattr(state.hosts[name].counts, status.value, 1)
    state.failures.append(
        Failure(name, state.stage, task.role, task.name, task.path, sentence, hint, unreachable=unreachable)
    )


def change(state: RunState, names: list[str], what: str) -> None:
    """Note that the task that runs changed ``what`` on ``names``."""
    task = state.tasks[-1]
    state.changes += [Change(name, task.stage, task.role, task.name, what) for name in names]
    task.changed += len(names)


def end_task(state: RunState, at: float) -> None:
    """Let the task that runs be over on all hosts."""
    task = state.tasks[-1]
    task.ended = at
    task.slowest_host = next(iter(state.hosts))
    task.slowest_seconds = at - task.started
    state.last_event = at


def end(state: RunState, outcome: Outcome, at: float) -> RunState:
    """Let the run be over."""
    state.outcome, state.ended, state.last_event = outcome, at, at
    state.stage = ""
    for host in state.hosts.values():
        host.running = None
    return state


def midway(names: list[str], stages: list[str] | None = None, at_stage: str = "scheduler") -> RunState:
    """A run in ``at_stage``: the stages before are done, half of the hosts are done with its task."""
    state = begun(names, stages)
    time = BEGAN + 2
    for number, stage in enumerate(state.stages):
        if stage == at_stage:
            break
        start_stage(state, stage, time, "time", f"Configure | Step {number}")
        end_task(state, time + 20 + number)
        finish_stage(state, stage, time, time + 30, changed=3 * (stage != "validate"))
        time += 31
    start_stage(state, at_stage, time, "slurm_worker", "Configure | Ensure slurmd is as declared")
    settle(state, names[: len(names) // 2])
    return state
