"""What a container's faults do on a machine made of files; the rack's own tests do it to real ones."""

from __future__ import annotations

import pytest

from coldiron.errors import ColdironError
from coldiron.rack import cli, faults
from coldiron.rack.build import Builder
from coldiron.rack.node import NodeKeeper
from coldiron.rack.rack import Rack
from coldiron.rack.spec import from_cluster

from .conftest import Toy


@pytest.fixture
def rack(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Rack:
    made = toy.rack()
    Builder(made, from_cluster(made.layout.inventory)).up()
    monkeypatch.setattr(NodeKeeper, "init_pid", lambda *_: 4711)
    return made


def test_a_unit_hangs_and_goes_on(toy: Toy, rack: Rack) -> None:
    told = faults.fault(rack, "gpu01", ["hung", "slurmd"], clear=False)
    assert told == ["gpu01: hung slurmd: a unit of it neither works nor ends"]
    (called,) = toy.host.ran("--target=4711")
    assert "--signal=SIGSTOP" in called[-3]
    assert called[-1] == "slurmd"
    assert faults.fault(rack, "gpu01", ["hung", "slurmd"], clear=True) == ["gpu01: hung slurmd cleared"]
    assert "--signal=SIGCONT" in toy.host.ran("--target=4711")[-1][-3]


def test_a_power_cut_ends_it_and_its_end_starts_it(toy: Toy, rack: Rack) -> None:
    faults.fault(rack, "gpu01", ["power-cut"], clear=False)
    assert not rack.nodes(rack.standing()).running("gpu01")
    assert rack.nodes(rack.standing()).running("head01")
    faults.fault(rack, "gpu01", ["power-cut"], clear=True)
    assert rack.nodes(rack.standing()).running("gpu01")


def test_a_disk_is_filled_in_a_file_system_of_its_own(toy: Toy, rack: Rack) -> None:
    faults.fault(rack, "gpu01", ["disk-full"], clear=False)
    (made,) = toy.host.ran("mkfs.ext4")
    assert made[-1] == str(toy.machine.proc / "4711/root/var/lib/coldiron-fault.img")
    (called,) = toy.host.ran("--target=4711")
    assert f"of={faults.FULL}/full" in called[-3]


def test_a_node_that_is_off_is_said(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeKeeper, "init_pid", lambda *_: None)
    with pytest.raises(
        ColdironError, match="gpu01 is off; `coldiron rack fault gpu01 power-cut --clear` starts it"
    ):
        faults.fault(rack, "gpu01", ["drained"], clear=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["clock-off"], "a container has no fault clock-off; .* its clock is its host's"),
        (
            ["nonsense"],
            "a container has no fault nonsense; there are: power-cut, disk-full, stopped, hung, drained",
        ),
        (["hung"], "write the unit, e.g.: coldiron rack fault gpu01 hung slurmd"),
        (["hung", "a", "b"], "write the unit"),
        (["stopped", "--now"], "write the unit"),
        (["stopped", "$(id)"], "write the unit"),
        (["drained", "slurmd"], "drained is of no unit; write drained alone"),
    ],
)
def test_what_there_is_not_is_refused(toy: Toy, rack: Rack, words: list[str], message: str) -> None:
    with pytest.raises(ColdironError, match=message):
        faults.fault(rack, "gpu01", words, clear=False)
    assert not toy.host.ran("nsenter")


def test_the_command_lists_and_asks(rack: Rack, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = rack.layout.inventory
    assert [line.split("  ")[0] for line in faults.catalogue()] == [
        "power-cut", "disk-full", "stopped UNIT", "hung UNIT", "drained",
    ]  # fmt: skip
    with pytest.raises(ColdironError, match="write which fault of gpu01 to clear"):
        faults.fault(rack, "gpu01", [], clear=True)
    with pytest.raises(ColdironError, match="--disk says nothing to a container"):
        cli.fault("gpu01", ["disk-full"], inventory, disk="A")
