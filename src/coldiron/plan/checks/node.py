"""Checks of a node's hardware; their codes begin with CH. Here: memory, processors, ports, and the GPUs' memory."""

from __future__ import annotations

from collections.abc import Iterator

from coldiron.catalog.model import Gpu
from coldiron.plan.checks import node_cards, node_lanes, node_power, node_supply
from coldiron.plan.checks.node_common import OFFICE, a, alike, folded, number, stated, with_gpus
from coldiron.plan.design import Check, Design, Kind, Result
from coldiron.text import counted

LEAST_MEMORY_GIB = 24
LEAST_PORTS = 2
CORES_PER_GPU = 2
THREADS_PER_GPU = 4
# What models of these workloads want of one GPU, in GB.
WORKLOAD_GB = {"llm": 24, "vision": 12}


def gpus_named(design: Design) -> Iterator[Result]:
    """GPUs that name no model of the catalog cannot be looked at."""
    for kind in stated(design):
        if kind.build.gpu_count and kind.build.gpu is None:
            path = (*kind.path, "hardware", "gpus")
            yield design.unknown(kind.label, "hardware.gpus.model", "memory, fit and power of its GPUs", path)


def memory(design: Design) -> Iterator[Result]:
    """CH101: memory that the system and its services alone would fill."""
    for kind in stated(design):
        path = (*kind.path, "hardware", "memory_gib")
        gib = kind.build.hardware.memory_gib
        if gib is None:
            yield design.unknown(kind.label, "hardware.memory_gib", "memory", path)
        elif gib < LEAST_MEMORY_GIB:
            yield design.warn(
                "CH101",
                path,
                f"{number(gib)} GiB of memory",
                f"put in {LEAST_MEMORY_GIB} GiB or more",
                hosts=kind.hosts,
                memory_gib=gib,
                least_gib=LEAST_MEMORY_GIB,
            )


def memory_against_gpus(design: Design) -> Iterator[Result]:
    """CH102 and CH103: memory against that of all GPUs together, once and twice."""
    for kind, gpu, count in with_gpus(design):
        gib = kind.build.hardware.memory_gib
        if gib is None:
            continue
        if gpu.memory_gb is None:
            yield design.unknown(gpu.name, "memory_gb", "memory against that of the GPUs", kind.path)
        elif gib < 2 * gpu.memory_gb * count:
            yield from _against(design, kind, gib, gpu.memory_gb, count)


def _against(design: Design, kind: Kind, gib: float, each: float, count: int) -> Iterator[Result]:
    path = (*kind.path, "hardware", "memory_gib")
    total, form = each * count, kind.build.hardware.form
    figures = {"memory_gib": gib, "gpu_memory_gb": total}
    gpus = f"the {number(total)} GB of {counted(count, 'GPU')}"
    if form is None and gib >= total:
        yield design.unknown(kind.label, "hardware.form", "memory against that of the GPUs", path)
    elif gib < total:
        find = design.warn if form in OFFICE else design.advise
        yield find(
            "CH102",
            path,
            f"{number(gib)} GiB of memory, less than {gpus}",
            f"put in {number(total)} GiB or more; {number(2 * total)} is better",
            hosts=kind.hosts,
            **figures,
        )
    elif form in OFFICE:
        yield design.advise(
            "CH103",
            path,
            f"{number(gib)} GiB of memory, less than twice {gpus}",
            f"{number(2 * total)} GiB would let data be prepared while a model is loaded",
            hosts=kind.hosts,
            **figures,
        )


def ports(design: Design) -> Iterator[Result]:
    """CH104: one network port, beside the management controller's, is one too few."""
    for kind in stated(design):
        path = (*kind.path, "hardware", "ports")
        groups = kind.build.hardware.ports
        if groups is None:
            yield design.unknown(kind.label, "hardware.ports", "network ports", path)
            continue
        total = sum(group.count for group in groups)
        if total < LEAST_PORTS:
            yield design.warn(
                "CH104",
                path,
                f"{counted(total, 'network port')} beside the management controller's",
                f"{LEAST_PORTS} are wanted: add an adapter, or write all that there are under `ports`",
                hosts=kind.hosts,
                ports=total,
                least_ports=LEAST_PORTS,
            )


def cores(design: Design) -> Iterator[Result]:
    """CH105: processors that cannot feed the GPUs."""
    for kind in stated(design):
        count = kind.build.gpu_count
        if not count:
            continue
        path = (*kind.path, "hardware", "cores_per_socket")
        have, threads = kind.build.cores, kind.build.threads
        if have is None or threads is None:
            yield design.unknown(kind.label, "hardware.cores_per_socket", "cores and threads a GPU", path)
        elif have < CORES_PER_GPU * count or threads < THREADS_PER_GPU * count:
            yield design.warn(
                "CH105",
                path,
                f"{counted(have, 'core')} with {counted(threads, 'thread')} for {counted(count, 'GPU')}",
                f"take {CORES_PER_GPU} cores and {THREADS_PER_GPU} threads a GPU: {CORES_PER_GPU * count} and "
                f"{THREADS_PER_GPU * count}; write `threads_per_core` if a core has two",
                hosts=kind.hosts,
                cores=have,
                threads=threads,
                gpus=count,
            )


def workload(design: Design) -> Iterator[Result]:
    """CH115: GPUs whose memory is too small for what they are there to do."""
    for kind, gpu, _ in with_gpus(design):
        for nodes in alike(kind.nodes, lambda node: node.workload):
            what = nodes[0].workload
            least = WORKLOAD_GB.get(what or "")
            if what is None or least is None:
                continue
            path = (*kind.path, "workload")
            if gpu.memory_gb is None:
                yield design.unknown(gpu.name, "memory_gb", "memory for the workload", path)
            elif gpu.memory_gb < least:
                yield _too_small(design, gpu, what, least, folded(kind, nodes), path)


def _too_small(
    design: Design, gpu: Gpu, what: str, least: int, hosts: str, path: tuple[str | int, ...]
) -> Result:
    return design.warn(
        "CH115",
        path,
        f"the workload is {what}, and {a(gpu.name)} has {number(gpu.memory_gb or 0)} GB",
        f"take GPUs with {least} GB or more, or name another workload",
        hosts=hosts,
        memory_gb=gpu.memory_gb,
        least_gb=least,
    )


CHECKS: tuple[Check, ...] = (
    gpus_named,
    memory,
    memory_against_gpus,
    ports,
    cores,
    workload,
    *node_cards.CHECKS,
    *node_lanes.CHECKS,
    *node_supply.CHECKS,
    *node_power.CHECKS,
)
