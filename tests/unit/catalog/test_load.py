"""Loading the catalog: a site's file over the package's, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron.catalog.load import Catalog, load
from coldiron.errors import ColdironError

SOURCE = "{what: [%s], title: measured on gpu01, read: 2026-11-01, by: site}"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return where a site's catalog.yml is to be written."""
    return tmp_path / "catalog.yml"


def over(site: Path, text: str) -> Catalog:
    """Return the catalog with ``text`` as the site's file over it."""
    site.write_text(text, encoding="utf-8")
    return load([site])


def complaint(site: Path, text: str) -> str:
    """Return what is said of a site's file that is wrong."""
    with pytest.raises(ColdironError) as caught:
        over(site, text)
    return caught.value.message


def gpu(body: str, name: str = "h100-sxm5-80gb") -> str:
    """Return a site's file that says ``body`` of a GPU."""
    return f"gpus:\n  {name}:\n" + "".join(f"    {line}\n" for line in body.strip().splitlines())


def test_a_sites_figure_replaces_one_and_brings_its_source(site: Path) -> None:
    text = gpu(f"tdp_watts: 650\nsources:\n  - {SOURCE % 'tdp_watts'}")
    entry = over(site, text).gpus["h100-sxm5-80gb"]
    assert entry.tdp_watts == 650
    assert entry.memory_gb == 80
    source = entry.source_of("tdp_watts")
    assert source is not None
    assert (source.by, source.title) == ("site", "measured on gpu01")
    before = load().gpus["h100-sxm5-80gb"].source_of("memory_gb_per_s")
    after = entry.source_of("memory_gb_per_s")
    assert before is not None
    assert after is not None
    assert before.title == after.title


def test_a_sites_figure_within_a_block_leaves_the_rest_of_the_block(site: Path) -> None:
    text = gpu(f"nvlink: {{gb_per_s: 800}}\nsources:\n  - {SOURCE % 'nvlink'}")
    entry = over(site, text).gpus["h100-sxm5-80gb"]
    assert (entry.nvlink.gb_per_s, entry.nvlink.generation) == (800, 4)
    said, kept = entry.source_of("nvlink.gb_per_s"), entry.source_of("nvlink.generation")
    assert said is not None
    assert kept is not None
    assert (said.by, kept.by) == ("site", "other")


def test_null_takes_a_figure_away_and_needs_no_source(site: Path) -> None:
    entry = over(site, gpu("tdp_watts: null\npcie: null\nmig: {profiles: null}")).gpus["h100-sxm5-80gb"]
    assert entry.tdp_watts is None
    assert entry.pcie.generation is None
    assert entry.mig.profiles is None
    assert entry.mig.supported
    assert entry.source_of("tdp_watts") is None


def test_null_for_what_was_null_changes_nothing(site: Path) -> None:
    assert over(site, gpu("driver_branch_min: null")).gpus == load().gpus


def test_a_site_adds_an_entry_and_a_document_of_its_own(site: Path) -> None:
    text = """
documents:
  sheet: {title: Data sheet of the tower, url: "https://example.com/tower.pdf", read: 2026-10-01, by: maker}
servers:
  tower-4:
    title: Four-GPU tower
    gpu: rtx-4090
    gpu_count: 4
    supplies: {count: 2, watts: 1600, min_active: 2}
    ports: [{nic: connectx-6-vpi, count: 1, gbit_per_s: 200}]
    sources: [{document: sheet, what: [gpu, gpu_count, supplies, ports]}]
"""
    catalog = over(site, text)
    tower = catalog.servers["tower-4"]
    source = tower.source_of("supplies.watts")
    assert source is not None
    assert source.title == "Data sheet of the tower"
    assert catalog.family_of("tower-4") == "servers"
    assert list(catalog.servers)[:-1] == list(load().servers)


def test_the_last_file_has_the_last_word(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yml", tmp_path / "second.yml"
    first.write_text(gpu(f"tdp_watts: 650\nsources: [{SOURCE % 'tdp_watts'}]"), encoding="utf-8")
    second.write_text(gpu(f"tdp_watts: 600\nsources: [{SOURCE % 'tdp_watts'}]"), encoding="utf-8")
    assert load([first, second]).gpus["h100-sxm5-80gb"].tdp_watts == 600
    assert load([second, first]).gpus["h100-sxm5-80gb"].tdp_watts == 650


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        pytest.param(gpu("tdp_watts: 650"), 3, "`tdp_watts` has no source", id="no source at all"),
        pytest.param(
            gpu(f"tdp_watts: 650\nmemory_gb: 81\nsources: [{SOURCE % 'memory_gb'}]"),
            3,
            "`tdp_watts` has no source",
            id="a source for another figure",
        ),
        pytest.param(
            gpu("nvlink:\n  gb_per_s: 800"), 4, "`nvlink.gb_per_s` has no source", id="within a block"
        ),
        pytest.param(
            gpu(f"tdp_watts: 650\nsources:\n  - {SOURCE % 'tdp_wats'}"),
            5,
            "a source for `tdp_wats`, which this entry does not set; did you mean `tdp_watts`?",
            id="a source of nothing",
        ),
        pytest.param(
            gpu(f"tdp_watts: 650\nsources:\n  - {SOURCE % 'tdp_watts, xyzzy'}"),
            5,
            "write the figure too, or leave the name out",
            id="a source of nothing known",
        ),
        pytest.param(
            gpu("tdp_watts: 650\nsources: [{what: [tdp_watts], document: mig-gpu}]"),
            4,
            "no document `mig-gpu`; did you mean `mig-gpus`?",
            id="a document that is not there",
        ),
        pytest.param(
            gpu("tdp_watts: 650\nsources: [{title: sheet, read: 2026-11-01, by: site}]"),
            4,
            "write `what: [...]`",
            id="a source without what",
        ),
        pytest.param(
            gpu("tdp_watts: 650\nsources: {what: [tdp_watts]}"), 4, "must be a list", id="sources as mapping"
        ),
        pytest.param(
            gpu("tdp_watts: 650\nsources: [{what: [tdp_watts], title: sheet, by: site}]"),
            4,
            "`sources.",
            id="a source without a date",
        ),
        pytest.param(
            gpu(f"tdp_wats: 650\nsources: [{SOURCE % 'tdp_wats'}]"),
            3,
            "unknown key `tdp_wats`; did you mean `tdp_watts`?",
            id="a misspelt figure",
        ),
        pytest.param(
            gpu(f"nvlink: {{generatoin: 4}}\nsources: [{SOURCE % 'nvlink'}]"),
            3,
            "unknown key `nvlink.generatoin`; did you mean `generation`?",
            id="a misspelt figure within a block",
        ),
        pytest.param(
            gpu(f"tdp_watts: hot\nsources: [{SOURCE % 'tdp_watts'}]"), 3, "not 'hot'", id="a wrong value"
        ),
        pytest.param(
            gpu(f"memory_gb: 8\nsources: [{SOURCE % 'memory_gb'}]", "own"),
            2,
            "`title` is missing",
            id="no title",
        ),
        pytest.param(
            gpu(f"title: Own\nmemory_gb: 8\nsources: [{SOURCE % 'memory_gb'}]", "Own GPU"),
            2,
            "`name`",
            id="a name that cannot be typed",
        ),
        pytest.param("gpu: {}\n", 1, "unknown key `gpu`; did you mean `gpus`?", id="a misspelt family"),
        pytest.param("gpus: [a100]\n", 1, "`gpus` must be a mapping", id="a family as list"),
        pytest.param("- gpus\n", 1, "the file must be a mapping", id="a file as list"),
        pytest.param("gpus:\n  h100-sxm5-80gb: 700\n", 2, "must be a mapping", id="an entry as number"),
        pytest.param(
            f"nics:\n  b200:\n    title: B\n    ports: 2\n    sources: [{SOURCE % 'ports'}]\n",
            2,
            "b200 is a name under `gpus` too",
            id="a name of another family",
        ),
        pytest.param(
            f"servers:\n  dgx-h100:\n    gpu: h100-sxm\n    sources: [{SOURCE % 'gpu'}]\n",
            3,
            "the catalog has no `h100-sxm`; did you mean `h100-sxm5-80gb`?",
            id="a server with an unknown GPU",
        ),
        pytest.param(
            f"servers:\n  dgx-h100:\n    supplies: {{min_active: 7}}\n    sources: [{SOURCE % 'supplies'}]\n",
            3,
            "min_active 7 of 6 supplies",
            id="more supplies than there are",
        ),
        pytest.param(
            gpu(
                "power_limit_min_watts: 800\npower_limit_max_watts: 700\n"
                f"sources: [{SOURCE % 'power_limit_min_watts, power_limit_max_watts'}]"
            ),
            2,
            "power_limit_min_watts is above power_limit_max_watts",
            id="limits the wrong way round",
        ),
        pytest.param(
            gpu(f'cuda_min: "13.0"\ncuda_max: "12.9"\nsources: [{SOURCE % "cuda_min, cuda_max"}]'),
            2,
            "cuda_min is above cuda_max",
            id="CUDA the wrong way round",
        ),
        pytest.param("gpus:\n  own: {title: [\n", 3, "every quote and bracket above is closed", id="no YAML"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(site: Path, text: str, line: int, said: str) -> None:
    message = complaint(site, text)
    assert said in message
    assert f"{site}:{line}: " in message


def mig(profiles: str, slices: str = "8") -> str:
    """Return a site's file with a GPU of its own that has MIG profiles."""
    body = f"title: Own\nmig:\n  instances: 7\n  memory_slices: {slices}\n  profiles: [{profiles}]\n"
    return gpu(body + f"sources: [{SOURCE % 'mig'}]", "own")


@pytest.mark.parametrize(
    ("profiles", "said"),
    [
        ("{name: 3g.40gb, slices: 3, count: 2, placements: {size: 4, starts: [0, 5]}}", "does not lie on 8"),
        ("{name: 3g.40gb, slices: 3, count: 2, placements: {size: 4, starts: [0, 2]}}", "a multiple of"),
        ("{name: 3g.40gb, slices: 3, count: 2, placements: {size: 3, starts: [0, 4]}}", "1, 2, 4 or 8"),
        ("{name: 2g.20gb, slices: 2, count: 2, placements: {size: 2, starts: [2, 2]}}", "one start"),
        ("{name: 2g.20gb, slices: 2, count: 3, placements: {size: 2, starts: [0, 2]}}", "but 2 placements"),
        ("{name: 1g.10gb, slices: 1, count: 1, placements: {size: 1, starts: []}}", "at least 1"),
        ("{name: 3g.40gb, slices: 2, count: 2}", "the name says 3"),
        ("{name: 1g.5gb, slices: 1, count: 7}, {name: 1g.5gb, slices: 1, count: 7}", "one name"),
        ("{name: 9g.5gb, slices: 1, count: 7}", "pattern"),
    ],
)
def test_mig_placements_that_no_gpu_can_have_are_refused(site: Path, profiles: str, said: str) -> None:
    assert said in complaint(site, mig(profiles))


def test_placements_need_the_number_of_slices_and_counts_the_number_of_instances(site: Path) -> None:
    one = "{name: 1g.10gb, slices: 1, count: 1, placements: {size: 1, starts: [0]}}"
    assert "write memory_slices" in complaint(site, mig(one, "null"))
    assert over(site, mig(one)).gpus["own"].mig.profiles
    few = mig("{name: 1g.10gb, slices: 1, count: 7}").replace("instances: 7", "instances: 4")
    assert "7 at once, of 4 instances" in complaint(site, few)


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    file = tmp_path / "catalog.yml"
    with pytest.raises(ColdironError, match="there is no such file"):
        load([file])
    with pytest.raises(ColdironError, match="cannot be read: Is a directory"):
        load([tmp_path])
    file.write_bytes(b"gpus: {\xff}\n")
    with pytest.raises(ColdironError, match="not UTF-8"):
        load([file])
    for empty in ("", "\n# nothing yet\n"):
        file.write_text(empty, encoding="utf-8")
        with pytest.raises(ColdironError, match="the file is empty; write one of gpus, servers"):
            load([file])


def test_find_says_what_is_near() -> None:
    catalog = load()
    assert catalog.find("qm9700").title == "NVIDIA Quantum-2 QM9700"
    assert catalog.find("qm9700", "switches").name == "qm9700"
    with pytest.raises(ColdironError, match="no entry h100-sxm; did you mean `h100-sxm5-80gb`"):
        catalog.find("h100-sxm")
    with pytest.raises(ColdironError, match="no entry zzz; `coldiron catalog list` shows"):
        catalog.find("zzz", "gpus")
    with pytest.raises(ColdironError, match="no family gpu; did you mean `gpus`"):
        catalog.entries("gpu")


def test_what_is_loaded_cannot_be_changed() -> None:
    entry = load().gpus["b200"]
    with pytest.raises(ValueError, match="frozen"):
        entry.memory_gb = 1
