"""A plan and a code's page as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from coldiron.inventory.findings import SHOWN_AT_MOST, shown_path
from coldiron.inventory.ranges import fold
from coldiron.plan.codes import FAMILIES, Page
from coldiron.plan.data import Plan

_WIDTH = 88


def shown_plan(plan: Plan) -> list[str]:
    """What would be done, a line each: stage, role, how many nodes, which."""
    assert plan.cluster is not None
    nodes = f"{len(plan.hosts)} nodes" if len(plan.hosts) != 1 else "1 node"
    lines = [f"{plan.cluster.name}: {nodes}, {shown_path(plan.cluster.path)}"]
    if plan.limit:
        lines[0] += f", limited to {','.join(plan.limit)}"
    stage_width = max((len(step.stage) for step in plan.steps), default=0)
    role_width = max((len(step.role) for step in plan.steps), default=0)
    before = ""
    for step in plan.steps:
        if step.stage != before:
            lines.append("")
        stage = step.stage if step.stage != before else ""
        before = step.stage
        which = "all" if len(step.hosts) == len(plan.hosts) else fold(list(step.hosts))
        lines.append(f"{stage:<{stage_width}}  {step.role:<{role_width}}  {len(step.hosts):>5}  {which}")
    return lines


def shown_findings(plan: Plan) -> str:
    """All findings: how many, then a line each."""
    number = len(plan.findings)
    head = (
        f"{number} things to mend before anything runs"
        if number != 1
        else "1 thing to mend before anything runs"
    )
    codes = list(dict.fromkeys(finding.code for finding in plan.findings))
    shown = [str(finding) for finding in plan.findings[:SHOWN_AT_MOST]]
    if number > SHOWN_AT_MOST:
        shown.append(f"... and {number - SHOWN_AT_MOST} more; --json has them all")
    tail = [f"`coldiron explain {codes[0]}` tells more about a code"]
    if not plan.complete:
        tail.append(
            "what depends on it has not been checked yet: type the same command again once it is mended"
        )
    return "\n".join([head, *shown, *tail])


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
