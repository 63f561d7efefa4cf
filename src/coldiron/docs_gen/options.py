"""Options as a table of two columns, which a phone can show: what an option is, and what it says."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from coldiron.docs_gen.markup import anchor, code, paragraphs

# The last word of an option's name says what its number counts; see the rule quantities_have_units.
UNITS = {
    "seconds": "seconds",
    "minutes": "minutes",
    "hours": "hours",
    "days": "days",
    "mib": "MiB",
    "gib": "GiB",
    "percent": "per cent",
    "watts": "watts",
    "port": "TCP port",
}
_SHORT = 48


def yaml_text(value: Any) -> str:
    """Return a value as a person would write it in YAML: on one line if that is short."""
    flow = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False)
    flow = flow.strip().removesuffix("...").strip()
    if len(flow) <= _SHORT or not isinstance(value, (list, dict)):
        return flow
    block = yaml.safe_dump(
        value, default_flow_style=None, width=72, allow_unicode=True, sort_keys=False, indent=2
    )
    return block.strip()


def _value(value: Any) -> str:
    text = yaml_text(value)
    return f"<pre><code>{html.escape(text, quote=False)}</code></pre>" if "\n" in text else code(text)


def unit(name: str, option: Mapping[str, Any]) -> str:
    """Return the unit of a number by the last word of its name; empty where it has none."""
    if option.get("type") not in ("int", "float"):
        return ""
    return UNITS.get(re.split(r"[_.]", name)[-1], "")


def _facts(name: str, option: Mapping[str, Any]) -> Iterator[str]:
    kind = str(option.get("type", "str"))
    yield f"{kind} of {option['elements']}" if "elements" in option else kind
    if counted := unit(name, option):
        yield counted
    if option.get("required"):
        yield '<strong class="cd-required">required</strong>'
    if option.get("no_log"):
        yield '<strong class="cd-secret">secret</strong>'


def rows(
    options: Mapping[str, Any],
    defaults: Mapping[str, Any],
    plugins: Mapping[str, str],
    current: tuple[str, str] | None = None,
    prefix: str = "",
) -> Iterator[str]:
    """Yield one row an option, in the order of the specification; those within it follow it, a step in.

    ``defaults`` (of a role's defaults/main.yml) go before the specification's own.
    """
    for name, option in options.items():
        full = prefix + name
        mark = anchor(full)
        depth = full.count(".")
        said = paragraphs(option.get("description"), plugins, current)
        if option.get("choices"):
            said += f"<p>Choices: {', '.join(_value(choice) for choice in option['choices'])}</p>"
        if not option.get("required") and (name in defaults or option.get("default") is not None):
            said += f"<p>Default: {_value(defaults.get(name, option.get('default')))}</p>"
        if option.get("aliases"):
            said += f"<p>Also called: {', '.join(code(alias) for alias in option['aliases'])}</p>"
        yield (
            f'<tr id="{mark}"><td class="cd-depth-{depth}">{code(full)}'
            f'<a class="headerlink" href="#{mark}" title="Permanent link">&para;</a>'
            f'<br><span class="cd-type">{" · ".join(_facts(name, option))}</span></td><td>{said}</td></tr>'
        )
        inner = option.get("options") or option.get("suboptions") or option.get("contains") or {}
        dots = "[]." if option.get("type") == "list" else "."
        yield from rows(inner, {}, plugins, current, full + dots)


def table(
    options: Mapping[str, Any],
    defaults: Mapping[str, Any],
    plugins: Mapping[str, str],
    current: tuple[str, str] | None = None,
    prefix: str = "",
    heads: tuple[str, str] = ("Option", "What it says"),
) -> str:
    """Return the options as an HTML table; an empty string if there are none."""
    if not options:
        return ""
    body = "\n".join(rows(options, defaults, plugins, current, prefix))
    head = "".join(f"<th>{word}</th>" for word in heads)
    return (
        f'<table class="cd-options">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n'
    )
