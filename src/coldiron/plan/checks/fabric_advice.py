"""Fewer switches, or smaller ones, that would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from coldiron.catalog.model import Switch
from coldiron.plan.checks.fabric import by_group
from coldiron.plan.design import Check, Design
from coldiron.plan.findings import Finding


def _saving(prices: Mapping[str, float], old: float, model: str, number: int) -> float | None:
    """What is saved against ``old`` by ``number`` pieces of ``model``; None where its price is not known."""
    return old - prices[model] * number if model in prices else None


def _said(saving: float | None, currency: str | None) -> str:
    return f" and cost {saving:,.0f} {currency or ''}".rstrip() + " less" if saving else ""


def _smaller(design: Design, model: Switch, need: int) -> Switch | None:
    """The smallest switch of the catalog that does what ``model`` does with at least ``need`` ports."""
    assert model.ports is not None
    prices = design.cluster.site.prices
    found = [
        one
        for one in design.cluster.catalog.switches.values()
        if one.ports is not None
        and need <= one.ports < model.ports
        and (one.link_layer, one.gbit_per_s) == (model.link_layer, model.gbit_per_s)
        and (one.cage is None or model.cage is None or one.cage == model.cage)
        and (one.managed or not model.managed)
        and not (one.name in prices and model.name in prices and prices[one.name] >= prices[model.name])
    ]
    return min(found, key=lambda one: one.ports or 0, default=None)


def smaller_switch(design: Design) -> Iterator[Finding]:
    """CL151: a switch with fewer ports would hold all links."""
    faces, site = design.cabling.faces, design.cluster.site
    for path, units in by_group(design.cluster.switches).items():
        group, model = units[0].group, units[0].model
        if model is None or model.ports is None or model.link_layer is None or model.gbit_per_s is None:
            continue
        if group.ports not in (None, model.ports):
            continue
        fabric = design.cluster.fabrics.get(group.fabric) if group.fabric else None
        spare = fabric.spare_ports if fabric and group.function != "spine" else 0
        taken = max(faces[unit.name].taken for unit in units)
        smaller = _smaller(design, model, taken + spare) if taken else None
        if smaller is None:
            continue
        number = len(units)
        price = site.prices.get(model.name)
        saving = None if price is None else _saving(site.prices, price * number, smaller.name, number)
        yield design.advise(
            "CL151",
            (*path, "model"),
            f"{group.name} needs {taken + spare} of the {model.ports} ports of {model.name}; {smaller.name} with "
            f"{smaller.ports} would do{_said(saving, site.currency)}",
            f"write `model: {smaller.name}`, unless the cluster will grow",
            subject=f"switch {group.name}",
            taken=taken,
            spare_ports=spare,
            ports=model.ports,
            smaller=smaller.name,
            smaller_ports=smaller.ports,
            saving=saving,
        )


def fewer_switches(design: Design) -> Iterator[Finding]:
    """CL152: one switch would hold all nodes of a fabric, so that it needs neither more leaves nor spines."""
    drawn, site = design.cabling, design.cluster.site
    for plane in drawn.planes.values():
        if plane.fabric is None or not plane.leaves:
            continue
        switches = (*plane.leaves, *plane.spines)
        down = drawn.down.get(plane.path, 0) + plane.fabric.spare_ports
        face = drawn.faces[plane.leaves[0].name]
        # A switch that carries networks too is there for more than this fabric.
        other = any(unit.group.networks for unit in switches)
        if len(switches) < 2 or other or face.ports is None or down > face.ports:
            continue
        name = plane.leaves[0].group.model
        models = [unit.group.model for unit in switches]
        known = all(model in site.prices for model in models)
        saving = _saving(site.prices, sum(site.prices[m] for m in models), name, 1) if known else None
        yield design.advise(
            "CL152",
            plane.path,
            f"the {down - plane.fabric.spare_ports} links of `{plane.name}` fit one {name} with {face.ports} ports: "
            f"one switch would do the work of {len(switches)}{_said(saving, site.currency)}",
            "write one leaf and no spine, unless the cluster will grow",
            subject=f"fabric {plane.name}",
            links=down - plane.fabric.spare_ports,
            ports=face.ports,
            switches=len(switches),
            saving=saving,
        )


CHECKS: tuple[Check, ...] = (smaller_switch, fewer_switches)
