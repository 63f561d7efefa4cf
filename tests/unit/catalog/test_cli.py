"""``coldiron catalog``, as a person and a program see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coldiron.catalog.load import load
from coldiron.cli import app
from coldiron.errors import ColdironError


def said(*words: str) -> str:
    """Return what ``coldiron catalog`` prints."""
    done = CliRunner().invoke(app, ["catalog", *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_list_names_every_entry_within_80_columns() -> None:
    lines = said("list").splitlines()
    assert max(map(len, lines)) <= 80
    entries = [line.split()[0] for line in lines if line.startswith("  ")]
    assert entries == list(load().entries())
    assert "gpus:" in lines


def test_list_of_a_family_counts_what_is_known() -> None:
    rows = json.loads(said("list", "gpus", "--json"))
    assert {row["family"] for row in rows} == {"gpus"}
    entry = load().gpus["t4"]
    values = [value for _, value in entry.figures()]
    row = next(row for row in rows if row["name"] == "t4")
    assert (row["figures_known"], row["figures"]) == (sum(v is not None for v in values), len(values))
    assert f"t4 {row['figures_known']}/{row['figures']} NVIDIA T4" in " ".join(said("list", "gpus").split())


def test_show_says_every_figure_with_its_source_and_what_is_unknown() -> None:
    text = said("show", "h100-sxm5-80gb")
    words = " ".join(text.split())
    assert "tdp_watts 700 [" in words
    assert "1g.10gb+me 1x id 20 size 1 at 0, 1, 2, 3, 4, 5, 6" in words
    assert "fabric fabric_manager [" in words
    assert "mig.supported yes [" in words
    assert "No source found for" in words
    unknown = text.split("No source found")[1].split("Sources:")[0]
    assert "spike_watts" in unknown
    assert "tdp_watts" not in unknown
    assert "(the maker, read 2026-11-21)" in words
    assert all(len(line) <= 80 for line in text.splitlines() if "http" not in line)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("t4", ["form_factor.power_connectors none", "mig.supported no", "tdp_watts 70"]),
        ("h200-sxm5-141gb", ["1g.18gb 7x placements unknown"]),
        ("supermicro-sys-510d-8c-fn6p", ["count 4, gbit_per_s 1, cage rj45", "weight_kg 4.54"]),
        ("mcp4y10-n", ["lengths_m 0.5, 1, 1.5, 2", "link_layers infiniband, ethernet"]),
        (
            "dgx-h100",
            ["form rack", "sockets 2", "cores_per_socket 56", "memory_gib 2048", "supplies.inlet c20"],
        ),
        ("rtx-4090", ["power_limit_min_watts 150", "spike_watts 618.83", "form_factor.cooling open"]),
    ],
)
def test_show_writes_each_kind_of_figure(name: str, words: list[str]) -> None:
    text = " ".join(said("show", name).split())
    assert [word for word in words if word not in text] == []


def test_show_as_json_keeps_what_is_unknown() -> None:
    data = json.loads(said("show", "qm8700", "--json"))
    assert data["name"] == "qm8700"
    assert data["draw_max_watts"] is None
    assert data["sources"][0]["read"] == "2026-11-21"


def test_a_sites_file_is_shown_over_the_packages(tmp_path: Path) -> None:
    site = tmp_path / "catalog.yml"
    site.write_text(
        "switches:\n  qm9700:\n    draw_max_watts: 1200\n    sources:\n"
        "      - {what: [draw_max_watts], title: read at the PDU, read: 2026-11-01, by: site}\n",
        encoding="utf-8",
    )
    text = " ".join(said("show", "qm9700", "-o", str(site)).split())
    assert "draw_max_watts 1200 [" in text
    assert "read at the PDU (the site, read 2026-11-01)" in text
    assert json.loads(said("list", "switches", "--json", "-o", str(site)))


def test_a_chassis_of_a_sites_own_is_shown_slot_by_slot(tmp_path: Path) -> None:
    site = tmp_path / "catalog.yml"
    site.write_text(
        """\
servers:
  tower-2:
    title: Tower for two cards
    form: tower
    cpu_lanes: 128
    slots: [{position: 1, lanes: 16}, {position: 5, lanes: 8}]
    brackets: 8
    card_length_max_mm: 340
    cools_passive_cards: false
    supplies: {count: 1, watts: 2000, spike_watts: 4000, cables_16pin: 2}
    sources:
      - what: [form, cpu_lanes, slots, brackets, card_length_max_mm, cools_passive_cards, supplies]
        title: the manuals of board, chassis and supply
        read: 2026-11-01
        by: site
""",
        encoding="utf-8",
    )
    text = said("show", "tower-2", "-o", str(site))
    assert "    position 1, lanes 16\n    position 5, lanes 8\n" in text
    words = " ".join(text.split())
    for figure in ("form tower", "brackets 8", "cools_passive_cards no", "supplies.spike_watts 4000"):
        assert figure in words
    assert {"base_watts", "liquid_share"} <= set(words.split("No source found")[1].replace(",", "").split())


def test_an_unknown_name_is_one_line() -> None:
    done = CliRunner().invoke(app, ["catalog", "show", "qm970"])
    assert isinstance(done.exception, ColdironError)
    assert done.exception.message == "the catalog has no entry qm970; did you mean `qm9700`?"
