"""A machine's power supplies: strong enough, and still so with one of them, or one feed, lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil

from coldiron.inventory.cluster import Node
from coldiron.inventory.source import KeyPath
from coldiron.plan.checks.node_common import OFFICE, Draw, alike, cap_of, draw, folded, stated
from coldiron.plan.design import Check, Design, Kind, Result
from coldiron.text import counted

# What is kept free above the peak.
HEADROOM = 0.1


def strong_enough(design: Design) -> Iterator[Result]:
    """CH116: supplies that give less than the peak and a tenth."""
    for kind in stated(design):
        own = kind.build.supplies
        path = _supplies(kind)
        if own.count is not None and own.min_active is not None and own.min_active > own.count:
            yield design.refuse(
                "CH116",
                path,
                f"{own.min_active} supplies must live, and there are {own.count}",
                "mend `count` or `min_active`",
                hosts=kind.hosts,
                supplies=own.count,
                min_active=own.min_active,
            )
            continue
        for nodes, peak in _peaks(design, kind):
            if peak is None or own.count is None or own.watts is None:
                if kind.build.gpu_count:
                    yield from _unknown(design, kind, peak)
            elif own.count * own.watts < round(peak.watts * (1 + HEADROOM), 1):
                yield _too_weak(design, kind, nodes, peak, own.count * own.watts)


def _too_weak(design: Design, kind: Kind, nodes: tuple[Node, ...], peak: Draw, have: float) -> Result:
    want = peak.watts * (1 + HEADROOM)
    find = design.refuse if have < peak.watts else design.warn
    advice = f"take supplies of {ceil(want)} W in all"
    if peak.gpus and peak.gpu_watts and have / (1 + HEADROOM) > peak.rest:
        most = int((have / (1 + HEADROOM) - peak.rest) / peak.gpus + 1e-6)
        advice += f", or write `gpu_cap_watts: {most}` if the GPUs take it"
    own = kind.build.supplies
    count = own.count or 0
    return find(
        "CH116",
        _supplies(kind),
        f"{counted(count, 'supply', 'supplies')} of {own.watts:.0f} W give{'s' if count == 1 else ''} {have:.0f} W, "
        f"and the machine's peak is {peak.watts:.0f} W, {want:.0f} W with 10 % to spare",
        advice,
        hosts=folded(kind, nodes),
        watts=peak.watts,
        wanted_watts=round(want, 1),
        supply_watts=have,
    )


def _unknown(design: Design, kind: Kind, peak: Draw | None) -> Iterator[Result]:
    own, path = kind.build.supplies, _supplies(kind)
    for name in ("count", "watts"):
        if getattr(own, name) is None:
            yield design.unknown(kind.label, f"hardware.supplies.{name}", "power supplies", path)
    if peak is None:
        wanted = "hardware.draw_watts"
        gpu = kind.build.gpu
        if gpu is not None and gpu.tdp_watts is not None:
            wanted = "hardware.base_watts"
        yield design.unknown(kind.label, wanted, "power supplies", path)


def one_lost(design: Design) -> Iterator[Result]:
    """CH117: a machine that stops, or slows down, when one of its supplies dies."""
    for kind in stated(design):
        own, office = kind.build.supplies, kind.build.hardware.form in OFFICE
        # Nobody expects a spare supply in a machine for an office, unless the file says that there is one.
        if own.count is None or (office and (own.min_active or own.count) >= own.count):
            continue
        for nodes, peak in _peaks(design, kind):
            why = _fails(kind, own.count - 1, peak)
            if why is None:
                continue
            find = design.advise if own.count == 1 else design.warn
            yield find(
                "CH117",
                _supplies(kind),
                f"with one of {counted(own.count, 'supply', 'supplies')} lost, {why}",
                "take one supply more, stronger ones, or a lower `gpu_cap_watts`"
                if own.count > 1
                else "take a machine with two supplies where it must not stop",
                hosts=folded(kind, nodes),
                supplies=own.count,
                min_active=own.min_active,
                watts=peak.watts if peak else None,
                live_watts=(own.count - 1) * own.watts if own.watts else None,
            )


def feed_lost(design: Design) -> Iterator[Result]:
    """CH118: a machine on two feeds or more that one feed's loss stops all the same."""
    for kind in stated(design):
        count = kind.build.supplies.count
        if count is None or count < 2:
            continue
        for nodes in alike(kind.nodes, lambda node: _plugged(design, node)):
            feeds = _feeds(design, nodes[0], count)
            if feeds is None:
                continue
            feed, gone = Counter(feeds).most_common(1)[0]
            for some, peak in _peaks(design, kind, nodes):
                why = _fails(kind, count - gone, peak)
                if why is not None:
                    yield _stops(design, kind, some, peak, feed, gone, why)


def _stops(
    design: Design, kind: Kind, nodes: tuple[Node, ...], peak: Draw | None, feed: str, gone: int, why: str
) -> Result:
    own = kind.build.supplies
    live = (own.count or 0) - gone
    return design.warn(
        "CH118",
        (*kind.path, "power", "pdus"),
        f"{gone} of {own.count} supplies hang on feed {feed}; with it lost, {why}",
        "spread the supplies over more feeds (`power: {pdus: [...]}`), or take stronger ones",
        hosts=folded(kind, nodes),
        feed=feed,
        supplies=own.count,
        live=live,
        min_active=own.min_active,
        watts=peak.watts if peak else None,
        live_watts=live * own.watts if own.watts else None,
    )


def _fails(kind: Kind, live: int, peak: Draw | None) -> str | None:
    """Why ``live`` supplies do not carry the machine, or None where they do as far as anybody says."""
    own = kind.build.supplies
    if own.min_active is not None and live < own.min_active:
        return f"{live} are left of the {own.min_active} that must live"
    if live <= 0:
        return "none is left"
    if peak is not None and own.watts is not None and live * own.watts < peak.watts:
        return f"{live * own.watts:.0f} W are left for a peak of {peak.watts:.0f} W"
    return None


def _plugged(design: Design, node: Node) -> tuple[object, ...]:
    """What decides on which feeds a node's supplies hang."""
    place = design.positions.get(node.name)
    rack = design.racks.get(place.rack if place else node.rack or "")
    pdus = node.power.pdus
    return (id(rack.group) if rack else None, tuple(pdus) if pdus else None)


def _feeds(design: Design, node: Node, count: int) -> list[str] | None:
    """The feed of each supply; None where the node stands in no rack, or hangs on one feed, which CP106 tells."""
    place = design.positions.get(node.name)
    rack = design.racks.get(place.rack if place else node.rack or "")
    if rack is None:
        return None
    # A PDU without a feed is one of its own.
    behind = {pdu.name: pdu.feed or pdu.name for pdu in rack.group.pdus}
    pdus = [name for name in node.power.pdus or behind if name in behind]
    feeds = [behind[pdus[index % len(pdus)]] for index in range(count)] if pdus else []
    return feeds if len(set(feeds)) > 1 else None


def _peaks(
    design: Design, kind: Kind, nodes: tuple[Node, ...] | None = None
) -> Iterator[tuple[tuple[Node, ...], Draw | None]]:
    """The nodes of a kind by their power cap, with the peak that it makes."""
    for some in alike(kind.nodes if nodes is None else nodes, lambda node: cap_of(design, node)):
        yield some, draw(kind, cap_of(design, some[0]))


def _supplies(kind: Kind) -> KeyPath:
    return (*kind.path, "hardware", "supplies")


CHECKS: tuple[Check, ...] = (strong_enough, one_lost, feed_lost)
