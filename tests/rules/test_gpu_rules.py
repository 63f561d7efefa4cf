"""Both exporters' metrics come out of the recording rules under the same names and labels, by real promtool.

nvitop.prom and nvitop-mig.prom were served by nvitop-exporter 1.7.2, started by role gpu_exporter on simulated cards;
dcgm.prom is written by NVIDIA's documentation of DCGM's exporter 4.8.3 and the samples in its repository's issues.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "roles/gpu_exporter/files/coldiron-gpu.rules.yml"
DEFAULTS = HERE.parents[1] / "roles/gpu_exporter/defaults/main.yml"
SAMPLE = re.compile(r"^(\w+\{.*\}) (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
MIB = 1024**2
LABELS = {"host", "gpu", "uuid", "model"}


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return found


def records() -> list[str]:
    return [rule["record"] for group in groups() for rule in group["rules"] if "record" in rule]


def series(name: str) -> list[dict[str, str]]:
    """A file of samples as promtool's input: each value twice, and what Prometheus itself adds to a target's labels."""
    found = []
    for sample, value in SAMPLE.findall((HERE / name).read_text()):
        labelled = sample[:-1] + ',instance="target:9400",job="gpu"}'
        found.append({"series": labelled, "values": f"{value} {value}"})
    assert found
    return found


def asked(promtool: str, tmp_path: Path, inputs: list[dict[str, str]], tests: dict[str, Any]) -> str:
    """Run promtool's own unit tests; its complaint, or an empty text."""
    file = tmp_path / "test.yml"
    case = {"interval": "1m", "input_series": inputs, **tests}
    file.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case]})
    )
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def expected(record: str, *samples: tuple[dict[str, str], float]) -> dict[str, Any]:
    written = [
        {"labels": record + "{" + ",".join(f'{key}="{text}"' for key, text in labels.items()) + "}",
         "value": value}
        for labels, value in samples
    ]  # fmt: skip
    return {"expr": record, "eval_time": "1m", "exp_samples": written}


def answers(promtool: str, tmp_path: Path, inputs: list[dict[str, str]], record: str) -> list[dict[str, str]]:
    """The labels of what a record says, taken from promtool's complaint that nothing was expected."""
    said = asked(promtool, tmp_path, inputs, {"promql_expr_test": [expected(record)]})
    got = said.partition("got:")[2]
    found = [dict(LABEL.findall(labels)) for labels in re.findall(r"\{[^}]*\}", got)]
    return [{key: text for key, text in labels.items() if key != "__name__"} for labels in found]


def test_promtool_takes_the_rules(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def of_each_gpu() -> list[str]:
    """What is told of each GPU; ``coldiron:gpus`` counts them."""
    return [record for record in records() if record != "coldiron:gpus"]


@pytest.mark.parametrize("record", of_each_gpu())
def test_either_exporter_gives_the_same_names_and_labels(promtool: str, tmp_path: Path, record: str) -> None:
    for file in ("dcgm.prom", "nvitop.prom"):
        found = answers(promtool, tmp_path, series(file), record)
        assert found, f"{record} of {file} says nothing"
        assert {frozenset(labels) for labels in found} == {frozenset(LABELS)}, file
        assert len({(labels["host"], labels["gpu"]) for labels in found}) == len(found)


@pytest.mark.parametrize("file", ["dcgm.prom", "nvitop.prom"])
def test_gpus_are_counted_by_node_whatever_tells_of_them(promtool: str, tmp_path: Path, file: str) -> None:
    found = answers(promtool, tmp_path, series(file), "coldiron:gpus")
    each = answers(promtool, tmp_path, series(file), "coldiron:gpu_memory_total_bytes")
    assert [set(labels) for labels in found] == [{"host"}]
    assert {labels["host"] for labels in found} == {labels["host"] for labels in each}


def test_dcgms_values_come_out_in_the_rules_units(promtool: str, tmp_path: Path) -> None:
    gpu = {
        "host": "gpu03", "gpu": "1", "uuid": "GPU-15338f3e-5fd9-962d-921a-979b820520f0",
        "model": "NVIDIA H100 80GB HBM3",
    }  # fmt: skip
    other = {**gpu, "gpu": "0", "uuid": "GPU-8b2281de-6d3c-22ed-0ec8-d3b864870b8b"}
    wanted = {
        "coldiron:gpu_utilization_percent": (0, 97),
        "coldiron:gpu_memory_total_bytes": (81559 * MIB, 81559 * MIB),
        "coldiron:gpu_memory_used_bytes": (4 * MIB, 70000 * MIB),
        "coldiron:gpu_power_watts": (69.5, 655.25),
        "coldiron:gpu_power_limit_watts": (700, 700),
        "coldiron:gpu_temperature_celsius": (30, 64),
        "coldiron:gpu_ecc_uncorrected_errors": (0, 2),
        "coldiron:gpu_row_remap_pending": (0, 1),
        "coldiron:gpu_xid": (0, 48),
    }
    checks = [expected(record, (other, first), (gpu, second)) for record, (first, second) in wanted.items()]
    assert asked(promtool, tmp_path, series("dcgm.prom"), {"promql_expr_test": checks}) == ""


def test_nvitops_values_come_out_in_the_rules_units(promtool: str, tmp_path: Path) -> None:
    found = {}
    for sample, value in SAMPLE.findall((HERE / "nvitop.prom").read_text()):
        labels = dict(LABEL.findall(sample))
        if labels.get("index") == "0":
            found[sample.split("{")[0]] = (labels, float(value))
    labels, total = found["gpu_memory_total_MiB"]
    gpu = {"host": labels["hostname"], "gpu": "0", "uuid": labels["uuid"], "model": labels["devicename"]}
    inputs = [one for one in series("nvitop.prom") if 'index="0"' in one["series"]]
    wanted = {
        "coldiron:gpu_memory_total_bytes": total * MIB,
        "coldiron:gpu_power_limit_watts": found["gpu_power_limit_W"][1],
        "coldiron:gpu_temperature_celsius": found["gpu_temperature_C"][1],
        "coldiron:gpu_xid": 0.0,
    }
    checks = [expected(record, (gpu, value)) for record, value in wanted.items()]
    assert asked(promtool, tmp_path, inputs, {"promql_expr_test": checks}) == ""


def test_an_instance_is_told_of_beside_its_gpu(promtool: str, tmp_path: Path) -> None:
    for file, profile in (("nvitop-mig.prom", "3g.40gb"), ("dcgm-mig.prom", "1g.6gb")):
        found = answers(promtool, tmp_path, series(file), "coldiron:gpu_memory_used_bytes")
        instances = [labels for labels in found if "mig" in labels]
        assert instances, file
        assert {frozenset(labels) for labels in instances} == {frozenset(LABELS | {"mig", "mig_profile"})}
        assert profile in {labels["mig_profile"] for labels in instances}
        assert all(labels["gpu"].isdigit() and labels["mig"].isdigit() for labels in instances)
        assert not any("MIG" in labels["model"] for labels in found)


def test_a_node_with_both_is_counted_once(promtool: str, tmp_path: Path) -> None:
    both = [
        {
            "series": 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1",modelName="M",hostname="a"}',
            "values": "40 40",
        },
        {
            "series": 'gpu_temperature_C{index="0",uuid="GPU-1",devicename="M",hostname="a"}',
            "values": "40 40",
        },
    ]
    check = expected(
        "coldiron:gpu_temperature_celsius", ({"gpu": "0", "host": "a", "model": "M", "uuid": "GPU-1"}, 40)
    )
    assert asked(promtool, tmp_path, both, {"promql_expr_test": [check]}) == ""


def test_the_rules_ask_for_fields_that_the_role_has_dcgm_serve() -> None:
    counters = yaml.safe_load(DEFAULTS.read_text())["gpu_exporter_counters"]
    served = {one["field"] for one in counters}
    text = RULES.read_text()
    assert set(re.findall(r"DCGM_\w+", text)) <= served


def test_a_planted_mistake_is_seen(promtool: str, tmp_path: Path) -> None:
    check = expected("coldiron:gpu_temperature_celsius", ({"gpu": "0"}, 1))
    assert "FAILED" in asked(promtool, tmp_path, series("dcgm.prom"), {"promql_expr_test": [check]})
