"""The shape of a fabric: rails, leaves and spines, and what goes up from each leaf."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from coldiron.inventory.cluster import SwitchUnit
from coldiron.inventory.ranges import fold
from coldiron.inventory.source import KeyPath
from coldiron.plan.design import Check, Design
from coldiron.plan.fabric import Plane
from coldiron.plan.findings import Finding
from coldiron.plan.links import Cabling

# Shares are compared to this; a link more or less is far above it.
_EPSILON = 1e-9


def by_group(units: Iterable[SwitchUnit]) -> dict[KeyPath, list[SwitchUnit]]:
    """Switches by the range that they were written in."""
    found: dict[KeyPath, list[SwitchUnit]] = {}
    for unit in units:
        found.setdefault(unit.path, []).append(unit)
    return found


def folded(units: Iterable[SwitchUnit]) -> str:
    """Switches as one range."""
    return fold([unit.name for unit in units])


def _fabrics(design: Design) -> Iterator[Plane]:
    return (plane for plane in design.cabling.planes.values() if plane.fabric is not None)


def _ups(drawn: Cabling, unit: SwitchUnit, plane: Plane) -> list[int]:
    """A leaf's links to each spine."""
    return [drawn.up.get((unit.name, spine.name), 0) for spine in plane.spines]


def unserved(design: Design) -> Iterator[Finding]:
    """CL128: ports of nodes that come to no leaf."""
    missing: dict[KeyPath, tuple[Plane, dict[str, None], list[int]]] = {}
    for one in design.cabling.unserved:
        _, nodes, rails = missing.setdefault(one.plane.path, (one.plane, {}, []))
        nodes.update(dict.fromkeys(one.nodes))
        rails.append(one.rail)
    for plane, nodes, rails in missing.values():
        which = f"rail {fold_numbers(rails)} of " if plane.fabric and plane.rails > 1 else ""
        written = [unit.path for unit in plane.leaves if unit.group.rails is not None]
        yield design.refuse(
            "CL128",
            (*written[0], "rails") if written else plane.path,
            f"{which}`{plane.name}` comes to no leaf switch for {len(nodes)} nodes",
            "write it under the `rails` or `plugs` of a leaf"
            if which
            else "write a leaf switch, or more `plugs`",
            hosts=fold(list(nodes)),
            subject=f"{'fabric' if plane.fabric else 'network'} {plane.name}",
            nodes=len(nodes),
        )


def fold_numbers(numbers: Iterable[int]) -> str:
    """``1-4,7``."""
    text = fold([f"n{number}" for number in numbers])
    return text.removeprefix("n").strip("[]")


def wrong_rails(design: Design) -> Iterator[Finding]:
    """CL133: leaves for rails that the fabric does not have."""
    for plane in _fabrics(design):
        for path, units in by_group(plane.leaves).items():
            beyond = [rail for rail in units[0].group.rails or () if not 1 <= rail <= plane.rails]
            if beyond:
                yield design.refuse(
                    "CL133",
                    (*path, "rails"),
                    f"{units[0].group.name} serves rail {fold_numbers(beyond)}; `{plane.name}` has rails 1 to "
                    f"{plane.rails}",
                    f"write numbers from 1 to {plane.rails}",
                    subject=f"switch {units[0].group.name}",
                    rails=plane.rails,
                )


def oversubscribed(design: Design) -> Iterator[Finding]:
    """CL129: fewer links up than the fabric promises."""
    drawn = design.cabling
    for plane in _fabrics(design):
        assert plane.fabric is not None
        promised = plane.fabric.oversubscription
        if len(plane.leaves) < 2:
            continue
        for path, units in by_group(plane.leaves).items():
            shares = {}
            for unit in units:
                face, up = drawn.faces[unit.name], sum(_ups(drawn, unit, plane))
                if up and face.down / up > promised + _EPSILON:
                    shares[unit.name] = (face.down / up, face.down, up)
            if not shares:
                continue
            share, down, up = max(shares.values())
            number = len(plane.spines)
            need = math.ceil(math.ceil(down / promised) / number) * number
            told = math.ceil(share * 100 - _EPSILON) / 100
            yield design.refuse(
                "CL129",
                (*path, "uplinks") if units[0].group.uplinks is not None else path,
                f"{fold(list(shares))}: {down} links down share {up} up, {share:.3g}:1, and `{plane.name}` promises "
                f"{promised:g}:1" + (" (full bisection)" if promised == 1 else ""),
                f"write {need} uplinks, or `oversubscription: {told:g}` for the fabric",
                subject=f"switch {units[0].group.name}",
                down=down,
                up=up,
                oversubscription=round(share, 3),
                promised=promised,
            )


def uneven(design: Design) -> Iterator[Finding]:
    """CL130 and CL131: leaves whose links up are not the same to all spines, or do not reach each of them."""
    drawn = design.cabling
    for plane in _fabrics(design):
        if len(plane.leaves) < 2:
            continue
        for path, units in by_group(plane.leaves).items():
            odd: dict[str, list[SwitchUnit]] = {}
            for unit in units:
                ups = _ups(drawn, unit, plane)
                if sum(ups) and min(ups) != max(ups):
                    odd.setdefault("CL131" if min(ups) == 0 else "CL130", []).append(unit)
            where = (*path, "uplinks") if units[0].group.uplinks is not None else path
            number = len(plane.spines)
            for code, found in odd.items():
                ups = _ups(drawn, found[0], plane)
                if code == "CL131":
                    what = f"{folded(found)} reaches {number - ups.count(0)} of the {number} spines of `{plane.name}`"
                else:
                    what = f"the {sum(ups)} links up of {folded(found)} do not divide over {number} spines"
                choice = -(-sum(ups) // number) * number
                yield design.warn(
                    code,
                    where,
                    what,
                    f"write {choice} `uplinks`, or another number of spines",
                    subject=f"switch {units[0].group.name}",
                    up=sum(ups),
                    spines=number,
                )


def _parts(drawn: Cabling, plane: Plane) -> list[set[str]]:
    """The switches of a plane that nodes hang on, in sets that are joined among themselves."""
    mine = [unit.name for unit in (*plane.leaves, *plane.spines)]
    parent = {name: name for name in mine}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for a, b in drawn.up:
        if a in parent and b in parent:
            parent[root(a)] = root(b)
    used = {name for rail in range(1, plane.rails + 1) for name in drawn.leaves.get((plane.path, rail), ())}
    found: dict[str, set[str]] = {}
    for name in mine:
        if name in used:
            found.setdefault(root(name), set()).add(name)
    return list(found.values())


def apart(design: Design) -> Iterator[Finding]:
    """CL132, CL134 and CL135: leaves that nothing joins."""
    drawn = design.cabling
    said: set[str] = set()
    for plane in drawn.planes.values():
        parts = _parts(drawn, plane)
        if len(parts) < 2:
            continue
        used = set().union(*parts)
        leaves = [unit for unit in plane.leaves if unit.name in used]
        split = [
            rail
            for rail in range(1, plane.rails + 1)
            if sum(bool(part & drawn.leaves.get((plane.path, rail), set())) for part in parts) > 1
        ]
        if plane.fabric is None:
            which = folded(leaves)
            if which not in said:
                said.add(which)
                yield design.advise(
                    "CL135",
                    leaves[0].path,
                    f"nothing joins {which}, which carry `{plane.name}`",
                    "write a spine for it, or `plugs` from one to the other; until then those ports are not counted",
                    subject=f"network {plane.name}",
                )
        elif split:
            which = f"rail {fold_numbers(split)} of " if plane.rails > 1 else ""
            sets = "leaves" if all(len(part) == 1 for part in parts) else "sets of leaves"
            yield design.refuse(
                "CL132",
                leaves[0].path,
                f"the nodes on {which}`{plane.name}` hang on {len(parts)} {sets} that nothing joins",
                "write spines, or uplinks to them",
                subject=f"fabric {plane.name}",
                parts=len(parts),
            )
        else:
            yield design.advise(
                "CL134",
                leaves[0].path,
                f"nothing joins the leaves of `{plane.name}`: its rails reach each other through the nodes only",
                "write spines, unless all jobs keep to one rail or change rails through NVLink",
                subject=f"fabric {plane.name}",
                parts=len(parts),
            )


CHECKS: tuple[Check, ...] = (unserved, wrong_rails, oversubscribed, uneven, apart)
