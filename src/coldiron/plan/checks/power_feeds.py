"""Feeds and what stands behind them: breakers, UPS watts and minutes, phases."""

from __future__ import annotations

import math
from collections.abc import Iterator

from coldiron.inventory.facility import Feed, Ups
from coldiron.plan.caps import SLACK_WATTS, percent
from coldiron.plan.checks import power_words as words
from coldiron.plan.design import Check, Design, Result


def overloaded(design: Design) -> Iterator[Result]:
    """Feeds whose breaker or UPS carries too much, with all feeds alive or the worst other one lost."""
    for name, feed in design.cluster.feeds.items():
        normal, worst = design.grid.on_feed(("feed", name))
        limit = feed.limit_watts
        volts = f"{feed.volts:g} V" + (" on three phases" if feed.phases == 3 else "")
        derated = f" ({percent(feed.derating)} of the rating)" if feed.derating < 1 else ""
        breaker = f"its {feed.amps:g} A at {volts} may carry {words.watts(limit)}{derated}"
        amps = feed.amps * worst / limit
        found = _over("CP104", normal, worst, limit)
        if found:
            code, when, verb, carried = found
            yield design.refuse(
                code,
                ("feeds", name),
                f"{when}feed {name} {verb} {words.watts(carried)}; {breaker}: {words.too_many(carried, limit)}",
                f"hang racks on another feed, cap their GPUs, or have it at least {math.ceil(amps - 1e-9)} A strong",
                subject=f"feed {name}",
                watts=round(carried, 1),
                limit_watts=round(limit, 1),
            )
        yield from _ups(design, name, feed, normal, worst)


def _over(code: str, normal: float, worst: float, limit: float) -> tuple[str, str, str, float] | None:
    if normal > limit + SLACK_WATTS:
        return code, "", "carries", normal
    if worst > limit + SLACK_WATTS:
        return "CP105", "with the other feed lost, ", "would carry", worst
    return None


def _ups(design: Design, name: str, feed: Feed, normal: float, worst: float) -> Iterator[Result]:
    ups = feed.ups
    if ups is None:
        return
    path = ("feeds", name, "ups")
    if worst > ups.watts + SLACK_WATTS:
        when = "" if normal > ups.watts + SLACK_WATTS else "with the other feed lost, "
        carried = normal if not when else worst
        yield design.refuse(
            "CP109",
            path,
            f"{when}feed {name} carries {words.watts(carried)}, and its UPS gives {words.watts(ups.watts)}: "
            f"{words.too_many(carried, ups.watts)}",
            "hang racks on another feed, cap their GPUs, or take a larger UPS",
            subject=f"UPS of feed {name}",
            watts=round(carried, 1),
            limit_watts=ups.watts,
        )
    yield from _minutes(design, name, ups, normal, worst)


def _minutes(design: Design, name: str, ups: Ups, normal: float, worst: float) -> Iterator[Result]:
    path = ("feeds", name, "ups")
    alone = any(feed.ups is None for other, feed in design.cluster.feeds.items() if other != name)
    # When the grid is down, feeds without batteries are down too, and this one takes their share.
    carried = worst if alone else normal
    if ups.minutes is None or not carried:
        return
    if ups.watt_hours is None:
        yield design.unknown(
            f"the UPS of feed {name}",
            f"feeds.{name}.ups.watt_hours",
            "how many minutes its batteries last",
            path,
        )
        return
    minutes = ups.watt_hours / carried * 60
    dead = ", as a feed without one is dead then" if carried > normal else ""
    wanted = math.ceil(ups.minutes / 60 * carried - 1e-9)
    if minutes < ups.minutes - 1e-9:
        yield design.refuse(
            "CP110",
            path,
            f"the UPS of feed {name} lasts {minutes:.1f} minutes at {words.watts(carried)}{dead}; "
            f"{ups.minutes:g} are wanted",
            f"take batteries of {wanted} Wh, or stop jobs sooner and write fewer minutes",
            subject=f"UPS of feed {name}",
            minutes=round(minutes, 2),
            wanted_minutes=ups.minutes,
        )


def phases(design: Design) -> Iterator[Result]:
    """PDUs of three phases on a feed of one."""
    seen = set()
    for kind in design.grid.kinds:
        for index, pdu in enumerate(kind.layout.pdus):
            path = (*kind.layout.path, "pdus", index)
            feed = design.cluster.feeds.get(pdu.feed or "")
            if path in seen or feed is None or pdu.phases <= feed.phases:
                continue
            seen.add(path)
            yield design.refuse(
                "CP120",
                path,
                f"PDU {pdu.name} wants three phases, and feed {pdu.feed} has one",
                "mend `phases` of the PDU or of the feed",
                subject=f"PDU {kind.racks[0]}/{pdu.name}",
            )


CHECKS: tuple[Check, ...] = (overloaded, phases)
