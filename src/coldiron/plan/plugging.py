"""Which outlets a rack's machines are plugged into, as the file says, else where most room is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coldiron.plan.circuits import Homeless, Layout
from coldiron.plan.draw import Machine


class Plugging:
    """Puts each machine's cords into a rack's outlets: where there is a fitting outlet and most room is left.

    Room is reckoned with uncapped GPUs, so that no cap moves a plug.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.load = [0.0] * len(layout.banks)
        self.used = [0] * len(layout.banks)
        self.on_pdu = [0.0] * len(layout.pdus)
        self.on_line = [[0.0] * 3 for _ in layout.pdus]
        self.left = [{"c14": pool.c13, "c20": pool.c19} if pool else None for pool in layout.pools]
        self.homeless: list[Homeless] = []

    def plug(
        self, machines: Sequence[Machine]
    ) -> tuple[tuple[tuple[int, ...] | None, ...], tuple[Homeless, ...]]:
        """The banks of each machine's cords, and the cords without an outlet. The largest machines go first."""
        plugs: list[tuple[int, ...] | None] = [None] * len(machines)
        draws = [machine.watts(machine.tdp_watts) or 0.0 for machine in machines]
        for unit in sorted(range(len(machines)), key=lambda unit: -draws[unit]):
            cords = machines[unit].plugs
            if cords and self.layout.banks:
                share = draws[unit] / cords
                plugs[unit] = tuple(
                    self._put(unit, machines[unit].inlet, share, banks, bool(machines[unit].pdus))
                    for banks in self._targets(machines[unit], cords)
                )
        return tuple(plugs), tuple(self.homeless)

    def _targets(self, machine: Machine, cords: int) -> Iterator[list[int]]:
        of_pdu = self.layout.of_pdu
        sets = [of_pdu[name] for name in machine.pdus or () if name in of_pdu]
        if not sets:
            # The feed with most room first; round off, so that equal loads count as equal.
            sets = sorted(self.layout.of_feed.values(), key=lambda banks: round(self._filled(banks), 6))
        for cord in range(cords):
            yield sets[cord % len(sets)]

    def _filled(self, banks: Sequence[int]) -> float:
        pdus = {self.layout.banks[bank].pdu for bank in banks}
        return sum(self.on_pdu[pdu] for pdu in pdus) / sum(self.layout.pdus[pdu].limit_watts for pdu in pdus)

    def _put(self, unit: int, inlet: str | None, share: float, banks: list[int], pinned: bool) -> int:
        fitting = [bank for bank in banks if self._outlets(bank, inlet)]
        if not fitting and not pinned:
            # Better on a feed that is not its turn than nowhere.
            banks = list(range(len(self.layout.banks)))
            fitting = [bank for bank in banks if self._outlets(bank, inlet)]
        if not fitting:
            self.homeless.append(Homeless(unit, tuple(banks)))
        chosen = min(
            fitting or banks, key=lambda bank: (round(self._full(bank, share), 6), self.used[bank], bank)
        )
        bank = self.layout.banks[chosen]
        self.load[chosen] += share
        self.used[chosen] += 1
        self.on_pdu[bank.pdu] += share
        for line in bank.lines:
            self.on_line[bank.pdu][line] += share / len(bank.lines)
        left = self.left[bank.pool]
        if fitting and left is not None and inlet in left:
            left[inlet] -= 1
        return chosen

    def _outlets(self, bank: int, inlet: str | None) -> bool:
        left = self.left[self.layout.banks[bank].pool]
        return left is None or inlet not in left or left[inlet] > 0

    def _full(self, index: int, share: float) -> float:
        """How full the fullest of the breakers before the bank would be."""
        bank = self.layout.banks[index]
        limit = self.layout.pdus[bank.pdu].limit_watts
        full = (self.on_pdu[bank.pdu] + share) / limit
        if bank.limit_watts is not None:
            full = max(full, (self.load[index] + share) / bank.limit_watts)
        for line in bank.lines:
            full = max(full, (self.on_line[bank.pdu][line] + share / len(bank.lines)) / (limit / 3))
        return full
