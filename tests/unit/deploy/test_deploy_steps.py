"""How a deployment stands, and what is said of a machine that hangs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.action.deploy_wait import tail
from ansible_collections.coldiron.cluster.plugins.module_utils.deploy_steps import (
    STEPS,
    Stopped,
    hanging,
    line_of,
    reached,
)

from coldiron.provision.deployd_state import STEPS as REPORTED
from coldiron.provision.watch import STEPS as SHOWN


def line(*steps: str, state: str = "running", failed: str = "") -> dict[str, Any]:
    events = [{"step": step, "failed": ""} for step in steps]
    if failed:
        events[-1]["failed"] = failed
    return {
        "node": "cpu01",
        "state": state,
        "step": steps[-1] if steps else None,
        "failed": failed,
        "age_seconds": 12.4,
        "events": events,
    }


def test_everybody_has_the_same_steps() -> None:
    assert STEPS == REPORTED
    assert SHOWN[2:-1] == REPORTED


def test_an_answer_is_of_that_node_or_nothing() -> None:
    assert line_of(line(), "cpu01") == line()
    for nonsense in (None, 3, [line()], {}, "text", line() | {"node": "cpu02"}, {"nodes": None}):
        assert line_of(nonsense, "cpu01") is None


def test_a_later_step_means_the_earlier_ones() -> None:
    assert not reached(line("ordered", "netboot"), "cpu01", "up")
    assert reached(line("ordered", "up"), "cpu01", "up")
    assert reached(line("partition"), "cpu01", "disks")
    # From here on a machine tells what it begins: a step is over with the next one.
    assert reached(line("stream"), "cpu01", "partition")
    assert not reached(line("partition", "stream"), "cpu01", "stream")
    assert reached(line("system"), "cpu01", "stream")
    assert reached(line("boot", "done"), "cpu01", "boot")
    assert not reached(line("done"), "cpu01", "done")
    assert reached(line("done", state="done"), "cpu01", "done")


def test_a_machine_that_refuses_is_not_waited_for() -> None:
    with pytest.raises(Stopped, match=r"cpu01 stopped at step disks: S1 bears ext4") as stopped:
        reached(line("disks", failed="S1 bears ext4"), "cpu01", "partition")
    assert stopped.value.refused
    with pytest.raises(Stopped, match="was cancelled"):
        reached(line("ordered", state="cancelled"), "cpu01", "up")
    with pytest.raises(Stopped, match="order it anew"):
        reached(None, "cpu01", "up")


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (("ordered",), "it has not asked for its boot script, 12 s ago"),
        (("ordered", "netboot"), "it has fetched its boot script, and nothing was heard since, 12 s ago"),
        (("up", "stream"), "its last step was `stream`, 12 s ago"),
    ],
)
def test_a_machine_that_hangs_is_named_with_its_last_step(steps: tuple[str, ...], words: str) -> None:
    assert (
        hanging(line(*steps), "cpu01", "system", 600)
        == f"cpu01 hangs: `system` was not over within 600 s; {words}"
    )
    assert hanging(None, "cpu01", "up", 5).startswith("cpu01 hangs")


def test_the_end_of_a_console_has_no_escapes_and_no_token(tmp_path: Path) -> None:
    console = tmp_path / "console.log"
    lines = [f"line {number}" for number in range(40)]
    console.write_text(
        "\n".join(lines)
        + "\n\x1b[2J\x1b[01;1Hkernel coldiron.node=a coldiron.token=s3cret x\r\n\n\x07end\xff"
    )
    found = tail(console)
    assert len(found) == 12
    assert found[-2:] == ["kernel coldiron.node=a coldiron.token=… x", "end"]
    assert tail(tmp_path / "none") == []
