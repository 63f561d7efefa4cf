"""Heat by rack and room, and a year's energy with its cost. All electricity of a machine becomes heat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coldiron.inventory.facility import Site
from coldiron.plan.draw import Machine

# The international table BTU: 1 kW is 3412.14 BTU/h.
BTU_PER_KWH = 3412.14
_HOURS_A_YEAR = 8760


@dataclass(frozen=True)
class Heat:
    """Watts of heat, by what takes them; ``unsplit_watts`` of machines of which nobody knows liquid's share."""

    air_watts: float = 0.0
    liquid_watts: float = 0.0
    unsplit_watts: float = 0.0

    def __add__(self, other: Heat) -> Heat:
        return Heat(
            self.air_watts + other.air_watts,
            self.liquid_watts + other.liquid_watts,
            self.unsplit_watts + other.unsplit_watts,
        )

    @property
    def kw(self) -> float:
        """All of it, in kW."""
        return (self.air_watts + self.liquid_watts + self.unsplit_watts) / 1000


def heat(machines: Iterable[tuple[Machine, float]]) -> Heat:
    """The heat of machines that draw so many watts each."""
    found = Heat()
    for machine, watts in machines:
        if machine.liquid is None:
            found += Heat(unsplit_watts=watts)
        else:
            found += Heat(watts * (1 - machine.liquid), watts * machine.liquid)
    return found


def energy_kwh(watts: float, site: Site) -> float:
    """A year's energy of machines that draw ``watts`` at most: at the site's average load, times its PUE if known."""
    return watts / 1000 * site.load_share * _HOURS_A_YEAR * (site.pue or 1)


def cost(kwh: float, site: Site) -> float | None:
    """What that costs, in the site's currency; None where no price is written."""
    return None if site.price_per_kwh is None else kwh * site.price_per_kwh


def btu_per_h(kw: float) -> float:
    """``kw`` in BTU/h."""
    return kw * BTU_PER_KWH
