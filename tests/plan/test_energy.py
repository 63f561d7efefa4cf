"""Heat, energy and what it costs."""

from __future__ import annotations

import pytest

from coldiron.inventory.facility import Site
from coldiron.inventory.hardware import Build
from coldiron.inventory.model import Hardware, Power
from coldiron.plan.draw import of_nodes
from coldiron.plan.energy import btu_per_h, cost, energy_kwh, heat
from tests.plan.power_cases import machine


def test_heat_is_split_by_what_takes_it() -> None:
    found = heat([(machine(liquid=0.8), 1000), (machine(), 500), (machine(liquid=None), 300)])
    assert found.air_watts == pytest.approx(700)
    assert (found.liquid_watts, found.unsplit_watts) == (800, 300)
    assert found.kw == pytest.approx(1.8)


@pytest.mark.parametrize(
    ("hardware", "share"),
    [
        ({}, 0.0),
        ({"cooling": "air"}, 0.0),
        ({"cooling": "liquid"}, 1.0),
        ({"cooling": "both"}, None),
        ({"cooling": "both", "liquid_share": 0.7}, 0.7),
    ],
)
def test_liquid_takes_what_the_machine_says(hardware: dict[str, object], share: float | None) -> None:
    assert of_nodes("box", (), Build(Hardware(**hardware)), Power()).liquid == share  # type: ignore[arg-type]


def test_a_kilowatt_is_3412_btu_an_hour() -> None:
    assert round(btu_per_h(1)) == 3412


def test_a_years_energy_counts_the_load_and_the_building() -> None:
    assert energy_kwh(1000, Site()) == 8760
    assert energy_kwh(1000, Site(load_share=0.5, pue=1.5)) == pytest.approx(8760 * 0.75)
    assert cost(1000, Site(price_per_kwh=0.25)) == 250
    assert cost(1000, Site()) is None
