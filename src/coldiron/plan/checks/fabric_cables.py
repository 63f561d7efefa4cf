"""Whether a cable that `plugs` names fits the cages at its ends and carries their links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from coldiron.catalog.model import Cable
from coldiron.inventory.cluster import SwitchUnit
from coldiron.inventory.ranges import expand
from coldiron.inventory.source import KeyPath
from coldiron.inventory.wiring import Plug
from coldiron.plan.checks.fabric import by_group
from coldiron.plan.design import Check, Design, Kind
from coldiron.plan.findings import Finding


def form(cage: str | None) -> str | None:
    """The form of a cage or a plug: within one, later kinds take the plugs of earlier ones."""
    return next((kind for kind in ("osfp", "qsfp", "sfp", "rj45") if cage and cage.startswith(kind)), None)


def cables(design: Design) -> Iterator[Finding]:
    """CL147: a cable of another form, for another number of links, or too slow."""
    kinds = {node.name: kind for kind in design.kinds for node in kind.nodes}
    for path, units in by_group(design.cluster.switches).items():
        for index, plug in enumerate(units[0].group.plugs or ()):
            cable = design.cluster.catalog.cables.get(plug.cable) if plug.cable else None
            if cable is None:
                continue
            here = (*path, "plugs", index, "cable")
            for what, advice in _faults(design, units[0], plug, cable, kinds):
                yield design.refuse(
                    "CL147", here, what, advice, subject=f"switch {units[0].group.name} {cable.name}"
                )


def _faults(
    design: Design, unit: SwitchUnit, plug: Plug, cable: Cable, kinds: Mapping[str, Kind]
) -> Iterator[tuple[str, str]]:
    face = design.cabling.faces[unit.name]
    links = plug.breakout or face.split
    mine = form(unit.model.cage if unit.model else None)
    if mine and form(cable.end) not in (None, mine):
        cage = unit.model.cage if unit.model else None
        yield (
            f"{cable.name} ends in {cable.end}, and {unit.group.model} has {cage} cages",
            "write another cable",
        )
    planes = design.cabling.planes
    where: KeyPath = ("fabrics", unit.group.fabric) if unit.group.fabric and not plug.network else ()
    plane = planes.get(where)
    if plane is None or plane.gbit_per_s is None:
        return
    if cable.gbit_per_s is not None and cable.gbit_per_s < links * plane.gbit_per_s:
        yield (
            f"{cable.name} carries {cable.gbit_per_s:g} Gbit/s, and a cage here {links} links of {plane.gbit_per_s:g}",
            "write a faster cable, or `breakout` with fewer links a cage",
        )
    nodes = list(dict.fromkeys(kinds[name] for name in expand(plug.to) if name in kinds))
    if nodes and cable.other_ends is not None and 1 < cable.other_ends != links:
        yield (
            f"{cable.name} has {cable.other_ends} far ends, and a cage here {links} links",
            f"write `breakout: {cable.other_ends}`, or another cable",
        )
    far = form(cable.other_end)
    for kind in nodes:
        fast = [port for port in kind.build.hardware.ports or () if port.gbit_per_s >= plane.gbit_per_s]
        cages = {port.cage for port in fast}
        if far and cages and None not in cages and far not in {form(cage) for cage in cages}:
            listed = ", ".join(sorted(cage for cage in cages if cage))
            yield (
                f"{cable.name} ends in {cable.other_end} at the nodes, and {kind.label} has {listed} cages",
                "write another cable",
            )


CHECKS: tuple[Check, ...] = (cables,)
