"""A plan and a code's page as text. The verdict comes first; nothing is longer than a person reads."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from coldiron.inventory.findings import shown_path
from coldiron.inventory.ranges import fold
from coldiron.plan.codes import FAMILIES, Page
from coldiron.plan.data import Plan, site_data, verdict
from coldiron.plan.design import Design
from coldiron.plan.energy import btu_per_h
from coldiron.plan.findings import ORDER, Finding, Severity
from coldiron.plan.load import power_data, power_lines
from coldiron.text import counted

_WIDTH = 78
# How many findings of each severity are shown, and the heading above them.
_SHOWN_AT_MOST = {Severity.REFUSE: 100, Severity.WARN: 50, Severity.ADVICE: 20}
_HEADINGS = {Severity.REFUSE: "to mend", Severity.WARN: "warnings", Severity.ADVICE: "advice"}
_WHICH_AT_MOST = 60


def shown_plan(plan: Plan, width: int | None = None) -> list[str]:
    """The whole plan, a line each; wrapped where ``width``, in columns, is given."""
    lines = [plan.verdict, *shown_findings(plan.findings, width)]
    if plan.design is not None:
        lines += ["", *shown_site(plan.design)]
    if plan.steps:
        lines += ["", *shown_steps(plan)]
    return [*lines, "", *shown_end(plan)]


def shown_findings(findings: Sequence[Finding], width: int | None = None) -> list[str]:
    """The findings, the worst first: a line each, or wrapped under their place where ``width`` is given."""
    lines: list[str] = []
    for severity in ORDER:
        of_it = [finding for finding in findings if finding.severity is severity]
        if not of_it:
            continue
        lines += ["", f"{_HEADINGS[severity]}:"]
        most = _SHOWN_AT_MOST[severity]
        for finding in of_it[:most]:
            lines += [str(finding)] if width is None else _wrapped(finding, width)
        if len(of_it) > most:
            lines.append(f"... and {len(of_it) - most} more; --json has them all")
    return lines


def shown_refusal(findings: Sequence[Finding]) -> str:
    """The verdict and the findings that led to it, as an error shows them."""
    against = [finding for finding in findings if finding.severity is Severity.REFUSE]
    return "\n".join([verdict(findings), *shown_findings(against)[2:]])


def shown_site(design: Design) -> list[str]:
    """The site in figures: a line for each thing that there is a figure of."""
    site = site_data(design)
    rows = [("nodes", _listed(site["nodes"]))]
    if site["gpus"]:
        rows.append(("GPUs", _listed(site["gpus"])))
    there = [counted(site[name], name[:-1]) for name in ("racks",) if site[name]]
    there += [counted(site["switches"], "switch", "switches")] if site["switches"] else []
    if there:
        rows.append(("site", ", ".join(there)))
    if site["links"]:
        rows.append(("links", _listed(site["links"])))
    if site["draw_kw"] is not None:
        known = (
            f"; {counted(site['without_draw'], 'machine')} without a figure" if site["without_draw"] else ""
        )
        rows.append(("power", f"{site['draw_kw']:,.1f} kW at most{known}"))
    rows += [(f"feed {feed['id']}", _feed(feed)) for feed in site["feeds"]]
    if site["breakers"]:
        over = f"{site['breakers_over']} over their limit" if site["breakers_over"] else "none over its limit"
        rows.append(("breakers", f"{site['breakers']}, {over}"))
    if site["heat_kw"] is not None:
        rows.append(("heat", f"{site['heat_kw']:,.1f} kW ({btu_per_h(site['heat_kw']):,.0f} BTU/h)"))
    if site["energy_kwh"] is not None:
        price = f", {site['cost']:,.0f} {site['currency'] or ''}".rstrip() if site["cost"] is not None else ""
        rows.append(("a year", f"{site['energy_kwh'] / 1000:,.1f} MWh{price}"))
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {text}" for name, text in rows]
    power = power_lines(power_data(design))
    return [*lines, "", *power] if power else lines


def _listed(numbers: dict[str, int]) -> str:
    total = sum(numbers.values())
    parts = [f"{number:,} {name}" for name, number in numbers.items()]
    more = f", and {len(parts) - 8} more kinds" if len(parts) > 8 else ""
    return f"{total:,}: {', '.join(parts[:8])}{more}" if len(parts) > 1 else parts[0] if parts else "none"


def _feed(feed: dict[str, Any]) -> str:
    text = f"{feed['watts'] / 1000:,.1f} of {feed['limit_watts'] / 1000:,.1f} kW"
    if feed["failover_watts"] > feed["watts"]:
        text += f"; {feed['failover_watts'] / 1000:,.1f} kW with another feed lost"
    return text


def shown_steps(plan: Plan) -> list[str]:
    """What would be done, a line each: stage, role, how many nodes, which."""
    assert plan.cluster is not None
    lines = [f"{plan.cluster.name}: {counted(len(plan.hosts), 'node')}, {shown_path(plan.cluster.path)}"]
    if plan.limit:
        lines[0] += f", limited to {','.join(plan.limit)}"
    stage_width = max(len(step.stage) for step in plan.steps)
    role_width = max(len(step.role) for step in plan.steps)
    before = ""
    for step in plan.steps:
        if step.stage != before:
            lines.append("")
        stage = step.stage if step.stage != before else ""
        before = step.stage
        which = "all" if len(step.hosts) == len(plan.hosts) else _cut(fold(list(step.hosts)))
        lines.append(f"{stage:<{stage_width}}  {step.role:<{role_width}}  {len(step.hosts):>5}  {which}")
    return lines


def shown_end(plan: Plan) -> list[str]:
    """What to type next."""
    where = shown_path(plan.inventory)
    lines: list[str] = []
    if plan.findings:
        lines.append(f"coldiron explain {plan.findings[0].code}  tells why, and what is right")
    if not plan.complete:
        lines.append("what depends on it has not been looked at yet: plan again once it is mended")
    if not plan.refused:
        lines.append(f"coldiron apply -i {where}  does it")
    return lines


def _cut(text: str) -> str:
    return text if len(text) <= _WHICH_AT_MOST else text[: _WHICH_AT_MOST - 3] + "..."


def _wrapped(finding: Finding, width: int) -> list[str]:
    """A finding for a terminal: where and its code, then what is wrong and what to do, indented."""
    text = finding.what + (f" ({finding.hosts})" if finding.hosts else "")
    text += f"; {finding.advice}" if finding.advice else ""
    filled = textwrap.wrap(text, width - 4, break_long_words=False, break_on_hyphens=False)
    return [f"  {finding.where} [{finding.code}]", *(f"    {line}" for line in filled)]


def shown_page(page: Page) -> list[str]:
    """A code's page."""
    lines = [
        f"{page.code}: {page.title}",
        "",
        *_filled(page.means),
        "",
        *_filled(f"Why it matters: {page.why}"),
    ]
    for word, example in (("Wrong", page.wrong), ("Right", page.right)):
        if example:
            lines += [
                "",
                f"{word}:",
                "",
                *textwrap.indent(_printable(example).rstrip("\n"), "    ").splitlines(),
            ]
    lines += ["", *_filled(f"What to do: {page.type}")]
    return [*lines, "", *_filled(f"Source: {page.source}")] if page.source else lines


def _printable(example: str) -> str:
    """``example`` as a terminal may show it: a control character in it is the very mistake."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in example)


def _filled(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def shown_list(pages: Iterable[Page]) -> list[str]:
    """Every code with its title, family by family."""
    lines: list[str] = []
    family = ""
    for page in pages:
        if page.family != family:
            lines += [""] * bool(lines) + [f"{FAMILIES[page.family]}:"]
            family = page.family
        lines.append(f"  {page.code:<6} {page.title}")
    return lines
