"""The power plan of a whole cluster.yml, and what a terminal shows of it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from coldiron.plan.checks.power import CHECKS
from coldiron.plan.design import Design, run
from coldiron.plan.findings import Finding
from coldiron.plan.load import power_data, power_lines
from tests.plan.power_cases import design

WORKSTATIONS = """\
site: {}
feeds: {}
rooms: {}
racks:
  - {name: desk, pdus: [{name: wall, volts: 230, amps: 16, derating: 1}]}
nodes:
  - name: ws[01-02]
    kind: head
    address: 10.99.0.11
    rack: desk
    POWER
    hardware:
      cores_per_socket: 32
      memory_gib: 256
      base_watts: 450
      gpus: {model: rtx-3090, count: 4}
      supplies: {count: 1, watts: 2000, efficiency: platinum, min_active: 1}
"""

ALONE = """\
  - name: head01
    kind: head
    address: 10.99.0.1
    hardware: {cores_per_socket: 1, memory_gib: 8, draw_watts: 500, supplies: {count: 1}}
"""


def found(one: Design) -> list[Finding]:
    return run(one, CHECKS)


def workstations(directory: Path, power: str = "{}", **changes: str) -> Design:
    text = WORKSTATIONS.replace("POWER", f"power: {power}")
    for old, new in changes.items():
        text = text.replace(old, new)
    return design(directory, text)


def test_the_base_is_reckoned(tmp_path: Path) -> None:
    plan = design(tmp_path, "").power
    assert set(plan.nodes) == {"head01", "cpu01", "cpu02", "cpu03"}
    assert math.fsum(load.watts for load in plan.circuits) == 2000
    assert [(feed.id, feed.watts, feed.failover_watts) for feed in plan.feeds] == [
        ("A", 1000, 2000),
        ("B", 1000, 2000),
    ]
    assert plan.heat_kw == {"r01": 2}
    assert plan.energy_kwh == pytest.approx(2 * 8760 * 0.7 * 1.3)
    assert plan.cost == pytest.approx(2 * 8760 * 0.7 * 1.3 * 0.24)
    assert {load.phase for load in plan.phases} == {"L1", "L2", "L3"}
    assert plan.pdus == ()


def test_two_workstations_are_too_much_for_the_wall_and_the_cap_is_named(tmp_path: Path) -> None:
    findings = {finding.code: finding for finding in found(workstations(tmp_path))}
    assert "CP101" in findings
    advice = findings["CP117"]
    cap = dict(advice.figures)["cap_watts"]
    assert isinstance(cap, float | int)
    assert advice.what.startswith(f"cap each GPU at {cap:.0f} W (")
    assert "CP117" not in {f.code for f in found(workstations(tmp_path, f"{{gpu_cap_watts: {cap}}}"))}
    assert "CP101" not in {f.code for f in found(workstations(tmp_path, f"{{gpu_cap_watts: {cap}}}"))}
    assert "CP101" in {f.code for f in found(workstations(tmp_path, f"{{gpu_cap_watts: {cap + 1}}}"))}


def test_fit_circuit_finds_the_same_cap_and_nothing_is_left_to_refuse(tmp_path: Path) -> None:
    advised = next(f for f in found(workstations(tmp_path)) if f.code == "CP117")
    one = workstations(tmp_path, "{fit_circuit: true}")
    assert one.power.caps == dict.fromkeys(("ws01", "ws02"), dict(advised.figures)["cap_watts"])
    assert found(one) == []
    lines = power_lines(power_data(one))
    assert lines[0].startswith(f"ws[01-02]: cap each GPU at {one.power.caps['ws01']:.0f} W (")


def test_fit_circuit_without_a_circuit_is_refused(tmp_path: Path) -> None:
    one = workstations(tmp_path, "{fit_circuit: true}", **{"    rack: desk\n": ""})
    codes = [finding.code for finding in found(one) if finding.code == "CP116"]
    assert codes == ["CP116"]


def test_a_cap_that_does_not_help_is_not_advised(tmp_path: Path) -> None:
    codes = {finding.code for finding in found(workstations(tmp_path, base_watts="draw_watts: 5000 #"))}
    assert "CP101" in codes
    assert "CP117" not in codes


def test_an_unknown_draw_is_said_and_left_out(tmp_path: Path) -> None:
    one = workstations(tmp_path, base_watts="cpu_lanes: 64 #")
    (unknown,) = found(one)
    assert unknown.code == "CA101"
    assert "hardware.draw_watts" in unknown.what
    assert "the load of its circuits" in unknown.what
    assert one.power.nodes == {}
    assert one.power.energy_kwh is None
    data = power_data(one)
    assert data["without_figure"] == "ws[01-02]"
    assert data["without_figure_count"] == 2


def test_where_nothing_asks_for_the_draw_nothing_is_said(tmp_path: Path) -> None:
    one = workstations(
        tmp_path,
        base_watts="cpu_lanes: 64 #",
        **{", pdus: [{name: wall, volts: 230, amps: 16, derating: 1}]": ""},
    )
    assert found(one) == []


def test_unknown_supplies_inlets_and_shares_are_said_where_they_matter(tmp_path: Path) -> None:
    blocks = """\
racks:
  - name: r01
    cooling: {air_kw: 20, liquid_kw: 20}
    pdus: [{name: a, volts: 230, amps: 32, outlets: {c13: 12}, inrush_amps: 300}]
nodes:
  - name: head01
    kind: head
    address: 10.99.0.1
    rack: r01
    hardware: {cores_per_socket: 16, memory_gib: 256, draw_watts: 500, cooling: both}
  - name: head02
    kind: head
    address: 10.99.0.2
    rack: r01
    hardware: {cores_per_socket: 16, memory_gib: 256, draw_watts: 500, supplies: {count: 2}}
"""
    told = {finding.subject: finding.what for finding in found(design(tmp_path, blocks))}
    assert "hardware.supplies.count, hardware.liquid_share" in told["head01"]
    assert "hardware.supplies.inrush_amps, hardware.supplies.inlet" in told["head02"]


def test_a_capped_gpu_without_a_rating_saves_nothing_and_that_is_said(tmp_path: Path) -> None:
    one = workstations(
        tmp_path, "{gpu_cap_watts: 200}", base_watts="draw_watts: 1500 #", **{"model: rtx-3090": "type: new"}
    )
    assert one.power.nodes["ws01"] == 1500
    assert any("what a cap saves" in f.what for f in found(one) if f.code == "CA101")


def test_racks_that_are_alike_make_one_finding(tmp_path: Path) -> None:
    blocks = """\
racks:
  - {name: "r[01-50]", pdus: [{name: a, volts: 230, amps: 10}]}
nodes:
  - name: box[001-200]
    kind: head
    address: 10.99.0.1
    rack: r[01-50]
    hardware: {cores_per_socket: 16, memory_gib: 256, draw_watts: 500, height_u: 1, supplies: {count: 1}}
"""
    (finding,) = found(design(tmp_path, blocks))
    assert finding.code == "CP101"
    assert "each of racks r[01-50]" in finding.what
    assert dict(finding.figures) == {"watts": 2000, "limit_watts": 1840, "racks": 50}


def test_a_three_phase_feed_counts_racks_and_names_what_is_needed(tmp_path: Path) -> None:
    blocks = """\
feeds: {A: {volts: 400, phases: 3, amps: 2}}
racks:
  - {name: r01, pdus: [{name: a, feed: A, volts: 230, amps: 32}]}
"""
    one = next(finding for finding in found(design(tmp_path, blocks)) if finding.code == "CP104")
    assert (
        "its 2 A at 400 V on three phases may carry 1109 W (80 % of the rating): 892 W too many" in one.what
    )
    assert "have it at least 4 A strong" in one.advice


@pytest.mark.parametrize(
    ("cooling", "share", "words"),
    [
        ("{air_kw: 20}", 0.8, "cooling names no liquid"),
        ("{air_kw: 20, liquid_kw: 1}", 0.8, "to liquid, and 1 kW are taken away"),
        ("{air_kw: 0.3, liquid_kw: 2}", 0.8, "to air, and 0.3 kW are taken away"),
    ],
)
def test_air_and_liquid_are_looked_at_apart(tmp_path: Path, cooling: str, share: float, words: str) -> None:
    blocks = f"""\
racks:
  - {{name: r01, cooling: {cooling}}}
nodes:
  - name: head01
    kind: head
    address: 10.99.0.1
    rack: r01
    hardware: {{cores_per_socket: 16, memory_gib: 256, draw_watts: 2000, liquid_share: {share}}}
"""
    (finding,) = [one for one in found(design(tmp_path, blocks)) if one.code == "CP112"]
    assert words in finding.what


def test_a_ups_is_looked_at_with_the_other_feed_lost(tmp_path: Path) -> None:
    blocks = """\
feeds:
  A: {volts: 400, phases: 3, amps: 63, ups: {watts: 1500, minutes: 5}}
  B: {volts: 400, phases: 3, amps: 63}
"""
    findings = {finding.code: finding for finding in found(design(tmp_path, blocks))}
    assert findings["CP109"].what.startswith("with the other feed lost, feed A carries 2000 W")
    assert "feeds.A.ups.watt_hours" in findings["CA101"].what


@pytest.mark.parametrize(("ups", "minutes"), [("", 9), (", ups: {watts: 5000}", 18)])
def test_batteries_carry_the_share_of_feeds_that_have_none(tmp_path: Path, ups: str, minutes: float) -> None:
    blocks = f"""\
feeds:
  A: {{volts: 400, phases: 3, amps: 63, ups: {{watts: 5000, watt_hours: 300, minutes: 20}}}}
  B: {{volts: 400, phases: 3, amps: 63{ups}}}
"""
    (finding,) = [one for one in found(design(tmp_path, blocks)) if one.code == "CP110"]
    assert dict(finding.figures)["minutes"] == minutes


def test_a_feed_that_is_too_small_is_helped_by_a_cap_on_its_racks(tmp_path: Path) -> None:
    one = workstations(
        tmp_path,
        **{
            "feeds: {}": "feeds: {A: {volts: 230, amps: 16, derating: 1}}",
            "amps: 16, derating: 1}]": "amps: 63, feed: A}]",
        },
    )
    codes = {finding.code for finding in found(one)}
    assert {"CP104", "CP117"} <= codes
    assert "CP101" not in codes


def test_fit_circuit_fits_the_ups_too(tmp_path: Path) -> None:
    feeds = "feeds: {A: {volts: 230, amps: 63, ups: {watts: 3000}}}"
    one = workstations(
        tmp_path,
        "{fit_circuit: true}",
        **{"feeds: {}": feeds, "amps: 16, derating: 1}]": "amps: 32, feed: A}]"},
    )
    assert 2990 < one.power.feeds[0].watts <= 3000
    assert found(one) == []


def test_a_cap_is_not_praised_while_another_circuit_of_the_rack_stays_overloaded(tmp_path: Path) -> None:
    heavy = """\
  - name: heavy
    kind: head
    address: 10.99.0.1
    rack: desk
    power: {pdus: [b]}
    hardware: {cores_per_socket: 1, memory_gib: 8, draw_watts: 3000, supplies: {count: 1}}
"""
    pdus = "derating: 1}, {name: b, volts: 230, amps: 10}]"
    text = WORKSTATIONS.replace("derating: 1}]", pdus).replace("POWER", "power: {pdus: [wall]}") + heavy
    codes = [finding.code for finding in found(design(tmp_path, text))]
    assert codes.count("CP101") == 2
    assert "CP117" not in codes


def test_the_data_are_json_with_the_racks_in_the_files_order(tmp_path: Path) -> None:
    data = json.loads(json.dumps(power_data(design(tmp_path, ""))))
    assert [rack["rack"] for rack in data["racks"]] == ["r01"]
    assert data["racks"][0]["failover_percent"] >= data["racks"][0]["load_percent"]
    assert data["heat_btu_per_h"] == round(2 * 3412.14)
    assert {row["id"] for row in data["phases"]} >= {"r01/a/L1", "r01/b/L3"}


def test_long_names_are_cut(tmp_path: Path) -> None:
    names = [f"{letter}{letter}{letter}-rack" for letter in "abcdefgh"]
    racks = "racks:\n" + "".join(
        f"  - {{name: {name}, pdus: [{{name: a, volts: 230, amps: 9}}]}}\n" for name in names
    )
    lines = power_lines(power_data(design(tmp_path, f"{racks}nodes:\n{ALONE}")))
    assert lines[1].startswith("aaa-rack,bbb-rack,ccc-rack,ddd-rack,e...  ")


def test_alike_racks_are_one_line_and_more_than_asked_for_are_counted(tmp_path: Path) -> None:
    nodes = "".join(
        f"  - {{name: box{n}, kind: head, address: 10.99.0.{n}, rack: q{n},\n     hardware: "
        f"{{cores_per_socket: 1, memory_gib: 8, draw_watts: {100 * n}, supplies: {{count: 1}}}}}}\n"
        for n in range(1, 5)
    )
    racks = "racks:\n" + "".join(
        f"  - {{name: q{n}, pdus: [{{name: a, volts: 230, amps: 10}}]}}\n" for n in range(1, 5)
    )
    lines = power_lines(power_data(design(tmp_path, f"{racks}nodes:\n{nodes}")), rows=3)
    assert [line.split()[0] for line in lines[1:4]] == ["q4", "q3", "q2"]
    assert lines[4] == "... and 1 racks that are less full; --json has them all"


def test_what_goes_dark_with_a_feed_is_named(tmp_path: Path) -> None:
    blocks = """\
racks:
  - name: r01
    pdus: [{name: a, feed: A, volts: 230, amps: 32}, {name: b, feed: B, volts: 230, amps: 32}]
nodes:
  - name: one
    kind: head
    address: 10.99.0.1
    rack: r01
    power: {pdus: [a]}
    hardware: {cores_per_socket: 1, memory_gib: 8, draw_watts: 500, supplies: {count: 1}}
  - name: both
    kind: head
    address: 10.99.0.2
    rack: r01
    hardware: {cores_per_socket: 1, memory_gib: 8, draw_watts: 500, supplies: {count: 2, min_active: 1}}
  - name: needs
    kind: head
    address: 10.99.0.3
    rack: r01
    hardware: {cores_per_socket: 1, memory_gib: 8, draw_watts: 500, supplies: {count: 2, min_active: 2}}
"""
    data = power_data(design(tmp_path, blocks))
    assert data["lost_feeds"] == [
        {"feed": "A", "dark": "needs,one", "dark_count": 2},
        {"feed": "B", "dark": "needs", "dark_count": 1},
    ]
    lines = power_lines(data)
    assert "with feed A lost, needs,one go dark" in lines
    assert "with feed B lost, needs goes dark" in lines


def test_pdus_that_the_chosen_rack_does_not_have_are_named(tmp_path: Path) -> None:
    blocks = """\
racks:
  - {name: r01, pdus: [{name: a, volts: 230, amps: 32}]}
nodes:
  - name: head01
    kind: head
    address: 10.99.0.1
    rack: auto
    power: {pdus: [a, c]}
    hardware: {cores_per_socket: 1, memory_gib: 8, draw_watts: 500, height_u: 1, supplies: {count: 2}}
"""
    (finding,) = [one for one in found(design(tmp_path, blocks)) if one.code == "CP119"]
    assert finding.what == "`power.pdus` names c, and rack r01 has a"
