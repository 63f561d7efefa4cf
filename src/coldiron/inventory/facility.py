"""The building in a cluster.yml: the site, its electricity and cooling, and the racks with their PDUs.

Watts are real power. Volts are between line and neutral on one phase, between lines on three.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from coldiron.inventory.values import Block, CatalogName, FileBeside, Text, ThingNames

Phases = Literal[1, 3]
# The share of a breaker's amps that a lasting load may take.
Derating = Annotated[float, Field(gt=0, le=1)]


class Cooling(Block):
    """How much heat can be taken away."""

    air_kw: float | None = Field(default=None, ge=0, le=100_000, description="By air, in kW.", examples=[40])
    liquid_kw: float | None = Field(
        default=None, ge=0, le=100_000, description="By liquid, in kW.", examples=[80]
    )


class Ups(Block):
    """The batteries behind a feed."""

    watts: float = Field(gt=0, le=100_000_000, description="Most watts that it gives.", examples=[60000])
    watt_hours: float | None = Field(
        default=None, gt=0, le=100_000_000, description="Energy in its batteries.", examples=[10000]
    )
    minutes: float | None = Field(
        default=None,
        gt=0,
        le=10_000,
        description="How long the cluster must run on it: long enough to shut down.",
        examples=[10],
    )


class Supply(Block):
    """A way that electricity comes: what its breaker allows."""

    volts: float = Field(
        gt=0,
        le=1000,
        description="Line to neutral on one phase, line to line on three.",
        examples=[230],
    )
    amps: float = Field(gt=0, le=10_000, description="What the breaker is rated for.", examples=[32])
    phases: Phases = Field(default=1, description="1 or 3.", examples=[3])
    derating: Derating = Field(
        default=0.8,
        description="Share of the amps that a lasting load may take: 0.8 by the North American code; 1 where the "
        "breaker may carry its rating for good.",
        examples=[0.8],
    )

    @property
    def limit_watts(self) -> float:
        """What its breaker may carry for good, in watts."""
        return self.volts * self.amps * self.derating * (math.sqrt(3) if self.phases == 3 else 1)


class Feed(Supply):
    """One of the building's independent supplies, as A and B."""

    ups: Ups | None = Field(default=None, description="The batteries behind it; absent where there are none.")


class Outlets(Block):
    """Outlets by their type."""

    c13: int = Field(default=0, ge=0, le=200, description="C13: up to 10 A (C14 plugs).", examples=[24])
    c19: int = Field(default=0, ge=0, le=200, description="C19: up to 16 A (C20 plugs).", examples=[12])


class Circuit(Block):
    """A bank of a PDU's outlets behind one breaker."""

    name: Annotated[Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")] = Field(
        description="Its name on the PDU, in quotes if it is a number.", examples=["b1"]
    )
    amps: float = Field(gt=0, le=1000, description="What its breaker is rated for.", examples=[20])
    phase: Literal["L1", "L2", "L3", "L1-L2", "L2-L3", "L3-L1"] | None = Field(
        default=None, description="What it hangs on, on a PDU of three phases.", examples=["L1"]
    )
    derating: Derating | None = Field(default=None, description="The PDU's, if absent.", examples=[0.8])
    outlets: Outlets = Field(default_factory=Outlets, description="Its outlets.")


class Pdu(Supply):
    """A power distribution unit of a rack; or the wall's circuit where a machine stands without one."""

    name: Annotated[Text, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,31}$")] = Field(
        description="Its name in the rack.", examples=["a"]
    )
    feed: Text | None = Field(
        default=None,
        description="The feed behind it; see feeds. Absent: one that nothing else hangs on.",
        examples=["A"],
    )
    outlets: Outlets | None = Field(
        default=None, description="Its outlets; unknown if neither they nor circuits are written."
    )
    circuits: list[Circuit] | None = Field(
        default=None,
        description="Its banks, each behind a breaker of its own; absent where there is one breaker.",
    )
    inrush_amps: float | None = Field(
        default=None,
        gt=0,
        le=100_000,
        description="Peak that its breaker lets through when all is switched on.",
        examples=[300],
    )
    staggered: bool = Field(
        default=False, description="Whether it switches its outlets on one after the other."
    )


class Room(Block):
    """A room."""

    cooling: Cooling | None = Field(default=None, description="What cools the whole room.")


class RackGroup(Block):
    """One rack, or a range of racks that are alike."""

    name: ThingNames = Field(description="A rack or a range.", examples=["r[01-04]"])
    room: Text | None = Field(
        default=None, description="The room it stands in; see rooms.", examples=["hall1"]
    )
    row: Annotated[Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,15}$")] | None = Field(
        default=None, description="The row it stands in; racks of a row stand side by side.", examples=["A"]
    )
    position: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="The first rack's place in its row; the others stand beside it.",
        examples=[1],
    )
    units: int = Field(default=42, ge=1, le=60, description="Height in U; U1 is the lowest.", examples=[48])
    depth_mm: float | None = Field(
        default=None, gt=0, le=3000, description="Usable depth, rail to door.", examples=[1100]
    )
    load_kg: float | None = Field(
        default=None, gt=0, le=10_000, description="Most weight it may carry.", examples=[1360]
    )
    cooling: Cooling | None = Field(default=None, description="What cools this rack.")
    pdus: list[Pdu] = Field(default_factory=list, description="Its PDUs, each rack's own.")


class Site(Block):
    """The place, its prices, and what it knows of its own hardware."""

    name: Annotated[Text, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="What the place is called.", examples=["Data centre North"]
    )
    currency: Annotated[Text, Field(pattern=r"^[A-Z]{3}$")] | None = Field(
        default=None, description="Of all prices, as ISO 4217 writes it.", examples=["EUR"]
    )
    price_per_kwh: float | None = Field(
        default=None, ge=0, le=100, description="Price of a kilowatt-hour.", examples=[0.24]
    )
    pue: float | None = Field(
        default=None,
        ge=1,
        le=5,
        description="The building's energy over the machines' (power usage effectiveness).",
        examples=[1.3],
    )
    load_share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="How much of the most draw a year sees on average.",
        examples=[0.7],
    )
    prices: dict[CatalogName, Annotated[float, Field(ge=0, le=1e9)]] = Field(
        default_factory=dict,
        description="What a piece costs here, by its name in the catalog.",
        examples=[{"qm9700": 30000}],
    )
    catalog: list[FileBeside] = Field(
        default_factory=list,
        description="Files beside cluster.yml that add to the hardware catalog, or correct it; the last wins.",
        examples=[["catalog.yml"]],
    )
