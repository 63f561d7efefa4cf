"""What a rack still has room for: units, weight, watts and cooling, as far as the file states its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coldiron.inventory.cluster import Rack
from coldiron.plan.place_shape import Shape


@dataclass(eq=False)
class FeedUse:
    """What hangs on a feed, by this plan, and what it carries for good; in watts."""

    limit: float
    watts: float = 0.0

    @property
    def share(self) -> float:
        """How much of the feed is taken."""
        return self.watts / self.limit


@dataclass(eq=False)
class Bay:
    """A rack while it is filled. ``free`` has a bit for each free unit, U1 the lowest bit; a limit of None is unknown.

    ``limit_watts`` is what its PDUs carry for good with the worst feed lost, ``all_watts`` with all of them alive;
    ``share`` is how full it is by what is scarcest: watts, cooling by air, or units.
    """

    rack: Rack
    order: int
    free: int
    feeds: tuple[FeedUse, ...] = ()
    feed_names: tuple[str, ...] = ()
    limit_watts: float | None = None
    all_watts: float | None = None
    kg: float = 0.0
    watts: float = 0.0
    air_watts: float = 0.0
    liquid_watts: float = 0.0
    share: float = 0.0
    # By height, the units that such a thing can begin at; thrown away when something is put in.
    _begins: dict[int, int] = field(default_factory=dict, repr=False)

    def begins(self, height: int) -> int:
        """The units, a bit each, from which ``height`` units upwards are free."""
        found = self._begins.get(height)
        if found is None:
            found, have = self.free, 1
            while have < height and found:
                step = min(have, height - have)
                found &= found >> step
                have += step
            self._begins[height] = found
        return found

    def unit(self, shape: Shape) -> int | None:
        """The lowest unit of the place that ``shape`` would get; None where none is free, or it takes no units."""
        begins = self.begins(shape.height_u) if shape.height_u else 0
        if not begins:
            return None
        return begins.bit_length() if shape.from_top else (begins & -begins).bit_length()

    def hindrance(self, shape: Shape, alive: bool) -> str | None:
        """What keeps ``shape`` out, as words before «in 3 racks»; None: nothing does.

        ``alive``: reckon with all feeds alive.
        """
        group = self.rack.group
        if group.depth_mm is not None and (shape.depth_mm or 0) > group.depth_mm and not shape.aside:
            return "too little depth"
        if shape.height_u and not self.begins(shape.height_u):
            return f"no {shape.height_u} U free in one piece"
        if group.load_kg is not None and self.kg + _kg(shape) > group.load_kg:
            return "too little load left"
        limit = self.all_watts if alive else self.limit_watts
        if limit is not None and self.watts + (shape.watts or 0.0) > limit:
            return "too few watts left on the PDUs"
        air, liquid = _heat(shape)
        cooling = group.cooling
        if cooling is not None and (
            (cooling.air_kw is not None and air and self.air_watts + air > cooling.air_kw * 1000)
            or (
                cooling.liquid_kw is not None
                and liquid
                and self.liquid_watts + liquid > cooling.liquid_kw * 1000
            )
        ):
            return "too little cooling left"
        return None

    def put(self, shape: Shape, u: int | None) -> None:
        """Take what ``shape`` needs, with ``u`` as its lowest unit; what lies outside the rack takes no units."""
        if u is not None:
            self.free &= ~_bits(shape, u)
            self._begins.clear()
        self._weigh(shape, 1)

    def take_out(self, shape: Shape, u: int | None) -> None:
        """Give back what ``shape`` took at ``u``, which nothing else may have taken too."""
        if u is not None:
            self.free |= _bits(shape, u) & ((1 << self.rack.group.units) - 1)
            self._begins.clear()
        self._weigh(shape, -1)

    def _weigh(self, shape: Shape, sign: int) -> None:
        self.kg += sign * _kg(shape)
        watts = sign * (shape.watts or 0.0)
        self.watts += watts
        air, liquid = _heat(shape)
        self.air_watts += sign * air
        self.liquid_watts += sign * liquid
        for feed in self.feeds:
            feed.watts += watts / len(self.feeds)
        self.share = self._share()

    def share_with(self, shape: Shape) -> float:
        """Its ``share`` if ``shape`` stood in it too."""
        return self._share(shape.height_u or 0, shape.watts or 0.0, _heat(shape)[0])

    def _share(self, more_units: int = 0, more_watts: float = 0.0, more_air: float = 0.0) -> float:
        group = self.rack.group
        share = 1 - (self.free.bit_count() - more_units) / group.units
        if self.limit_watts:
            share = max(share, (self.watts + more_watts) / self.limit_watts)
        if group.cooling is not None and group.cooling.air_kw:
            share = max(share, (self.air_watts + more_air) / (group.cooling.air_kw * 1000))
        return share


def bay(rack: Rack, order: int, uses: Mapping[str, FeedUse]) -> Bay:
    """``rack`` while nothing is in it; ``order`` counts the racks. ``uses`` are the feeds by name."""
    of_feed: dict[str, float] = {}
    for number, pdu in enumerate(rack.group.pdus):
        # One without a feed hangs on one that nothing else hangs on.
        name = pdu.feed or f"{number}"
        of_feed[name] = of_feed.get(name, 0.0) + pdu.limit_watts
    every = sum(of_feed.values()) if of_feed else None
    left = every - max(of_feed.values()) if every is not None and len(of_feed) > 1 else every
    names = tuple(name for name in of_feed if name in uses)
    return Bay(
        rack,
        order,
        (1 << rack.group.units) - 1,
        tuple(uses[name] for name in names),
        names,
        left,
        every,
    )


def _bits(shape: Shape, u: int) -> int:
    # Of a thing of unknown height one unit is certain.
    taken = (1 << (shape.height_u or 1)) - 1
    return taken << (u - 1) if u > 0 else taken >> (1 - u)


def _kg(shape: Shape) -> float:
    return 0.0 if shape.aside else shape.weight_kg or 0.0


def _heat(shape: Shape) -> tuple[float, float]:
    """Watts of heat that air takes, and that liquid takes; none where nobody knows the shares."""
    if shape.watts is None or shape.liquid_share is None:
        return 0.0, 0.0
    return shape.watts * (1 - shape.liquid_share), shape.watts * shape.liquid_share
