"""PCI Express lanes of the GPUs, where their slots hang on the processors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from coldiron.plan.checks.node_common import with_cards
from coldiron.plan.checks.node_seats import LEAST_LANES, lanes, seats
from coldiron.plan.design import Check, Design, Kind, Result


def lanes_enough(design: Design) -> Iterator[Result]:
    """CH106 and CH107: GPUs with fewer than eight lanes, and slots with more lanes than the processors."""
    for kind, gpu, count in with_cards(design):
        hardware = kind.build.hardware
        path = (*kind.path, "hardware", "gpu_slots_on")
        if hardware.gpu_slots_on is None:
            yield design.unknown(kind.label, "hardware.gpu_slots_on", "lanes of the GPUs", path)
        if hardware.gpu_slots_on != "cpu":
            continue
        if hardware.cpu_lanes is None:
            path = (*kind.path, "hardware", "cpu_lanes")
            yield design.unknown(kind.label, "hardware.cpu_lanes", "lanes of the GPUs", path)
        if hardware.slots:
            taken = seats(hardware.slots, count, gpu.form_factor.slots or 1, hardware.brackets)
            if taken is not None:
                yield from _shared(
                    design, kind, [slot.lanes for slot in taken], lanes(taken, hardware.cpu_lanes)
                )
        elif hardware.cpu_lanes is not None and hardware.cpu_lanes < LEAST_LANES * count:
            yield from _shared(design, kind, [], (hardware.cpu_lanes // count,) * count)


def _shared(design: Design, kind: Kind, wired: Sequence[int], each: Sequence[int]) -> Iterator[Result]:
    have = kind.build.hardware.cpu_lanes
    behind = "" if have is None else f" of the processors' {have} lanes"
    more = {"gpus": len(each), "lanes": ",".join(map(str, each)), "cpu_lanes": have}
    if min(each) < LEAST_LANES:
        yield design.warn(
            "CH106",
            (*kind.path, "hardware", "slots"),
            f"{said(each)}{behind}",
            f"x{LEAST_LANES} is the least: take a processor with more lanes, a board with a PCIe switch, "
            "or fewer GPUs",
            hosts=kind.hosts,
            **more,
        )
    elif wired and have is not None and sum(wired) > have:
        yield design.advise(
            "CH107",
            (*kind.path, "hardware", "cpu_lanes"),
            f"the GPUs' slots have {sum(wired)} lanes, the processors {have}: {said(each)}",
            "look up in the board's manual what it wires when all slots are used, and write it under `slots`",
            hosts=kind.hosts,
            **more,
        )


def said(each: Sequence[int]) -> str:
    """Which GPU gets what: ``GPU 1 gets x16, GPUs 2-4 get x8``."""
    parts = []
    first = 1
    for width, group in groupby(each):
        last = first + len(list(group)) - 1
        parts.append(f"GPU {first} gets x{width}" if first == last else f"GPUs {first}-{last} get x{width}")
        first = last + 1
    return ", ".join(parts)


CHECKS: tuple[Check, ...] = (lanes_enough,)
