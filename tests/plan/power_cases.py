"""Racks made up in memory, and strategies for them: what the tests of electricity share."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from coldiron.inventory import load
from coldiron.inventory.cluster import Rack
from coldiron.inventory.facility import Circuit, Outlets, Pdu, RackGroup
from coldiron.plan.circuits import Layout, RackKind
from coldiron.plan.design import Design
from coldiron.plan.draw import Machine
from coldiron.plan.plugging import Plugging
from tests.plan.cases import base, over

PLENTY = Outlets(c13=200, c19=200)


def rack(pdus: list[Pdu], machines: list[Machine], racks: tuple[str, ...] = ("r01",)) -> RackKind:
    """One kind of rack with these machines plugged in; the machines of rack r01 are r01-0, r01-1 ..."""
    layout = Layout(pdus, ("racks", 0))
    plugs, homeless = Plugging(layout).plug(machines)
    kind = RackKind(
        layout, Rack("r01", RackGroup(name="r01", pdus=pdus), ("racks", 0)), tuple(machines), plugs, homeless
    )
    for name in racks:
        kind.racks.append(name)
        kind.members.append(tuple(f"{name}-{unit}" for unit in range(len(machines))))
    return kind


def machine(watts: float = 1000, supplies: int = 2, **more: object) -> Machine:
    """A machine of which the whole draw is known."""
    return Machine("box", ("nodes", 0), whole_watts=watts, supplies=supplies, **more)  # type: ignore[arg-type]


def workstation(base_watts: float = 450, gpus: int = 4, **more: object) -> Machine:
    """A machine whose draw is reckoned from its GPUs and its one supply."""
    given: dict[str, object] = {
        "supplies": 1,
        "supply_watts": 2000,
        "grade": "platinum",
        "gpu": "rtx-3090",
        "tdp_watts": 350,
        **more,
    }
    return Machine("ws", ("nodes", 0), base_watts=base_watts, gpus=gpus, **given)  # type: ignore[arg-type]


def wall(amps: float = 16, derating: float = 1, name: str = "wall", feed: str | None = None) -> Pdu:
    """A wall's circuit of 230 V."""
    return Pdu(name=name, volts=230, amps=amps, derating=derating, feed=feed)


def design(directory: Path, blocks: str) -> Design:
    """A design of the base of electricity with ``blocks`` over it."""
    file = directory / "cluster.yml"
    file.write_text(over(base("power"), blocks), encoding="utf-8")
    return Design(load(file))


_PHASES = ("L1", "L2", "L3", "L1-L2", "L2-L3", "L3-L1")


@st.composite
def pdus(draw: st.DrawFn) -> list[Pdu]:
    """One to four PDUs on feeds A, B or their own; of one phase or three, with circuits or without."""
    found = []
    for index in range(draw(st.integers(1, 4))):
        phases = draw(st.sampled_from([1, 3]))
        volts = draw(st.sampled_from([208.0, 230.0] if phases == 1 else [208.0, 400.0, 415.0]))
        names = _PHASES[:3] if volts >= 346 else _PHASES
        circuits = [
            Circuit(
                name=f"b{number}",
                amps=draw(st.sampled_from([16.0, 20.0, 32.0])),
                phase=draw(st.sampled_from(names)) if phases == 3 else None,
                outlets=PLENTY,
            )
            for number in range(draw(st.integers(0, 4)))
        ]
        found.append(
            Pdu(
                name=f"p{index}",
                feed=draw(st.sampled_from(["A", "B", None])),
                volts=volts,
                phases=phases,  # type: ignore[arg-type]
                amps=draw(st.sampled_from([16.0, 32.0, 60.0])),
                derating=draw(st.sampled_from([0.8, 1.0])),
                circuits=circuits or None,
            )
        )
    return found


@st.composite
def machines(draw: st.DrawFn) -> list[Machine]:
    """Up to twelve machines of up to four makes, with GPUs or without, all with a draw that is known."""
    makes = [_make(draw) for _ in range(draw(st.integers(1, 4)))]
    return draw(st.lists(st.sampled_from(makes), min_size=1, max_size=12))


def _make(draw: st.DrawFn) -> Machine:
    supplies = draw(st.integers(1, 6))
    least = draw(st.one_of(st.none(), st.integers(1, supplies)))
    if draw(st.booleans()):
        return machine(draw(st.floats(50, 12_000)), supplies, min_active=least)
    return workstation(
        draw(st.floats(100, 900)),
        draw(st.integers(1, 8)),
        supplies=supplies,
        min_active=least,
        supply_watts=draw(st.sampled_from([1000.0, 2000.0, 3000.0])),
        grade=draw(st.sampled_from(["gold", "platinum", "titanium"])),
        tdp_watts=draw(st.sampled_from([300.0, 350.0, 700.0])),
        fit=draw(st.booleans()),
    )
