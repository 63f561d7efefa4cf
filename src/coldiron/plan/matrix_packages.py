"""Which packages a stack is made of, by distribution and source: what the roles install, and nothing beside it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from coldiron.catalog.model import Gpu
from coldiron.plan.matrix import Matrix, Stack, matrix, number


@dataclass(frozen=True)
class Wanted:
    """A package and the version it is kept at, ``*`` allowed; None: whichever the repository has."""

    name: str
    version: str | None = None


def _branch(stack: Stack) -> int:
    return number(stack.driver or "0")[0]


def _exact(stack: Stack) -> str | None:
    """The driver's packages of any revision: 580.95.05-*; of a bare branch, any of it."""
    if stack.driver is None:
        return None
    return f"{stack.driver}-*" if len(number(stack.driver)) > 1 else f"{stack.driver}.*"


def family_of(distribution: str) -> str:
    """``debian``, ``ubuntu`` or ``el``: who names the packages alike."""
    name = distribution.split("-")[0]
    return name if name in ("debian", "ubuntu") else "el"


def driver_packages(stack: Stack, facts: Matrix | None = None) -> tuple[Wanted, ...]:
    """User space and kernel modules of the driver, without a desktop. Wants driver, distribution and flavour."""
    facts = facts or matrix()
    family, branch, version = family_of(stack.distribution or "debian"), _branch(stack), _exact(stack)
    is_open = stack.kernel_module != "proprietary"
    if stack.source == "distribution":
        if family == "ubuntu":
            flavour = "-open" if is_open else ""
            names = [f"nvidia-headless-{branch}-server{flavour}", f"nvidia-utils-{branch}-server"]
        else:
            module = "nvidia-open-kernel-dkms" if is_open else "nvidia-kernel-dkms"
            names = [module, "libcuda1", "libnvidia-ml1", "nvidia-smi"]
    elif family == "ubuntu" and branch >= facts.unbranched.ubuntu_driver:
        names = ["nvidia-open" if is_open else "cuda-drivers"]
    elif family == "ubuntu":
        module = f"nvidia-dkms-{branch}" + ("-open" if is_open else "")
        names = [module, f"libnvidia-compute-{branch}", f"nvidia-utils-{branch}"]
    elif family == "el":
        names = ["kmod-nvidia-open-dkms" if is_open else "kmod-nvidia-latest-dkms", "nvidia-driver-cuda"]
    else:
        names = ["nvidia-kernel-open-dkms" if is_open else "nvidia-kernel-dkms", "nvidia-driver-cuda"]
    return tuple(Wanted(name, version) for name in names)


def module_package(stack: Stack, facts: Matrix | None = None) -> str:
    """The one of the driver's packages that brings the kernel modules."""
    return driver_packages(stack, facts)[0].name


def rpm_stream(stack: Stack) -> str | None:
    """The stream of dnf's module nvidia-driver, such as ``580-open``; None where there are no streams."""
    if family_of(stack.distribution or "") != "el" or stack.driver is None or stack.source == "distribution":
        return None
    return f"{_branch(stack)}-{'open' if stack.kernel_module != 'proprietary' else 'dkms'}"


def fabric_packages(gpu: Gpu, stack: Stack, facts: Matrix | None = None) -> tuple[Wanted, ...]:
    """What the NVLink fabric of ``gpu`` needs by the catalog; empty where it needs nothing."""
    return fabric_services(gpu.fabric or (), stack, facts)


def fabric_services(
    services: Collection[str], stack: Stack, facts: Matrix | None = None
) -> tuple[Wanted, ...]:
    """The packages of ``fabric_manager``, ``nvlsm`` and ``imex``, at the driver's exact version."""
    facts = facts or matrix()
    suffix = "" if _branch(stack) >= facts.unbranched.fabric_manager else f"-{_branch(stack)}"
    found: list[Wanted] = []
    if "fabric_manager" in services:
        found += [
            Wanted(f"nvidia-fabricmanager{suffix}", _exact(stack)),
            Wanted(f"libnvidia-nscq{suffix}", _exact(stack)),
        ]
    if "nvlsm" in services:
        # It has versions of its own.
        found.append(Wanted("nvlsm"))
    if "imex" in services:
        found.append(Wanted(f"nvidia-imex{suffix}", _exact(stack)))
    return tuple(found)


def cuda_packages(
    stack: Stack, nccl: bool = True, cudnn: bool = True, gdrcopy: bool = False, gds: bool = False
) -> tuple[Wanted, ...]:
    """The toolkits side by side, and the libraries of the newest release among them.

    NCCL and cuDNN are one build for a major release; two majors' NCCL cannot stand side by side, so it is the newest's.
    """
    if not stack.cuda:
        return ()
    newest = max(stack.cuda, key=number)
    major = newest.split(".")[0]
    found = [Wanted(f"cuda-toolkit-{_dashed(release)}") for release in stack.cuda]
    if nccl:
        # apt takes a trailing star for a prefix, and then no other; releases have had one digit.
        build = f"*+cuda{major}.?"
        found += [Wanted("libnccl2", build), Wanted("libnccl-dev", build)]
    if cudnn:
        majors = dict.fromkeys(release.split(".")[0] for release in stack.cuda)
        found += [Wanted(f"libcudnn9-cuda-{one}") for one in majors]
    if gdrcopy:
        found += [Wanted("gdrdrv-dkms"), Wanted("libgdrapi")]
    if gds:
        found += [Wanted(f"nvidia-gds-{_dashed(release)}") for release in stack.cuda]
    return tuple(found)


def _dashed(release: str) -> str:
    return "-".join(release.split(".")[:2])


def dcgm_packages(gpu: Gpu | None, stack: Stack, facts: Matrix | None = None) -> tuple[Wanted, ...]:
    """DCGM with the parts for the driver's CUDA."""
    facts = facts or matrix()
    parts = ["cuda13" if _branch(stack) >= facts.dcgm.cuda13_from_branch else "cuda12"]
    if gpu is not None and gpu.architecture in facts.dcgm.cuda12_too and "cuda12" not in parts:
        parts.append("cuda12")
    version = stack.dcgm and f"1:{stack.dcgm}-*"
    names = ["core", "proprietary", *sorted(parts)]
    return tuple(Wanted(f"datacenter-gpu-manager-4-{name}", version) for name in names)


def peer_memory(stack: Stack, facts: Matrix | None = None) -> str | None:
    """How network cards reach GPU memory: ``dma-buf`` with open modules, else ``peermem``; None before either."""
    facts = facts or matrix()
    if stack.kernel_module == "open":
        return "dma-buf"
    return "peermem" if _branch(stack) >= facts.gpudirect.peermem_from_branch else None
