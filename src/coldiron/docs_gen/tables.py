"""Fill the tables that the code knows: the roles' options, the reference of cluster.yml, the states of a repair.

    python -m coldiron.docs_gen           # writes everything that is not current
    python -m coldiron.docs_gen --check   # names them, and changes nothing

A role's table stands between ``<!-- options -->`` and ``<!-- /options -->`` in roles/ROLE/README.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from coldiron.docs_gen import cluster_file, dashboards_page, repair_tables
from coldiron.docs_gen.markup import inline
from coldiron.errors import ColdironError

OPENING, CLOSING = "<!-- options -->", "<!-- /options -->"
TABLE = re.compile(f"{re.escape(OPENING)}.*?{re.escape(CLOSING)}", re.DOTALL)
HEAD = "| option | type | default | what it says |\n|---|---|---|---|\n"
LONGEST_DEFAULT = 60


def cell(text: str) -> str:
    """Return a text as one cell of a Markdown table."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def code(value: Any) -> str:
    """Return a value as code, the way a person would write it in YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True).strip()
    text = text.removesuffix("...").strip()
    if len(text) > LONGEST_DEFAULT:
        return "see [defaults](defaults/main.yml)"
    return f"`{cell(text)}`"


def kind(option: Mapping[str, Any]) -> str:
    """Return an option's type in words, with its elements and choices."""
    name = str(option.get("type", "str"))
    if "elements" in option:
        name = f"{name} of {option['elements']}"
    if option.get("choices"):
        name += ": " + ", ".join(code(choice) for choice in option["choices"])
    return name


def description(option: Mapping[str, Any]) -> str:
    """Return an option's description as one paragraph of Markdown."""
    text = option.get("description", "")
    return inline(" ".join(map(str, text)) if isinstance(text, list) else str(text))


def rows(options: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield one row an option; options within an option follow it, indented by its name."""
    for name, option in options.items():
        if option.get("required"):
            value = "**required**"
        elif name in defaults or "default" in option:
            value = code(defaults.get(name, option.get("default")))
        else:
            value = "" if prefix else "`null`"
        words = description(option) + (" Secret." if option.get("no_log") else "")
        yield f"| `{prefix}{name}` | {cell(kind(option))} | {value} | {cell(words)} |"
        inner = "[]." if option.get("type") == "list" else "."
        yield from rows(option.get("options") or {}, {}, f"{prefix}{name}{inner}")


def table(role: Path) -> str:
    """Return the options table of a role, from its spec and defaults."""
    spec_path = role / "meta" / "argument_specs.yml"
    spec = yaml.safe_load(spec_path.read_text(encoding="utf-8"))["argument_specs"]["main"]
    defaults_path = role / "defaults" / "main.yml"
    defaults = yaml.safe_load(defaults_path.read_text(encoding="utf-8")) if defaults_path.is_file() else {}
    options = spec.get("options") or {}
    if not options:
        return "This role has no options.\n"
    return HEAD + "\n".join(rows(options, defaults or {})) + "\n"


def filled(text: str, role: Path) -> str:
    """Return a README's text with the role's table in it; a README without the marks is a ColdironError."""
    if not TABLE.search(text):
        raise ColdironError(
            f"{role / 'README.md'}: has no place for the options: write {OPENING} and {CLOSING}"
        )
    replacement = f"{OPENING}\n{table(role)}{CLOSING}"
    return TABLE.sub(lambda match: replacement, text, count=1)


def table_findings(role: Path) -> list[str]:
    """Return what is wrong with the options table of a role's README; nothing when it is current."""
    readme = role / "README.md"
    if not readme.is_file() or not (role / "meta" / "argument_specs.yml").is_file():
        return []
    text = readme.read_text(encoding="utf-8")
    try:
        current = filled(text, role)
    except ColdironError as error:
        return [error.message]
    return [] if text == current else ["the options table is not current: run `python -m coldiron.docs_gen`"]


def run(root: Path, check: bool) -> list[Path]:
    """Bring every table and the references up to date (or, with ``check``, only look); return those that were not."""
    stale = []
    pages = cluster_file.stale(root) | repair_tables.stale(root) | dashboards_page.stale(root)
    for path, text in pages.items():
        stale.append(root / path)
        if not check:
            (root / path).write_text(text, encoding="utf-8")
    for readme in sorted((root / "roles").glob("*/README.md")):
        if not table_findings(readme.parent):
            continue
        stale.append(readme)
        if not check:
            text = readme.read_text(encoding="utf-8")
            readme.write_text(filled(text, readme.parent), encoding="utf-8")
    return stale


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0 when all is current (now), 1 when --check found one that is not."""
    parser = argparse.ArgumentParser(
        prog="python -m coldiron.docs_gen", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--check", action="store_true", help="change nothing, name what is not current")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout (default: here)")
    options = parser.parse_args(arguments)
    try:
        stale = run(options.root, options.check)
    except ColdironError as error:
        print(f"coldiron: {error.message}", file=sys.stderr)
        return int(error.exit_code)
    for path in stale:
        print(f"{path}: {'not current' if options.check else 'written'}")
    return 1 if stale and options.check else 0
