"""Whatever the matrix takes, the roles' packages are of one version; and nothing else would be installed."""

from __future__ import annotations

import pytest
from ansible_collections.coldiron.cluster.plugins.filter.gpu_stack import FilterModule
from hypothesis import given, settings
from hypothesis import strategies as st

from coldiron.catalog.load import load
from coldiron.errors import ColdironError
from coldiron.plan.findings import Severity
from coldiron.plan.matrix import Stack, judge, matrix, number
from coldiron.plan.matrix_explain import Question, answer, distribution_of, gpus_of
from coldiron.plan.matrix_packages import (
    cuda_packages,
    dcgm_packages,
    driver_packages,
    fabric_packages,
    module_package,
    peer_memory,
    rpm_stream,
)

GPUS = load().gpus
FILTERS = FilterModule().filters()
DRIVERS = sorted(
    {*matrix().cuda.own.values(), *matrix().archives.values(), "580.95.05", "610.57.04"}, key=number
)
KNOWN = (
    "nvidia-", "libnvidia-", "kmod-nvidia-", "libcuda1", "cuda-toolkit-", "cuda-drivers", "libnccl", "libcudnn9-cuda-",
    "nvlsm", "gdrdrv-dkms", "libgdrapi", "datacenter-gpu-manager-4-",
)  # fmt: skip
STACKS = st.builds(
    Stack,
    driver=st.sampled_from(DRIVERS),
    kernel=st.sampled_from(["6.12.94", "6.12.107", None]),
    kernel_module=st.sampled_from(["open", "proprietary"]),
    cuda=st.lists(st.sampled_from(sorted(matrix().cuda.own, key=number)), max_size=3, unique=True).map(tuple),
    distribution=st.sampled_from(["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "rocky-9"]),
    source=st.sampled_from(["vendor", "distribution"]),
)


def refused(gpu, stack):
    return [reason for reason in judge(gpu, stack) if reason.severity is Severity.REFUSE]


# The first call reads the catalog.
@settings(deadline=None)
@given(st.sampled_from(sorted(GPUS)), STACKS)
def test_what_the_matrix_takes_is_rendered_at_one_version(name, stack):
    gpu = GPUS[name]
    if refused(gpu, stack):
        return
    driver, fabric = driver_packages(stack), fabric_packages(gpu, stack)
    tied = [one for one in (*driver, *fabric) if one.name != "nvlsm"]
    assert {one.version for one in tied} == {f"{stack.driver}-*"}
    assert module_package(stack) == driver[0].name
    # No package of the flavour that the GPU does not take.
    is_open = [one.name for one in driver if "open" in one.name]
    assert bool(is_open) == (stack.kernel_module == "open")
    everything = [*driver, *fabric, *cuda_packages(stack, gdrcopy=True, gds=True), *dcgm_packages(gpu, stack)]
    assert all(one.name.startswith(KNOWN) for one in everything)
    assert len({one.name for one in everything}) == len(everything)
    for release in stack.cuda:
        assert f"cuda-toolkit-{'-'.join(release.split('.')[:2])}" in {one.name for one in everything}
    nccl = {one.version for one in everything if one.name.startswith("libnccl")}
    newest = max((number(release)[0] for release in stack.cuda), default=None)
    assert nccl == ({f"*+cuda{newest}.?"} if stack.cuda else set())


# The first call reads the catalog.
@settings(deadline=None)
@given(st.sampled_from(sorted(GPUS)), STACKS)
def test_the_roles_see_what_the_plan_sees(name, stack):
    def filtered(which, *args):
        return FILTERS[which](*args)

    given_stack = {
        "driver": stack.driver, "kernel": stack.kernel or "", "kernel_module": stack.kernel_module,
        "cuda": list(stack.cuda), "distribution": stack.distribution, "source": stack.source,
    }  # fmt: skip
    assert len(filtered("gpu_problems", given_stack, name)) == len(refused(GPUS[name], stack))
    wanted = [{"name": one.name, "version": one.version, "hold": True} for one in driver_packages(stack)]
    assert filtered("gpu_driver_packages", given_stack, True) == wanted
    other = set(filtered("gpu_other_flavour", given_stack))
    assert not other & {one.name for one in driver_packages(stack)}


def test_a_gpu_takes_the_flavour_that_the_catalog_knows():
    flavour = FILTERS["gpu_flavour"]
    assert flavour("auto", "v100-sxm2-32gb") == "proprietary"
    assert flavour("auto", "b200") == flavour("auto", "") == "open"
    assert flavour("proprietary", "b200") == "proprietary"


def test_the_fabric_s_services_are_the_driver_s_version_and_named_as_its_branch_names_them():
    new, old = Stack(driver="580.95.05"), Stack(driver="575.57.08")
    assert [one.name for one in fabric_packages(GPUS["b200"], new)] == [
        "nvidia-fabricmanager", "libnvidia-nscq", "nvlsm",
    ]  # fmt: skip
    assert fabric_packages(GPUS["h200-sxm5-141gb"], old)[0].name == "nvidia-fabricmanager-575"
    assert [one.name for one in fabric_packages(GPUS["gb200"], new)] == ["nvidia-imex"]
    assert fabric_packages(GPUS["l40s"], new) == ()


def test_dcgm_streams_and_peer_memory():
    volta = [
        one.name.rpartition("-")[2]
        for one in dcgm_packages(GPUS["v100-sxm2-32gb"], Stack(driver="580.95.05"))
    ]
    assert volta == ["core", "proprietary", "cuda12", "cuda13"]
    assert dcgm_packages(None, Stack(driver="570.26", dcgm="4.6.0"))[-1].version == "1:4.6.0-*"
    assert rpm_stream(Stack(driver="580.95.05", distribution="rocky-9", kernel_module="open")) == "580-open"
    assert rpm_stream(Stack(driver="580.95.05", distribution="debian-13")) is None
    assert peer_memory(Stack(driver="580.95.05", kernel_module="open")) == "dma-buf"
    assert peer_memory(Stack(driver="580.95.05", kernel_module="proprietary")) == "peermem"
    assert peer_memory(Stack(driver="460.27", kernel_module="proprietary")) is None


def test_the_case_that_a_vendor_s_page_does_not_tell():
    said = answer(Question("H200", "550", ("12.9",), "debian13", "6.12.107"))
    assert said.refused
    assert "do not build on kernel 6.12.107" in " ".join(said.lines)
    fits = answer(Question("H200", "580.95.05", ("12.9",), "debian 13", "6.12.107", "open", "vendor"))
    assert not fits.refused
    assert "nvidia-fabricmanager 580.95.05-*" in " ".join(fits.lines)
    assert "unknown: whether the modules of driver 580.95.05 build" in " ".join(fits.lines)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Question(driver="550", os="debian-13", source="distribution", kernel="6.12.107"), "do not build"),
        (
            Question(driver="580.95.05", os="debian-13", source="distribution"),
            "own archive has driver 550.163.01",
        ),
        (Question(driver="550.163.01", os="ubuntu2404", source="vendor"), "began with branch 560"),
        (Question(driver="580.95.05", os="alpine3", source="vendor"), "no repository for alpine-3"),
        (Question(driver="418.40", dcgm="4.6.0"), "DCGM needs a driver of branch 450"),
        (Question(toolkit="1.11.0"), "writes no CDI"),
        (Question(driver="580.95.05", fabric_manager="590.44.01"), "fabric manager 590.44.01"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(asked, words):
    said = answer(asked)
    assert said.refused
    assert words in " ".join(said.lines)


def test_an_older_toolkit_is_advised_against():
    said = answer(Question(toolkit="1.17.0"))
    assert not said.refused
    assert "does not write its CDI specification anew" in " ".join(said.lines)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Question(), "nothing to look at"),
        (Question(gpu="h300"), "catalog has no entry"),
        (Question(driver="newest"), "--driver"),
        (Question(kernel="linux"), "--kernel"),
        (Question(os="13"), "--os"),
        (Question(flavour="closed"), "open or proprietary"),
        (Question(source="runfile"), "vendor or distribution"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(asked, words):
    with pytest.raises(ColdironError, match=words):
        answer(asked)


def test_names_are_taken_as_people_write_them():
    assert distribution_of("Debian 13") == distribution_of("debian13") == "debian-13"
    assert distribution_of("ubuntu2404") == distribution_of("ubuntu-24.04") == "ubuntu-24.04"
    assert [gpu.name for gpu in gpus_of("H200")] == ["h200-sxm5-141gb", "h200-nvl-141gb"]
    assert [gpu.name for gpu in gpus_of("b200")] == ["b200"]


def test_every_fact_of_the_roles_names_a_text_that_was_opened():
    facts = matrix()
    used = {facts.vendor.document, *facts.unbranched.documents, facts.dcgm.document}
    used |= {facts.container_toolkit.document, facts.gpudirect.document, "archives"}
    assert used <= facts.documents.keys()
