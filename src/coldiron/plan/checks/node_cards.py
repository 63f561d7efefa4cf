"""Whether the GPUs go into the chassis: mount, slots, spacing, length, height, and how they are cooled."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from coldiron.catalog.model import Gpu
from coldiron.inventory.source import KeyPath
from coldiron.plan.checks.node_common import MODULES, OFFICE, a, number, sold_with, with_cards, with_gpus
from coldiron.plan.checks.node_seats import room, seats, touching
from coldiron.plan.design import Check, Design, Kind, Result
from coldiron.text import counted


def mount(design: Design) -> Iterator[Result]:
    """CH114: a module in a machine of slots, or a card in a machine of modules."""
    for kind, gpu, _ in with_gpus(design):
        if sold_with(kind):
            continue
        path = _gpus(kind)
        server, own = kind.build.server, gpu.form_factor.mount
        if own is None:
            yield design.unknown(gpu.name, "form_factor.mount", "whether it goes into the machine", path)
            continue
        other = design.cluster.catalog.gpus.get(server.gpu) if server and server.gpu else None
        place = other.form_factor.mount if other else None
        if own in MODULES and place is None and kind.build.hardware.slots:
            place = "pcie"
        if place is not None and place != own:
            yield design.refuse(
                "CH114",
                path,
                f"{a(gpu.name)} is {_MOUNTED[own]}, and {kind.label} has places for {_PLACES[place]}",
                f"take GPUs that fit, such as {other.name}" if other else "take cards, or an HGX machine",
                hosts=kind.hosts,
                mount=own,
                place=place,
            )


_MOUNTED = {"pcie": "a card", "sxm": "an SXM module", "superchip": "a superchip"}
_PLACES = {"pcie": "cards in slots", "sxm": "SXM modules", "superchip": "superchips"}


def enough_slots(design: Design) -> Iterator[Result]:
    """CH108: more GPUs than the machine has places for."""
    for kind, gpu, count in with_gpus(design):
        have, path = _places(kind, gpu), _gpus(kind)
        if have is None:
            if gpu.form_factor.mount == "pcie":
                yield design.unknown(kind.label, "hardware.slots", "slots for its GPUs", path)
        elif count > have:
            yield design.refuse(
                "CH108",
                path,
                f"{counted(count, 'GPU')}, and {counted(have, 'place')} for them in {kind.label}",
                f"write `count: {have}`" if have else "take a machine with slots for them",
                hosts=kind.hosts,
                gpus=count,
                places=have,
            )


def _places(kind: Kind, gpu: Gpu) -> int | None:
    """How many GPUs the machine has places for, as far as anybody says."""
    server, slots = kind.build.server, kind.build.hardware.slots
    if gpu.form_factor.mount != "pcie" or (server is not None and server.gpu_count):
        return server.gpu_count if server else None
    if slots is not None:
        return len(slots)
    return server.x16_slots if server else None


def spacing(design: Design) -> Iterator[Result]:
    """CH109: enough slots, but too near to each other, or to the chassis's end, for cards so thick."""
    for kind, gpu, count in with_cards(design):
        slots, width, path = kind.build.hardware.slots, gpu.form_factor.slots, _gpus(kind)
        if slots is None or count > len(slots):
            continue
        if width is None:
            yield design.unknown(gpu.name, "form_factor.slots", "spacing of the cards", path)
            continue
        brackets = kind.build.hardware.brackets
        if seats(slots, count, width, brackets) is None:
            yield design.refuse(
                "CH109",
                path,
                f"{a(gpu.name)} hides {counted(ceil(width), 'bracket')}: the slots at "
                f"{', '.join(str(slot.position) for slot in slots)}"
                + (f" of {counted(brackets, 'bracket')}" if brackets else "")
                + f" take {room(slots, width, brackets)} of {count}",
                "take thinner cards, fewer of them, or another board",
                hosts=kind.hosts,
                gpus=count,
                room=room(slots, width, brackets),
                card_brackets=width,
            )
        elif brackets is None and seats(slots, count, width, max(slot.position for slot in slots)) is None:
            yield design.unknown(
                kind.label, "hardware.brackets", "the last card against the chassis's end", path
            )


def size(design: Design) -> Iterator[Result]:
    """CH110: a card that is longer or higher than the chassis takes."""
    for kind, gpu, _ in with_cards(design):
        for name, card, figure in (
            ("long", gpu.form_factor.length_mm, "length"),
            ("high", gpu.form_factor.height_mm, "height"),
        ):
            chassis = getattr(kind.build.hardware, f"card_{figure}_max_mm")
            path = (*kind.path, "hardware", f"card_{figure}_max_mm")
            check = f"{figure} of the cards"
            if card is None:
                yield design.unknown(gpu.name, f"form_factor.{figure}_mm", check, path)
            elif chassis is None:
                yield design.unknown(kind.label, f"hardware.card_{figure}_max_mm", check, path)
            elif card > chassis:
                yield design.refuse(
                    "CH110",
                    path,
                    f"{a(gpu.name)} is {number(card)} mm {name}, and the chassis takes {number(chassis)} mm",
                    "take another chassis or other cards",
                    hosts=kind.hosts,
                    card_mm=card,
                    chassis_mm=chassis,
                    dimension=figure,
                )


def cooling(design: Design) -> Iterator[Result]:
    """CH111 and CH112: cards that would starve for air."""
    for kind, gpu, count in with_cards(design):
        style = gpu.form_factor.cooling
        if style is None:
            yield design.unknown(gpu.name, "form_factor.cooling", "whether it is cooled", _gpus(kind))
        elif style == "open":
            yield from _open(design, kind, gpu, count)
        elif style == "passive":
            yield from _passive(design, kind, gpu)


def _open(design: Design, kind: Kind, gpu: Gpu, count: int) -> Iterator[Result]:
    hardware, width = kind.build.hardware, gpu.form_factor.slots
    if hardware.slots is None or width is None:
        return
    taken = seats(hardware.slots, count, width, hardware.brackets)
    if taken is not None and touching(taken, width):
        yield design.warn(
            "CH111",
            _gpus(kind),
            f"{count} {gpu.name} with open fans in slots {', '.join(str(s.position) for s in taken)}: "
            "one blows its heat into the next",
            "leave a free bracket between them, or take cards with blowers",
            hosts=kind.hosts,
            gpus=count,
            card_brackets=width,
        )


def _passive(design: Design, kind: Kind, gpu: Gpu) -> Iterator[Result]:
    hardware = kind.build.hardware
    path = (*kind.path, "hardware", "cools_passive_cards")
    said = hardware.cools_passive_cards
    if said is None and hardware.form not in OFFICE:
        yield design.unknown(
            kind.label, "hardware.cools_passive_cards", "whether passive cards are cooled", path
        )
    elif not said:
        where = f"a {hardware.form}" if hardware.form in OFFICE else "this chassis"
        yield design.refuse(
            "CH112",
            path,
            f"{a(gpu.name)} has no fan, and {where} does not push air through it",
            "take cards with fans, or write `cools_passive_cards: true` if the maker of the chassis says so",
            hosts=kind.hosts,
            gpu=gpu.name,
        )


def liquid(design: Design) -> Iterator[Result]:
    """CH113: GPUs that would starve for water."""
    for kind, gpu, _ in with_gpus(design):
        if gpu.form_factor.cooling != "liquid":
            continue
        path = (*kind.path, "hardware", "cooling")
        said = kind.build.hardware.cooling
        if said is None:
            yield design.unknown(kind.label, "hardware.cooling", "whether liquid reaches its GPUs", path)
        elif said == "air":
            yield design.refuse(
                "CH113",
                path,
                f"{a(gpu.name)} is cooled by liquid, and the machine by air",
                "take GPUs cooled by air, or a machine with liquid and write `cooling: both`",
                hosts=kind.hosts,
                gpu=gpu.name,
            )


def _gpus(kind: Kind) -> KeyPath:
    return (*kind.path, "hardware", "gpus")


CHECKS: tuple[Check, ...] = (mount, enough_slots, spacing, size, cooling, liquid)
