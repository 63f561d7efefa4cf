"""Checks of storage against the GPUs that read from it."""

from __future__ import annotations

from collections.abc import Iterator

from coldiron.plan.design import Check, Design, Kind, Result

# GiB a second for each node with eight data-centre GPUs, all reading at once; CV121's page says where it comes from.
READ_GIB_PER_S = 10.0
_GPUS = 8
_GIB = 2**30


def bandwidth(design: Design) -> Iterator[Result]:
    """CV121: all storage nodes together against all nodes of the DGX class."""
    readers = [kind for kind in design.kinds if _dgx_class(kind)]
    stores = [kind for kind in design.kinds if kind.group.kind == "storage"]
    if not readers or not stores:
        return
    given = 0.0
    for kind in stores:
        served = kind.build.hardware.storage
        if served is None or served.read_gib_per_s is None:
            path = (*kind.path, "hardware")
            yield design.unknown(kind.label, "hardware.storage.read_gib_per_s", "storage against GPUs", path)
            return
        given += served.read_gib_per_s * len(kind.nodes)
    nodes = sum(len(kind.nodes) for kind in readers)
    wanted = READ_GIB_PER_S * nodes
    if given < wanted:
        yield design.warn(
            "CV121",
            (*stores[0].path, "hardware", "storage", "read_gib_per_s"),
            f"the storage reads {given:g} GiB/s, and {nodes} nodes of eight GPUs want {READ_GIB_PER_S:g} GiB/s each, "
            f"{wanted:g} in all",
            f"add storage for {wanted - given:g} GiB/s more, or expect the GPUs to wait for data",
            hosts=", ".join(kind.hosts for kind in stores),
            subject="storage",
            read_gib_per_s=given,
            wanted_gib_per_s=wanted,
        )


def ports(design: Design) -> Iterator[Result]:
    """CV122: a storage node that promises more than its ports can carry."""
    for kind in design.kinds:
        served = kind.build.hardware.storage
        if served is None or served.read_gib_per_s is None:
            continue
        if kind.build.hardware.ports is None:
            path = (*kind.path, "hardware")
            yield design.unknown(kind.label, "hardware.ports", "whether its ports carry what it serves", path)
            continue
        gbit = sum(port.count * port.gbit_per_s for port in kind.build.hardware.ports)
        most = gbit * 1e9 / 8 / _GIB
        if served.read_gib_per_s > most:
            yield design.warn(
                "CV122",
                (*kind.path, "hardware", "storage", "read_gib_per_s"),
                f"{served.read_gib_per_s:g} GiB/s from one node, whose ports carry {most:.1f} ({gbit:g} Gbit/s)",
                "give it more or faster ports, or write what it serves over those it has",
                hosts=kind.hosts,
                read_gib_per_s=served.read_gib_per_s,
                ports_gib_per_s=round(most, 1),
            )


def _dgx_class(kind: Kind) -> bool:
    gpu = kind.build.gpu
    return kind.build.gpu_count >= _GPUS and gpu is not None and gpu.form_factor.mount in ("sxm", "superchip")


CHECKS: tuple[Check, ...] = (bandwidth, ports)
