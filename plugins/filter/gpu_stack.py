# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Filters of the GPU roles: what the matrix says of a node's stack, and the packages that it is made of.

They run on the controller and read the facts that ``coldiron plan`` and ``coldiron explain matrix`` read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ansible.errors import AnsibleFilterError

from coldiron.catalog.load import load
from coldiron.catalog.model import Gpu
from coldiron.errors import ColdironError
from coldiron.plan import matrix_packages
from coldiron.plan.findings import Severity
from coldiron.plan.matrix import Stack, judge, matrix

FIELDS = (
    "driver", "kernel", "kernel_module", "fabric_manager", "distribution", "source", "dcgm", "container_toolkit",
)  # fmt: skip


@cache
def _gpus() -> Mapping[str, Gpu]:
    return load().gpus


def _gpu(model: str) -> Gpu | None:
    """The catalog's GPU; one that only a site's own catalog has is unknown here, and nothing is said of it."""
    return _gpus().get(str(model)) if model else None


def _stack(given: Mapping[str, Any]) -> Stack:
    texts = {name: str(given[name]) for name in FIELDS if given.get(name)}
    return Stack(**texts, cuda=tuple(str(one) for one in given.get("cuda") or ()))


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what cannot be read into one line for the person who wrote it."""

    def filtered(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (ColdironError, ValueError) as error:
            raise AnsibleFilterError(f"{function.__name__}: {error}") from error

    return filtered


def gpu_distribution(facts: Mapping[str, Any]) -> str:
    """The node's distribution as cluster.yml spells it: debian-13, ubuntu-24.04, rocky-9; empty before it was asked."""
    if "distribution" not in facts:
        return ""
    name = str(facts["distribution"]).lower()
    name = {"redhat": "rhel", "oraclelinux": "ol"}.get(name, name)
    whole = name == "ubuntu"
    return f"{name}-{facts['distribution_version' if whole else 'distribution_major_version']}"


def gpu_flavour(flavour: str, model: str) -> str:
    """open or proprietary: what was chosen, else what the catalog says the GPU takes; open where both go."""
    if flavour != "auto":
        return flavour
    gpu = _gpu(model)
    return "proprietary" if gpu is not None and gpu.kernel_module == "open_impossible" else "open"


def gpu_driver_version(version: str, source: str, distribution: str) -> str:
    """The driver that is wanted; none said with the distribution's own archive is what that has."""
    if version or source != "distribution":
        return version
    return str(matrix().archives.get(distribution, ""))


def gpu_problems(given: Mapping[str, Any], model: str = "") -> list[str]:
    """What speaks against a stack, each a sentence with what to do."""
    return [
        f"{reason.what} ({reason.code or 'coldiron explain matrix'}): {reason.advice}."
        for reason in judge(_gpu(model), _stack(given))
        if reason.severity is Severity.REFUSE
    ]


def _declared(packages: Sequence[matrix_packages.Wanted], hold: bool | None) -> list[dict[str, Any]]:
    """Packages as converge takes them."""
    return [
        {
            "name": one.name,
            **({"version": one.version} if one.version else {}),
            **({} if hold is None else {"hold": hold}),
        }
        for one in packages
    ]


def gpu_driver_packages(given: Mapping[str, Any], hold: bool | None = None) -> list[dict[str, Any]]:
    """The driver's packages, the one with the kernel modules first."""
    return _declared(matrix_packages.driver_packages(_stack(given)), hold)


def gpu_other_flavour(given: Mapping[str, Any]) -> list[str]:
    """The driver's packages of the other flavour, which cannot stand beside it."""
    other = "open" if given.get("kernel_module") == "proprietary" else "proprietary"
    names = [one.name for one in matrix_packages.driver_packages(_stack({**given, "kernel_module": other}))]
    own = [one.name for one in matrix_packages.driver_packages(_stack(given))]
    return [name for name in names if name not in own]


def gpu_rpm_stream(given: Mapping[str, Any]) -> str:
    """The stream of dnf's module nvidia-driver; empty where there is none."""
    return matrix_packages.rpm_stream(_stack(given)) or ""


def gpu_fabric_packages(
    given: Mapping[str, Any], services: Sequence[str], hold: bool | None = None
) -> list[dict[str, Any]]:
    """The packages of the fabric's services, at the driver's version."""
    return _declared(matrix_packages.fabric_services(services, _stack(given)), hold)


def gpu_fabric_services(model: str) -> list[str]:
    """fabric_manager, nvlsm, imex: what the GPU's NVLink fabric needs by the catalog."""
    gpu = _gpu(model)
    return list(gpu.fabric or ()) if gpu else []


def gpu_cuda_packages(given: Mapping[str, Any], **wanted: bool) -> list[dict[str, Any]]:
    """The CUDA toolkits and the libraries that match them."""
    return _declared(matrix_packages.cuda_packages(_stack(given), **wanted), None)


MODULE_FILE = """#%Module1.0
# Written by Ansible (coldiron.cluster.cuda).
proc ModulesHelp {{ }} {{ puts stderr "CUDA {release}" }}
module-whatis "CUDA {release}"
conflict cuda
setenv CUDA_HOME {home}
prepend-path PATH {home}/bin
prepend-path LD_LIBRARY_PATH {home}/lib64
prepend-path CPATH {home}/include
"""


def gpu_cuda_module_files(releases: Sequence[str], folder: str, default: str) -> list[dict[str, str]]:
    """An environment module for each release, for Lmod and Environment Modules alike, and which one is the default."""
    found = [
        {
            "dest": f"{folder}/cuda/{release}",
            "content": MODULE_FILE.format(release=release, home=f"/usr/local/cuda-{release}"),
        }
        for release in map(str, releases)
    ]
    if found:
        found.append(
            {"dest": f"{folder}/cuda/.version", "content": f'#%Module1.0\nset ModulesVersion "{default}"\n'}
        )
    return found


def gpu_dcgm_packages(given: Mapping[str, Any], model: str = "") -> list[dict[str, Any]]:
    """DCGM's packages for the driver's CUDA."""
    return _declared(matrix_packages.dcgm_packages(_gpu(model), _stack(given)), None)


def gpu_peer_memory(given: Mapping[str, Any]) -> str:
    """How network cards reach GPU memory: dma-buf, peermem, or nothing."""
    return matrix_packages.peer_memory(_stack(given)) or ""


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        functions = (
            gpu_distribution, gpu_flavour, gpu_driver_version, gpu_problems, gpu_driver_packages,
            gpu_other_flavour, gpu_rpm_stream, gpu_fabric_packages, gpu_fabric_services, gpu_cuda_packages,
            gpu_cuda_module_files, gpu_dcgm_packages, gpu_peer_memory,
        )  # fmt: skip
        return {function.__name__: _plain(function) for function in functions}
