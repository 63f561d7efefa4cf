"""What a machine draws at the wall."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldiron.catalog.model import Supplies, Switch
from coldiron.inventory.cluster import SwitchUnit
from coldiron.inventory.wiring import SwitchGroup
from coldiron.plan.draw import Machine, Machines, efficiency, of_switch
from tests.plan.power_cases import machine, workstation


@pytest.mark.parametrize(
    ("grade", "load", "volts", "redundant", "share"),
    [
        ("gold", 0.5, 230, True, 0.92),
        ("gold", 1, 230, True, 0.88),
        ("gold", 0.05, 230, True, 0.88),
        ("platinum", 0.35, 230, False, 0.93),
        ("titanium", 0.1, 230, True, 0.90),
        ("titanium", 0.15, 240, True, 0.92),
        ("titanium", 1.2, 230, False, 0.94),
        ("titanium", 0.5, 120, False, 0.94),
        ("titanium", 0.5, None, True, 0.94),
    ],
)
def test_efficiency_is_that_of_the_grade(
    grade: str, load: float, volts: float | None, redundant: bool, share: float
) -> None:
    assert efficiency(grade, load, volts, redundant) == pytest.approx(share)


def test_a_workstation_draws_its_parts_over_the_efficiency() -> None:
    # 450 W and four of 350 W are 92.5 % of 2000 W: 90 % + (94 - 90) % * 0.15.
    assert workstation().watts(None, 230) == pytest.approx(1850 / (0.90 + 0.04 * 0.15))


def test_a_cap_lowers_what_a_whole_machine_draws_by_what_the_gpus_save_and_no_more() -> None:
    box = machine(10_200, gpus=8, tdp_watts=700)
    assert box.watts(None) == 10_200
    assert box.watts(500) == 10_200 - 8 * 200
    assert machine(3000, gpus=8, tdp_watts=700).watts(300) == 2400, "no less than the GPUs alone"


def test_a_cap_above_the_rating_costs_at_the_wall_what_the_supplies_waste() -> None:
    assert machine(10_200, gpus=8, tdp_watts=700).watts(750) is None
    assert machine(10_200, gpus=8, tdp_watts=700, grade="platinum").watts(750, 230) == pytest.approx(
        10_200 + 400 / 0.90
    )


def test_without_the_rating_of_the_gpus_a_cap_promises_no_saving() -> None:
    assert machine(10_200, gpus=8).watts(300) == 10_200


@pytest.mark.parametrize(
    ("box", "missing"),
    [
        (Machine("box", ()), [("box", "hardware.draw_watts")]),
        (Machine("qm9700", (), switch=True), [("qm9700", "draw_max_watts")]),
        (workstation(tdp_watts=None), [("rtx-3090", "tdp_watts")]),
        (
            workstation(grade=None, supply_watts=None),
            [("ws", "hardware.supplies.watts"), ("ws", "hardware.supplies.efficiency")],
        ),
        (workstation(supplies=None), [("ws", "hardware.supplies.count")]),
        (machine(9000, gpus=8, tdp_watts=700, cap=800), [("box", "hardware.supplies.efficiency")]),
        (machine(9000), []),
        (workstation(cap=300, tdp_watts=None), []),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(box: Machine, missing: list[tuple[str, str]]) -> None:
    assert list(box.missing()) == missing
    assert (box.watts(None) is None) == bool(missing)


def test_a_machine_on_a_busbar_has_no_cords() -> None:
    assert machine(inlet="busbar").plugs == 0
    assert Machine("box", (), pdus=("a", "b", "b")).plugs == 3
    assert Machine("box", ()).plugs is None


@settings(max_examples=60)
@given(
    st.floats(0, 2000),
    st.integers(1, 16),
    st.sampled_from(["gold", "platinum", "titanium"]),
    st.sampled_from([None, 120.0, 230.0]),
    st.integers(1, 6),
    st.floats(1, 1000),
    st.floats(1, 1000),
)
def test_a_higher_cap_never_draws_less(
    base_watts: float, gpus: int, grade: str, volts: float | None, supplies: int, one: float, other: float
) -> None:
    for box in (
        workstation(base_watts, gpus, supplies=supplies, grade=grade),
        machine(base_watts + 1, supplies, gpus=gpus, tdp_watts=400, grade=grade),
    ):
        low, high = (box.watts(cap, volts) for cap in sorted((one, other)))
        assert low is not None
        assert high is not None
        assert low <= high + 1e-6


@settings(max_examples=60)
@given(st.floats(100, 5000), st.integers(2, 6), st.data())
def test_fewer_live_supplies_never_draw_less(base_watts: float, supplies: int, data: st.DataObject) -> None:
    box = workstation(base_watts, supplies=supplies)
    live = data.draw(st.integers(1, supplies - 1))
    whole, fewer = box.watts(None, 230), box.watts(None, 230, live)
    assert whole is not None
    assert fewer is not None
    assert fewer >= whole


def test_a_switch_draws_what_the_catalog_says() -> None:
    group = SwitchGroup(name="leaf01", model="qm9700", function="leaf")
    supplies = Supplies(count=2, inlet="c14", min_active=1, inrush_amps=30)
    model = Switch(name="qm9700", title="A switch", draw_max_watts=1700, supplies=supplies)
    box = of_switch(SwitchUnit("leaf01", group, ("switches", 0), 0, model))
    assert (box.watts(None), box.plugs, box.inlet, box.liquid) == (1700, 2, "c14", 0)
    unknown = of_switch(SwitchUnit("leaf01", group, ("switches", 0), 0))
    assert list(unknown.missing()) == [("qm9700", "draw_max_watts")]


def test_switches_of_a_range_are_one_machine() -> None:
    group = SwitchGroup(name="leaf[01-02]", model="qm9700", function="leaf")
    made = Machines({})
    one, other = (made.of_switch(SwitchUnit(f"leaf0{n}", group, ("switches", 0), n)) for n in (1, 2))
    assert one is other
