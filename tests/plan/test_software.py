"""Divided GPUs, stacks written at several places, control planes and storage: what the pages' examples leave open."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldiron.catalog.load import load
from coldiron.catalog.model import MigProfile, Placements
from coldiron.plan.checks.software_mig import fits
from coldiron.plan.findings import Finding
from tests.plan.cases import base, found, line_of, over

GPUS = load().gpus
H100 = {profile.name: profile for profile in GPUS["h100-sxm5-80gb"].mig.profiles or ()}
PLACED = [
    gpu for gpu in GPUS.values() if gpu.mig.profiles and all(one.placements for one in gpu.mig.profiles)
]


def see(directory: Path, blocks: str) -> list[Finding]:
    return found(directory, over(base("software"), blocks))


def by_trying(profiles: list[MigProfile], instances: int, slices: int) -> bool:
    """The same answer by trying every combination of places."""
    names = [profile.name for profile in profiles]
    if any(names.count(profile.name) > profile.count for profile in profiles):
        return False
    if sum(profile.slices for profile in profiles) > instances:
        return False
    for places in product(*(profile.placements.places() for profile in profiles if profile.placements)):
        taken = [one for place in places for one in place]
        if len(set(taken)) == len(taken) and all(one < slices for one in taken):
            return True
    return False


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_layout_fits_if_any_placement_does(data: st.DataObject) -> None:
    gpu = data.draw(st.sampled_from(PLACED))
    profiles = data.draw(st.lists(st.sampled_from(gpu.mig.profiles or ()), min_size=1, max_size=4))
    instances, slices = gpu.mig.instances or 0, gpu.mig.memory_slices or 0
    assert fits(profiles, instances, slices) == by_trying(profiles, instances, slices)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_what_is_left_out_of_a_layout_that_fits_leaves_one_that_fits(data: st.DataObject) -> None:
    gpu = data.draw(st.sampled_from(PLACED))
    profiles = data.draw(st.lists(st.sampled_from(gpu.mig.profiles or ()), min_size=2, max_size=7))
    instances, slices = gpu.mig.instances or 0, gpu.mig.memory_slices or 0
    if fits(profiles, instances, slices):
        assert fits(profiles[1:], instances, slices)


@pytest.mark.parametrize(
    ("layout", "wanted"),
    [
        (["7g.80gb"], True),
        (["4g.40gb", "3g.40gb"], True),
        (["3g.40gb", "3g.40gb", "1g.10gb"], False),
        (["4g.40gb", "4g.40gb"], False),
        (["1g.10gb"] * 7, True),
        (["1g.20gb"] * 4, True),
        (["1g.20gb"] * 4 + ["1g.10gb"], False),
        (["1g.10gb+me", "1g.10gb+me"], False),
        (["2g.20gb", "2g.20gb", "2g.20gb", "1g.10gb"], True),
    ],
)
def test_layouts_as_nvidia_s_tables_have_them(layout: list[str], wanted: bool) -> None:
    assert fits([H100[name] for name in layout], 7, 8) is wanted


def test_without_placements_only_what_the_counts_settle_is_said() -> None:
    free = [MigProfile(name="1g.18gb", slices=1, count=7), MigProfile(name="3g.71gb", slices=3, count=2)]
    assert fits([free[0]] * 7, 7, 8) is True
    assert fits([free[1]] * 3, 7, 8) is False
    assert fits([free[0], free[1]], 7, 8) is None
    assert fits([free[0]] * 2 + [free[1]] * 2, 7, 8) is False
    placed = MigProfile(name="2g.35gb", slices=2, count=3, placements=Placements(size=2, starts=(0, 2, 4)))
    assert fits([placed, free[0]], 7, 8) is None


GPU = """nodes:
  - {{name: head01, kind: head, address: 10.99.0.1}}
  - name: gpu[01-04]
    kind: gpu
    address: 10.99.0.31
    hardware:
      cores_per_socket: 64
      memory_gib: 2048
      ports: [{{count: 2, gbit_per_s: 100}}]
      gpus: {{{gpus}}}
{more}"""


def unknown(findings: list[Finding]) -> list[str]:
    return [finding.what for finding in findings if finding.code == "CA101"]


def test_what_the_catalog_does_not_know_of_a_divided_gpu_is_told(tmp_path: Path) -> None:
    told = see(tmp_path, GPU.format(gpus="type: h100, count: 8, mig: [{profiles: [1g.10gb]}]", more=""))
    assert any("how its GPUs are divided" in text for text in unknown(told))
    mixed = "mig: [{profiles: [3g.71gb, 1g.18gb]}]"
    told = see(tmp_path / "b", GPU.format(gpus=f"model: h200-sxm5-141gb, count: 8, {mixed}", more=""))
    assert any("whether its instances fit together" in text for text in unknown(told))
    assert "CV111" not in [finding.code for finding in told]
    told = see(
        tmp_path / "c",
        GPU.format(gpus="model: h100-nvl-94gb, count: 4, mig: [{profiles: [1g.12gb]}]", more=""),
    )
    assert any("mig.profiles" in text for text in unknown(told))
    assert "CV110" not in [finding.code for finding in told]
    software = "    software: {driver: 580.95.05}\n"
    told = see(
        tmp_path / "d", GPU.format(gpus="model: gb300, count: 4, mig: [{profiles: [1g.35gb]}]", more=software)
    )
    assert any("mig.driver_min" in text and "driver_branch_min" in text for text in unknown(told))
    told = see(tmp_path / "e", GPU.format(gpus="type: h100, count: 8", more=software))
    assert any("whether the driver knows its GPUs" in text for text in unknown(told))


def test_a_gpu_in_two_layouts(tmp_path: Path) -> None:
    mig = 'mig: [{gpus: "1-4", profiles: [7g.80gb]}, {gpus: "4-8", profiles: [7g.80gb]}]'
    told = see(tmp_path, GPU.format(gpus=f"model: h100-sxm5-80gb, count: 8, {mig}", more=""))
    (finding,) = [one for one in told if one.code == "CV111"]
    assert finding.what == "GPU 4 is divided twice"
    assert finding.hosts == "gpu[01-04]"


def test_a_layout_that_starts_too_large(tmp_path: Path) -> None:
    mig = "mig: [{profiles: [7g.80gb, 1g.10gb]}]"
    told = see(tmp_path, GPU.format(gpus=f"model: h100-sxm5-80gb, count: 8, {mig}", more=""))
    (finding,) = [one for one in told if one.code == "CV111"]
    assert finding.advice == "7g.80gb would"


def test_a_stack_is_named_where_it_is_written(tmp_path: Path) -> None:
    more = (
        "    software: {driver: 580.95.05}\n"
        "    overrides:\n"
        "      gpu02: {software: {driver: 575.57.08}}\n"
        "      gpu[03-04]:\n"
        "        software:\n"
        "          driver: 550.163.01\n"
        "          kernel: 6.12.120\n"
    )
    text = over(base("software"), GPU.format(gpus="model: h100-sxm5-80gb, count: 8", more=more))
    told = {(one.code, one.hosts): line_of(one) for one in found(tmp_path, text) if one.code.startswith("CV")}
    lines = text.splitlines()
    wanted = 1 + next(number for number, line in enumerate(lines) if "driver: 550" in line)
    assert told.pop(("CV106", "gpu[03-04]")) == wanted
    assert told.pop(("CV108", "gpu[03-04]")) == wanted
    assert told.pop(("CV108", "gpu02")) == 1 + next(n for n, line in enumerate(lines) if "575" in line)
    assert told == {}


def test_a_stack_of_everybody(tmp_path: Path) -> None:
    blocks = "defaults: {software: {driver: 575.57.08}}\n" + GPU.format(
        gpus="model: h100-sxm5-80gb, count: 8", more=""
    )
    text = over(base("software"), blocks)
    (finding,) = [one for one in found(tmp_path, text) if one.code == "CV108"]
    assert "575" in text.splitlines()[line_of(finding) - 1]


@pytest.mark.parametrize(("planes", "wanted"), [(1, "CV117"), (2, "CV116"), (3, ""), (4, "CV116"), (5, "")])
def test_control_planes(tmp_path: Path, planes: int, wanted: str) -> None:
    blocks = (
        "features: {scheduler: kubernetes}\nnodes:\n"
        f'  - {{name: "head[1-{planes}]", kind: head, address: 10.99.0.1}}\n'
        "  - name: cpu01\n    kind: cpu\n    address: 10.99.0.31\n"
        "    hardware: {cores_per_socket: 16, memory_gib: 256, ports: [{count: 2, gbit_per_s: 25}]}\n"
    )
    told = {one.code for one in see(tmp_path, blocks)} & {"CV116", "CV117"}
    assert told == ({wanted} if wanted else set())


STORAGE = """nodes:
  - {{name: head01, kind: head, address: 10.99.0.1}}
  - name: storage[01-02]
    kind: storage
    address: 10.99.0.21
    hardware: {{cores_per_socket: 32, memory_gib: 512{storage}}}
  - name: gpu[01-04]
    kind: gpu
    address: 10.99.0.31
    hardware:
      cores_per_socket: 64
      memory_gib: 2048
      ports: [{{count: 2, gbit_per_s: 100}}]
      gpus: {{{gpus}}}
"""


def test_storage_of_several_nodes_counts_together(tmp_path: Path) -> None:
    ports = ", ports: [{count: 2, gbit_per_s: 400}]"
    text = STORAGE.format(
        storage=ports + ", storage: {read_gib_per_s: 15}", gpus="model: h100-sxm5-80gb, count: 8"
    )
    (finding,) = [one for one in see(tmp_path, text) if one.code == "CV121"]
    assert dict(finding.figures) == {"read_gib_per_s": 30, "wanted_gib_per_s": 40}
    assert finding.advice.startswith("add storage for 10 GiB/s more")
    # Fewer GPUs, and cards, are no node of that class.
    for gpus in ("model: h100-sxm5-80gb, count: 4", "model: l40s, count: 8", "type: h100, count: 8"):
        text = STORAGE.format(storage=ports + ", storage: {read_gib_per_s: 1}", gpus=gpus)
        assert "CV121" not in {one.code for one in see(tmp_path / gpus[7:11], text)}


def test_storage_that_says_nothing_is_not_guessed(tmp_path: Path) -> None:
    gpus = "model: h100-sxm5-80gb, count: 8"
    told = see(tmp_path, STORAGE.format(storage=", ports: [{count: 2, gbit_per_s: 400}]", gpus=gpus))
    assert any("storage against GPUs" in text for text in unknown(told))
    told = see(tmp_path / "b", STORAGE.format(storage=", storage: {read_gib_per_s: 20}", gpus=gpus))
    assert any("whether its ports carry what it serves" in text for text in unknown(told))


UNTOLD = """\
features:
  scheduler: none
  home_backend: provided
  monitoring: prometheus
  logging: elasticsearch
  dashboards: grafana
  log_viewer: kibana
nodes:
  - {name: head01, kind: head, address: 10.99.0.1, functions: [home_server]}
  - {name: cpu01, kind: cpu, address: 10.99.0.31, hardware: {cores_per_socket: 16, memory_gib: 256}}
"""


def test_a_feature_that_no_node_carries_out_is_one_finding_on_its_line(tmp_path: Path) -> None:
    told = [one for one in see(tmp_path, UNTOLD) if one.code == "CV123"]
    lines = over(base("software"), UNTOLD).splitlines()
    assert [lines[line_of(one) - 1].split() for one in told] == [
        ["monitoring:", "prometheus"],
        ["logging:", "elasticsearch"],
        ["dashboards:", "grafana"],
        ["log_viewer:", "kibana"],
    ]
    for one, function in zip(told, ("prometheus", "elasticsearch", "grafana", "kibana"), strict=True):
        assert f"`{function}` to the `functions`" in one.advice


@pytest.mark.parametrize(
    "change",
    [
        ("[home_server]", "[home_server, prometheus, elasticsearch, grafana, kibana]"),
        (", functions: [home_server]", ""),
    ],
)
def test_a_feature_that_a_node_names_or_the_head_has_by_itself_is_carried_out(
    tmp_path: Path, change: tuple[str, str]
) -> None:
    assert "CV123" not in [one.code for one in see(tmp_path, UNTOLD.replace(*change))]
