"""The reference of the codes that findings carry, from the pages behind ``coldiron explain``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coldiron.docs_gen.page import Page
from coldiron.plan import codes

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def _example(title: str, text: str) -> str:
    # Some wrong examples hold what no page can show.
    shown = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text.rstrip())
    return f"\n{title}:\n\n```yaml\n{shown}\n```\n" if shown else ""


def _section(code: codes.Page) -> str:
    fence = f"\n```text\n{code.type.strip()}\n```\n" if code.type.strip() else ""
    return (
        # The anchor is the code alone: a title may be worded anew.
        f"\n### {code.code}: {code.title} {{ #{code.code.lower()} }}\n\n{code.means}\n\n{code.why}\n"
        + _example("Wrong", code.wrong)
        + _example("Right", code.right)
        + ("\nType or do:\n" + fence if fence else "")
    )


def page(known: Iterable[codes.Page] | None = None) -> Page:
    """Return the page of every code, by family."""
    text = (
        "# Codes of findings\n\nA finding names the file, the line, what is wrong, and a code. `coldiron explain CI101`"
        " shows the same on the\nterminal as stands here.\n"
    )
    family = ""
    for code in codes.pages().values() if known is None else known:
        if code.family != family:
            family = code.family
            text += f"\n## {family}: {codes.FAMILIES[family]}\n"
        text += _section(code)
    return Page("reference/codes.md", text)
