"""``coldiron explain matrix``: whether kernel, distribution, driver, CUDA and GPU fit together, and why (not)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coldiron.catalog.load import Catalog, load
from coldiron.catalog.model import Gpu
from coldiron.errors import ColdironError
from coldiron.inventory.findings import shown
from coldiron.plan.findings import ORDER, Severity
from coldiron.plan.matrix import Reason, Stack, first_driver, judge, matrix
from coldiron.plan.matrix_packages import (
    Wanted,
    cuda_packages,
    dcgm_packages,
    driver_packages,
    fabric_packages,
    module_package,
    peer_memory,
)

WORDS = {Severity.REFUSE: "no", Severity.WARN: "warning", Severity.ADVICE: "advice"}
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_KERNEL = re.compile(r"([0-9]+\.[0-9]+(\.[0-9]+)?)(\D.*)?")
_SYSTEM = re.compile(r"([a-z]+)[- ]?([0-9]+(?:\.[0-9]+)?)")


@dataclass(frozen=True)
class Question:
    """What was asked, as it was typed; None or empty where it was not."""

    gpu: str | None = None
    driver: str | None = None
    cuda: Sequence[str] = ()
    os: str | None = None
    kernel: str | None = None
    flavour: str | None = None
    source: str | None = None
    fabric_manager: str | None = None
    dcgm: str | None = None
    toolkit: str | None = None


def gpus_of(text: str, catalog: Catalog | None = None) -> list[Gpu]:
    """The GPUs that a name means: the entry itself, else those whose name begins with it. None is a ColdironError."""
    catalog = catalog or load()
    wanted = text.strip().lower()
    if wanted in catalog.gpus:
        return [catalog.gpus[wanted]]
    found = [gpu for name, gpu in catalog.gpus.items() if name.startswith(f"{wanted}-")]
    if not found:
        catalog.find(wanted, "gpus")
    return found


def distribution_of(text: str) -> str:
    """``debian13``, ``Debian 13`` or ``debian-13`` as cluster.yml spells it. Raises ColdironError."""
    match = _SYSTEM.fullmatch(text.strip().lower())
    if match is None:
        raise ColdironError(
            f"--os: {shown(text)} is no distribution; write one such as debian13 or ubuntu24.04"
        )
    name, release = match[1], match[2]
    if name == "ubuntu" and "." not in release and len(release) == 4:
        release = f"{release[:2]}.{release[2:]}"
    return f"{name}-{release}"


def stack_of(asked: Question) -> Stack:
    """The stack that a question describes. Raises ColdironError for what is no version."""
    for option, text in (
        ("--driver", asked.driver),
        ("--fabric-manager", asked.fabric_manager),
        ("--dcgm", asked.dcgm),
        ("--toolkit", asked.toolkit),
        *(("--cuda", one) for one in asked.cuda),
    ):
        if text is not None and not _VERSION.fullmatch(text):
            raise ColdironError(
                f"{option}: {shown(text)} is no version; write numbers and dots, such as 580.95.05"
            )
    kernel = _KERNEL.fullmatch(asked.kernel) if asked.kernel else None
    if asked.kernel and kernel is None:
        raise ColdironError(f"--kernel: {shown(asked.kernel)} is no kernel; write one such as 6.12.107")
    for option, text, choices in (
        ("--flavour", asked.flavour, ("open", "proprietary")),
        ("--source", asked.source, ("vendor", "distribution")),
    ):
        if text is not None and text not in choices:
            raise ColdironError(f"{option}: {shown(text)} is not known; write {' or '.join(choices)}")
    return Stack(
        driver=asked.driver,
        kernel=kernel[1] if kernel else None,
        kernel_module=asked.flavour,
        cuda=tuple(asked.cuda),
        fabric_manager=asked.fabric_manager,
        distribution=distribution_of(asked.os) if asked.os else None,
        source=asked.source,
        dcgm=asked.dcgm,
        container_toolkit=asked.toolkit,
    )


@dataclass(frozen=True)
class Answer:
    """``refused``: whether something speaks against it."""

    lines: tuple[str, ...]
    refused: bool


def answer(asked: Question) -> Answer:
    """Judge what was asked. Raises ColdironError for what cannot be read, or for an empty question."""
    stack = stack_of(asked)
    gpus: list[Gpu] = gpus_of(asked.gpu) if asked.gpu else []
    if stack == Stack() and not gpus:
        raise ColdironError(
            "there is nothing to look at; write for example `coldiron explain matrix --gpu H200 --driver 580.95.05 "
            "--cuda 12.9 --os debian13 --kernel 6.12.107`"
        )
    found: dict[Reason, list[str]] = {}
    asked_of: list[Gpu | None] = [*gpus] or [None]
    for gpu in asked_of:
        for reason in judge(gpu, stack):
            found.setdefault(reason, []).append(gpu.title if gpu else "")
    ordered = sorted(found, key=lambda reason: ORDER.index(reason.severity))
    refused = any(reason.severity is Severity.REFUSE for reason in found)
    lines = [f"{_named(stack, gpus)}: {'does not fit' if refused else 'fits, as far as is known'}"]
    for reason in ordered:
        code = f" [{reason.code}]" if reason.code else ""
        lines += [f"  {WORDS[reason.severity]}: {reason.what}{code}", f"      {reason.advice}"]
    lines += [f"  unknown: {what}" for what in _unknown(stack, gpus)]
    if not refused:
        lines += [f"  {line}" for line in _made_of(stack, gpus)]
    lines.append(
        "  sources: src/coldiron/plan/matrix.yml and `coldiron catalog show` name the text of each figure"
    )
    return Answer(tuple(lines), refused)


def _named(stack: Stack, gpus: Sequence[Gpu]) -> str:
    said = [" or ".join(gpu.title for gpu in gpus)] if gpus else []
    said += [f"driver {stack.driver}"] if stack.driver else []
    said += [f"{stack.kernel_module} modules"] if stack.kernel_module else []
    said += [f"CUDA {' and '.join(stack.cuda)}"] if stack.cuda else []
    said += [f"fabric manager {stack.fabric_manager}"] if stack.fabric_manager else []
    said += [f"DCGM {stack.dcgm}"] if stack.dcgm else []
    said += [f"container toolkit {stack.container_toolkit}"] if stack.container_toolkit else []
    said += [stack.distribution] if stack.distribution else []
    said += [f"kernel {stack.kernel}"] if stack.kernel else []
    return ", ".join(said)


def _unknown(stack: Stack, gpus: Sequence[Gpu]) -> Iterator[str]:
    """What no text was found about, so that silence is not taken for a yes."""
    facts = matrix()
    for release in stack.cuda:
        if ".".join(release.split(".")[:2]) not in facts.cuda.own:
            yield f"CUDA {release}: which driver it came with"
    for gpu in gpus:
        if stack.driver and first_driver(gpu) is None:
            yield f"{gpu.title}: the first driver that knows it"
        if stack.kernel_module and gpu.kernel_module is None:
            yield f"{gpu.title}: which kernel modules it takes"
    if stack.source == "distribution" and stack.distribution and stack.distribution not in facts.archives:
        yield f"{stack.distribution}: which driver its own archive has"
    if (
        stack.driver
        and stack.kernel
        and not any(one.branch == int(stack.driver.split(".")[0]) for one in facts.builds)
    ):
        yield f"whether the modules of driver {stack.driver} build on kernel {stack.kernel}; role gpu_driver tries it"


def _made_of(stack: Stack, gpus: Sequence[Gpu]) -> Iterator[str]:
    """What the roles would install."""
    if stack.driver is None or stack.distribution is None:
        return
    yield f"gpu_driver installs {_list(driver_packages(stack))}; modules from {module_package(stack)}"
    for gpu in gpus:
        if packages := fabric_packages(gpu, stack):
            yield f"gpu_fabric installs for {gpu.title} {_list(packages)}"
    if stack.cuda:
        yield f"cuda installs {_list(cuda_packages(stack))}"
    yield f"DCGM is {_list(dcgm_packages(gpus[0] if gpus else None, stack))}"
    if way := peer_memory(stack):
        yield f"network cards reach GPU memory by {way}"


def _list(packages: Sequence[Wanted]) -> str:
    return ", ".join(f"{one.name} {one.version}" if one.version else one.name for one in packages)
