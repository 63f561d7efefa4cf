"""Plugs and outlets: enough of the right type, `power.pdus` against the supplies, and the peak at switching on."""

from __future__ import annotations

from collections.abc import Iterator

from coldiron.plan.checks import power_words as words
from coldiron.plan.circuits import RackKind
from coldiron.plan.design import Check, Design, Result

_OUTLET = {"c14": "C13", "c20": "C19"}


def outlets(design: Design) -> Iterator[Result]:
    """Cords that find no outlet of their type."""
    for kind in design.grid.kinds:
        found: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        for cord in kind.homeless:
            inlet = kind.machines[cord.unit].inlet or ""
            pdus = tuple(
                dict.fromkeys(kind.layout.pdus[kind.layout.banks[bank].pdu].name for bank in cord.banks)
            )
            found.setdefault((inlet, pdus), []).append(cord.unit)
        for (inlet, pdus), units in found.items():
            yield _homeless(design, kind, inlet, pdus, units)


def _homeless(design: Design, kind: RackKind, inlet: str, pdus: tuple[str, ...], units: list[int]) -> Result:
    outlet = _OUTLET[inlet]
    index = next(index for index, pdu in enumerate(kind.layout.pdus) if pdu.name == pdus[0])
    several = "PDUs" if len(pdus) > 1 else "PDU"
    has = sum(
        (pool.c13 if outlet == "C13" else pool.c19)
        for number, pool in enumerate(kind.layout.pools)
        if pool is not None
        and any(bank.pool == number and kind.layout.pdus[bank.pdu].name in pdus for bank in kind.layout.banks)
    )
    number = len(units)
    finds = f"{number} {inlet.upper()} plug" + ("s find" if number > 1 else " finds")
    return design.refuse(
        "CP108",
        (*kind.layout.path, "pdus", index),
        f"{finds} no {outlet} outlet on {several} {', '.join(pdus)} of {words.racks(kind)}, "
        f"which {'have' if len(pdus) > 1 else 'has'} {has}",
        f"take a PDU with {has + number} {outlet} outlets, or plug less into it (`power.pdus`)",
        hosts=words.names(kind.names(set(units))),
        subject=f"PDU {kind.racks[0]}/{pdus[0]} {outlet}",
        missing=number,
    )


def pdus_named(design: Design) -> Iterator[Result]:
    """`power.pdus` that names more or fewer PDUs than there are supplies, or others than the rack has."""
    names: dict[object, list[str]] = {}
    for name, machine in design.grid.machines.items():
        if machine.pdus and machine.supplies and len(machine.pdus) != machine.supplies:
            names.setdefault(machine, []).append(name)
    for machine in dict.fromkeys(design.grid.machines.values()):
        if machine in names and machine.pdus and machine.supplies:
            yield design.refuse(
                "CP119",
                (*machine.path, "power", "pdus"),
                f"`power.pdus` names {len(machine.pdus)} PDUs for {machine.supplies} supplies",
                f"name {machine.supplies}: the PDU of each supply, in their order",
                hosts=words.names(names[machine]),
                subject=machine.label,
            )
    for kind in design.grid.kinds:
        has = kind.layout.of_pdu
        for machine in dict.fromkeys(kind.machines):
            absent = [name for name in dict.fromkeys(machine.pdus or ()) if name not in has]
            if absent and has:
                yield design.refuse(
                    "CP119",
                    (*machine.path, "power", "pdus"),
                    f"`power.pdus` names {', '.join(absent)}, and {words.racks(kind)} has {', '.join(has)}",
                    "name PDUs of the rack that the plan chose, or write the `rack`",
                    hosts=words.names(kind.made([machine])),
                    subject=f"{machine.label} in {kind.racks[0]}",
                )


def inrush(design: Design) -> Iterator[Result]:
    """PDUs that switch all on at once and whose breaker lets less through than all supplies' peaks."""
    for kind in design.grid.kinds:
        for index, pdu in enumerate(kind.layout.pdus):
            if pdu.inrush_amps is None or pdu.staggered:
                continue
            peak, hosts = _peak(kind, index)
            if peak > pdu.inrush_amps:
                yield design.warn(
                    "CP111",
                    (*kind.layout.path, "pdus", index),
                    f"switched on at once, all that hangs on PDU {pdu.name} of {words.racks(kind)} draws {peak:.0f} A "
                    f"for a moment; its breaker lets {pdu.inrush_amps:g} A through",
                    "take a PDU that switches on one outlet after the other and write `staggered: true`, or plug less "
                    "into it",
                    hosts=words.names(hosts),
                    subject=f"PDU {kind.racks[0]}/{pdu.name}",
                    inrush_amps=round(peak, 1),
                    limit_amps=pdu.inrush_amps,
                )
            for machine in dict.fromkeys(kind.machines):
                if machine.inrush_amps is None and machine.plugs:
                    yield design.unknown(
                        machine.label,
                        "supplies.inrush_amps" if machine.switch else "hardware.supplies.inrush_amps",
                        "the peak at switching on",
                        machine.path,
                    )


def _peak(kind: RackKind, pdu: int) -> tuple[float, list[str]]:
    """The highest peak on any line of a PDU, and what is plugged into it."""
    lines: dict[int, float] = {}
    for machine, plugs in zip(kind.machines, kind.plugs, strict=True):
        for bank in plugs or ():
            if kind.layout.banks[bank].pdu == pdu:
                # A PDU of one phase has no lines; one whose lines nobody says is taken for one.
                for line in kind.layout.banks[bank].lines or (0,):
                    lines[line] = lines.get(line, 0) + (machine.inrush_amps or 0)
    hosts = kind.on(kind.layout.breakers_of(pdu)[0])
    return max(lines.values(), default=0.0), hosts


CHECKS: tuple[Check, ...] = (outlets, pdus_named, inrush)
