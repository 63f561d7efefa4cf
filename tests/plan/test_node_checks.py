"""The checks of a node's hardware beyond their pages: what is not looked at, and what only several figures decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron.inventory import load
from coldiron.plan.checks import node
from coldiron.plan.design import Design, Unknown
from coldiron.plan.findings import Finding, Severity
from tests.plan.cases import base, over

HEAD = "nodes:\n  - {name: head01, kind: head, address: 10.99.0.1}\n"
# Everything that the checks want of a workstation, and nothing that they mind.
SOUND = {
    "form": "tower",
    "sockets": "1",
    "cores_per_socket": "32",
    "threads_per_core": "2",
    "memory_gib": "256",
    "base_watts": "500",
    "gpu_slots_on": "cpu",
    "cpu_lanes": "128",
    "brackets": "12",
    "slots": "[{position: 1}, {position: 5}, {position: 9}]",
    "card_length_max_mm": "340",
    "card_height_max_mm": "150",
    "ports": "[{count: 1, gbit_per_s: 1}, {count: 1, gbit_per_s: 25}]",
    "supplies": "{count: 2, watts: 1600, cables_8pin: 0, cables_16pin: 4}",
    "gpus": "{model: rtx-4090, count: 3}",
}


def machine(more: str = "", **change: str | None) -> str:
    """A file with one GPU node: SOUND, changed; None leaves a figure out. ``more`` are keys of the node group."""
    hardware = {key: value for key, value in {**SOUND, **change}.items() if value is not None}
    lines = "".join(f"      {key}: {value}\n" for key, value in hardware.items())
    extra = "".join(f"    {line}\n" for line in more.splitlines())
    return f"{HEAD}  - name: gpu01\n    kind: gpu\n    address: 10.99.0.2\n{extra}    hardware:\n{lines}"


def checked(directory: Path, blocks: str) -> tuple[dict[str, Finding], set[str]]:
    """What the checks of this family find, by code, and the figures that they missed."""
    file = directory / "cluster.yml"
    file.write_text(over(base("node"), blocks), encoding="utf-8")
    design = Design(load(file))
    found = [result for check in node.CHECKS for result in check(design)]
    findings = {result.code: result for result in found if isinstance(result, Finding)}
    return findings, {f"{one.thing} {one.figure}" for one in found if isinstance(one, Unknown)}


def test_a_machine_with_all_figures_that_is_sound_yields_nothing_at_all(tmp_path: Path) -> None:
    assert checked(tmp_path, machine("power: {gpu_cap_watts: 350}")) == ({}, set())


@pytest.mark.parametrize(
    ("left_out", "missed"),
    [
        ("ports", "gpu01 hardware.ports"),
        ("base_watts", "gpu01 hardware.base_watts"),
        ("gpu_slots_on", "gpu01 hardware.gpu_slots_on"),
        ("cpu_lanes", "gpu01 hardware.cpu_lanes"),
        ("slots", "gpu01 hardware.slots"),
        ("brackets", "gpu01 hardware.brackets"),
        ("card_length_max_mm", "gpu01 hardware.card_length_max_mm"),
        ("card_height_max_mm", "gpu01 hardware.card_height_max_mm"),
    ],
)
def test_a_figure_that_nobody_gives_is_said_and_not_guessed(
    tmp_path: Path, left_out: str, missed: str
) -> None:
    findings, unknown = checked(tmp_path, machine("", **{left_out: None}))
    assert (set(findings), unknown) == (set(), {missed})


@pytest.mark.parametrize(
    ("supplies", "missed"),
    [
        (None, {"gpu01 hardware.supplies.count", "gpu01 hardware.supplies.watts",
                "gpu01 hardware.supplies.cables_16pin"}),
        ("{count: 2, watts: 1600, cables_16pin: 2}", {"gpu01 hardware.supplies.cables_8pin"}),
    ],
)  # fmt: skip
def test_supplies_and_cables_that_nobody_gives(
    tmp_path: Path, supplies: str | None, missed: set[str]
) -> None:
    findings, unknown = checked(tmp_path, machine(supplies=supplies))
    assert (set(findings), unknown) == (set(), missed)


@pytest.mark.parametrize(
    ("gpu", "missed"),
    [
        ("{model: t4, count: 1}", {"form_factor.height_mm"}),
        ("{model: a30, count: 1}", {"form_factor.mount"}),
        ("{model: a10, count: 1}",
         {"form_factor.length_mm", "form_factor.height_mm", "form_factor.cooling",
          "form_factor.power_connectors"}),
        ("{model: rtx-3090, count: 1}", {"spike_watts"}),
    ],
)  # fmt: skip
def test_a_figure_that_the_catalog_lacks_of_the_gpu_is_said_of_the_gpu(
    tmp_path: Path, gpu: str, missed: set[str]
) -> None:
    model = gpu.partition("model: ")[2].partition(",")[0]
    _, unknown = checked(tmp_path, machine(gpus=gpu, cools_passive_cards="true"))
    assert {one.partition(" ")[2] for one in unknown if one.startswith(f"{model} ")} == missed


def test_gpus_without_a_model_are_said_to_be_unknown(tmp_path: Path) -> None:
    findings, unknown = checked(tmp_path, machine(gpus="{type: h100, count: 3}"))
    assert "gpu01 hardware.gpus.model" in unknown
    assert findings == {}


def test_a_container_that_names_nothing_of_the_catalog_is_let_alone(tmp_path: Path) -> None:
    tiny = machine("platform: container", memory_gib="2", gpus="{type: h100, count: 4}", ports=None)
    assert checked(tmp_path, tiny) == ({}, set())
    findings, _ = checked(tmp_path, machine("platform: container", memory_gib="2"))
    assert "CH101" in findings


def test_less_memory_than_the_gpus_is_only_advice_in_a_rack(tmp_path: Path) -> None:
    tower, _ = checked(tmp_path, machine(memory_gib="48"))
    rack, _ = checked(tmp_path, machine(memory_gib="48", form="rack"))
    assert (tower["CH102"].severity, rack["CH102"].severity) == (Severity.WARN, Severity.ADVICE)
    assert dict(tower["CH102"].figures) == {"memory_gib": 48, "gpu_memory_gb": 72}
    assert "CH103" in checked(tmp_path, machine(memory_gib="100"))[0]
    assert "CH103" not in checked(tmp_path, machine(memory_gib="100", form="rack"))[0]
    assert "gpu01 hardware.form" in checked(tmp_path, machine(memory_gib="100", form=None))[1]


def test_the_dgx_of_the_catalog_needs_no_word_of_its_hardware(tmp_path: Path) -> None:
    blocks = f"{HEAD}  - {{name: dgx01, kind: gpu, address: 10.99.0.2, model: dgx-h100, workload: llm}}\n"
    assert checked(tmp_path, blocks) == ({}, set())


def test_lanes_without_slots_are_shared_evenly(tmp_path: Path) -> None:
    findings, _ = checked(tmp_path, machine(slots=None, cpu_lanes="20"))
    assert "GPUs 1-3 get x6 of the processors' 20 lanes" in findings["CH106"].what
    assert "CH106" not in checked(tmp_path, machine(slots=None, cpu_lanes="24"))[0]
    assert "CH106" not in checked(tmp_path, machine(slots=None, cpu_lanes="8", gpu_slots_on="switch"))[0]


def test_a_server_of_the_catalog_says_how_many_slots_it_has(tmp_path: Path) -> None:
    hardware = "{cores_per_socket: 64, memory_gib: 2048, gpus: {model: l40s, count: %d}}"
    node = "  - {name: g01, kind: gpu, address: 10.99.0.2, model: supermicro-as-4125gs-tnrt, hardware: %s}\n"
    assert "CH108" in checked(tmp_path, HEAD + node % (hardware % 10))[0]
    assert "CH108" not in checked(tmp_path, HEAD + node % (hardware % 9))[0]


def test_a_card_does_not_go_where_modules_sit(tmp_path: Path) -> None:
    node = "  - {name: g01, kind: gpu, address: 10.99.0.2, model: dgx-h100, hardware: {gpus: {model: %s}}}\n"
    findings, _ = checked(tmp_path, HEAD + node.replace("model: %s", "model: l40s, count: 8"))
    assert findings["CH114"].severity is Severity.REFUSE
    assert "h100-sxm5-80gb" in findings["CH114"].advice
    assert (
        "CH114"
        not in checked(tmp_path, HEAD + node.replace("model: %s", "model: h200-sxm5-141gb, count: 8"))[0]
    )


def test_a_peak_within_the_supplies_but_not_within_the_tenth_is_a_warning(tmp_path: Path) -> None:
    # 500 W and three cards of 450 W are 1850 W, 2035 W with a tenth.
    weak, _ = checked(
        tmp_path, machine(supplies="{count: 1, watts: 1800, spike_watts: 3600, cables_16pin: 3}")
    )
    near, _ = checked(
        tmp_path, machine(supplies="{count: 1, watts: 2000, spike_watts: 4000, cables_16pin: 3}")
    )
    enough, _ = checked(
        tmp_path, machine(supplies="{count: 1, watts: 2035, spike_watts: 4000, cables_16pin: 3}")
    )
    assert (weak["CH116"].severity, near["CH116"].severity) == (Severity.REFUSE, Severity.WARN)
    assert enough == {}
    assert "`gpu_cap_watts: 439`" in near["CH116"].advice


def test_a_cap_is_what_the_advice_of_weak_supplies_says(tmp_path: Path) -> None:
    weak = "{count: 1, watts: 2000, spike_watts: 4000, cables_16pin: 3}"
    assert checked(tmp_path, machine("power: {gpu_cap_watts: 439}", supplies=weak))[0] == {}
    assert "CH116" in checked(tmp_path, machine("power: {gpu_cap_watts: 440}", supplies=weak))[0]


def test_more_supplies_must_live_than_there_are(tmp_path: Path) -> None:
    findings, _ = checked(
        tmp_path, machine(supplies="{count: 2, watts: 3000, min_active: 3, cables_16pin: 3}")
    )
    assert findings["CH116"].what == "3 supplies must live, and there are 2"


def test_one_supply_is_advice_in_a_rack_and_expected_in_a_tower(tmp_path: Path) -> None:
    one = "{count: 1, watts: 3000, cables_16pin: 3}"
    assert "CH117" not in checked(tmp_path, machine(supplies=one))[0]
    rack, _ = checked(tmp_path, machine(supplies=one, form="rack"))
    assert rack["CH117"].severity is Severity.ADVICE
    both = "{count: 2, watts: 2000, min_active: %d, cables_16pin: 3}"
    assert "CH117" not in checked(tmp_path, machine(supplies=both % 2))[0]
    assert checked(tmp_path, machine(supplies=both % 2, form="rack"))[0]["CH117"].severity is Severity.WARN
    # One is said to do, and 1000 W do not carry 1850 W.
    belied = "{count: 2, watts: 1100, min_active: 1, spike_watts: 2200, cables_16pin: 3}"
    assert checked(tmp_path, machine(supplies=belied))[0]["CH117"].severity is Severity.WARN


FEEDS = """\
feeds: {A: {volts: 230, amps: 250}, B: {volts: 230, amps: 250}, C: {volts: 230, amps: 250}}
racks:
  - name: r[01-02]
    pdus: [{name: a, feed: A, volts: 230, amps: 63}, {name: b, feed: B, volts: 230, amps: 63}%s]
"""
THIRD = ", {name: c, feed: C, volts: 230, amps: 63}"


@pytest.mark.parametrize(
    ("third", "more", "lost"),
    [
        ("", "", "3 of 6 supplies hang on feed A"),
        (THIRD, "", None),
        (THIRD, ", power: {pdus: [a, a, a, b, b, c]}", "3 of 6 supplies hang on feed A"),
        # All on one of two feeds is another finding.
        ("", ", power: {pdus: [b]}", None),
    ],
)
def test_a_dgx_wants_three_feeds(tmp_path: Path, third: str, more: str, lost: str | None) -> None:
    node = f"  - {{name: dgx01, kind: gpu, address: 10.99.0.2, model: dgx-h100, rack: r01{more}}}\n"
    findings, _ = checked(tmp_path, FEEDS % third + HEAD + node)
    assert ("CH118" in findings) == (lost is not None)
    if lost:
        assert findings["CH118"].what.startswith(lost)
        assert dict(findings["CH118"].figures)["min_active"] == 4


def test_a_lost_feed_is_judged_by_watts_where_nobody_says_how_many_must_live(tmp_path: Path) -> None:
    node = "  - {name: c01, kind: cpu, address: 10.99.0.2, rack: r01, hardware: {%s}}\n"
    figures = (
        "cores_per_socket: 8, memory_gib: 64, ports: [{count: 2, gbit_per_s: 1}], draw_watts: %d, "
        "supplies: {count: 2, watts: 800}"
    )
    assert "CH118" in checked(tmp_path, FEEDS % "" + HEAD + node % (figures % 801))[0]
    assert "CH118" not in checked(tmp_path, FEEDS % "" + HEAD + node % (figures % 800))[0]


def test_a_lower_cap_lowers_the_spikes_too(tmp_path: Path) -> None:
    # 618.83 W at 450 W: 825.1 W at 600 W, 481.3 W at 350 W.
    supplies = "{count: 1, watts: 2200, cables_16pin: 3}"
    spike, _ = checked(tmp_path, machine(supplies=supplies))
    assert "spike to 619 W each" in spike["CH119"].what
    assert "CH119" not in checked(tmp_path, machine("power: {gpu_cap_watts: 350}", supplies=supplies))[0]


@pytest.mark.parametrize(
    ("gpus", "cables", "short"),
    [
        # Three 8-pin cables feed a card of 450 W by its adapter, beside the slot's 75 W.
        ("{model: rtx-4090, count: 3}", "cables_8pin: 9, cables_16pin: 0", False),
        ("{model: rtx-4090, count: 3}", "cables_8pin: 8, cables_16pin: 0", True),
        ("{model: rtx-4090, count: 3}", "cables_8pin: 5, cables_16pin: 1", True),
        ("{model: rtx-4090, count: 3}", "cables_8pin: 6, cables_16pin: 1", False),
        ("{model: rtx-3090, count: 3}", "cables_8pin: 6, cables_16pin: 0", False),
        ("{model: rtx-3090, count: 3}", "cables_8pin: 5, cables_16pin: 0", True),
        ("{model: rtx-a6000, count: 3}", "cables_8pin: 6, cables_16pin: 9", False),
        ("{model: rtx-a6000, count: 3}", "cables_8pin: 5, cables_16pin: 9", True),
        ("{model: t4, count: 3}", "cables_8pin: 0, cables_16pin: 0", False),
    ],
)
def test_cables_are_counted_by_the_cards_connectors(
    tmp_path: Path, gpus: str, cables: str, short: bool
) -> None:
    supplies = f"{{count: 2, watts: 3000, {cables}}}"
    findings, unknown = checked(tmp_path, machine(gpus=gpus, supplies=supplies, cools_passive_cards="true"))
    assert ("CH120" in findings) == short
    assert not any("cables" in one for one in unknown)


def test_the_nodes_of_a_range_are_told_apart_by_their_cap(tmp_path: Path) -> None:
    blocks = machine("overrides: {gpu02: {power: {gpu_cap_watts: 600}}}").replace("gpu01", "gpu[01-03]")
    weak = "{count: 1, watts: 2100, spike_watts: 4200, cables_16pin: 3}"
    findings, _ = checked(tmp_path, blocks.replace(SOUND["supplies"], weak))
    assert findings["CH116"].hosts == "gpu02"
    # 500 W and three cards that the cap lets above their rating.
    assert dict(findings["CH116"].figures)["watts"] == 2300


def test_liquid_needs_a_machine_with_liquid(tmp_path: Path) -> None:
    _, unknown = checked(tmp_path, machine(gpus="{model: gb200, count: 4}", slots=None))
    assert "gpu01 hardware.cooling" in unknown
