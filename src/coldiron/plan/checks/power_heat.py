"""Heat against what takes it away, by rack and by room, air and liquid apart."""

from __future__ import annotations

from collections.abc import Iterator

from coldiron.inventory.facility import Cooling
from coldiron.inventory.source import KeyPath
from coldiron.plan.checks import power_words as words
from coldiron.plan.circuits import RackKind
from coldiron.plan.design import Check, Design, Result
from coldiron.plan.energy import Heat, btu_per_h

# From here operators begin to ask whether air is enough; there is no hard limit. Source: see CP114.
_MUCH_BY_AIR_KW = 30
_SLACK_KW = 1e-9


def of_racks(design: Design) -> Iterator[Result]:
    """Racks that give off more heat than is taken from them, or much without a word of what takes it."""
    for kind in design.grid.kinds:
        cooling = kind.group.group.cooling
        heat = design.grid.heat(kind)
        place = words.racks(kind)
        if cooling is not None:
            path = (*kind.layout.path, "cooling")
            subject = f"rack {kind.racks[0]}"
            yield from _against(
                design, "CP112", path, place, subject, heat, cooling, kind.made(kind.machines)
            )
        if (cooling is None or cooling.air_kw is None) and heat.air_watts / 1000 > _MUCH_BY_AIR_KW:
            yield _much(design, kind, heat.air_watts / 1000)


def _much(design: Design, kind: RackKind, air_kw: float) -> Result:
    return design.advise(
        "CP114",
        kind.layout.path,
        f"{words.racks(kind)} gives {_heat(air_kw)} to the air; from about {_MUCH_BY_AIR_KW} kW on that wants a plan",
        "ask who cools the room, and write what takes the heat away as `cooling: {air_kw: ...}` of the rack",
        subject=f"rack {kind.racks[0]}",
        air_kw=round(air_kw, 2),
    )


def of_rooms(design: Design) -> Iterator[Result]:
    """Rooms whose racks give off more heat than is taken from the room."""
    for name, room in design.cluster.rooms.items():
        inside = [kind for kind in design.grid.kinds if kind.group.group.room == name]
        if room.cooling is None or not inside:
            continue
        heat = Heat()
        for kind in inside:
            one = design.grid.heat(kind)
            number = len(kind.racks)
            heat += Heat(number * one.air_watts, number * one.liquid_watts, number * one.unsplit_watts)
        path = ("rooms", name, "cooling")
        yield from _against(design, "CP113", path, f"room {name}", f"room {name}", heat, room.cooling, [])


def _against(
    design: Design,
    code: str,
    path: KeyPath,
    place: str,
    subject: str,
    heat: Heat,
    cooling: Cooling,
    hosts: list[str],
) -> Iterator[Result]:
    for by, kw, allowed in (
        ("air", heat.air_watts / 1000, cooling.air_kw),
        ("liquid", heat.liquid_watts / 1000, cooling.liquid_kw),
    ):
        if kw <= (allowed or 0) + _SLACK_KW:
            continue
        takes = f"{allowed:g} kW are taken away" if allowed is not None else f"its cooling names no {by}"
        more = kw - (allowed or 0)
        yield design.refuse(
            code,
            path,
            f"{place} gives {_heat(kw)} to {by}, and {takes}: {_heat(more)} too much",
            "take machines out, cap their GPUs, or cool it better",
            hosts=words.names(hosts),
            subject=f"{subject} {by}",
            heat_kw=round(kw, 3),
            cooling_kw=allowed,
        )


def _heat(kw: float) -> str:
    return f"{kw:.1f} kW ({btu_per_h(kw):.0f} BTU/h)"


CHECKS: tuple[Check, ...] = (of_racks, of_rooms)
