"""What the machines draw, and what circuits, PDUs, feeds, racks and rooms carry of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from coldiron.inventory.ranges import fold
from coldiron.plan.caps import percent, price
from coldiron.plan.circuits import Breaker, RackKind
from coldiron.plan.design import Design
from coldiron.plan.energy import btu_per_h, cost, energy_kwh
from coldiron.plan.grid import Grid
from coldiron.plan.results import CircuitLoad, PowerPlan

_NAMES_WIDTH = 40


def power(design: Design) -> PowerPlan:
    """What ``design`` draws. Machines whose draw nobody knows are left out everywhere."""
    grid = design.grid
    watts = grid.watts
    total = math.fsum(watts.values())
    site = design.cluster.site
    energy = energy_kwh(total, site) if watts else None
    loads = [(kind, kind.loads(grid.caps(kind))) for kind in grid.kinds]

    def of(wanted: str) -> tuple[CircuitLoad, ...]:
        return tuple(
            _load(kind, rack, breaker, normal, worst)
            for kind, found in loads
            for rack in kind.racks
            for breaker, normal, worst, _ in found
            if wanted == breaker.kind
        )

    return PowerPlan(
        nodes={name: watts[name] for name in design.nodes if name in watts},
        switches={name: watts[name] for name in design.switches if name in watts},
        circuits=of("circuit"),
        feeds=tuple(_feeds(design, grid)),
        caps={name: cap for name, _, cap in _caps(grid)},
        heat_kw={rack: kw for kind in grid.kinds for kw in (grid.heat(kind).kw,) for rack in kind.racks},
        energy_kwh=energy,
        cost=cost(energy, site) if energy is not None else None,
        phases=of("phase"),
        pdus=of("PDU"),
    )


def _load(kind: RackKind, rack: str, breaker: Breaker, normal: float, worst: float) -> CircuitLoad:
    feed = kind.layout.pdus[breaker.pdu].feed
    return CircuitLoad(f"{rack}/{breaker.name}", feed, breaker.phase, breaker.limit_watts, normal, worst)


def _feeds(design: Design, grid: Grid) -> Iterator[CircuitLoad]:
    for name, feed in design.cluster.feeds.items():
        normal, worst = grid.on_feed(("feed", name))
        yield CircuitLoad(name, name, None, feed.limit_watts, normal, worst)


def _caps(grid: Grid) -> Iterator[tuple[str, float, float]]:
    """Of each node whose cap the plan found: its name, its GPUs' rating and the cap, in watts."""
    for kind in grid.kinds:
        caps = grid.caps(kind)
        for names in kind.members if caps else ():
            for name, machine in zip(names, kind.machines, strict=True):
                if machine in caps:
                    yield name, machine.tdp_watts or 0, caps[machine]


def power_data(design: Design) -> dict[str, Any]:
    """What a terminal and ``--json`` show of it, as JSON types with the units in the names; racks in the file's order.

    ``load_percent`` and ``failover_percent`` of a rack are its fullest breaker's, with all feeds alive and with the
    worst one lost; None where nothing feeds it.
    """
    plan, site, grid = design.power, design.cluster.site, design.grid
    watts = math.fsum(plan.nodes.values()) + math.fsum(plan.switches.values())
    unknown = [name for name in grid.machines if name not in plan.nodes and name not in plan.switches]
    rows = {row["rack"]: row for kind in grid.kinds for row in _rack_rows(grid, kind)}
    return {
        "watts": round(watts, 1),
        "heat_kw": round(watts / 1000, 3),
        "heat_btu_per_h": round(btu_per_h(watts / 1000)),
        "energy_kwh_per_year": None if plan.energy_kwh is None else round(plan.energy_kwh),
        "cost_per_year": None if plan.cost is None else round(plan.cost, 2),
        "currency": site.currency,
        "pue": site.pue,
        "load_share": site.load_share,
        "without_figure": fold(unknown) if unknown else "",
        "without_figure_count": len(unknown),
        "caps": _cap_rows(grid),
        "lost_feeds": _lost_rows(design, grid),
        "racks": [rows[name] for name in design.racks],
        **{
            name: [_row(load) for load in getattr(plan, name)]
            for name in ("circuits", "phases", "pdus", "feeds")
        },
    }


def _lost_rows(design: Design, grid: Grid) -> list[dict[str, Any]]:
    """What goes dark with each feed though another comes to its rack."""
    rows = []
    for name in design.cluster.feeds if len(design.cluster.feeds) > 1 else ():
        dark = grid.dark(("feed", name))
        rows.append({"feed": name, "dark": fold(dark) if dark else "", "dark_count": len(dark)})
    return rows


def _rack_rows(grid: Grid, kind: RackKind) -> Iterator[dict[str, Any]]:
    loads = kind.loads(grid.caps(kind))
    heat = grid.heat(kind)
    row = {
        "watts": round(heat.kw * 1000, 1),
        "load_percent": _percent([(normal, breaker.limit_watts) for breaker, normal, _, _ in loads]),
        "failover_percent": _percent([(worst, breaker.limit_watts) for breaker, _, worst, _ in loads]),
        "heat_kw": round(heat.kw, 3),
        "heat_btu_per_h": round(btu_per_h(heat.kw)),
        "liquid_kw": round(heat.liquid_watts / 1000, 3),
    }
    for rack in kind.racks:
        yield {"rack": rack, **row}


def _percent(loads: list[tuple[float, float]]) -> float | None:
    return round(max(100 * watts / limit for watts, limit in loads), 1) if loads else None


def _row(load: CircuitLoad) -> dict[str, Any]:
    return {
        "id": load.id,
        "feed": load.feed,
        "phase": load.phase,
        "limit_watts": round(load.limit_watts, 1),
        "watts": round(load.watts, 1),
        "failover_watts": round(load.failover_watts, 1),
    }


def _cap_rows(grid: Grid) -> list[dict[str, Any]]:
    found: dict[tuple[str, float, float], list[str]] = {}
    for name, rating, cap in _caps(grid):
        found.setdefault((grid.machines[name].gpu, rating, cap), []).append(name)
    rows = []
    for (gpu, rating, cap), names in found.items():
        share, words = price(grid.machines[names[0]], cap)
        rows.append(
            {
                "nodes": fold(names),
                "gpu": gpu,
                "gpu_cap_watts": cap,
                "gpu_tdp_watts": rating,
                "speed_percent": None if share is None else round(100 * share, 1),
                "speed_note": words,
            }
        )
    return rows


def power_lines(data: dict[str, Any], rows: int = 12) -> list[str]:
    """Caps, racks (the fullest first, ``rows`` lines at most) and lost feeds of ``power_data``, for a terminal."""
    lines = [_cap_line(cap) for cap in data["caps"]]
    alike: dict[tuple[float, ...], list[str]] = {}
    for rack in data["racks"]:
        if rack["load_percent"] is not None:
            key = ("failover_percent", "load_percent", "watts", "heat_kw", "heat_btu_per_h")
            alike.setdefault(tuple(rack[name] for name in key), []).append(rack["rack"])
    fed = sorted(alike.items(), key=lambda item: item[0], reverse=True)
    if fed:
        names = [_cut(fold(racks)) for _, racks in fed[:rows]]
        width = max(4, *map(len, names))
        lines.append(f"{'rack':<{width}}  watts each  all feeds  one lost  heat kW      BTU/h")
        lines += [
            f"{name:<{width}}  {watts:>10,.0f}  {load:>7.0f} %  {worst:>6.0f} %  {kw:>7.1f}  {btu:>9,.0f}"
            for name, ((worst, load, watts, kw, btu), _) in zip(names, fed, strict=False)
        ]
        more = sum(len(racks) for _, racks in fed[rows:])
        if more:
            lines.append(f"... and {more} racks that are less full; --json has them all")
    lines += [
        f"with feed {row['feed']} lost, {row['dark']} go{'es' if row['dark_count'] == 1 else ''} dark"
        for row in data["lost_feeds"]
        if row["dark"]
    ]
    return lines


def _cut(text: str) -> str:
    return text if len(text) <= _NAMES_WIDTH else f"{text[: _NAMES_WIDTH - 3]}..."


def _cap_line(cap: dict[str, Any]) -> str:
    watts, rating = cap["gpu_cap_watts"], cap["gpu_tdp_watts"]
    return (
        f"{_cut(cap['nodes'])}: cap each GPU at {watts:.0f} W ({percent(watts / rating)} of {rating:.0f} W), and every "
        f"circuit of its rack holds; {cap['speed_note']}"
    )
