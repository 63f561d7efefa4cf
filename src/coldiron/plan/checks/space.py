"""Checks of racks and space; their codes begin with CU.

What stands in racks is gathered once for all of them; the checks of cables and of balance have modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coldiron.inventory.ranges import fold
from coldiron.inventory.source import KeyPath
from coldiron.plan.checks.space_balance import unbalanced
from coldiron.plan.checks.space_cables import beyond_catalog, beyond_reach
from coldiron.plan.checks.space_floor import (
    Floor,
    Standing,
    alike_once,
    count,
    figure,
    floor,
    hosts_of,
    key_path,
    rack_names,
    racks_of,
    so_do,
)
from coldiron.plan.design import Check, Design, Result
from coldiron.plan.place import Misfit, bays_of, placement
from coldiron.plan.place_bay import Bay
from coldiron.plan.place_shape import Shape, Thing


def space(design: Design) -> Iterator[Result]:
    """All that is looked at rack by rack, and what has no place."""
    here = floor(design)
    yield from _unplaced(design, here)
    yield from _overlaps(design, here)
    yield from _outside(design, here)
    yield from _heights(design, here)
    yield from _depths(design, here)
    yield from _weights(design, here)
    yield from _nowhere(design, here)
    yield from _limits(design, here)


def _unplaced(design: Design, here: Floor) -> Iterator[Result]:
    """What should stand in a rack and fits into none."""
    positions = design.positions
    if all(thing.rack is None or thing.name in positions for thing in here.things):
        return
    alike: dict[tuple[KeyPath, tuple[tuple[str, int], ...]], list[Misfit]] = {}
    for misfit in placement(design).misfits:
        alike.setdefault((misfit.thing.path, misfit.why), []).append(misfit)
    for (_, why), misfits in alike.items():
        first = misfits[0].thing
        names = [misfit.thing.name for misfit in misfits]
        if not design.racks:
            what = f"{_some(names, first.group)} no rack to stand in: the file has none"
            advice = "write `racks`, or leave `rack` out"
        elif first.rack in design.racks:
            racks = list(dict.fromkeys(misfit.thing.rack or "" for misfit in misfits))
            shown = f"rack {racks[0]}" if len(racks) == 1 else f"racks {fold(racks)}"
            what = f"{_some(names, first.group)} no place: {why[0][0]} in {shown}"
            advice = "name another rack, or move what stands there"
        else:
            reasons = ", ".join(f"{reason} in {count(number, 'rack')}" for reason, number in why)
            what = f"{_some(names, first.group)} no place: {reasons}"
            advice = "write more `racks`, or fewer nodes"
        yield design.refuse(
            "CU105",
            key_path(design, first, "rack"),
            what,
            advice,
            hosts=hosts_of([misfit.thing for misfit in misfits]),
            subject=first.group,
            misfits=len(misfits),
        )


def _some(names: list[str], group: str) -> str:
    return (
        f"{group} has"
        if names == [group]
        else f"{len(names)} of {group} {'has' if len(names) == 1 else 'have'}"
    )


def _overlaps(design: Design, here: Floor) -> Iterator[Result]:
    """What the file puts where something else stands."""
    order = {thing.name: number for number, thing in enumerate(here.things)}
    pairs: dict[tuple[KeyPath, KeyPath], list[tuple[Standing, Standing]]] = {}
    for standing in here.racks.values():
        for pair in _overlapping(standing):
            early, late = sorted(pair, key=lambda one: order[one.thing.name])
            pairs.setdefault((early.thing.path, late.thing.path), []).append((early, late))
    bays: dict[str, Bay] = {}
    for found in pairs.values():
        early, late = found[0]
        rack = early.position.rack
        if rack not in bays:
            bays[rack] = _filled(design, rack, here.racks[rack])
        spot = bays[rack].unit(late.thing.shape)
        more = so_do(len(found) - 1, "pair")
        yield design.refuse(
            "CU101",
            key_path(design, late.thing, "u"),
            f"{late.thing.name} ({late.units}) stands where {early.thing.name} ({early.units}) is in rack "
            f"{rack}{more}",
            f"U{spot} is free there" if spot else "put one of them into another rack",
            hosts=hosts_of([one.thing for pair in found for one in pair]),
            subject=f"{early.thing.name}, {late.thing.name}",
            pairs=len(found),
        )


def _overlapping(standing: list[Standing]) -> Iterator[tuple[Standing, Standing]]:
    """Each thing with the one below it that reaches highest, where that reaches into it."""
    placed = sorted(
        (one for one in standing if one.position.u is not None),
        key=lambda one: (one.position.u, one.thing.name),
    )
    top, below = 0, None
    for one in placed:
        u = one.position.u or 0
        if below is not None and u < top:
            yield below, one
        end = u + (one.position.height_u or 1)
        if below is None or end > top:
            top, below = end, one


def _filled(design: Design, rack: str, standing: Iterable[Standing]) -> Bay:
    one = bays_of(design)[rack]
    for each in standing:
        one.put(each.thing.shape, each.position.u)
    return one


def _outside(design: Design, here: Floor) -> Iterator[Result]:
    """What would stand above the rack, or in its floor."""
    found: dict[tuple[KeyPath, int], list[Standing]] = {}
    for standing in here.racks.values():
        for one in standing:
            u = one.position.u
            if u is not None and (u < 1 or u + (one.position.height_u or 1) - 1 > one.rack.units):
                found.setdefault((one.thing.path, id(one.rack)), []).append(one)
    for several in found.values():
        first = several[0]
        more = so_do(len(several) - 1, "machine")
        yield design.refuse(
            "CU102",
            key_path(design, first.thing, "u"),
            f"{first.thing.name} would take {first.units} of rack {first.position.rack}, which has U1 to "
            f"U{first.rack.units}{more}",
            _inside(design, several),
            hosts=hosts_of([one.thing for one in several]),
            subject=first.thing.group,
            units=first.rack.units,
        )


def _inside(design: Design, several: list[Standing]) -> str:
    """What to write so that these stand inside."""
    first = several[0]
    above = max((one.position.u or 0) + (one.position.height_u or 1) - 1 - one.rack.units for one in several)
    thing = first.thing
    group = (
        design.switches[thing.name].group
        if thing.shape.switch
        else design.cluster.node_groups[int(thing.path[1])]
    )
    written = group.u if key_path(design, thing, "u") == (*thing.path, "u") else None
    # One `u` is the lowest machine's, and the others stand on it.
    if written and len(written) == 1:
        highest = written[0] - max(above, 0)
        if highest >= 1 or above <= 0:
            return f"write `u: {max(highest, 1)}`" + (" or less" if highest > 1 else "")
        return "name more racks, or write the rack's true `units`"
    last = first.rack.units - (first.position.height_u or 1) + 1
    return (
        f"write a `u` from 1 to {last}"
        if last >= 1
        else "name another rack, or write the rack's true `units`"
    )


def _heights(design: Design, here: Floor) -> Iterator[Result]:
    """What stands in a rack, or should, and is nobody knows how high."""
    for thing in alike_once(here.things):
        if thing.rack is not None and thing.shape.height_u is None and not thing.shape.aside:
            yield design.unknown(
                thing.label, figure(thing.shape, "height_u"), "its place in the rack", thing.path
            )


def _depths(design: Design, here: Floor) -> Iterator[Result]:
    """What is deeper than its rack."""
    found: dict[tuple[KeyPath, float, int], list[Standing]] = {}
    unknown: dict[tuple[KeyPath, Shape], Thing] = {}
    for standing in here.racks.values():
        for one in standing:
            shape, room = one.thing.shape, one.rack.depth_mm
            if room is None or shape.aside:
                continue
            if shape.depth_mm is None:
                unknown.setdefault((one.thing.path, shape), one.thing)
            elif shape.depth_mm > room:
                found.setdefault((one.thing.path, shape.depth_mm, id(one.rack)), []).append(one)
    for several in found.values():
        first = several[0]
        depth, room = first.thing.shape.depth_mm or 0.0, first.rack.depth_mm or 0.0
        yield design.refuse(
            "CU103",
            key_path(design, first.thing, "rack"),
            f"{first.thing.label} is {depth:g} mm deep, and {racks_of(several)} "
            f"{'takes' if len(rack_names(several)) == 1 else 'take'} {room:g} mm",
            f"choose racks of {depth:g} mm or more",
            hosts=hosts_of([one.thing for one in several]),
            subject=f"{first.thing.group} in {first.rack.name}",
            depth_mm=depth,
            limit_mm=room,
        )
    for thing in unknown.values():
        yield design.unknown(
            thing.label, figure(thing.shape, "depth_mm"), "depth against the rack", thing.path
        )


def _weights(design: Design, here: Floor) -> Iterator[Result]:
    """Racks that would carry too much."""
    found: dict[tuple[int, float], list[str]] = {}
    unknown: dict[tuple[KeyPath, Shape], Thing] = {}
    for name, standing in here.racks.items():
        limit = design.racks[name].group.load_kg
        if limit is None:
            continue
        total = 0.0
        for one in standing:
            shape = one.thing.shape
            if shape.aside:
                continue
            if shape.weight_kg is None:
                unknown.setdefault((one.thing.path, shape), one.thing)
            total += shape.weight_kg or 0.0
        if total > limit:
            found.setdefault((id(design.racks[name].group), round(total, 1)), []).append(name)
    for (_, total), names in found.items():
        rack = design.racks[names[0]]
        limit = rack.group.load_kg or 0.0
        heavy = sorted(here.racks[names[0]], key=lambda one: -(one.thing.shape.weight_kg or 0.0))
        least = " or more" if any(one.thing.shape.weight_kg is None for one in heavy) else ""
        yield design.refuse(
            "CU104",
            (*rack.path, "load_kg"),
            f"what stands in {'rack' if len(names) == 1 else 'each of racks'} {fold(names)} weighs {total:g} kg"
            f"{least}, and it carries {limit:g} kg",
            f"put {total - limit:.4g} kg elsewhere; the heaviest there is {heavy[0].thing.name} with "
            f"{heavy[0].thing.shape.weight_kg:g} kg",
            hosts=hosts_of([one.thing for name in names for one in here.racks[name]]),
            subject=f"rack {fold(names)}",
            kg=total,
            limit_kg=limit,
        )
    for thing in unknown.values():
        yield design.unknown(thing.label, figure(thing.shape, "weight_kg"), "the rack's load", thing.path)


def _nowhere(design: Design, here: Floor) -> Iterator[Result]:
    """What stands in no rack, though there are some."""
    if not design.racks:
        return
    nodes = design.nodes
    found: dict[KeyPath, list[Thing]] = {}
    for thing in here.things:
        if thing.rack is not None:
            continue
        node = nodes.get(thing.name)
        if node is not None and (
            node.platform != "metal" or node.build.hardware.form in ("tower", "desktop")
        ):
            continue
        found.setdefault(thing.path, []).append(thing)
    for path, several in found.items():
        names = [thing.name for thing in several]
        yield design.advise(
            "CU106",
            path,
            f"{_some(names, several[0].group)} no rack, so that space, power and cables are not reckoned for it",
            "write its `rack`, or `rack: auto`",
            hosts=hosts_of(several),
            subject=several[0].group,
        )


def _limits(design: Design, here: Floor) -> Iterator[Result]:
    """Racks of which the file does not say what they take."""
    found: dict[KeyPath, list[str]] = {}
    for name, standing in here.racks.items():
        group = design.racks[name].group
        if (group.depth_mm is None or group.load_kg is None) and any(
            not one.thing.shape.aside for one in standing
        ):
            found.setdefault(design.racks[name].path, []).append(name)
    for path, names in found.items():
        group = design.racks[names[0]].group
        absent = [key for key in ("depth_mm", "load_kg") if getattr(group, key) is None]
        keys = " and ".join(f"`{key}`" for key in absent)
        looked = " and ".join({"depth_mm": "depth", "load_kg": "weight"}[key] for key in absent)
        verb = "is" if len(absent) == 1 else "are"
        yield design.advise(
            "CU111",
            path,
            f"{group.name}: {keys} {verb} not written, so that the {looked} of what stands there {verb} not looked at",
            "the rack's data sheet has it",
            subject=f"rack {group.name}",
        )


def one_place(design: Design) -> Iterator[Result]:
    """Racks that stand where another stands."""
    taken: dict[tuple[str | None, str, int], str] = {}
    clashes: dict[tuple[KeyPath, KeyPath], list[tuple[str, str]]] = {}
    for rack in design.cluster.racks:
        if rack.group.row is None or rack.position is None:
            continue
        first = taken.setdefault((rack.group.room, rack.group.row, rack.position), rack.name)
        if first != rack.name:
            clashes.setdefault((design.racks[first].path, rack.path), []).append((first, rack.name))
    for (_, path), several in clashes.items():
        first, second = several[0]
        rack = design.racks[second]
        more = so_do(len(several) - 1, "pair")
        yield design.refuse(
            "CU107",
            (*path, "position"),
            f"racks {first} and {second} both have position {rack.position} of row {rack.group.row}{more}",
            "each rack has its own; write the first one's of each range",
            subject=f"rack {second}",
            position=rack.position,
        )


CHECKS: tuple[Check, ...] = (space, one_place, beyond_reach, beyond_catalog, unbalanced)
