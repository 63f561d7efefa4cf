"""What is known of drivers, CUDA, kernels and GPUs: the facts hold together, and judge them as their sources do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldiron.catalog.load import load
from coldiron.catalog.model import Gpu
from coldiron.plan.findings import Severity
from coldiron.plan.matrix import Reason, Stack, first_driver, judge, matrix, number

GPUS = load().gpus
RELEASES = sorted(matrix().cuda.own, key=number)
DRIVERS = sorted({*matrix().cuda.own.values(), "550.163.01", "580.95.05", "610.57.04"}, key=number)


def codes(found: list[Reason]) -> list[str]:
    return [reason.code for reason in found]


def test_every_fact_names_a_text_that_was_opened() -> None:
    facts = matrix()
    used = {
        facts.ended.document,
        facts.open_modules.document,
        *(d for b in facts.builds for d in b.documents),
    }
    assert used <= facts.documents.keys()
    assert all(document.title and document.read for document in facts.documents.values())


def test_a_newer_cuda_release_never_came_with_an_older_driver() -> None:
    own = [number(matrix().cuda.own[release]) for release in RELEASES]
    assert own == sorted(own)
    for release, driver in matrix().cuda.own.items():
        least = matrix().cuda.least.get(release.split(".")[0])
        assert least is None or number(driver) >= number(least)


def test_the_catalog_and_the_matrix_say_the_same_of_an_architecture() -> None:
    for gpu in GPUS.values():
        family = matrix().architectures.get(gpu.architecture or "")
        if family is not None and gpu.cuda_min is not None:
            # Later chips of an architecture came with later releases.
            assert number(gpu.cuda_min) >= number(family.cuda_first), gpu.name
        if family is not None and family.cuda_last is not None and gpu.cuda_max is not None:
            assert gpu.cuda_max == family.cuda_last, gpu.name


@pytest.mark.parametrize(
    ("gpu", "stack", "wanted"),
    [
        ("h100-sxm5-80gb", Stack("580.95.05", "6.12.107", "open", ("12.9", "13.0"), "580.95.05"), []),
        ("v100-sxm2-32gb", Stack("580.95.05", kernel_module="proprietary", cuda=("12.9",)), []),
        ("v100-sxm2-32gb", Stack("590.48.01"), ["CV103"]),
        ("b200", Stack("565.57.01"), ["CV103", "CV108"]),
        ("b200", Stack("580.95.05", cuda=("12.6",)), ["CV104"]),
        ("h100-sxm5-80gb", Stack("510.39.01", kernel_module="open"), ["CV105", "CV103", "CV108"]),
        ("gh200-96gb", Stack(kernel_module="proprietary"), ["CV105"]),
        ("h100-sxm5-80gb", Stack("550.163.01", "6.17.0"), ["CV106", "CV108"]),
        ("h100-sxm5-80gb", Stack("550.163.02", "6.17.0"), ["CV108"]),
        ("h100-sxm5-80gb", Stack("550.163.01", distribution="debian-13"), ["CV106", "CV108"]),
        ("h100-sxm5-80gb", Stack("550.163.01", distribution="debian-12"), ["CV108"]),
        ("h100-sxm5-80gb", Stack("580.95.05", fabric_manager="580.95.5"), []),
        ("l40s", Stack("580.95.05", fabric_manager="580.95.05"), ["CV107"]),
        # Which services it needs nobody found out: nothing is said.
        ("l4", Stack("580.95.05", fabric_manager="580.95.05"), []),
    ],
)
def test_a_stack(gpu: str, stack: Stack, wanted: list[str]) -> None:
    assert codes(judge(GPUS[gpu], stack)) == wanted


def test_what_is_not_known_yields_nothing() -> None:
    assert judge(None, Stack()) == []
    assert judge(Gpu(name="x1", title="X1"), Stack("580.95.05", "6.12.107", "open", ("14.0",))) == []
    assert first_driver(Gpu(name="x1", title="X1")) is None
    assert first_driver(Gpu(name="x1", title="X1", driver_branch_min=600)) == "600"
    assert codes(judge(Gpu(name="x1", title="X1", driver_branch_min=600), Stack("595.71.05"))) == ["CV103"]


def test_cuda_without_a_gpu_that_the_catalog_knows() -> None:
    (reason,) = judge(None, Stack("560.28.03", cuda=("12.6", "13.0")))[:1]
    assert (reason.code, reason.key, reason.severity) == ("CV101", ("cuda", 1), Severity.REFUSE)
    (reason,) = judge(None, Stack("580.95.05", cuda=("13.1.1",)))
    assert (reason.code, reason.severity) == ("CV102", Severity.ADVICE)


@given(st.sampled_from(RELEASES), st.sampled_from(DRIVERS), st.sampled_from(DRIVERS))
def test_a_newer_driver_takes_every_cuda_that_an_older_one_takes(release: str, one: str, other: str) -> None:
    old, new = sorted((one, other), key=number)
    refused = "CV101" in codes(judge(None, Stack(old, cuda=(release,))))
    assert refused or "CV101" not in codes(judge(None, Stack(new, cuda=(release,))))


@given(st.sampled_from(sorted(GPUS)), st.sampled_from(DRIVERS), st.sampled_from(RELEASES))
def test_every_reason_says_what_and_what_to_do(gpu: str, driver: str, release: str) -> None:
    stack = Stack(driver, "6.12.107", "open", (release,), "550.163.01", "debian-13")
    for reason in judge(GPUS[gpu], stack):
        assert reason.what
        assert reason.advice
        assert not reason.what.endswith(".")
        assert reason.code in {f"CV10{n}" for n in range(1, 9)}
