"""What drivers, CUDA, kernels and GPUs say of each other: ``judge`` over the facts in matrix.yml, each with its source.

Pure but for reading the packaged facts once. Nothing is guessed: what matrix.yml and the catalog do not know yields
no reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BeforeValidator, Field

from coldiron.catalog.model import Gpu, Record
from coldiron.plan.findings import Severity


def number(version: str) -> tuple[int, ...]:
    """A version to compare: ``570.26`` as (570, 26)."""
    return tuple(int(part) for part in version.split("."))


def _version(value: str) -> str:
    number(value)
    return value


Version = Annotated[str, AfterValidator(_version)]


def _without_document(value: object) -> object:
    """A table without the line that names its source."""
    return {key: one for key, one in value.items() if key != "document"} if isinstance(value, dict) else value


class Document(Record):
    """A text that was opened, or what was tried, and when (ISO date)."""

    title: str
    url: str | None = None
    read: Annotated[str, BeforeValidator(str)]


class Cuda(Record):
    """``least``: the oldest driver for each major release; ``own``: the driver that each release came with."""

    least: Annotated[dict[str, Version], BeforeValidator(_without_document)]
    own: Annotated[dict[str, Version], BeforeValidator(_without_document)]


class Architecture(Record):
    """The first and the last CUDA release that know an architecture, and the last driver branch that does."""

    cuda_first: Version
    cuda_last: Version | None = None
    branch_last: int | None = None


class OpenModules(Record):
    """The first branch with kernel modules in the open flavour."""

    document: str
    branch_first: int


class Ended(Record):
    """Driver branches that get no more fixes."""

    document: str
    branches: tuple[int, ...]


class Build(Record):
    """Drivers of a branch, up to ``driver_last``, whose modules do not build from ``kernel_first`` on.

    ``archive`` are distributions whose own newest kernel is such a one.
    """

    documents: tuple[str, ...]
    branch: int
    driver_last: Version
    kernel_first: Version
    archive: tuple[str, ...] = ()


class Vendor(Record):
    """Distributions that NVIDIA's repository is there for, and the first branch with packages without a desktop."""

    document: str
    distributions: tuple[str, ...]
    branch_first: int


class Unbranched(Record):
    """From which branch on names of packages go without it: Ubuntu's driver packages, the fabric manager's."""

    documents: tuple[str, ...]
    ubuntu_driver: int
    fabric_manager: int


class Dcgm(Record):
    """DCGM's least branch, the one from which its part for CUDA 13 is right, and who needs that for CUDA 12 too."""

    document: str
    branch_first: int
    cuda13_from_branch: int
    cuda12_too: tuple[str, ...]


class Toolkit(Record):
    """The container toolkit: the least release with CDI, and the least that refreshes the specification itself."""

    document: str
    cdi: Version
    cdi_refresh: Version


class Gpudirect(Record):
    """The first branch with nvidia-peermem; DMA-BUF wants open modules."""

    document: str
    peermem_from_branch: int


class Matrix(Record):
    """All facts of matrix.yml."""

    documents: dict[str, Document]
    cuda: Cuda
    architectures: Annotated[dict[str, Architecture], BeforeValidator(_without_document)]
    open_modules: OpenModules
    ended: Ended
    builds: Annotated[tuple[Build, ...], Field(default=())]
    archives: Annotated[dict[str, Version], BeforeValidator(_without_document)]
    vendor: Vendor
    unbranched: Unbranched
    dcgm: Dcgm
    container_toolkit: Toolkit
    gpudirect: Gpudirect


@cache
def matrix() -> Matrix:
    """The packaged facts."""
    text = resources.files("coldiron.plan").joinpath("matrix.yml").read_text(encoding="utf-8")
    data: Any = yaml.safe_load(text)
    return Matrix.model_validate(data)


@dataclass(frozen=True)
class Stack:
    """What is meant to run on a node, as cluster.yml and the roles say it; None or empty where they do not.

    ``source``: where the driver comes from, ``vendor`` or ``distribution``.
    """

    driver: str | None = None
    kernel: str | None = None
    kernel_module: str | None = None
    cuda: tuple[str, ...] = ()
    fabric_manager: str | None = None
    distribution: str | None = None
    source: str | None = None
    dcgm: str | None = None
    container_toolkit: str | None = None


@dataclass(frozen=True)
class Reason:
    """Why a stack does not fit. ``key`` is the one of `software` to mend; cuda's with its position.

    ``code`` is empty for what only the roles say, of which cluster.yml has no key.
    """

    code: str
    severity: Severity
    key: tuple[str | int, ...]
    what: str
    advice: str


def judge(gpu: Gpu | None, stack: Stack, facts: Matrix | None = None) -> list[Reason]:
    """Everything that speaks against ``stack`` on a node with ``gpu`` (None: no GPU that the catalog knows)."""
    facts = facts or matrix()
    found = [
        *_cuda(stack, facts),
        *_modules(gpu, stack, facts),
        *_kernel(stack, facts),
        *_services(gpu, stack),
        *_source(stack, facts),
        *_companions(stack, facts),
    ]
    if gpu is not None:
        found += [*_driver(gpu, stack, facts), *_cuda_of(gpu, stack, facts)]
    return found + list(_ended(stack, facts))


def _refuse(code: str, key: tuple[str | int, ...], what: str, advice: str) -> Reason:
    return Reason(code, Severity.REFUSE, key, what, advice)


def _branch(version: str) -> int:
    return number(version)[0]


def _cuda(stack: Stack, facts: Matrix) -> Iterator[Reason]:
    if stack.driver is None:
        return
    driver = number(stack.driver)
    for position, release in enumerate(stack.cuda):
        least = facts.cuda.least.get(release.split(".", maxsplit=1)[0])
        own = facts.cuda.own.get(".".join(release.split(".")[:2]))
        key = ("cuda", position)
        if least is not None and driver < number(least):
            yield _refuse(
                "CV101",
                key,
                f"CUDA {release} needs driver {least} or newer, and the driver is {stack.driver}",
                f"take driver {own or least} or newer, or an older CUDA",
            )
        elif own is not None and driver < number(own):
            yield Reason(
                "CV102",
                Severity.ADVICE,
                key,
                f"CUDA {release} came with driver {own}, and the driver is {stack.driver}: programs start, but not "
                "with all that the release can do",
                f"take driver {own} or newer",
            )


def first_driver(gpu: Gpu, facts: Matrix | None = None) -> str | None:
    """The oldest driver that knows ``gpu``: the catalog's branch, else the one of the CUDA that was the first to."""
    facts = facts or matrix()
    if gpu.driver_branch_min:
        return str(gpu.driver_branch_min)
    family = facts.architectures.get(gpu.architecture or "")
    return None if family is None else facts.cuda.own.get(gpu.cuda_min or family.cuda_first)


def _driver(gpu: Gpu, stack: Stack, facts: Matrix) -> Iterator[Reason]:
    if stack.driver is None:
        return
    family = facts.architectures.get(gpu.architecture or "")
    first = first_driver(gpu, facts)
    if first is not None and number(stack.driver) < number(first):
        yield _refuse(
            "CV103",
            ("driver",),
            f"driver {stack.driver} does not know {gpu.title} yet; {first} is the first that does",
            f"take driver {first} or newer",
        )
    last = family.branch_last if family else None
    if last is not None and _branch(stack.driver) > last:
        yield _refuse(
            "CV103",
            ("driver",),
            f"driver {stack.driver} has dropped {gpu.title}; branch {last} is the last that knows it",
            f"take a driver of branch {last} for these nodes",
        )


def _cuda_of(gpu: Gpu, stack: Stack, facts: Matrix) -> Iterator[Reason]:
    family = facts.architectures.get(gpu.architecture or "")
    first = gpu.cuda_min or (family.cuda_first if family else None)
    last = gpu.cuda_max or (family.cuda_last if family else None)
    for position, release in enumerate(stack.cuda):
        if first is not None and number(release) < number(first):
            yield _refuse(
                "CV104",
                ("cuda", position),
                f"CUDA {release} does not know {gpu.title} yet; CUDA {first} is the first that does",
                f"take CUDA {first} or newer for these nodes",
            )
        elif last is not None and number(release)[: len(number(last))] > number(last):
            yield _refuse(
                "CV104",
                ("cuda", position),
                f"CUDA {release} has dropped {gpu.title}; CUDA {last} is the last that knows it",
                f"take CUDA {last} or older for these nodes",
            )


def _modules(gpu: Gpu | None, stack: Stack, facts: Matrix) -> Iterator[Reason]:
    flavour, key = stack.kernel_module, ("kernel_module",)
    if flavour is None:
        return
    rule = gpu.kernel_module if gpu else None
    if gpu is not None and rule == "open_required" and flavour == "proprietary":
        yield _refuse(
            "CV105", key, f"{gpu.title} runs with open kernel modules only", "write `kernel_module: open`"
        )
    elif gpu is not None and rule == "open_impossible" and flavour == "open":
        yield _refuse(
            "CV105",
            key,
            f"{gpu.title} does not run with open kernel modules",
            "write `kernel_module: proprietary` for these nodes",
        )
    first = facts.open_modules.branch_first
    if flavour == "open" and stack.driver is not None and _branch(stack.driver) < first:
        yield _refuse(
            "CV105",
            key,
            f"driver {stack.driver} has no open kernel modules, which began with branch {first}",
            f"take a driver of branch {first} or newer",
        )


def _kernel(stack: Stack, facts: Matrix) -> Iterator[Reason]:
    for build in facts.builds if stack.driver is not None else ():
        driver = stack.driver or ""
        if _branch(driver) != build.branch or number(driver) > number(build.driver_last):
            continue
        if stack.kernel is not None and number(stack.kernel) >= number(build.kernel_first):
            yield _refuse(
                "CV106",
                ("driver",),
                f"the modules of driver {driver} do not build on kernel {stack.kernel} (seen up to driver "
                f"{build.driver_last}, from kernel {build.kernel_first} on)",
                f"take a newer branch than {build.branch}, or keep a kernel before {build.kernel_first}",
            )
        elif stack.kernel is None and stack.distribution in build.archive:
            yield Reason(
                "CV106",
                Severity.WARN,
                ("driver",),
                f"the modules of driver {driver} do not build on kernel {build.kernel_first}, to which "
                f"{stack.distribution} has come",
                f"take a newer branch than {build.branch}, or write the `kernel` that is kept",
            )


def _services(gpu: Gpu | None, stack: Stack) -> Iterator[Reason]:
    manager, key = stack.fabric_manager, ("fabric_manager",)
    if manager is None:
        return
    if gpu is not None and gpu.fabric is not None and "fabric_manager" not in gpu.fabric:
        yield Reason(
            "CV107",
            Severity.WARN,
            key,
            f"{gpu.title} has no NVSwitch that a fabric manager could manage",
            "remove `fabric_manager` for these nodes",
        )
    elif stack.driver is not None and number(manager) != number(stack.driver):
        yield _refuse(
            "CV107",
            key,
            f"fabric manager {manager} starts with driver {manager} only, and the driver is {stack.driver}",
            f"write `fabric_manager: {stack.driver}`, or leave it out",
        )


def _source(stack: Stack, facts: Matrix) -> Iterator[Reason]:
    """Whether the driver can come from where it shall."""
    driver, place = stack.driver, stack.distribution
    if driver is None or place is None:
        return
    if stack.source == "distribution" and (has := facts.archives.get(place)) is not None:
        if number(driver) != number(has)[: len(number(driver))]:
            yield _refuse(
                "",
                ("driver",),
                f"{place}'s own archive has driver {has}, and {driver} is wanted",
                f"take driver {has}, or the maker's repository (gpu_driver_source: vendor)",
            )
    elif stack.source == "vendor":
        if place not in facts.vendor.distributions:
            yield _refuse(
                "",
                ("driver",),
                f"NVIDIA has no repository for {place}",
                f"take one of {', '.join(facts.vendor.distributions)}, or the distribution's own driver",
            )
        elif _branch(driver) < facts.vendor.branch_first:
            yield _refuse(
                "",
                ("driver",),
                f"driver {driver} has no packages without a desktop in NVIDIA's repository, which began with branch "
                f"{facts.vendor.branch_first}",
                f"take a driver of branch {facts.vendor.branch_first} or newer, or the distribution's own",
            )


def _companions(stack: Stack, facts: Matrix) -> Iterator[Reason]:
    """DCGM and the container toolkit."""
    if (
        stack.driver is not None
        and stack.dcgm is not None
        and _branch(stack.driver) < facts.dcgm.branch_first
    ):
        yield _refuse(
            "",
            ("driver",),
            f"DCGM needs a driver of branch {facts.dcgm.branch_first} or newer, and the driver is {stack.driver}",
            f"take a driver of branch {facts.dcgm.branch_first} or newer, or leave DCGM out",
        )
    toolkit = stack.container_toolkit
    if toolkit is not None and number(toolkit) < number(facts.container_toolkit.cdi):
        yield _refuse(
            "",
            ("container_toolkit",),
            f"container toolkit {toolkit} writes no CDI specifications; {facts.container_toolkit.cdi} is the first",
            f"take {facts.container_toolkit.cdi_refresh} or newer, which keeps them fresh itself",
        )
    elif toolkit is not None and number(toolkit) < number(facts.container_toolkit.cdi_refresh):
        yield Reason(
            "",
            Severity.ADVICE,
            ("container_toolkit",),
            f"container toolkit {toolkit} does not write its CDI specification anew when the driver changes",
            f"take {facts.container_toolkit.cdi_refresh} or newer",
        )


def _ended(stack: Stack, facts: Matrix) -> Iterator[Reason]:
    if stack.driver is not None and _branch(stack.driver) in facts.ended.branches:
        yield Reason(
            "CV108",
            Severity.ADVICE,
            ("driver",),
            f"driver branch {_branch(stack.driver)} gets no more fixes",
            "take a branch that does, such as a long-term one, where GPUs and CUDA allow it",
        )
