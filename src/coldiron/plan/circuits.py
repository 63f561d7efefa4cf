"""A rack's PDUs as breakers and outlets, and what each breaker carries of the machines that are plugged in.

Volts are as cluster.yml has them: line to neutral on one phase, between lines on three. Outlets of a three-phase PDU
hang between a line and neutral where the lines are 346 V apart or more (380, 400, 415 V), else between two lines
(208 V): C13 and C19 stand 250 V at most.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from coldiron.inventory.cluster import Rack
from coldiron.inventory.facility import Circuit, Outlets, Pdu
from coldiron.inventory.source import KeyPath
from coldiron.plan.draw import Machine

# Below it, outlets of three phases hang between two lines.
_LINE_TO_NEUTRAL_FROM = 346
_TO_NEUTRAL: tuple[tuple[int, ...], ...] = ((0,), (1,), (2,))
_BETWEEN: tuple[tuple[int, ...], ...] = ((0, 1), (1, 2), (2, 0))
_LINES = dict(zip(("L1", "L2", "L3", "L1-L2", "L2-L3", "L3-L1"), (*_TO_NEUTRAL, *_BETWEEN), strict=True))
# A feed by its name; a PDU that names none is one of its own.
FeedKey = tuple[str, str]
Caps = Mapping[Machine, float]


@dataclass(frozen=True)
class Bank:
    """Outlets behind one breaker, or on one phase of a PDU that has no breakers of its own.

    ``pdu`` counts in the rack, ``pool`` in its stocks of outlets; ``lines`` are the PDU's that it hangs on, empty on
    one phase or where nobody says. ``limit_watts`` is derated; None where only the PDU's breaker counts.
    """

    pdu: int
    pool: int
    lines: tuple[int, ...]
    volts: float
    limit_watts: float | None


@dataclass(frozen=True)
class Breaker:
    """What must not carry more than ``limit_watts``: a circuit, a phase (``line``) of a PDU, or a whole PDU.

    ``name`` is PDU, PDU/CIRCUIT or PDU/LINE. The PDU's own breaker is its circuit where it has no circuits.
    """

    kind: Literal["circuit", "phase", "PDU"]
    name: str
    pdu: int
    banks: tuple[int, ...]
    limit_watts: float
    amps: float
    volts: float
    phases: int
    derating: float
    path: KeyPath
    line: int | None = None

    @property
    def phase(self) -> str | None:
        """L1, L2 or L3, where it is one line of three."""
        return None if self.line is None else f"L{self.line + 1}"

    def amps_for(self, watts: float) -> int:
        """The whole amps that its breaker would have to be rated for to carry ``watts`` for good."""
        return math.ceil(self.amps * watts / self.limit_watts - 1e-9)


class Layout:
    """The PDUs of the racks of one group."""

    def __init__(self, pdus: Sequence[Pdu], path: KeyPath) -> None:
        self.pdus = tuple(pdus)
        self.path = path
        self.banks: list[Bank] = []
        self.breakers: list[Breaker] = []
        self.pools: list[Outlets | None] = []
        # PDUs of three phases with circuits that do not say theirs.
        self.unphased: list[int] = []
        for index, pdu in enumerate(pdus):
            first = len(self.banks)
            if pdu.circuits:
                self._circuits(index, pdu, pdu.circuits)
            else:
                self._whole(index, pdu)
            if pdu.phases == 3:
                self._phases(index, pdu, range(first, len(self.banks)))
        self._shares = [self._line_shares(bank) for bank in self.banks]

    @cached_property
    def feeds(self) -> list[FeedKey]:
        """The feed behind each PDU."""
        return [("feed", pdu.feed) if pdu.feed else ("PDU", pdu.name) for pdu in self.pdus]

    @cached_property
    def of_feed(self) -> dict[FeedKey, list[int]]:
        """The banks that hang on each feed, in the file's order."""
        found: dict[FeedKey, list[int]] = {}
        for index, bank in enumerate(self.banks):
            found.setdefault(self.feeds[bank.pdu], []).append(index)
        return found

    @cached_property
    def of_pdu(self) -> dict[str, list[int]]:
        """The banks of each PDU."""
        found: dict[str, list[int]] = {}
        for index, bank in enumerate(self.banks):
            found.setdefault(self.pdus[bank.pdu].name, []).append(index)
        return found

    def breakers_of(self, pdu: int) -> list[Breaker]:
        """The breakers of a PDU, its own among them."""
        return sorted((b for b in self.breakers if b.pdu == pdu), key=lambda b: -len(b.banks))

    def carried(self, breaker: Breaker, banks: Sequence[float]) -> float:
        """Watts on ``breaker`` with ``banks`` on the banks; a line's amps times its volts to neutral, for a phase."""
        if breaker.line is None:
            return math.fsum(banks[index] for index in breaker.banks)
        line = breaker.line
        return abs(sum(banks[index] * self._shares[index].get(line, 0) for index in breaker.banks))

    def _circuits(self, index: int, pdu: Pdu, circuits: Sequence[Circuit]) -> None:
        first = len(self.banks)
        for position, circuit in enumerate(circuits):
            volts = _outlet_volts(pdu, circuit.phase)
            derating = circuit.derating if circuit.derating is not None else pdu.derating
            limit = volts * circuit.amps * derating
            lines = _LINES[circuit.phase] if circuit.phase and pdu.phases == 3 else ()
            written = circuit.outlets.c13 or circuit.outlets.c19
            self.pools.append(circuit.outlets if written else None)
            self.banks.append(Bank(index, len(self.pools) - 1, lines, volts, limit))
            path = (*self.path, "pdus", index, "circuits", position)
            self.breakers.append(
                Breaker(
                    "circuit", f"{pdu.name}/{circuit.name}", index, (len(self.banks) - 1,), limit, circuit.amps,
                    volts, 1, derating, path,
                )
            )  # fmt: skip
        self._pdu("PDU", index, pdu, range(first, len(self.banks)))

    def _whole(self, index: int, pdu: Pdu) -> None:
        first = len(self.banks)
        self.pools.append(pdu.outlets)
        pool = len(self.pools) - 1
        if pdu.phases == 3:
            # Without circuits nobody says which outlet hangs on which phase: each plug may be put on any.
            for lines in _TO_NEUTRAL if pdu.volts >= _LINE_TO_NEUTRAL_FROM else _BETWEEN:
                self.banks.append(Bank(index, pool, lines, _outlet_volts(pdu, None), None))
        else:
            self.banks.append(Bank(index, pool, (), pdu.volts, pdu.limit_watts))
        self._pdu("circuit", index, pdu, range(first, len(self.banks)))

    def _pdu(self, kind: Literal["circuit", "PDU"], index: int, pdu: Pdu, banks: range) -> None:
        path = (*self.path, "pdus", index)
        self.breakers.append(
            Breaker(
                kind, pdu.name, index, tuple(banks), pdu.limit_watts, pdu.amps, pdu.volts, pdu.phases, pdu.derating,
                path,
            )
        )  # fmt: skip

    def _phases(self, index: int, pdu: Pdu, banks: range) -> None:
        if any(not self.banks[bank].lines for bank in banks):
            self.unphased.append(index)
            return
        for line in range(3):
            self.breakers.append(
                Breaker(
                    "phase", f"{pdu.name}/L{line + 1}", index,
                    tuple(bank for bank in banks if line in self.banks[bank].lines),
                    pdu.limit_watts / 3, pdu.amps, pdu.volts / math.sqrt(3), 1, pdu.derating,
                    (*self.path, "pdus", index), line,
                )
            )  # fmt: skip

    def _line_shares(self, bank: Bank) -> dict[int, complex]:
        """What a watt on the bank puts on each line: its current by size and angle, times line-to-neutral volts."""
        if len(bank.lines) < 2:
            return {line: complex(1) for line in bank.lines}
        # Supplies correct their power factor, so that the current runs with the voltage between the two lines.
        a, b = bank.lines
        between = _angle(a) - _angle(b)
        current = between / abs(between) / math.sqrt(3)
        return {a: current / _angle(a), b: -current / _angle(b)}


def _angle(line: int) -> complex:
    return cmath.exp(-2j * math.pi * line / 3)


def _outlet_volts(pdu: Pdu, phase: str | None) -> float:
    if pdu.phases == 1:
        return pdu.volts
    to_neutral = "-" not in phase if phase else pdu.volts >= _LINE_TO_NEUTRAL_FROM
    return pdu.volts / math.sqrt(3) if to_neutral else pdu.volts


@dataclass(frozen=True)
class Homeless:
    """A cord that found no outlet of its type among those of ``banks``: of the ``unit``-th machine of the rack."""

    unit: int
    banks: tuple[int, ...]


@dataclass(eq=False)
class RackKind:
    """Racks that are alike, with the same machines in the same order; what holds of one holds of all.

    ``plugs`` are the banks that each machine's cords are in, None where its supplies are unknown or nothing is there.
    """

    layout: Layout
    group: Rack
    machines: tuple[Machine, ...]
    plugs: tuple[tuple[int, ...] | None, ...] = ()
    homeless: tuple[Homeless, ...] = ()
    racks: list[str] = field(default_factory=list)
    members: list[tuple[str, ...]] = field(default_factory=list)

    @cached_property
    def alike(self) -> dict[tuple[Machine, tuple[int, ...]], int]:
        """How many machines of each make hang on each set of banks."""
        found: dict[tuple[Machine, tuple[int, ...]], int] = {}
        for machine, plugs in zip(self.machines, self.plugs, strict=True):
            if plugs:
                found[machine, plugs] = found.get((machine, plugs), 0) + 1
        return found

    @cached_property
    def feeds(self) -> tuple[FeedKey, ...]:
        """The feeds behind its PDUs, each once."""
        return tuple(dict.fromkeys(self.layout.feeds))

    def names(self, units: Collection[int]) -> list[str]:
        """The nodes and switches, of all its racks, whose number in the rack is one of ``units``."""
        return [name for names in self.members for unit, name in enumerate(names) if unit in units]

    def made(self, machines: Collection[Machine]) -> list[str]:
        """The nodes and switches, of all its racks, that are one of ``machines``."""
        return self.names({unit for unit, machine in enumerate(self.machines) if machine in machines})

    def on(self, breaker: Breaker) -> list[str]:
        """What is plugged in behind ``breaker``, of all its racks."""
        banks = set(breaker.banks)
        return self.names(
            {unit for unit, plugs in enumerate(self.plugs) if not banks.isdisjoint(plugs or ())}
        )

    def volts(self, plugs: Sequence[int]) -> float | None:
        """The lowest volts of the outlets."""
        return min((self.layout.banks[bank].volts for bank in plugs), default=None)

    def watts(self, unit: int, caps: Caps) -> float | None:
        """Most watts of one of its machines with all feeds alive."""
        machine = self.machines[unit]
        return machine.watts(caps.get(machine), self.volts(self.plugs[unit] or ()))

    def banks(self, caps: Caps, lost: FeedKey | None = None) -> list[float]:
        """Watts on each bank with ``lost`` dead; a machine's supplies share alike.

        A machine without supplies on other feeds goes dark, and one that has fewer left than it needs. What draws
        nobody knows how much is left out.
        """
        carried = [0.0] * len(self.layout.banks)
        for (machine, plugs), number in self.alike.items():
            live = plugs if lost is None else self.live(machine, plugs, lost)
            watts = machine.watts(
                caps.get(machine), self.volts(plugs), len(live) if len(live) < len(plugs) else None
            )
            for bank in live:
                carried[bank] += number * (watts or 0) / len(live)
        return carried

    def live(self, machine: Machine, plugs: Sequence[int], lost: FeedKey) -> tuple[int, ...]:
        """Those of a machine's plugs that carry it when ``lost`` is dead; none where it goes dark."""
        left = tuple(bank for bank in plugs if self.layout.feeds[self.layout.banks[bank].pdu] != lost)
        enough = len(left) == len(plugs) or len(left) >= (machine.min_active or 1)
        return left if enough else ()

    def loads(self, caps: Caps) -> list[tuple[Breaker, float, float, FeedKey | None]]:
        """Of each breaker: watts with all feeds alive, with the worst other feed lost, and which feed that is."""
        normal = self.banks(caps)
        lost = [(feed, self.banks(caps, feed)) for feed in self.feeds] if len(self.feeds) > 1 else []
        found = []
        for breaker in self.layout.breakers:
            watts = worst = self.layout.carried(breaker, normal)
            by: FeedKey | None = None
            for feed, banks in lost:
                carried = self.layout.carried(breaker, banks)
                if carried > worst + 1e-6:
                    worst, by = carried, feed
            found.append((breaker, watts, worst, by))
        return found

    def on_feed(self, feed: FeedKey, caps: Caps, lost: FeedKey | None = None) -> float:
        """Watts that one of its racks puts on ``feed``."""
        banks = self.banks(caps, lost if lost in self.feeds else None)
        return math.fsum(banks[bank] for bank in self.layout.of_feed.get(feed, ()))
