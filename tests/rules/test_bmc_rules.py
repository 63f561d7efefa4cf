"""IPMI and Redfish are one for whoever asks the recorded rules, and no part of these can break unseen."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rules.alerts import NO_METRIC, ROOT, _names

RULES = ROOT / "roles" / "bmc" / "files" / "coldiron-bmc.rules.yml"
NODE = 'job="bmc",kind="gpu",rack="r1"'
IPMI = f'instance="i",module="bmc",target="10.0.0.9",{NODE}'
FISH = f'instance="r",target="r",{NODE}'
# What exporters say at one moment, and what is recorded of it.
SERIES = {
    f'ipmi_up{{collector="ipmi",{IPMI}}}': 1,
    f'ipmi_up{{collector="dcmi",{IPMI}}}': 0,
    f"redfish_up{{{FISH}}}": 1,
    f'up{{instance="away",target="away",{NODE}}}': 0,
    f"up{{{IPMI}}}": 1,
    # What it said before is not yet forgotten.
    f'ipmi_up{{collector="ipmi",instance="half",{NODE}}}': 1,
    f'up{{instance="half",{NODE}}}': 0,
    'up{job="node",instance="i"}': 0,
    f"ipmi_chassis_power_state{{{IPMI}}}": 1,
    f'redfish_system_power_state{{system="1",{FISH}}}': 0,
    f'redfish_system_power_state{{system="2",{FISH}}}': 1,
    f'ipmi_temperature_celsius{{id="4",name="Inlet Temp",{IPMI}}}': 24,
    f'ipmi_temperature_state{{id="4",name="Inlet Temp",{IPMI}}}': 1,
    f'redfish_temperature_celsius{{chassis="1",id="0",name="Inlet",{FISH}}}': 23,
    # Two of a name are one: the warmer one, and the slower of fans.
    f'redfish_temperature_celsius{{chassis="1",id="7",name="Inlet",{FISH}}}': 25,
    f'redfish_temperature_state{{chassis="1",id="0",name="Inlet",{FISH}}}': 0,
    f'redfish_temperature_state{{chassis="1",id="7",name="Inlet",{FISH}}}': 1,
    f'ipmi_fan_speed_rpm{{id="12",name="Fan 1",{IPMI}}}': 9360,
    f'ipmi_fan_speed_state{{id="12",name="Fan 1",{IPMI}}}': 0,
    f'redfish_fan_speed_rpm{{chassis="1",id="0",name="Fan 1",{FISH}}}': 5000,
    f'redfish_fan_speed_rpm{{chassis="1",id="1",name="Fan 1",{FISH}}}': 4000,
    f'ipmi_fan_speed_ratio{{id="12",name="Fan 1",{IPMI}}}': 0.5,
    f'redfish_fan_speed_ratio{{chassis="1",id="0",name="Fan 1",{FISH}}}': 0.25,
    f'redfish_fan_speed_ratio{{chassis="1",id="1",name="Fan 1",{FISH}}}': 0.75,
    f'redfish_fan_state{{chassis="1",id="0",name="Fan 1",{FISH}}}': 2,
    f'redfish_fan_state{{chassis="1",id="1",name="Fan 1",{FISH}}}': 0,
    f'ipmi_sensor_state{{id="2",name="PS1",type="Power Supply",{IPMI}}}': 2,
    f'ipmi_sensor_state{{id="3",name="Slot",type="Drive Slot",{IPMI}}}': 1,
    f'redfish_psu_state{{chassis="1",id="0",name="PSU 1",{FISH}}}': 1,
    f'redfish_psu_state{{chassis="1",id="1",name="PSU 1",{FISH}}}': 0,
    f'ipmi_voltage_state{{id="9",name="12V",{IPMI}}}': 0,
    f'redfish_voltage_state{{chassis="1",id="0",name="12V",{FISH}}}': 2,
    f'redfish_voltage_state{{chassis="1",id="1",name="12V",{FISH}}}': 0,
    f"ipmi_dcmi_power_consumption_watts{{{IPMI}}}": 5430,
    # Its supplies draw as much: it is not counted twice.
    f'ipmi_power_watts{{id="70",name="PS1",{IPMI}}}': 5500,
    f'redfish_power_watts{{chassis="1",{FISH}}}': 3600,
    f'redfish_power_watts{{chassis="gpus",{FISH}}}': 2900,
    # Those that say it of their supplies alone.
    f'ipmi_power_watts{{id="70",name="PS1",instance="i2",{NODE}}}': 100,
    f'ipmi_power_watts{{id="71",name="PS2",instance="i2",{NODE}}}': 110,
    f'redfish_psu_input_watts{{chassis="1",id="0",name="PSU 1",instance="r2",{NODE}}}': 200,
    f'redfish_psu_input_watts{{chassis="1",id="1",name="PSU 2",instance="r2",{NODE}}}': 220,
    f"ipmi_sel_logs_count{{{IPMI}}}": 12,
    f'redfish_log_entries{{owner="1",log="SEL",{FISH}}}': 3,
    f'redfish_log_entries{{owner="bmc",log="Audit",{FISH}}}': 4,
}
# The exporter says the like of the node that it runs on, which is no machine with a BMC that somebody asked for.
SERIES |= {
    key.replace(IPMI, 'job="ipmi",instance="head01"'): value
    for key, value in SERIES.items()
    if key.startswith("ipmi_") and IPMI in key
}
RECORDED: dict[str, dict[tuple[str, str], float]] = {
    "coldiron:bmc_up": {("i", ""): 1, ("r", ""): 1, ("away", ""): 0, ("half", ""): 0},
    "coldiron:bmc_power_state": {("i", ""): 1, ("r", ""): 1},
    "coldiron:bmc_temperature_celsius": {("i", "Inlet Temp"): 24, ("r", "Inlet"): 25},
    "coldiron:bmc_temperature_state": {("i", "Inlet Temp"): 1, ("r", "Inlet"): 1},
    "coldiron:bmc_fan_rpm": {("i", "Fan 1"): 9360, ("r", "Fan 1"): 4000},
    "coldiron:bmc_fan_ratio": {("i", "Fan 1"): 0.5, ("r", "Fan 1"): 0.25},
    "coldiron:bmc_fan_state": {("i", "Fan 1"): 0, ("r", "Fan 1"): 2},
    "coldiron:bmc_psu_state": {("i", "PS1"): 2, ("r", "PSU 1"): 1},
    "coldiron:bmc_voltage_state": {("i", "12V"): 0, ("r", "12V"): 2},
    "coldiron:bmc_sensor_state": {
        ("i", "Inlet Temp"): 1, ("i", "Fan 1"): 0, ("i", "PS1"): 2, ("i", "Slot"): 1, ("i", "12V"): 0,
        ("r", "Inlet"): 1, ("r", "Fan 1"): 2, ("r", "PSU 1"): 1, ("r", "12V"): 2,
    },
    "coldiron:bmc_power_watts": {("i", ""): 5430, ("r", ""): 3600, ("i2", ""): 210, ("r2", ""): 420},
    "coldiron:bmc_log_entries": {("i", ""): 12, ("r", ""): 7},
}  # fmt: skip


def records() -> dict[str, str]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["record"]: rule["expr"] for group in groups for rule in group["rules"] if "record" in rule}


def holds(promtool: str, place: Path, rules: Mapping[str, str]) -> bool:
    """Whether everything is recorded as it is wanted, and nothing else is."""
    expressions: list[dict[str, Any]] = []
    for name, found in RECORDED.items():
        # Of the labels that alerts and dashboards read; whatever else is left would be a series more.
        kept = f"sum by (__name__, job, kind, rack, instance, name, module, target, id, type) ({name})"
        wanted = [
            {
                "labels": f'{name}{{instance="{node}",name="{part}",{NODE}}}'.replace('name="",', ""),
                "value": value,
            }
            for (node, part), value in found.items()
        ]
        expressions.append({"expr": kept, "eval_time": "1m", "exp_samples": wanted})
        expressions.append(
            {
                "expr": f"count({name})",
                "eval_time": "1m",
                "exp_samples": [{"labels": "{}", "value": len(found)}],
            }
        )
    group = {"name": "g", "rules": [{"record": name, "expr": expr} for name, expr in rules.items()]}
    place.mkdir(parents=True, exist_ok=True)
    (place / "rules.yml").write_text(yaml.safe_dump({"groups": [group]}))
    series = [{"series": key, "values": f"{value}x5"} for key, value in SERIES.items()]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": expressions}
    (place / "test.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]})
    )
    done = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 or "exp:" in done.stdout + done.stderr, done.stdout + done.stderr
    return done.returncode == 0


def test_every_record_is_tried() -> None:
    assert set(records()) == set(RECORDED)


def test_both_are_recorded_alike(promtool: str, tmp_path: Path) -> None:
    assert holds(promtool, tmp_path, records())


def breaks(expr: str) -> dict[str, str]:
    """Ways to break what is recorded: a metric left out, another reckoning, a label that is not dropped."""
    found = {
        f"no {match[0]}": expr[: match.start()] + NO_METRIC + expr[match.end() :]
        for match in _names(expr)
        if match[0] not in ("min", "max", "sum")
    }
    for this, other in (
        ("min ", "max "),
        ("max ", "min "),
        ("sum ", "max "),
        ("ipmi_(t", "x_(t"),
        ("redfish_(t", "x_(t"),
    ):
        if this in expr:
            found[f"{this}is {other}"] = expr.replace(this, other, 1)
    found["of any job"] = expr.replace('job="bmc"', 'job!=""')
    for label in (
        "module, ",
        ", target",
        "id, ",
        "collector, ",
        "owner, ",
        "chassis, ",
        "type, ",
        "system, ",
    ):
        if label in expr:
            found[f"keeps {label}"] = expr.replace(label, "", 1)
    return found


@pytest.mark.parametrize("name", RECORDED)
def test_a_break_of_a_record_is_seen(promtool: str, tmp_path: Path, name: str) -> None:
    whole = records()
    unseen = [
        what
        for number, (what, expr) in enumerate(breaks(whole[name]).items())
        if holds(promtool, tmp_path / str(number), {**whole, name: expr})
    ]
    assert unseen == []
