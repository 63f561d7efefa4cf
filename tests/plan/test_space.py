"""Checks of racks, cables and balance, beyond the examples on their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldiron.catalog.model import Cable
from coldiron.plan.checks import space
from coldiron.plan.checks.space_balance import unbalanced
from coldiron.plan.checks.space_cables import beyond_catalog, beyond_reach, reach
from coldiron.plan.design import Design, Unknown, run
from coldiron.plan.findings import Finding
from coldiron.plan.results import CircuitLoad, End, Link, PowerPlan
from tests.plan.cases import base, found, over
from tests.plan.test_place import cluster, group, machine, sound

RACK = {"depth_mm": 900, "load_kg": 500}


def findings(design: Design, code: str) -> list[Finding]:
    """The findings of this code."""
    return [finding for finding in run(design, space.CHECKS) if finding.code == code]


def only(design: Design, code: str) -> Finding:
    """The one finding of this code."""
    [finding] = findings(design, code)
    return finding


def unknown(check: Callable[[Design], Iterable[object]], design: Design) -> list[tuple[str, str]]:
    """The figures that a check missed."""
    return [(one.thing, one.figure) for one in check(design) if isinstance(one, Unknown)]


def figures(finding: Finding) -> dict[str, Any]:
    """The numbers of a finding."""
    return dict(finding.figures)


def test_one_finding_tells_of_a_mistake_that_many_racks_share() -> None:
    plan = cluster(
        [{"name": "r[1-9]", **RACK}],
        [group(0, 9, rack="r[1-9]", u=1), group(1, 9, rack="r[1-9]", u=2)],
    )
    finding = only(plan, "CU101")
    assert finding.what == "n1x1 (U2-U3) stands where n0x1 (U1-U2) is in rack r1; so do 8 more pairs"
    assert finding.advice == "U4 is free there"
    assert finding.where == f"cluster.yml:{plan.cluster.document.line(('nodes', 2, 'u'))}"
    assert figures(finding) == {"pairs": 9}


def test_a_tall_machine_overlaps_with_all_that_stand_in_it() -> None:
    plan = cluster(
        [{"name": "r1", "units": 9, **RACK}],
        [
            group(0, 1, rack="r1", u=1, hardware=machine(height_u=8)),
            group(1, 1, rack="r1", u=2, hardware=machine(height_u=1)),
            group(2, 1, rack="r1", u=7, hardware=machine(height_u=3)),
        ],
    )
    found = findings(plan, "CU101")
    assert [finding.subject for finding in found] == ["n0x1, n1x1", "n0x1, n2x1"]
    assert [finding.advice for finding in found] == ["put one of them into another rack"] * 2


def test_an_overlap_names_the_line_of_the_override() -> None:
    plan = cluster(
        [{"name": "r1", **RACK}],
        [group(0, 3, rack="r1", u=1, overrides={"n0x3": {"u": 2}, "n0x1": {"serial": "S1"}})],
    )
    path = ("nodes", 1, "overrides", "n0x3", "u")
    assert only(plan, "CU101").where == f"cluster.yml:{plan.cluster.document.line(path)}"


def test_an_overlap_names_the_row_of_the_csv_file(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("name,rack,u\ncpu01,r01,3\ncpu02,r01,4\n")
    nodes = """\
nodes:
  - {name: head01, kind: head, address: 10.99.0.1, rack: r01, u: 1}
  - {name: "cpu[01-02]", kind: cpu, address: 10.99.0.11}
nodes_csv: nodes.csv
"""
    [finding] = found(tmp_path, over(base("space"), nodes))
    assert finding.code == "CU101"
    assert finding.where.endswith("nodes.csv:3")


def test_unit_0_is_no_unit() -> None:
    finding = only(
        cluster([{"name": "r[1-2]", "units": 4, **RACK}], [group(0, 2, rack="r[1-2]", u=0)]), "CU102"
    )
    assert finding.what == "n0x1 would take U0-U1 of rack r1, which has U1 to U4; so does one more machine"
    assert finding.advice == "write `u: 1`"


@pytest.mark.parametrize(
    ("units", "where", "advice"),
    [
        (9, {"u": 6}, "write `u: 4` or less"),
        (6, {"u": 2}, "write `u: 1`"),
        (5, {"u": 1}, "name more racks, or write the rack's true `units`"),
        (9, {"u": [1, 3, 9]}, "write a `u` from 1 to 8"),
        (9, {"u": 1, "overrides": {"n0x3": {"u": 9}}}, "write a `u` from 1 to 8"),
        (9, {"u": 1, "overrides": {"n0x3": {"u": 9, "hardware": machine(height_u=10)}}}, "name another rack"),
    ],
)
def test_what_to_write_so_that_all_of_a_range_fit(units: int, where: dict[str, Any], advice: str) -> None:
    plan = cluster([{"name": "r1", "units": units, **RACK}], [group(0, 3, rack="r1", **where)])
    assert only(plan, "CU102").advice.startswith(advice)


def test_a_switch_reaches_out_of_its_rack_too() -> None:
    switch = "{name: 'sw[01-02]', model: sn2201, function: management, networks: [cluster], rack: r01, u: 42}"
    finding = only(sound(f"switches:\n  - {switch}\n"), "CU102")
    assert (finding.advice, finding.hosts) == ("write `u: 41` or less", "")


def test_depth_is_told_once_for_each_kind_of_rack() -> None:
    plan = cluster(
        [{"name": "r[1-2]", **RACK}, {"name": "deep1", **RACK, "depth_mm": 1200}],
        [
            group(0, 4, rack="r[1-2]", hardware=machine(depth_mm=1000)),
            group(1, 1, rack="deep1", hardware=machine(depth_mm=1000)),
            group(2, 1, rack="r1", hardware=machine(depth_mm=None)),
            group(3, 1, rack="r1", hardware=machine(form="tower", height_u=None)),
        ],
    )
    finding = only(plan, "CU103")
    assert finding.what == "n0x[1-4] is 1000 mm deep, and racks r[1-2] take 900 mm"
    assert finding.hosts == "n0x[1-4]"
    assert unknown(space.space, plan) == [("n2x1", "hardware.depth_mm")]


def test_a_switch_is_deep_and_heavy_too() -> None:
    plan = sound(
        """\
switches:
  - {name: sw01, model: sn2201, function: management, networks: [cluster], rack: r01, u: 42}
"""
    )
    assert unknown(space.space, plan) == [("sn2201", "depth_mm")]


def test_the_weight_of_racks_that_are_alike_is_told_once() -> None:
    plan = cluster(
        [{"name": "r[1-3]", **RACK}, {"name": "r4", "depth_mm": 900}],
        [
            group(0, 9, rack="r[1-3]", hardware=machine(weight_kg=170, depth_mm=700)),
            group(1, 1, rack="r4", hardware=machine(weight_kg=900, depth_mm=700)),
        ],
    )
    finding = only(plan, "CU104")
    assert finding.what == "what stands in each of racks r[1-3] weighs 510 kg, and it carries 500 kg"
    assert finding.advice == "put 10 kg elsewhere; the heaviest there is n0x1 with 170 kg"
    assert figures(finding) == {"kg": 510, "limit_kg": 500}


def test_a_weight_that_is_not_known_is_told_and_the_rest_is_weighed() -> None:
    plan = cluster(
        [{"name": "r1", **RACK}],
        [
            group(0, 1, rack="r1", hardware=machine(weight_kg=None, depth_mm=700)),
            group(1, 1, rack="r1", hardware=machine(weight_kg=501, depth_mm=700)),
            group(2, 1, rack="r1", hardware=machine(form="tower", height_u=None)),
        ],
    )
    assert "weighs 501 kg or more" in only(plan, "CU104").what
    assert unknown(space.space, plan) == [("n0x1", "hardware.weight_kg")]


def test_a_height_that_nobody_knows_is_told() -> None:
    plan = cluster(
        [{"name": "r1"}],
        [
            group(0, 2, rack="auto", hardware=machine(height_u=None)),
            group(1, 1, rack="r1", u=3, hardware=machine(height_u=None, form="tower")),
        ],
    )
    assert unknown(space.space, plan) == [("n0x[1-2]", "hardware.height_u")]
    assert findings(plan, "CU105") == []


def test_what_fits_nowhere_is_told_with_what_is_scarce() -> None:
    plan = cluster(
        [
            {"name": "flat1", **RACK, "depth_mm": 600},
            {"name": "low[1-2]", **RACK, "units": 3},
            {"name": "weak1", **RACK, "load_kg": 30},
            {"name": "dark1", **RACK, "pdus": [{"name": "a", "volts": 230, "amps": 1}]},
            {"name": "hot1", **RACK, "cooling": {"air_kw": 0.1}},
        ],
        [group(0, 2, rack="auto", hardware=machine(height_u=4, depth_mm=800, weight_kg=40))],
    )
    finding = only(plan, "CU105")
    assert finding.what == (
        "2 of n0x[1-2] have no place: no 4 U free in one piece in 2 racks, too little depth in 1 rack, "
        "too little load left in 1 rack, too few watts left on the PDUs in 1 rack, too little cooling left in 1 rack"
    )
    assert finding.hosts == "n0x[1-2]"


def test_a_full_rack_is_told_by_its_name() -> None:
    plan = cluster([{"name": "r[1-2]", "units": 3, **RACK}], [group(0, 4, rack="r[1-2]")])
    assert only(plan, "CU105").what == "2 of n0x[1-4] have no place: no 2 U free in one piece in racks r[1-2]"


def test_a_place_in_no_rack_at_all() -> None:
    plan = cluster([], [group(0, 1, rack="auto")])
    assert only(plan, "CU105").what == "n0x1 has no rack to stand in: the file has none"


def test_who_needs_no_rack_is_not_asked_for_one() -> None:
    nodes = [
        group(0, 1, platform="container"),
        group(1, 1, hardware=machine(form="desktop")),
        group(2, 2, overrides={"n2x2": {"rack": "r1"}}),
    ]
    assert only(cluster([{"name": "r1", **RACK}], nodes), "CU106").hosts == "n2x1"
    assert findings(cluster([], nodes[:2]), "CU106") == []


def test_a_switch_in_no_rack_is_told_too() -> None:
    plan = sound("switches:\n  - {name: sw01, model: sn2201, function: management, networks: [cluster]}\n")
    finding = only(plan, "CU106")
    assert (finding.subject, finding.hosts) == ("sw01", "")


def test_racks_in_other_rooms_or_without_a_place_do_not_clash() -> None:
    racks = [
        {"name": "r[1-3]", "row": "A", "position": 1, "room": "one", **RACK},
        {"name": "s[1-3]", "row": "A", "position": 2, "room": "two", **RACK},
        {"name": "t[1-3]", "row": "B", "position": 2, "room": "one", **RACK},
        {"name": "u[1-3]", "row": "A", "room": "one", **RACK},
        {"name": "v[1-3]", "position": 1, "room": "one", **RACK},
    ]
    rooms: dict[str, Any] = {"one": {}, "two": {}}
    assert findings(cluster(racks, [group(0, 1)], rooms=rooms), "CU107") == []
    racks[1]["room"] = "one"
    finding = only(cluster(racks, [group(0, 1)], rooms=rooms), "CU107")
    assert finding.what == "racks r2 and s1 both have position 2 of row A; so does one more pair"


def test_a_rack_that_nothing_stands_in_needs_no_figures() -> None:
    tower = machine(form="tower", height_u=None)
    racks = [{"name": "r1"}, {"name": "r2"}, {"name": "wall1"}]
    plan = cluster(racks, [group(0, 1, rack="r1"), group(1, 1, rack="wall1", hardware=tower)])
    finding = only(plan, "CU111")
    assert finding.what == (
        "r1: `depth_mm` and `load_kg` are not written, so that the depth and weight of what stands there are not "
        "looked at"
    )


# Cables.


def test_the_reach_of_a_cable() -> None:
    def of(most: float | None, lengths: tuple[float, ...] | None) -> float | None:
        return reach(Cable(name="c1", title="C1", reach_max_m=most, lengths_m=lengths))

    assert of(3, (0.5, 2)) == 2
    assert of(2, (3,)) == 2
    assert of(None, (1, 3, 2)) == 3
    assert of(5, None) == 5
    assert of(None, None) is None


def wired(*links: Link, plugs: str = "") -> Design:
    """A sound design with a leaf in each rack and these links."""
    plan = sound(
        f"""\
fabrics:
  compute: {{link_layer: infiniband, gbit_per_s: 400, nodes: "cpu[01-04]"}}
switches:
  - {{name: "leaf[01-02]", model: qm9700, function: leaf, fabric: compute, rack: "r[01-02]", u: 40{plugs}}}
"""
    )
    plan.__dict__["links"] = links
    return plan


def link(a: str, b: str, length: float | None, cable: str | None = None, speed: float | None = 400) -> Link:
    """A link from one to the other."""
    return Link("compute", End(a, 1), End(b, 1), speed, 1, cable, length)


def test_cables_that_reach_are_not_told_and_the_longest_of_the_others_is() -> None:
    plan = wired(
        link("cpu01", "leaf01", 2, "mcp4y10-n"),
        link("cpu02", "leaf01", 2.4, "mcp4y10-n"),
        link("cpu03", "leaf02", 4.5, "mcp4y10-n"),
        link("cpu04", "leaf02", 3, "mcp7y10-n"),
        link("cpu04", "leaf02", None, "mcp4y10-n"),
        link("leaf01", "leaf02", 51, "mma4z00-ns"),
        link("cpu04", "elsewhere", 99, "mcp4y10-n"),
    )
    first, second = [one for one in beyond_reach(plan) if isinstance(one, Finding)]
    assert first.what == "mcp4y10-n goes 2 m, and from cpu03 to leaf02 it is 4.5 m; one more link is too long"
    assert (first.hosts, second.hosts) == ("cpu03", "")
    assert second.what == "mma4z00-ns goes 50 m, and from leaf01 to leaf02 it is 51 m"


def test_the_plug_that_names_the_cable_is_the_line_to_mend() -> None:
    plugs = ', plugs: [{cages: 1, to: "leaf02"},\n    {cages: 2, to: "cpu01", port: 1, cable: mcp4y10-n, length_m: 9}]'
    plan = wired(link("cpu01", "leaf01", 9, "mcp4y10-n"), plugs=plugs)
    [finding] = beyond_reach(plan)
    assert isinstance(finding, Finding)
    assert finding.where == f"cluster.yml:{plan.cluster.document.line(('switches', 0, 'plugs', 1, 'cable'))}"


def test_a_cable_whose_reach_nobody_gives_is_told() -> None:
    plan = wired(link("cpu01", "leaf01", 3, "dac"))
    cables = {"dac": Cable(name="dac", title="DAC")}
    plan.cluster.catalog.__dict__["cables"] = {**plan.cluster.catalog.cables, **cables}
    assert unknown(beyond_reach, plan) == [("dac", "reach_max_m")]


def test_without_a_cable_the_catalog_is_asked() -> None:
    assert list(beyond_catalog(wired(link("cpu01", "leaf01", 100)))) == []
    assert list(beyond_catalog(wired(link("cpu01", "leaf01", 101, "mcp4y10-n")))) == []
    assert list(beyond_catalog(wired(link("cpu01", "leaf01", None)))) == []
    # Nobody says what cables of this speed there are.
    assert list(beyond_catalog(wired(link("cpu01", "leaf01", 101, speed=10)))) == []
    assert list(beyond_catalog(wired(link("cpu01", "nowhere", 101)))) == []
    [finding] = beyond_catalog(wired(*[link(f"cpu0{n}", "leaf01", 100 + n) for n in (1, 2, 3)]))
    assert isinstance(finding, Finding)
    assert finding.what == (
        "from cpu03 to leaf01 it is 103 m, and no cable of the catalog for 400 Gb/s in a cage of qm9700 goes farther "
        "than 100 m (mms4x00-ns400); 2 more links are too long"
    )


# Balance.

PDU = {"name": "a", "volts": 230, "amps": 10}  # 1,840 W


def heavy(count: int, watts: int, **where: Any) -> dict[str, Any]:
    """Nodes of so many watts."""
    return group(where.pop("index", 0), count, hardware=machine(draw_watts=watts, depth_mm=700), **where)


def advice(design: Design, power: PowerPlan | None = None) -> Finding | None:
    """What is said about the balance; ``power`` in the place of what the plan reckons."""
    design.__dict__["power"] = power or PowerPlan()
    found = list(unbalanced(design))
    assert len(found) < 2
    return found[0] if found and isinstance(found[0], Finding) else None


def test_as_few_moves_as_relieve_the_fullest_rack() -> None:
    racks = [{"name": "r[1-3]", **RACK, "pdus": [PDU]}]
    finding = advice(cluster(racks, [heavy(3, 600, rack="r1")]))
    assert finding is not None
    assert finding.what == "rack r1 is at 98 % of what it carries for good, and other racks have room"
    assert finding.advice == "move n0x3 from rack r1 to r2: the fullest would be at about 65 %"
    assert figures(finding) == {
        "share": 0.978,
        "share_after": 0.652,
        "moves": "n0x3 from rack r1 to r2",
    }


@pytest.mark.parametrize(
    ("nodes", "racks"),
    [
        ([heavy(2, 700, rack="r1")], {}),
        ([heavy(4, 800, rack="r[1-2]")], {}),
        ([heavy(1, 1700, rack="r1")], {}),
        ([heavy(3, 600, rack="r1")], {"room": True}),
        ([heavy(3, 600, rack="r1")], {"units": 1}),
        ([heavy(3, 600, rack="r1", power={}), heavy(1, 1500, rack="r2", index=1)], {}),
    ],
    ids=["not tight", "even", "nothing to split", "other room", "no units", "little to win"],
)
def test_no_word_where_there_is_nothing_to_win(nodes: list[dict[str, Any]], racks: dict[str, Any]) -> None:
    second = {"room": "two"} if racks.pop("room", False) else racks
    plan = cluster(
        [{"name": "r1", **RACK, "pdus": [PDU]}, {"name": "r2", **RACK, "pdus": [PDU], **second}],
        nodes,
        rooms={"two": {}},
    )
    assert advice(plan) is None


def test_racks_without_pdus_have_no_share() -> None:
    assert advice(cluster([{"name": "r[1-2]", **RACK}], [heavy(9, 3000, rack="r1")])) is None
    assert advice(cluster([], [heavy(9, 3000)])) is None


def test_a_feed_is_relieved_by_racks_on_another() -> None:
    big = {"volts": 230, "amps": 100}
    racks = [
        {"name": "r[1-2]", **RACK, "pdus": [{**PDU, "amps": 20, "feed": "A"}]},
        {"name": "r[3-4]", **RACK, "pdus": [{**PDU, "amps": 20, "feed": "B"}]},
    ]
    plan = cluster(racks, [heavy(4, 500, rack="r[1-2]")], feeds={"A": {"volts": 230, "amps": 12}, "B": big})
    finding = advice(plan)
    assert finding is not None
    assert finding.what.startswith("feed A is at 91 %")
    assert finding.advice == ("move n0x2 from rack r1 to r3: the fullest would be at about 68 %")


def test_what_the_plan_reckons_of_circuits_and_machines_comes_first() -> None:
    racks = [{"name": "r[1-2]", **RACK, "pdus": [PDU]}]
    plan = cluster(racks, [heavy(3, 100, rack="r1")])
    circuit = CircuitLoad("r1/a/b1", None, "L2", 1000, 400, 900)
    power = PowerPlan(
        nodes={f"n0x{n}": 300.0 for n in (1, 2, 3)}, circuits=(circuit, replace(circuit, watts=1))
    )
    finding = advice(plan, power)
    assert finding is not None
    assert finding.what.startswith("circuit r1/a/b1 (L2) of rack r1 is at 90 % of what it carries for good")
    assert finding.advice.endswith("move n0x3 from rack r1 to r2: the fullest would be at about 60 %")


def test_a_feed_that_the_plan_reckons_is_as_full_as_it_says() -> None:
    feeds = {name: {"volts": 230, "amps": 100} for name in "AB"}
    racks = [
        {"name": f"r{n}", **RACK, "pdus": [{**PDU, "amps": 50, "feed": name}]} for n, name in enumerate("AB")
    ]
    plan = cluster(racks, [heavy(2, 300, rack="r0")], feeds=feeds)
    loads = (CircuitLoad("A", "A", None, 1000, 950, 950), CircuitLoad("B", "B", None, 1000, 0, 0))
    finding = advice(plan, PowerPlan(feeds=loads))
    assert finding is not None
    assert finding.subject == "feed A"


def test_many_moves_are_not_all_told() -> None:
    racks = [{"name": "r[1-6]", **RACK, "load_kg": 5000, "pdus": [{**PDU, "amps": 40}]}]
    finding = advice(cluster(racks, [heavy(20, 350, rack="r1")]))
    assert finding is not None
    assert finding.advice.count(" from rack ") == 3
    assert " and 1 more (--json has them all)" in finding.advice
    assert str(figures(finding)["moves"]).count(" from rack ") == 4


def test_a_node_that_moves_twice_is_told_once() -> None:
    racks = [
        {"name": f"r{n}", **RACK, "pdus": [{**PDU, "amps": amps}]} for n, amps in enumerate((30, 13, 12))
    ]
    plan = cluster(racks, [heavy(1, 1000, rack="r0", index=1), heavy(9, 480, rack="r0")])
    finding = advice(plan)
    assert finding is not None
    told = str(figures(finding)["moves"])
    assert told.count("n1x1") <= 1
    assert figures(finding)["share_after"] <= figures(finding)["share"] - 0.1
