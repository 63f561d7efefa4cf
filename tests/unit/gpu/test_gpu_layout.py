"""One declaration of a node's GPUs, in everybody's words."""

from __future__ import annotations

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import gpu_layout as gpu
from hypothesis import given
from hypothesis import strategies as st

WHOLE = {"type": "h100", "count": 4}
HALVES = {**WHOLE, "mig": [{"profiles": ["3g.40gb", "3g.40gb"]}]}
MIXED = {**WHOLE, "mig": [{"gpus": [1], "profiles": ["1g.10gb", "3g.40gb", "1g.10gb+me"]}]}


def test_whole_gpus_have_no_instances() -> None:
    assert gpu.layout(WHOLE) == [[], [], [], []]
    assert gpu.gres(WHOLE) == "gpu:h100:4"
    assert gpu.kubernetes(WHOLE) == {"nvidia.com/gpu": 4}


def test_a_layout_without_gpus_is_for_all() -> None:
    assert gpu.layout(HALVES) == [["3g.40gb", "3g.40gb"]] * 4
    assert gpu.gres(HALVES) == "gpu:3g.40gb:8"
    assert gpu.kubernetes(HALVES) == {"nvidia.com/mig-3g.40gb": 8}


def test_gpus_are_counted_from_one_and_the_largest_instance_comes_first() -> None:
    assert gpu.layout(MIXED) == [["3g.40gb", "1g.10gb+me", "1g.10gb"], [], [], []]
    assert gpu.gres(MIXED) == "gpu:h100:3,gpu:3g.40gb:1,gpu:1g.10gb+me:1,gpu:1g.10gb:1"
    assert gpu.kubernetes(MIXED)["nvidia.com/mig-1g.10gb.me"] == 1


def test_a_mixture_is_told() -> None:
    assert gpu.mixed(MIXED)
    assert not gpu.mixed(WHOLE)
    assert not gpu.mixed(HALVES)


@pytest.mark.parametrize(
    ("mig", "said"),
    [
        ([{"gpus": [5], "profiles": ["3g.40gb"]}], "GPU 5 of 4: number them from 1 to 4"),
        ([{"gpus": [0], "profiles": ["3g.40gb"]}], "GPU 0 of 4"),
        ([{"profiles": ["3g.40gb"]}, {"gpus": [2], "profiles": ["1g.10gb"]}], "GPU 2 is divided twice"),
        ([{"profiles": ["half"]}], "'half' is no MIG profile"),
        ([{"profiles": ["4g.40gb", "4g.40gb"]}], "take 8 of a GPU's 7 slices"),
    ],
)
def test_what_cannot_be_is_refused(mig: list[dict[str, object]], said: str) -> None:
    with pytest.raises(gpu.GpuDataError, match=said):
        gpu.gres({**WHOLE, "mig": mig})


def test_the_accounting_tells_every_type_apart() -> None:
    nodes = [{"hardware": {"gpus": gpus}} for gpus in (WHOLE, None, MIXED)]
    assert gpu.tres(nodes) == [
        "gres/gpu",
        "gres/gpu:h100",
        "gres/gpu:3g.40gb",
        "gres/gpu:1g.10gb+me",
        "gres/gpu:1g.10gb",
    ]
    assert gpu.tres([{"hardware": {"gpus": None}}]) == []


@pytest.mark.parametrize(
    ("sharing", "written", "counted"),
    [
        ({"kind": "shard", "per_gpu": 4}, "gpu:h100:4,shard:16", "gres/shard"),
        ({"kind": "mps"}, "gpu:h100:4,mps:400", "gres/mps"),
    ],
)
def test_whole_gpus_are_shared(sharing: dict[str, object], written: str, counted: str) -> None:
    gpus = {**WHOLE, "sharing": sharing}
    assert gpu.gres(gpus) == written
    assert counted in gpu.tres([{"hardware": {"gpus": gpus}}])


def test_divided_gpus_are_not_shared_as_well() -> None:
    with pytest.raises(gpu.GpuDataError, match="not shared as well"):
        gpu.gres({**HALVES, "sharing": {"kind": "shard"}})


PROFILES = st.lists(st.sampled_from(["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb"]), min_size=1, max_size=2)


@given(st.integers(1, 8), st.dictionaries(st.integers(1, 8), PROFILES))
def test_slurm_and_kubernetes_count_the_same_devices(count: int, divided: dict[int, list[str]]) -> None:
    """Whatever is declared, both are told of as many devices as there are, whole ones and instances alike."""
    mig = [{"gpus": [number], "profiles": names} for number, names in divided.items() if number <= count]
    gpus = {"type": "h100", "count": count, "mig": mig}
    devices = sum(len(profiles) or 1 for profiles in gpu.layout(gpus))
    assert sum(gpu.types(gpus).values()) == sum(gpu.kubernetes(gpus).values()) == devices
    assert gpu.mixed(gpus) == (0 < len(mig) < count)
