"""The package's own catalog: complete where it was asked to be, and no figure without a source."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from itertools import combinations

import pytest

from coldiron.catalog.load import FAMILIES, load
from coldiron.catalog.model import Entry, Gpu, MigProfile

CATALOG = load()
ENTRIES = CATALOG.entries()
MIG = [gpu for gpu in CATALOG.gpus.values() if gpu.mig.profiles]

# Every GPU that a cluster is planned for, whether or not much was found about it.
GPUS = {
    "rtx-3090",
    "rtx-4090",
    "rtx-5090",
    "rtx-a6000",
    "rtx-6000-ada",
    "rtx-pro-6000-blackwell-server",
    "t4",
    "l4",
    "l40s",
    "a10",
    "a30",
    "a40",
    "v100-pcie-16gb",
    "v100-sxm2-32gb",
    "a100-pcie-40gb",
    "a100-pcie-80gb",
    "a100-sxm4-40gb",
    "a100-sxm4-80gb",
    "h100-pcie-80gb",
    "h100-nvl-94gb",
    "h100-sxm5-80gb",
    "h200-sxm5-141gb",
    "h200-nvl-141gb",
    "gh200-96gb",
    "b200",
    "b300",
    "gb200",
    "gb300",
}


def test_every_gpu_has_an_entry() -> None:
    assert sorted(GPUS - set(CATALOG.gpus)) == []


def test_every_family_has_entries_and_no_name_is_in_two() -> None:
    assert all(CATALOG.entries(family) for family in FAMILIES)
    names = Counter(name for family in FAMILIES for name in CATALOG.entries(family))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_every_figure_has_a_source_with_title_address_and_date(entry: Entry) -> None:
    known = [(figure, entry.source_of(figure)) for figure, value in entry.figures() if value is not None]
    assert known, "an entry of which nothing is known says nothing"
    assert [figure for figure, source in known if source is None] == []
    for source in entry.sources:
        assert source.title
        assert re.fullmatch(r"https?://[\w.-]+\.[a-z]+/\S*", source.url or ""), source
        assert date(2026, 1, 1) <= source.read
        assert source.by != "site"


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_every_source_covers_a_figure(entry: Entry) -> None:
    known = {figure for figure, value in entry.figures() if value is not None}
    covered = {figure for source in entry.sources for figure in source.what}
    assert covered == known


@pytest.mark.parametrize("gpu", MIG, ids=lambda gpu: gpu.name)
def test_mig_profiles_fit_their_gpu(gpu: Gpu) -> None:
    assert gpu.mig.supported
    profiles = gpu.mig.profiles or ()
    widest = max(profiles, key=lambda profile: profile.slices)
    assert widest.slices == (gpu.mig.instances or widest.slices)
    for profile in profiles:
        assert profile.count * profile.slices <= widest.slices
        if profile.placements:
            assert gpu.mig.memory_slices
            assert all(place.stop <= gpu.mig.memory_slices for place in profile.placements.places())
    if widest.placements:
        assert widest.placements.size == gpu.mig.memory_slices


def most(profile: MigProfile) -> int:
    """Return how many instances of a profile lie beside each other, by its placements alone."""
    places = profile.placements.places() if profile.placements else ()
    return max(
        number
        for number in range(1, len(places) + 1)
        if any(
            sum(len(place) for place in chosen) == len(set().union(*chosen))
            for chosen in combinations(places, number)
        )
    )


@pytest.mark.parametrize("gpu", [gpu for gpu in MIG if gpu.mig.memory_slices], ids=lambda gpu: gpu.name)
def test_as_many_mig_instances_as_are_promised_lie_beside_each_other(gpu: Gpu) -> None:
    for profile in gpu.mig.profiles or ():
        if profile.placements:
            assert profile.count <= most(profile), profile.name
            # Without the media engines, of which there is one set, the places alone set the number.
            if not profile.name.endswith("+me"):
                assert profile.count == most(profile), profile.name


@pytest.mark.parametrize("gpu", CATALOG.gpus.values(), ids=CATALOG.gpus)
def test_what_is_said_of_a_gpu_fits_together(gpu: Gpu) -> None:
    if gpu.architecture == "volta":
        assert gpu.kernel_module == "open_impossible"
    if gpu.architecture in ("blackwell", "blackwell-ultra"):
        assert gpu.kernel_module == "open_required"
    if gpu.mig.supported is False:
        assert gpu.mig.profiles is None
    if gpu.fabric:
        assert gpu.nvlink.supported
        assert gpu.form_factor.mount != "pcie"
    if gpu.tdp_watts and gpu.power_limit_max_watts:
        assert gpu.tdp_watts <= gpu.power_limit_max_watts


def test_a_cage_of_a_cable_is_one_that_a_switch_or_an_adapter_has() -> None:
    cages = {switch.cage for switch in CATALOG.switches.values()} | {
        nic.cage for nic in CATALOG.nics.values()
    }
    for cable in CATALOG.cables.values():
        assert {cable.end, cable.other_end} - {None} <= cages, cable.name
