"""A provisioning run as nodes and steps."""

from __future__ import annotations

from coldiron.display.picture import take
from coldiron.provision.watch import STEPS, Steps, step_of
from coldiron.run.reducer import no_header
from coldiron.run.state import CellStatus, Host, Outcome, Running, RunState


def state(**tasks: tuple[str, str, float] | None) -> RunState:
    found = RunState(no_header())
    for name, task in tasks.items():
        found.hosts[name] = Host(name)
        if task:
            role, words, at = task
            found.hosts[name].running = Running(name, "provision", role, words, "", at)
    return found


def cells(drawn: RunState, host: str) -> dict[str, CellStatus]:
    return {step: cell.status for step, cell in drawn.hosts[host].cells.items()}


def test_a_tasks_name_says_its_step() -> None:
    assert step_of("deploy", "Deploy | Wait for step partition") == "partition"
    assert step_of("deploy", "deploy : Deploy | Wait for ssh") == "ssh"
    assert step_of("deploy", "Deploy | Ensure the provisioner has the machine's order") == "order"
    assert step_of("bmc", "Bmc | Boot the machine once from elsewhere, with proof") == "power"
    assert step_of("deploy", "Deploy | Wait for step dancing") is None
    assert step_of("netboot", "Netboot | Ensure it stands") is None


def test_until_a_machine_begins_the_run_is_shown_as_it_is() -> None:
    steps = Steps(["cpu01"])
    before = state(head01=("netboot", "Netboot | Ensure it stands", 1.0))
    assert steps.view(before) is before


def test_machines_go_through_the_steps_each_by_itself() -> None:
    steps = Steps(["cpu01", "cpu02"])
    steps.view(
        state(cpu01=("deploy", "Deploy | Ensure the provisioner has the machine's order", 10.0), cpu02=None)
    )
    steps.view(state(cpu01=("bmc", "Bmc | Boot the machine once", 11.0), cpu02=None))
    drawn = steps.view(
        state(
            cpu01=("deploy", "Deploy | Wait for step stream", 50.0),
            cpu02=("deploy", "Deploy | Ensure the provisioner has the machine's order", 48.0),
        )
    )
    assert list(drawn.stages) == list(STEPS)
    one = cells(drawn, "cpu01")
    assert (one["order"], one["power"], one["partition"]) == (CellStatus.OK,) * 3
    assert (one["stream"], one["system"]) == (CellStatus.RUNNING, CellStatus.WAITING)
    assert cells(drawn, "cpu02")["order"] is CellStatus.RUNNING
    assert drawn.stage == "stream"
    assert drawn.hosts["cpu01"].cells["power"].started == 11.0
    # The steps are stages to all that draws.
    assert [stage.name for stage in take(drawn).stages] == list(STEPS)


def test_the_bmc_is_asked_again_while_a_machine_is_up() -> None:
    steps = Steps(["cpu01"])
    steps.view(state(cpu01=("deploy", "Deploy | Wait for step up", 1.0)))
    drawn = steps.view(state(cpu01=("bmc", "Bmc | Ensure the machine starts from its disk from now on", 2.0)))
    assert cells(drawn, "cpu01")["up"] is CellStatus.RUNNING


def test_a_machine_that_is_started_once_more_begins_anew() -> None:
    steps = Steps(["cpu01"])
    steps.view(state(cpu01=("deploy", "Deploy | Wait for step up", 1.0)))
    steps.view(state(cpu01=("deploy", "Deploy | Wait for step stream", 9.0)))
    drawn = steps.view(
        state(cpu01=("deploy", "Deploy | Ensure the provisioner has the machine's order", 20.0))
    )
    one = cells(drawn, "cpu01")
    assert (one["order"], one["stream"]) == (CellStatus.RUNNING, CellStatus.WAITING)


def test_a_machine_that_failed_keeps_the_step_it_failed_in() -> None:
    steps = Steps(["cpu01", "cpu02"])
    steps.view(state(cpu01=("deploy", "Deploy | Wait for step disks", 1.0), cpu02=None))
    after = state(cpu01=None, cpu02=("deploy", "Deploy | Wait for ssh", 5.0))
    after.hosts["cpu01"].status = CellStatus.FAILED
    drawn = steps.view(after)
    assert cells(drawn, "cpu01")["disks"] is CellStatus.FAILED
    assert cells(drawn, "cpu02")["ssh"] is CellStatus.RUNNING
    ended = state(cpu01=None, cpu02=None)
    ended.hosts["cpu01"].status = CellStatus.FAILED
    ended.outcome = Outcome.FAILED
    drawn = steps.view(ended)
    assert cells(drawn, "cpu02")["ssh"] is CellStatus.OK
    assert drawn.stages["order"].ended is None or drawn.stages["order"].started is not None
