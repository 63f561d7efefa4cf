"""Switches against what hangs on them: speed, link layer, ports and cages."""

from __future__ import annotations

from collections.abc import Iterator

from coldiron.inventory.cluster import SwitchUnit
from coldiron.inventory.source import KeyPath
from coldiron.plan.cabling import Faceplate
from coldiron.plan.checks.fabric import by_group, folded
from coldiron.plan.design import Check, Design, Result
from coldiron.plan.fabric import Plane
from coldiron.plan.findings import Finding

_PORTS_CODE = {"leaf": "CL124", "spine": "CL125", "management": "CL126"}
_MORE = {
    "leaf": "write more leaves or a model with more ports, or an `oversubscription` that asks for fewer uplinks",
    "spine": "write more spines, or a model with more ports",
    "management": "write more switches, or a model with more ports",
}


def _groups(design: Design) -> dict[KeyPath, list[SwitchUnit]]:
    return by_group(design.cluster.switches)


def _planes(design: Design, unit: SwitchUnit) -> Iterator[Plane]:
    """The fabric and the networks that a switch carries."""
    planes = design.cabling.planes
    paths: list[KeyPath] = [("networks", name) for name in unit.group.networks]
    if unit.group.fabric is not None:
        paths.insert(0, ("fabrics", unit.group.fabric))
    return (planes[path] for path in paths if path in planes)


def link_layer(design: Design) -> Iterator[Result]:
    """CL121: an Ethernet switch in an InfiniBand fabric, or the other way round."""
    for path, units in _groups(design).items():
        model = units[0].model
        for plane in _planes(design, units[0]):
            wanted = plane.fabric.link_layer if plane.fabric else "ethernet"
            if model is None or (model.link_layer is None and plane.fabric is None):
                continue
            if model.link_layer is None:
                yield design.unknown(model.name, "link_layer", f"whether it speaks {_spoken(wanted)}", path)
            elif (wanted == "infiniband") != (model.link_layer == "infiniband"):
                yield design.refuse(
                    "CL121",
                    (*path, "model"),
                    f"{model.name} speaks {_spoken(model.link_layer)}, and `{plane.name}` is {_spoken(wanted)}",
                    f"write a switch for {_spoken('infiniband' if wanted == 'infiniband' else 'ethernet')}; "
                    "`coldiron catalog list switches` has them",
                    subject=f"switch {units[0].group.name}",
                )


def _spoken(layer: str) -> str:
    return {"infiniband": "InfiniBand", "ethernet": "Ethernet", "roce": "RoCE"}[layer]


def speed(design: Design) -> Iterator[Result]:
    """CL122 and CL123: ports that are slower than their links, or faster."""
    for path, units in _groups(design).items():
        face = design.cabling.faces[units[0].name]
        for plane in _planes(design, units[0]):
            if plane.gbit_per_s is None:
                continue
            if face.gbit_per_s is None:
                if plane.fabric is not None:
                    yield design.unknown(units[0].group.model, "gbit_per_s", "its ports' speed", path)
                continue
            yield from _too_slow(design, path, units[0], face, plane)
            if plane.fabric is not None and face.gbit_per_s >= 2 * plane.gbit_per_s:
                times = int(face.gbit_per_s // plane.gbit_per_s)
                advice = "write a switch of that speed"
                if face.ports is not None:
                    advice = (
                        f"write `ports: {face.ports * times}` if its cages are split, or "
                        + advice.removeprefix("write ")
                    )
                yield design.advise(
                    "CL123",
                    (*path, "model"),
                    f"a port of {units[0].group.model} carries {face.gbit_per_s:g} Gbit/s, and a link of "
                    f"`{plane.name}` {plane.gbit_per_s:g}",
                    advice,
                    subject=f"switch {units[0].group.name}",
                    port_gbit_per_s=face.gbit_per_s,
                    link_gbit_per_s=plane.gbit_per_s,
                )


def _too_slow(
    design: Design, path: KeyPath, unit: SwitchUnit, face: Faceplate, plane: Plane
) -> Iterator[Finding]:
    assert face.gbit_per_s is not None
    assert plane.gbit_per_s is not None
    slow: dict[KeyPath, float] = {}
    if face.gbit_per_s < plane.gbit_per_s:
        slow[(*path, "ports" if unit.group.ports is not None else "model")] = face.gbit_per_s
    for index, plug in enumerate(unit.group.plugs or ()):
        link = face.gbit_per_s * face.split / (plug.breakout or face.split)
        if link < plane.gbit_per_s and plug.breakout and plug.breakout > face.split:
            slow[(*path, "plugs", index, "breakout")] = link
    for where, link in slow.items():
        yield design.refuse(
            "CL122",
            where,
            f"a link of {unit.group.name} carries {link:g} Gbit/s, and `{plane.name}` wants {plane.gbit_per_s:g}",
            "write a faster model, or split its cages into fewer links",
            subject=f"switch {unit.group.name}",
            port_gbit_per_s=link,
            link_gbit_per_s=plane.gbit_per_s,
        )


def ports(design: Design) -> Iterator[Result]:
    """CL124 to CL127: switches without the ports for their links, or for those that must stay free."""
    faces = design.cabling.faces
    for path, units in _groups(design).items():
        group = units[0].group
        if faces[units[0].name].ports is None:
            if any(faces[unit.name].taken for unit in units):
                yield design.unknown(group.model, "ports", "its links against its ports", path)
            continue
        fabric = design.cluster.fabrics.get(group.fabric) if group.fabric else None
        spare = fabric.spare_ports if fabric and group.function != "spine" else 0
        full = [unit for unit in units if (faces[unit.name].free or 0) < 0]
        tight = [unit for unit in units if 0 <= (faces[unit.name].free or 0) < spare]
        for code, found in ((_PORTS_CODE[group.function], full), ("CL127", tight)):
            if not found:
                continue
            worst = max((faces[unit.name] for unit in found), key=lambda face: face.taken)
            what = f"{folded(found)}: {_links(worst)} take {worst.taken} ports, and {group.model} has {worst.ports}"
            advice = _MORE[group.function]
            if code == "CL127":
                what = (
                    f"{folded(found)}: {worst.free} of {worst.ports} ports are free, and {spare} must stay so"
                )
                advice = "write more leaves, or fewer `spare_ports` for the fabric"
            yield design.refuse(
                code,
                (*path, "ports") if group.ports is not None else path,
                what,
                advice,
                subject=f"switch {group.name}",
                down=worst.down,
                up=worst.up,
                taken=worst.taken,
                spare_ports=spare,
                ports=worst.ports,
            )


def _links(face: Faceplate) -> str:
    if not face.up:
        return f"{face.down} links"
    return f"{face.down} links down and {face.up} up"


def plugs(design: Design) -> Iterator[Result]:
    """CL133 and CL141 to CL146: what `plugs` says and cannot be."""
    for fault in design.cabling.faults:
        yield design.refuse(fault.code, fault.path, fault.what, fault.advice, subject=fault.subject)
    for path, units in _groups(design).items():
        group, model = units[0].group, units[0].model
        open_plugs = [plug for plug in group.plugs or () if plug.breakout is None]
        if open_plugs and model is not None and not design.cabling.faces[units[0].name].labelled:
            yield design.unknown(
                model.name, "ports_per_cage", "how many links a plugged cage holds", (*path, "plugs")
            )


CHECKS: tuple[Check, ...] = (link_layer, speed, ports, plugs)
