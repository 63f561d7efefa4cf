"""What the GPUs ask of the supplies beside watts: spikes, and cables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from coldiron.catalog.model import Gpu
from coldiron.plan.checks.node_common import OFFICE, alike, cap_of, draw, folded, with_cards, with_gpus
from coldiron.plan.design import Check, Design, Kind, Result
from coldiron.text import counted

# What one 8-pin cable, and the slot itself, may carry.
CABLE_WATTS = 150
SLOT_WATTS = 75
_PROCESSOR = re.compile(r"CPU|EPS", re.IGNORECASE)
_WIDE = re.compile(r"12V-?2x6|12VHPWR|(12|16)-pin", re.IGNORECASE)


@dataclass(frozen=True)
class Cables:
    """Cables that the cards of a machine take."""

    pins8: int
    pins16: int


def spikes(design: Design) -> Iterator[Result]:
    """CH119: consumer cards whose spikes of a few milliseconds are above what the supplies give."""
    for kind, gpu, count in with_gpus(design):
        own = kind.build.supplies
        if gpu.form_factor.cooling != "open" or own.count is None or own.watts is None or not gpu.tdp_watts:
            continue
        path = (*kind.path, "hardware", "supplies")
        if gpu.spike_watts is None:
            yield design.unknown(gpu.name, "spike_watts", "spikes of its draw", path)
            continue
        have = own.count * (own.spike_watts or own.watts)
        for nodes in alike(kind.nodes, lambda node: cap_of(design, node)):
            peak = draw(kind, cap_of(design, nodes[0]))
            if peak is None or peak.gpu_watts is None:
                continue
            each = peak.gpu_watts * gpu.spike_watts / gpu.tdp_watts
            total = peak.rest + each * count
            if total > have:
                yield design.warn(
                    "CH119",
                    path,
                    f"{count} {gpu.name} spike to {each:.0f} W each for some milliseconds: {total:.0f} W in all, "
                    f"and the supplies give {have:.0f} W",
                    "take stronger supplies, write a lower `gpu_cap_watts`, or, of supplies that bear spikes "
                    "(ATX 3), `spike_watts`",
                    hosts=folded(kind, nodes),
                    spike_watts=round(total, 1),
                    supply_watts=have,
                    gpu_spike_watts=round(each, 1),
                )


def cables(design: Design) -> Iterator[Result]:
    """CH120: fewer cables than the cards have connectors."""
    for kind, gpu, count in with_cards(design):
        path = (*kind.path, "hardware", "supplies")
        own, server = kind.build.supplies, kind.build.server
        if gpu.form_factor.power_connectors is None:
            yield design.unknown(gpu.name, "form_factor.power_connectors", "power cables of the GPUs", path)
            continue
        want = wanted(gpu, count, own.cables_16pin or 0)
        if want is None:
            yield design.unknown(gpu.name, "tdp_watts", "power cables of the GPUs", path)
        elif want.pins8 > (own.cables_8pin or 0):
            known = own.cables_8pin is not None and (own.cables_16pin is not None or not _wide(gpu))
            if known:
                yield _too_few(design, kind, gpu, count, want)
            elif server is None or kind.build.hardware.form in OFFICE:
                # The maker of a rack server sells the cables with the slots.
                name = "cables_16pin" if _wide(gpu) and own.cables_16pin is None else "cables_8pin"
                yield design.unknown(
                    kind.label, f"hardware.supplies.{name}", "power cables of the GPUs", path
                )


def wanted(gpu: Gpu, count: int, have16: int) -> Cables | None:
    """The cables for ``count`` cards where there are ``have16`` of 16 pins; None where the card's watts are unknown.

    A card that finds no cable of its own kind takes, by an adapter, as many 8-pin cables as its watts want beyond what
    the slot gives: one of 16 pins, and one with a processor's connector (EPS).
    """
    wide, processor = _wide(gpu), _processor(gpu)
    narrow = (len(_connectors(gpu)) - wide - processor) * count
    fed = min(have16 // wide, count) if wide else 0
    adapted = count - fed if wide or processor else 0
    if not adapted:
        return Cables(narrow, fed * wide)
    if gpu.tdp_watts is None:
        return None
    each = max(ceil((gpu.tdp_watts - SLOT_WATTS) / CABLE_WATTS), 1)
    return Cables(narrow + adapted * each, fed * wide)


def _too_few(design: Design, kind: Kind, gpu: Gpu, count: int, want: Cables) -> Result:
    own = kind.build.supplies
    has = [counted(own.cables_8pin or 0, "8-pin cable")]
    if _wide(gpu):
        has.append(f"{own.cables_16pin or 0} of 16 pins")
    return design.refuse(
        "CH120",
        (*kind.path, "hardware", "supplies"),
        f"{count} {gpu.name} ({', '.join(_connectors(gpu))}) want {counted(want.pins8, 'separate 8-pin cable')} of "
        f"{CABLE_WATTS} W"
        + (f" beside {counted(want.pins16, 'cable')} of 16 pins" if want.pins16 else "")
        + f", and the supplies have {' and '.join(has)}",
        "take supplies with more cables; never feed two sockets from one cable",
        hosts=kind.hosts,
        wanted_8pin=want.pins8,
        cables_8pin=own.cables_8pin,
        cables_16pin=own.cables_16pin,
    )


def _connectors(gpu: Gpu) -> Sequence[str]:
    return gpu.form_factor.power_connectors or ()


def _wide(gpu: Gpu) -> int:
    """Connectors of 12 or 16 pins on a card."""
    return sum(bool(_WIDE.match(one)) for one in _connectors(gpu))


def _processor(gpu: Gpu) -> int:
    """Connectors on a card as a processor has them."""
    return sum(bool(_PROCESSOR.search(one)) for one in _connectors(gpu))


CHECKS: tuple[Check, ...] = (spikes, cables)
