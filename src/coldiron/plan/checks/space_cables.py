"""Cables against the way they have to go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from coldiron.catalog.model import Cable
from coldiron.inventory.cluster import SwitchUnit
from coldiron.inventory.ranges import fold
from coldiron.inventory.source import KeyPath
from coldiron.plan.design import Design, Result
from coldiron.plan.results import Link

_Key = TypeVar("_Key")


@dataclass
class _Run:
    """The links of a switch group that share a cable, or a speed: the longest, and how many are too long."""

    longest: Link
    switch: SwitchUnit
    number: int = 0


def reach(cable: Cable) -> float | None:
    """How many metres it goes: what the maker allows, and the longest that is sold. None: nobody says."""
    known = [
        *([cable.reach_max_m] if cable.reach_max_m is not None else []),
        *[max(cable.lengths_m or (0.0,))],
    ]
    known = [metres for metres in known if metres]
    return min(known) if known else None


def beyond_reach(design: Design) -> Iterator[Result]:
    """Cables that the file names and that do not go as far as they must."""
    catalog = design.cluster.catalog.cables
    found: dict[tuple[KeyPath, str], _Run] = {}
    unknown: dict[str, KeyPath] = {}
    for link in design.links:
        switch = design.switches.get(link.b.device)
        cable = catalog.get(link.cable) if link.cable else None
        if cable is None or switch is None or link.length_m is None:
            continue
        limit = reach(cable)
        if limit is None:
            unknown.setdefault(cable.name, _plug(switch, cable.name))
        elif link.length_m > limit:
            _note(found, (switch.path, cable.name), link, switch)
    for (_, name), run in found.items():
        limit = reach(catalog[name]) or 0.0
        length = run.longest.length_m or 0.0
        yield design.refuse(
            "CU108",
            _plug(run.switch, name),
            f"{name} goes {limit:g} m, and from {run.longest.a.device} to {run.longest.b.device} it is "
            f"{length:g} m{_more(run)}",
            "name a cable that reaches, or put the ends closer together",
            hosts=_ends(design, run),
            subject=f"{name} of {run.switch.group.name}",
            length_m=length,
            limit_m=limit,
            links=run.number,
        )
    for name, path in unknown.items():
        yield design.unknown(name, "reach_max_m", "whether the cable reaches", path)


def beyond_catalog(design: Design) -> Iterator[Result]:
    """Links that no cable reaches which the catalog has for these cages."""
    found: dict[tuple[KeyPath, float], _Run] = {}
    limits: dict[tuple[str, float], tuple[float, str] | None] = {}
    for link in design.links:
        if link.cable is not None or link.length_m is None or link.gbit_per_s is None:
            continue
        switch = design.switches.get(link.b.device)
        if switch is None or switch.model is None:
            continue
        key = (switch.group.model, link.gbit_per_s)
        if key not in limits:
            limits[key] = _farthest(design, switch, link.gbit_per_s)
        best = limits[key]
        if best is not None and link.length_m > best[0]:
            _note(found, (switch.path, link.gbit_per_s), link, switch)
    for (_, speed), run in found.items():
        limit, name = limits[run.switch.group.model, speed] or (0.0, "")
        length = run.longest.length_m or 0.0
        yield design.advise(
            "CU109",
            run.switch.path,
            f"from {run.longest.a.device} to {run.longest.b.device} it is {length:g} m, and no cable of the catalog "
            f"for {speed:g} Gb/s in a cage of {run.switch.group.model} goes farther than {limit:g} m ({name})"
            f"{_more(run)}",
            "put the switch closer, or write a cable that reaches into a file of `site.catalog`",
            hosts=_ends(design, run),
            subject=run.switch.group.name,
            length_m=length,
            limit_m=limit,
            links=run.number,
        )


def _farthest(design: Design, switch: SwitchUnit, speed: float) -> tuple[float, str] | None:
    """The farthest that a cable goes which fits the switch's cages, and its name; None where nobody can say."""
    model = switch.model
    if model is None or model.cage is None:
        return None
    speeds = (speed, speed * (model.ports_per_cage or 1))
    fitting = [
        cable
        for cable in design.cluster.catalog.cables.values()
        if model.cage in (cable.end, cable.other_end)
        and cable.gbit_per_s in speeds
        and (cable.link_layers is None or model.link_layer is None or model.link_layer in cable.link_layers)
    ]
    known = [(metres, cable.name) for cable in fitting if (metres := reach(cable)) is not None]
    return max(known) if known and len(known) == len(fitting) else None


def _note(found: dict[_Key, _Run], key: _Key, link: Link, switch: SwitchUnit) -> None:
    run = found.setdefault(key, _Run(link, switch))
    run.number += 1
    if (link.length_m or 0.0) > (run.longest.length_m or 0.0):
        run.longest, run.switch = link, switch


def _plug(switch: SwitchUnit, cable: str) -> KeyPath:
    """Where the file names the cable."""
    for position, plug in enumerate(switch.group.plugs or ()):
        if plug.cable == cable:
            return (*switch.path, "plugs", position, "cable")
    return switch.path


def _more(run: _Run) -> str:
    if run.number == 1:
        return ""
    return "; one more link is too long" if run.number == 2 else f"; {run.number - 1} more links are too long"


def _ends(design: Design, run: _Run) -> str:
    return fold([run.longest.a.device]) if run.longest.a.device in design.nodes else ""
