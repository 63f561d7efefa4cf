"""Figures that the power plan wants of machines that something in the file makes matter: PDUs, cooling, a price."""

from __future__ import annotations

from collections.abc import Iterator

from coldiron.plan.circuits import RackKind
from coldiron.plan.design import Check, Design, Result
from coldiron.plan.draw import Machine


def draws(design: Design) -> Iterator[Result]:
    """Machines of which nobody knows how much they draw, where that is asked for."""
    wanted: dict[Machine, list[str]] = {}
    for kind in design.grid.kinds:
        asked = list(_asked(design, kind))
        for machine in dict.fromkeys(kind.machines):
            wanted.setdefault(machine, []).extend(asked)
    if design.cluster.site.price_per_kwh is not None:
        for machine in dict.fromkeys(design.grid.machines.values()):
            wanted.setdefault(machine, []).append("the yearly energy")
    for machine, checks in wanted.items():
        for check in dict.fromkeys(checks):
            for thing, figure in machine.missing():
                yield design.unknown(thing, figure, check, machine.path)
            capped = machine.cap is not None or machine.fit
            if capped and machine.tdp_watts is None and machine.whole_watts is not None:
                yield design.unknown(machine.gpu, "tdp_watts", "what a cap saves", machine.path)


def _asked(design: Design, kind: RackKind) -> Iterator[str]:
    if kind.layout.banks:
        yield "the load of its circuits"
    if kind.group.group.cooling is not None:
        yield "the rack's heat"
    room = design.cluster.rooms.get(kind.group.group.room or "")
    if room is not None and room.cooling is not None:
        yield "the room's heat"


def plugs(design: Design) -> Iterator[Result]:
    """Machines in racks with PDUs of which nobody knows the supplies or their plugs; and liquid's share of heat."""
    seen: set[Machine] = set()
    for kind in design.grid.kinds:
        asked = list(_asked(design, kind))
        for machine in dict.fromkeys(kind.machines):
            if machine in seen:
                continue
            seen.add(machine)
            figure = "supplies" if machine.switch else "hardware.supplies"
            if kind.layout.banks and machine.plugs is None:
                yield design.unknown(
                    machine.label, f"{figure}.count", "which circuits it hangs on", machine.path
                )
            elif (
                machine.plugs
                and machine.inlet is None
                and any(pool is not None for pool in kind.layout.pools)
            ):
                yield design.unknown(machine.label, f"{figure}.inlet", "whether outlets fit", machine.path)
            if machine.liquid is None and any(word.endswith("heat") for word in asked):
                yield design.unknown(
                    machine.label,
                    "hardware.liquid_share",
                    "what air and liquid take of its heat",
                    machine.path,
                )


CHECKS: tuple[Check, ...] = (draws, plugs)
