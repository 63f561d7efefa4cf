"""Checks of divided GPUs (MIG): whether profiles exist, fit together, and suit what the nodes are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from coldiron.catalog.model import Gpu, MigProfile
from coldiron.inventory.ranges import fold
from coldiron.inventory.source import KeyPath
from coldiron.plan.checks.software_common import gpus_path
from coldiron.plan.design import Check, Design, Kind, Result
from coldiron.plan.matrix import number

# What its programs do over NVLink, which instances do not have.
_TALKATIVE = {"llm": "language models over several GPUs", "hpc": "simulations over several GPUs"}


def fits(profiles: Sequence[MigProfile], instances: int, memory_slices: int) -> bool | None:
    """Whether a GPU can be divided so, by NVIDIA's placements; None where a placement that matters is not known.

    Compute slices add up to ``instances`` at most; each profile takes memory slices of its own at one of its places.
    """
    counts = Counter(profile.name for profile in profiles)
    if any(counts[profile.name] > profile.count for profile in profiles):
        return False
    if sum(profile.slices for profile in profiles) > instances:
        return False
    if len(counts) == 1:
        # As many at once as NVIDIA says.
        return True
    places = [profile.placements.places() for profile in profiles if profile.placements]
    if len(places) < len(profiles):
        return None
    return _placed(sorted(places, key=len), frozenset(range(memory_slices)))


def _placed(places: Sequence[Sequence[range]], free: frozenset[int]) -> bool:
    if not places:
        return True
    first, *rest = places
    return any(free.issuperset(place) and _placed(rest, free.difference(place)) for place in first)


def layouts(design: Design) -> Iterator[Result]:
    """CV109 to CV111 and CV113: layouts that the GPU does not have, or not together, and GPUs divided twice."""
    for kind in _divided(design):
        gpu, path = kind.build.gpu, gpus_path(design, kind)
        if gpu is None:
            yield design.unknown(kind.label, "hardware.gpus.model", "how its GPUs are divided", path)
            continue
        if gpu.mig.supported is None:
            yield design.unknown(gpu.name, "mig.supported", "how it is divided", path)
            continue
        if not gpu.mig.supported:
            yield design.refuse(
                "CV109",
                (*path, "mig"),
                f"{gpu.title} cannot be divided",
                "remove `mig`, or take another GPU",
                hosts=kind.hosts,
            )
            continue
        yield from _layouts(design, kind, gpu, path)
        yield from _driver(design, kind, gpu, path)


def _layouts(design: Design, kind: Kind, gpu: Gpu, path: KeyPath) -> Iterator[Result]:
    gpus = kind.build.hardware.gpus
    taken: dict[int, int] = {}
    for position, layout in enumerate(gpus.mig or () if gpus else ()):
        here = (*path, "mig", position)
        for one in layout.gpus or range(1, kind.build.gpu_count + 1):
            if one in taken:
                yield design.refuse(
                    "CV111",
                    here,
                    f"GPU {one} is divided twice",
                    "name each GPU in one layout",
                    hosts=kind.hosts,
                    subject=f"{kind.group.name} GPU {one}",
                )
                break
            taken[one] = position
        if not gpu.mig.profiles:
            yield design.unknown(gpu.name, "mig.profiles", "how it is divided", here)
            continue
        known = {profile.name: profile for profile in gpu.mig.profiles}
        absent = [name for name in layout.profiles if name not in known]
        if absent:
            yield design.refuse(
                "CV110",
                (*here, "profiles"),
                f"{gpu.title} has no profile {absent[0]}",
                f"it has {', '.join(known)}",
                hosts=kind.hosts,
                subject=f"{kind.group.name} {absent[0]}",
            )
            continue
        wanted = [known[name] for name in layout.profiles]
        if gpu.mig.instances is None:
            yield design.unknown(gpu.name, "mig.instances", "whether its instances fit together", here)
            continue
        together = fits(wanted, gpu.mig.instances, gpu.mig.memory_slices or 0)
        if together is None:
            yield design.unknown(
                gpu.name, "mig.profiles placements", "whether its instances fit together", here
            )
        elif not together:
            yield design.refuse(
                "CV111",
                (*here, "profiles"),
                f"{', '.join(layout.profiles)} do not fit on one {gpu.title} together",
                _most(wanted, gpu.mig.instances, gpu.mig.memory_slices or 0),
                hosts=kind.hosts,
                subject=f"{kind.group.name} layout {position + 1}",
            )


def _most(wanted: Sequence[MigProfile], instances: int, memory_slices: int) -> str:
    """What of the layout does fit, leaving out one after the other from its end."""
    for size in range(len(wanted) - 1, 0, -1):
        if fits(wanted[:size], instances, memory_slices):
            return f"{', '.join(profile.name for profile in wanted[:size])} would"
    return "take smaller profiles"


def _driver(design: Design, kind: Kind, gpu: Gpu, path: KeyPath) -> Iterator[Result]:
    least = gpu.mig.driver_min
    old: dict[str, list[str]] = {}
    for node in kind.nodes:
        driver = node.software.driver if node.software else None
        if driver is not None and least is not None and number(driver) < number(least):
            old.setdefault(driver, []).append(node.name)
        elif driver is not None and least is None:
            yield design.unknown(gpu.name, "mig.driver_min", "whether the driver can divide it", path)
            return
    for driver, hosts in old.items():
        yield design.refuse(
            "CV113",
            (*path, "mig"),
            f"driver {driver} cannot divide {gpu.title}, which needs {least}",
            f"take driver {least} or newer",
            hosts=fold(hosts),
        )


def mixed(design: Design) -> Iterator[Result]:
    """CV112: whole and divided GPUs in one node."""
    for kind in _divided(design):
        gpus = kind.build.hardware.gpus
        divided = {
            one
            for layout in (gpus.mig or () if gpus else ())
            for one in layout.gpus or range(1, kind.build.gpu_count + 1)
        }
        whole = kind.build.gpu_count - len(divided)
        if whole > 0:
            yield design.warn(
                "CV112",
                (*gpus_path(design, kind), "mig"),
                f"{whole} whole and {len(divided)} divided GPUs in one node",
                "divide all GPUs of a node or none, or see that jobs are confined to their devices",
                hosts=kind.hosts,
                whole=whole,
                divided=len(divided),
            )


def workload(design: Design) -> Iterator[Result]:
    """CV114: divided GPUs for work that needs GPUs to talk to each other."""
    for kind in _divided(design):
        what = _TALKATIVE.get(kind.group.workload or "")
        if what is not None:
            yield design.advise(
                "CV114",
                (*kind.path, "workload"),
                f"divided GPUs have no NVLink, and `workload: {kind.group.workload}` is {what}",
                "leave these GPUs whole, or write the workload that they are divided for",
                hosts=kind.hosts,
            )


def _divided(design: Design) -> Iterator[Kind]:
    for kind in design.kinds:
        if kind.build.hardware.gpus is not None and kind.build.hardware.gpus.mig:
            yield kind


CHECKS: tuple[Check, ...] = (layouts, mixed, workload)
