"""Circuits, phases and PDUs: what each carries, with all feeds alive and with one lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coldiron.plan.caps import SLACK_WATTS, over, percent
from coldiron.plan.checks import power_words as words
from coldiron.plan.circuits import Breaker, FeedKey, RackKind
from coldiron.plan.design import Check, Design, Result
from coldiron.plan.draw import Machine
from coldiron.plan.findings import Finding
from coldiron.plan.grid import Grid

_CODES = {"circuit": "CP101", "phase": "CP102", "PDU": "CP103"}
# Of the three phases' average; and below half of its limit no phase is near its breaker. Source: see CP107.
_UNBALANCED = 0.15
_HARDLY_LOADED = 0.5
_Load = tuple[Breaker, float, float, FeedKey | None]


def overloaded(design: Design) -> Iterator[Result]:
    """Breakers that carry too much with all feeds alive: the worst circuit, phase and PDU of each PDU."""
    grid = design.grid
    for kind in grid.kinds:
        loads = kind.loads(grid.caps(kind))
        for breaker, others, carried, _ in _worst(kind, [(*load[:2], load[1], None) for load in loads]):
            what = (
                f"{words.breaker(kind, breaker)} carries {words.watts(carried)}; {words.limit(breaker)}: "
                f"{words.too_many(carried, breaker.limit_watts)}{others}"
            )
            yield _finding(
                design,
                _CODES[breaker.kind],
                kind,
                breaker,
                what,
                _advice(grid, kind, breaker, carried),
                carried,
            )


def one_feed_lost(design: Design) -> Iterator[Result]:
    """Breakers that carry too much when another feed is lost, and hold while all are alive."""
    grid = design.grid
    for kind in grid.kinds:
        loads = [load for load in kind.loads(grid.caps(kind)) if load[1] <= load[0].limit_watts + SLACK_WATTS]
        for breaker, others, carried, lost in _worst(kind, loads):
            if lost is None:
                continue
            what = (
                f"{words.lost(lost)}, {words.breaker(kind, breaker)} would carry {words.watts(carried)}; "
                f"{words.limit(breaker)}: {words.too_many(carried, breaker.limit_watts)}{others}"
            )
            yield _finding(
                design, "CP105", kind, breaker, what, _advice(grid, kind, breaker, carried), carried
            )


def _worst(kind: RackKind, loads: Iterable[_Load]) -> Iterator[tuple[Breaker, str, float, FeedKey | None]]:
    """The worst overloaded breaker of each sort on each PDU, how many others there are, its load and the lost feed."""
    found: dict[tuple[int, str], list[_Load]] = {}
    for load in loads:
        breaker = load[0]
        if load[2] > breaker.limit_watts + SLACK_WATTS:
            found.setdefault((breaker.pdu, breaker.kind), []).append(load)
    for (pdu, sort), several in found.items():
        whole = any(
            len(load[0].banks) > 1 for what in ("PDU", "circuit") for load in found.get((pdu, what), ())
        )
        if sort == "phase" and whole:
            # Where the whole PDU carries too much, one of its phases always does.
            continue
        breaker, _, carried, lost = max(several, key=lambda load: load[2] / load[0].limit_watts)
        more = len(several) - 1
        others = f", and so {'does' if more == 1 else 'do'} {more} more of its {sort}s" if more else ""
        yield breaker, others, carried, lost


def _advice(grid: Grid, kind: RackKind, breaker: Breaker, carried: float) -> str:
    advice = f"take machines off it, or give it a breaker of at least {breaker.amps_for(carried)} A"
    caps = grid.would_fit.caps.get(kind, {})
    if caps and not over(kind, caps):
        lowest = min(caps.values())
        advice += f", or cap each GPU at {lowest:.0f} W (CP117)"
    return advice


def _finding(
    design: Design, code: str, kind: RackKind, breaker: Breaker, what: str, advice: str, carried: float
) -> Finding:
    return design.refuse(
        code,
        breaker.path,
        what,
        advice,
        hosts=words.hosts(kind, breaker),
        subject=words.subject(kind, breaker),
        watts=round(carried, 1),
        limit_watts=round(breaker.limit_watts, 1),
        racks=len(kind.racks),
    )


def dark(design: Design) -> Iterator[Result]:
    """Machines of several supplies that all hang on one feed though another comes to their rack."""
    found: dict[tuple[Machine, FeedKey, int], list[str]] = {}
    for kind in design.grid.kinds:
        for unit, plugs in enumerate(kind.plugs if len(kind.feeds) > 1 else ()):
            behind = {kind.layout.feeds[kind.layout.banks[bank].pdu] for bank in plugs or ()}
            if len(behind) == 1 and plugs and len(plugs) > 1:
                key = (kind.machines[unit], next(iter(behind)), len(plugs))
                found.setdefault(key, []).extend(kind.names({unit}))
    for (machine, feed, cords), hosts in found.items():
        yield design.warn(
            "CP106",
            (*machine.path, "power", "pdus"),
            f"{words.lost(feed)} these machines go dark: all {cords} supplies of each hang on it, and another feed "
            "comes to the rack",
            "spread the supplies over both in `power.pdus`",
            hosts=words.names(hosts),
            subject=f"{feed[0]} {feed[1]}, {words.names(hosts)}",
        )


def unbalanced(design: Design) -> Iterator[Result]:
    """PDUs whose three phases carry more unlike loads than they should."""
    for kind in design.grid.kinds:
        phases: dict[int, list[_Load]] = {}
        for load in kind.loads(design.grid.caps(kind)):
            if load[0].line is not None:
                phases.setdefault(load[0].pdu, []).append(load)
        for pdu, loads in phases.items():
            carried = [load[1] for load in loads]
            average = sum(carried) / 3
            off = max(abs(watts - average) for watts in carried) / average if average else 0
            if off <= _UNBALANCED or max(carried) < _HARDLY_LOADED * loads[0][0].limit_watts:
                continue
            name = kind.layout.pdus[pdu].name
            yield design.advise(
                "CP107",
                (*kind.layout.path, "pdus", pdu),
                f"the phases of PDU {name} in {words.racks(kind)} carry "
                f"{', '.join(words.watts(watts) for watts in carried)}: {percent(off)} off their average",
                "move plugs or machines so that the phases carry alike, or add machines in threes",
                hosts=words.names(kind.on(kind.layout.breakers_of(pdu)[0])),
                subject=f"PDU {kind.racks[0]}/{name}",
                unbalanced_percent=round(100 * off, 1),
            )


def phases_unsaid(design: Design) -> Iterator[Result]:
    """PDUs of three phases with circuits that do not say what they hang on."""
    seen = set()
    for kind in design.grid.kinds:
        for pdu in kind.layout.unphased:
            path = (*kind.layout.path, "pdus", pdu)
            if path in seen:
                continue
            seen.add(path)
            given = kind.layout.pdus[pdu]
            missing = [circuit.name for circuit in given.circuits or () if circuit.phase is None]
            yield design.advise(
                "CP118",
                path,
                f"PDU {given.name} has three phases, and {', '.join(missing)} of its circuits do not say theirs: "
                "what each phase carries is not looked at",
                "write `phase` of every circuit, as L1 or L1-L2",
                subject=f"PDU {kind.racks[0]}/{given.name}",
            )


CHECKS: tuple[Check, ...] = (overloaded, one_feed_lost, dark, unbalanced, phases_unsaid)
