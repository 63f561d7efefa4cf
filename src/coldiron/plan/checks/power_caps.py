"""Caps on GPUs: within the cards' limits, found where the file asks for it, and advised where one would help."""

from __future__ import annotations

from collections.abc import Iterator

from coldiron.plan.caps import SLACK_WATTS, FeedLimit, feed_load, over, percent, price
from coldiron.plan.checks import power_words as words
from coldiron.plan.circuits import FeedKey, RackKind
from coldiron.plan.design import Check, Design, Result
from coldiron.plan.draw import Machine


def within_limits(design: Design) -> Iterator[Result]:
    """Caps that the card does not take."""
    for machine, hosts in _by_machine(design).items():
        cap = machine.cap
        if cap is None:
            continue
        least, most = machine.cap_min_watts, machine.cap_max_watts
        if (least and cap < least) or (most and cap > most):
            bounds = " and ".join(
                f"{word} {value:g} W" for word, value in (("at least", least), ("at most", most)) if value
            )
            yield design.refuse(
                "CP115",
                (*machine.path, "power", "gpu_cap_watts"),
                f"a cap of {cap:g} W is not one that {machine.gpu} takes: {bounds}",
                "write a cap within its limits, as `nvidia-smi -q -d POWER` shows them",
                hosts=words.names(hosts),
                subject=machine.label,
                cap_watts=cap,
            )


def fit(design: Design) -> Iterator[Result]:
    """Nodes of `fit_circuit` for which there is no cap, or no circuit."""
    grid = design.grid
    for kind, (breaker, carried, lost) in grid.fitted.unfit.items():
        fitted = [machine for machine in dict.fromkeys(kind.machines) if machine.fit]
        yield design.refuse(
            "CP116",
            (*fitted[0].path, "power", "fit_circuit"),
            f"no cap makes {words.racks(kind)} fit: {words.lost(lost) + ', ' if lost else ''}"
            f"{words.breaker(kind, breaker)} would carry {words.watts(carried)} even with each GPU at "
            f"{_least(fitted)}; {words.limit(breaker)}",
            f"give it a breaker of at least {breaker.amps_for(carried)} A, spread the machines over more circuits, or "
            "take GPUs out",
            hosts=words.names(kind.made(fitted)),
            subject=words.subject(kind, breaker),
            watts=round(carried, 1),
            limit_watts=round(breaker.limit_watts, 1),
        )
    limits = {feed.key: feed.limit_watts for feed in grid.feeds}
    for key, carried in grid.fitted.unfit_feeds.items():
        yield design.refuse(
            "CP116",
            ("feeds", key[1]),
            f"no cap makes the racks on feed {key[1]} fit: it would carry {words.watts(carried)} even with each GPU at "
            f"its least limit, and may carry {words.watts(limits[key])}",
            "hang racks on another feed, or take GPUs out",
            subject=f"feed {key[1]}",
            watts=round(carried, 1),
            limit_watts=round(limits[key], 1),
        )
    for machine, hosts in _by_machine(design).items():
        outside = [name for name in hosts if name not in grid.placed or not grid.placed[name][0].layout.banks]
        if machine.fit and outside:
            yield design.refuse(
                "CP116",
                (*machine.path, "power", "fit_circuit"),
                "`fit_circuit` has no circuit to fit: the nodes stand in no rack with PDUs",
                "write the rack's `pdus` (a wall's circuit is one too), or a `gpu_cap_watts` of your own",
                hosts=words.names(outside),
                subject=machine.label,
            )


def _least(machines: list[Machine]) -> str:
    limits = sorted({machine.cap_min_watts or 1 for machine in machines})
    return "its least limit of " + " or ".join(f"{limit:g} W" for limit in limits)


def advised(design: Design) -> Iterator[Result]:
    """The cap that would make a rack, or a feed, fit that does not without one."""
    grid = design.grid
    wanted: dict[tuple[Machine, float], tuple[list[str], list[str]]] = {}
    for kind in _kinds_in_need(design):
        for machine, cap in grid.would_fit.caps.get(kind, {}).items():
            if not machine.fit:
                hosts, racks = wanted.setdefault((machine, cap), ([], []))
                hosts += kind.made([machine])
                racks += kind.racks
    for (machine, cap), (hosts, racks) in wanted.items():
        share, speed = price(machine, cap)
        rating = machine.tdp_watts or cap
        yield design.advise(
            "CP117",
            machine.path,
            f"cap each GPU at {cap:.0f} W ({percent(cap / rating)} of {rating:.0f} W), and the circuits of "
            f"{'rack' if len(racks) == 1 else 'racks'} {words.names(racks)} hold, which they do not now; {speed}",
            f"write `power: {{gpu_cap_watts: {cap:.0f}}}`, or `power: {{fit_circuit: true}}` and the plan finds it",
            hosts=words.names(hosts),
            subject=f"{machine.label} in {words.names(racks)}",
            cap_watts=cap,
            tdp_watts=rating,
            speed_share=None if share is None else round(share, 3),
        )


def _kinds_in_need(design: Design) -> Iterator[RackKind]:
    """Kinds of racks that carry too much, or hang on a feed that does, and do not once all GPUs are capped."""
    grid = design.grid
    caps = grid.would_fit.caps
    feeds = {feed.key for feed in grid.feeds if _feed_over(design, feed)}
    for kind in grid.kinds:
        if kind not in grid.overloaded and feeds.isdisjoint(kind.feeds):
            continue
        if not over(kind, caps.get(kind, {})):
            yield kind


def _feed_over(design: Design, feed: FeedLimit) -> bool:
    """Whether a feed carries too much now, and not once all GPUs are capped."""
    grid = design.grid
    limit = feed.limit_watts + SLACK_WATTS
    key: FeedKey = feed.key
    return (
        grid.on_feed(key)[1] > limit
        and feed_load(key, grid.feeds, grid.kinds, grid.would_fit.caps)[1] <= limit
    )


def least_unknown(design: Design) -> Iterator[Result]:
    """Caps of which nobody knows whether the card takes them."""
    found = {machine for caps in design.grid.fitted.caps.values() for machine in caps}
    for machine in _by_machine(design):
        if machine.cap is None and machine not in found:
            continue
        if machine.cap_min_watts is None:
            yield design.unknown(
                machine.gpu, "power_limit_min_watts", "whether the cap is one that it takes", machine.path
            )
        if machine.cap is not None and machine.cap_max_watts is None:
            yield design.unknown(
                machine.gpu, "power_limit_max_watts", "whether the cap is one that it takes", machine.path
            )


def _by_machine(design: Design) -> dict[Machine, list[str]]:
    found: dict[Machine, list[str]] = {}
    for name, machine in design.grid.machines.items():
        if machine.gpus:
            found.setdefault(machine, []).append(name)
    return found


CHECKS: tuple[Check, ...] = (within_limits, fit, advised, least_unknown)
