"""Where nodes and switches stand: what the file says stays, what the plan chooses fits, and how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldiron.inventory import InventoryError, build
from coldiron.inventory.source import parse
from coldiron.plan.design import Design
from coldiron.plan.place import Route, bays_of, placement, run_length
from coldiron.plan.place_shape import things
from coldiron.plan.results import Position
from tests.plan.cases import base, over


def design(text: str) -> Design:
    """The design of a cluster.yml of this text."""
    return Design(build(parse(text, "cluster.yml"), Path("cluster.yml")))


def sound(blocks: str) -> Design:
    """The design of the sound file with ``blocks`` over it."""
    return design(over(base("space"), blocks))


def machine(**figures: Any) -> dict[str, Any]:
    """A machine's hardware; ``figures`` over the usual ones."""
    usual = {"cores_per_socket": 8, "memory_gib": 64, "height_u": 2, "weight_kg": 30, "draw_watts": 500}
    return {name: value for name, value in {**usual, **figures}.items() if value is not None}


def cluster(racks: list[dict[str, Any]], nodes: list[dict[str, Any]], **blocks: Any) -> Design:
    """A design of these racks and node groups, behind a head that stands nowhere."""
    head = {"name": "head01", "kind": "head", "address": "10.99.0.1", "platform": "machine"}
    text = {
        "plugin": "coldiron.cluster.cluster",
        "name": "hopper",
        "domain": "hopper.internal",
        "networks": {"cluster": {"subnet": "10.99.0.0/16"}},
        "racks": racks,
        "nodes": [{**head, "hardware": {"cores_per_socket": 8, "memory_gib": 64}}, *nodes],
        **blocks,
    }
    return design(yaml.safe_dump(text, sort_keys=False))


def group(index: int, count: int, **values: Any) -> dict[str, Any]:
    """A node group of ``count`` nodes."""
    name = f"n{index}x[1-{count}]" if count > 1 else f"n{index}x1"
    return {"name": name, "kind": "cpu", "address": f"10.99.{index + 1}.1", "hardware": machine(), **values}


def units(position: Position) -> range:
    """The units that it takes."""
    assert position.u is not None
    return range(position.u, position.u + (position.height_u or 1))


def at(found: Mapping[str, Position], name: str) -> tuple[str, int | None]:
    """Rack and unit of one thing."""
    return found[name].rack, found[name].u


PDU = {"volts": 230, "amps": 10}  # 1,840 W with the usual derating

# Each example is a whole file, and drawing one takes long where many tests share a processor.
FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

racks_of = st.lists(
    st.fixed_dictionaries(
        {"units": st.integers(3, 14)},
        optional={
            "depth_mm": st.sampled_from([700, 900]),
            "load_kg": st.integers(30, 300),
            "cooling": st.fixed_dictionaries({"air_kw": st.sampled_from([1, 2, 4])}),
            "pdus": st.lists(
                st.sampled_from([{**PDU, "feed": "A"}, {**PDU, "feed": "B"}, PDU]), min_size=1, max_size=3
            ),
        },
    ),
    min_size=1,
    max_size=5,
)
kinds_of = st.lists(
    st.tuples(
        st.integers(1, 6),
        st.sampled_from(["auto", "auto", "named", "written"]),
        st.integers(0, 4),
        st.integers(0, 12),
        st.fixed_dictionaries(
            {},
            optional={
                "height_u": st.integers(1, 6),
                "depth_mm": st.sampled_from([650, 800]),
                "weight_kg": st.sampled_from([12, 40, 120]),
                "draw_watts": st.sampled_from([200, 700, 1500]),
            },
        ),
    ),
    min_size=1,
    max_size=7,
)


def drawn(racks: list[dict[str, Any]], kinds: list[Any]) -> Design:
    """The design of what hypothesis drew."""
    written = []
    for number, rack in enumerate(racks):
        pdus = [{"name": f"p{at}", **pdu} for at, pdu in enumerate(rack.get("pdus", []))]
        written.append({"name": f"r{number}", **rack, **({"pdus": pdus} if pdus else {})})
    nodes = []
    for index, (count, mode, rack, unit, figures) in enumerate(kinds):
        where: dict[str, Any] = {"rack": "auto"} if mode == "auto" else {"rack": f"r{rack % len(racks)}"}
        if mode == "written":
            where["u"] = unit
        nodes.append(group(index, count, hardware=machine(**figures), **where))
    feeds = {name: {"volts": 400, "phases": 3, "amps": 100} for name in "AB"}
    return cluster(written, nodes, feeds=feeds)


@FEW
@given(racks_of, kinds_of)
def test_what_is_chosen_fits_and_what_is_written_stays(racks: list[dict[str, Any]], kinds: list[Any]) -> None:
    plan = drawn(racks, kinds)
    done = placement(plan)
    found = done.positions
    every = {thing.name: thing for thing in things(plan)}
    taken: dict[tuple[str, int], str] = {}
    for position in sorted(found.values(), key=lambda one: one.chosen):
        thing, rack = every[position.name], plan.racks[position.rack].group
        if not position.chosen:
            assert (position.rack, position.u) == (thing.rack, thing.u)
        for unit in units(position):
            if position.chosen:
                assert 1 <= unit <= rack.units
                assert (position.rack, unit) not in taken
            taken[position.rack, unit] = position.name
    for name, rack_unit in plan.racks.items():
        rack = rack_unit.group
        inside = [every[position.name] for position in found.values() if position.rack == name]
        if not any(thing.rack == "auto" for thing in inside):
            continue
        shapes = [thing.shape for thing in inside]
        chosen = [thing.shape for thing in inside if thing.rack == "auto"]
        watts = sum(shape.watts or 0 for shape in shapes)
        assert rack.load_kg is None or sum(shape.weight_kg or 0 for shape in shapes) <= rack.load_kg
        assert rack.depth_mm is None or all((shape.depth_mm or 0) <= rack.depth_mm for shape in chosen)
        assert not rack.pdus or watts <= 1840 * len(rack.pdus)
        assert rack.cooling is None or watts <= 1000 * (rack.cooling.air_kw or 0)
    # Everything stands somewhere or is said to stand nowhere, and that only where there really is no room.
    misfits = {misfit.thing.name for misfit in done.misfits}
    assert misfits.isdisjoint(found)
    assert misfits | set(found) == {name for name, thing in every.items() if thing.rack is not None}
    bays = bays_of(plan)
    for position in found.values():
        bays[position.rack].put(every[position.name].shape, position.u)
    for name in misfits:
        thing = every[name]
        open_to = bays.values() if thing.rack == "auto" else []
        assert all(one.hindrance(thing.shape, alive=True) for one in open_to)
        assert thing.rack == "auto" or bays[thing.rack or ""].unit(thing.shape) is None


@FEW
@given(racks_of, kinds_of, st.integers(1, 6))
def test_what_is_added_at_the_end_moves_nobody(
    racks: list[dict[str, Any]], kinds: list[Any], more: int
) -> None:
    before = placement(drawn(racks, kinds)).positions
    again = placement(drawn(racks, kinds)).positions
    assert dict(again) == dict(before)
    after = placement(drawn(racks, [*kinds, (more, "auto", 0, 0, {})])).positions
    assert {name: after[name] for name in before} == dict(before)
    # Nor does a range that grows, where it is the last of the file.
    if kinds[-1][1] == "auto" and kinds[-1][0] > 1:
        grown = placement(drawn(racks, [*kinds[:-1], (kinds[-1][0] + more, *kinds[-1][1:])])).positions
        assert {name: grown[name] for name in before} == dict(before)


@FEW
@given(st.integers(2, 6), st.integers(1, 24), st.sampled_from([300, 900]))
def test_racks_that_are_alike_get_alike(racks: int, count: int, watts: int) -> None:
    pdus = [{"name": "a", **PDU, "amps": 100}]
    plan = cluster(
        [{"name": f"r[1-{racks}]", "units": 48, "pdus": pdus}],
        [group(0, count, rack="auto", hardware=machine(draw_watts=watts))],
    )
    number = Counter(position.rack for position in plan.positions.values())
    fullest = max(number.values()) * max(watts / 18_400, 2 / 48)
    emptiest = min(number[f"r{at}"] for at in range(1, racks + 1)) * max(watts / 18_400, 2 / 48)
    assert fullest - emptiest <= 0.1 + max(watts / 18_400, 2 / 48)


def test_the_heavy_stand_low_and_switches_high() -> None:
    plan = sound(
        """\
switches:
  - {name: sw01, model: sn2201, function: management, networks: [cluster], rack: r01}
nodes:
  - {name: head01, kind: head, address: 10.99.0.1, rack: r01}
  - name: light01
    kind: cpu
    address: 10.99.0.2
    rack: r01
    hardware: {cores_per_socket: 8, memory_gib: 64, height_u: 1, weight_kg: 12}
  - name: tall01
    kind: cpu
    address: 10.99.0.3
    rack: r01
    hardware: {cores_per_socket: 8, memory_gib: 64, height_u: 4}
"""
    )
    assert {name: position.u for name, position in plan.positions.items()} == {
        "sw01": 42,
        "head01": 1,
        "light01": 41,
        "tall01": 3,
    }


def test_like_machines_stay_together_while_that_costs_no_balance() -> None:
    small, big = machine(draw_watts=100, height_u=1), machine(draw_watts=4000)
    rack = {"name": "r[1-2]", "units": 40, "pdus": [{"name": "a", "volts": 230, "amps": 100}]}
    plan = cluster([rack], [group(0, 4, rack="auto", hardware=small), group(1, 2, rack="auto", hardware=big)])
    assert [at(plan.positions, f"n0x{number}")[0] for number in (1, 2, 3, 4)] == ["r1"] * 4
    assert {at(plan.positions, f"n1x{number}")[0] for number in (1, 2)} == {"r1", "r2"}


def test_heads_stand_apart() -> None:
    hardware = machine(height_u=1)
    heads = {"kind": "head", "functions": ["slurm_login"]}
    nodes = [
        group(0, 2, rack="auto", hardware=hardware),
        group(1, 2, rack="auto", hardware=hardware, **heads),
    ]
    # 1 U of 20 is little enough for the others to stay together.
    plan = cluster([{"name": "r[1-2]", "units": 20}], nodes).positions
    assert {plan[name].rack for name in ("n0x1", "n0x2")} == {"r1"}
    assert {plan[name].rack for name in ("n1x1", "n1x2")} == {"r1", "r2"}
    written = group(2, 1, rack="r2", u=1, hardware=hardware, **heads)
    nodes = [written, group(0, 5, rack="r1", u=1), group(1, 1, rack="auto", hardware=hardware, **heads)]
    assert cluster([{"name": "r[1-2]", "units": 20}], nodes).positions["n1x1"].rack == "r1"


def test_the_emptier_feed_comes_first() -> None:
    pdu = {"volts": 230, "amps": 100}
    racks = [
        {"name": "r[1-2]", "pdus": [{"name": "a", "feed": "A", **pdu}]},
        {"name": "r[3-4]", "pdus": [{"name": "a", "feed": "B", **pdu}]},
    ]
    feeds = {name: {"volts": 230, "amps": 100} for name in "AB"}
    plan = cluster(
        racks,
        [
            group(0, 1, rack="r1", u=1, hardware=machine(draw_watts=6000)),
            group(1, 2, rack="auto", hardware=machine(draw_watts=3000)),
        ],
        feeds=feeds,
    )
    assert {at(plan.positions, "n1x1")[0], at(plan.positions, "n1x2")[0]} == {"r3", "r4"}


def test_racks_whose_feeds_are_all_their_own_are_filled_all_the_same() -> None:
    count = 70
    pdu = {"name": "a", "volts": 230, "amps": 100}
    racks = [{"name": f"r{at}", "pdus": [{**pdu, "feed": f"F{at}"}]} for at in range(count)]
    feeds = {f"F{at}": {"volts": 230, "amps": 100} for at in range(count)}
    plan = cluster(racks, [group(0, count, rack="auto", hardware=machine(draw_watts=9000))], feeds=feeds)
    assert set(Counter(position.rack for position in plan.positions.values()).values()) == {1}


def test_one_feed_lost_is_kept_in_mind_as_long_as_there_is_another_rack() -> None:
    pdus = [{"name": "a", "feed": "A", **PDU}, {"name": "b", "feed": "B", **PDU}]
    feeds = {name: {"volts": 230, "amps": 100} for name in "AB"}
    racks = [{"name": "r[1-2]", "pdus": pdus}]
    nodes = group(0, 3, rack="auto", hardware=machine(draw_watts=1200))
    plan = cluster(racks, [nodes], feeds=feeds)
    assert [at(plan.positions, f"n0x{number}")[0] for number in (1, 2, 3)] == ["r1", "r2", "r1"]
    nodes = group(0, 7, rack="auto", hardware=machine(draw_watts=1200))
    assert len(placement(cluster(racks, [nodes], feeds=feeds)).misfits) == 1


def test_many_kinds_of_machines_are_placed() -> None:
    nodes = [group(at, 1, rack="auto", hardware=machine(height_u=1, draw_watts=100 + at)) for at in range(80)]
    assert len(cluster([{"name": "r[1-3]", "units": 40}], nodes).positions) == 80


def test_a_tower_takes_no_unit_but_its_watts() -> None:
    tower = {"form": "tower", "height_u": None}
    racks = [{"name": "wall[1-2]", "units": 1, "pdus": [{"name": "a", **PDU}]}]
    plan = cluster(
        racks,
        [
            group(0, 1, rack="wall1", hardware=machine(**tower, draw_watts=1500)),
            group(1, 2, rack="auto", hardware=machine(**tower, draw_watts=900)),
        ],
    )
    assert plan.positions["n0x1"] == Position("n0x1", "wall1", None, None)
    assert {at(plan.positions, f"n1x{number}") for number in (1, 2)} == {("wall2", None)}


def test_what_nobody_knows_the_height_of_gets_no_unit() -> None:
    unknown = machine(height_u=None)
    plan = cluster(
        [{"name": "r1"}],
        [group(0, 1, rack="r1", hardware=unknown), group(1, 1, rack="auto", hardware=unknown)],
    )
    assert dict(plan.positions) == {"n0x1": Position("n0x1", "r1", None, None)}


def test_liquid_cooling_has_a_limit_of_its_own() -> None:
    racks = [{"name": "r1", "cooling": {"air_kw": 1, "liquid_kw": 3}}]
    wet = machine(draw_watts=2000, cooling="both", liquid_share=0.8)
    done = placement(cluster(racks, [group(0, 2, rack="auto", hardware=wet)]))
    assert done.misfits[0].why == (("too little cooling left", 1),)
    assert len(done.positions) == 1
    all_wet = machine(draw_watts=1500, cooling="liquid")
    assert len(placement(cluster(racks, [group(0, 3, rack="auto", hardware=all_wet)])).positions) == 2
    # Who says only that liquid takes a share of it says nothing to reckon with.
    some = machine(draw_watts=9000, cooling="both")
    assert len(placement(cluster(racks, [group(0, 1, rack="auto", hardware=some)])).positions) == 1


GPUS = {"model": "l40s", "count": 4}  # 350 W each


@pytest.mark.parametrize(
    ("figures", "power", "watts"),
    [
        ({"draw_watts": 2000}, {}, 2000),
        ({"draw_watts": 2000}, {"gpu_cap_watts": 300}, 1800),
        ({"draw_watts": 2000}, {"gpu_cap_watts": 400}, 2000),
        ({"draw_watts": None, "base_watts": 400}, {}, 1800),
        ({"draw_watts": None, "base_watts": 400}, {"gpu_cap_watts": 200}, 1200),
        ({"draw_watts": None, "base_watts": 400, "gpus": None}, {}, 400),
        ({"draw_watts": None}, {}, None),
    ],
)
def test_the_watts_of_a_machine(figures: dict[str, Any], power: dict[str, Any], watts: float | None) -> None:
    hardware = machine(**{"gpus": GPUS, **figures})
    kind = "gpu" if "gpus" in hardware else "cpu"
    plan = cluster(
        [{"name": "r1"}], [group(0, 1, rack="r1", hardware=hardware, power=power) | {"kind": kind}]
    )
    assert next(thing.shape.watts for thing in things(plan) if thing.name == "n0x1") == watts


def test_a_machine_whose_cap_the_plan_finds_is_placed_by_its_least() -> None:
    gpus = {"model": "rtx-4090", "count": 4}
    hardware = machine(gpus=gpus, draw_watts=None, base_watts=300)
    plan = cluster(
        [{"name": "r1"}],
        [group(0, 1, rack="r1", hardware=hardware, power={"fit_circuit": True}) | {"kind": "gpu"}],
    )
    gpu = plan.cluster.node("n0x1").build.gpu
    assert gpu is not None
    least = gpu.power_limit_min_watts
    assert least is not None
    assert next(thing.shape.watts for thing in things(plan) if thing.name == "n0x1") == 300 + 4 * least


@pytest.mark.parametrize("rack", [{}, {"rack": "auto"}])
def test_a_unit_without_a_rack_is_refused(rack: dict[str, str]) -> None:
    with pytest.raises(InventoryError) as error:
        cluster([{"name": "r1"}], [group(0, 2, **rack, overrides={"n0x1": {"u": 3}})])
    assert [finding.code for finding in error.value.findings] == ["CI218"]


ROW = {"name": "r[1-9]", "row": "A", "position": 1, "units": 42}


def apart(
    one: dict[str, Any], other: dict[str, Any], racks: list[dict[str, Any]] | None = None
) -> float | None:
    """The run between two 1 U machines at these places."""
    hardware = machine(height_u=1)
    plan = cluster(
        racks or [ROW], [group(0, 1, **one, hardware=hardware), group(1, 1, **other, hardware=hardware)]
    )
    return run_length(plan, "n0x1", "n1x1")


def test_the_run_within_a_rack_is_the_way_up_or_down_and_the_slack() -> None:
    assert apart({"rack": "r1", "u": 1}, {"rack": "r1", "u": 41}) == round(40 * 0.04445 + 0.5, 2)
    assert apart({"rack": "r1", "u": 41}, {"rack": "r1", "u": 1}) == round(40 * 0.04445 + 0.5, 2)


def test_the_run_along_a_row_goes_over_the_tray() -> None:
    up = 2 * (41.5 * 0.04445 + 0.3)
    assert apart({"rack": "r1", "u": 1}, {"rack": "r4", "u": 1}) == round(up + 3 * 0.6 + 0.5, 2)
    highest = apart({"rack": "r1", "u": 42}, {"rack": "r2", "u": 42})
    assert highest == round(2 * (0.5 * 0.04445 + 0.3) + 0.6 + 0.5, 2)


def test_a_sites_own_way_of_laying_cables() -> None:
    plan = cluster([ROW], [group(0, 2, rack="r[1-2]", u=42, hardware=machine(height_u=1))])
    wide = Route(rack_mm=800, slack_mm=2000)
    shorter, longer = run_length(plan, "n0x1", "n0x2"), run_length(plan, "n0x1", "n0x2", wide)
    assert shorter is not None
    assert longer is not None
    assert longer - shorter == pytest.approx(0.2 + 1.5)


@pytest.mark.parametrize(
    "racks",
    [
        [{"name": "r1", "row": "A", "position": 1}, {"name": "r2", "row": "B", "position": 1}],
        [{"name": "r1", "row": "A", "position": 1}, {"name": "r2", "row": "A"}],
        [{"name": "r1"}, {"name": "r2"}],
    ],
    ids=["rows", "no position", "no row"],
)
def test_nobody_knows_the_way_between_rows(racks: list[dict[str, Any]]) -> None:
    assert apart({"rack": "r1", "u": 1}, {"rack": "r2", "u": 1}, racks) is None
    assert apart({"rack": "r1", "u": 1}, {"rack": "r1", "u": 2}, racks) is not None


def test_nobody_knows_the_way_to_what_stands_nowhere() -> None:
    assert apart({"rack": "r1", "u": 1}, {}) is None
