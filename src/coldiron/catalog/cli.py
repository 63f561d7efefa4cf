"""``coldiron catalog``: what is known of a piece of hardware, and who says so."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldiron.text import counted

if TYPE_CHECKING:
    from coldiron.catalog.model import Entry, Source

_WIDTH = 80
_BY = {
    "maker": "the maker",
    "copy": "a copy of the maker's text",
    "other": "a third party",
    "site": "the site",
}

catalog_app = typer.Typer(
    name="catalog", help="What is known of hardware, each figure with its source.", no_args_is_help=True
)
Overlays = Annotated[
    list[Path] | None,
    typer.Option("--overlay", "-o", help="A site's catalog.yml over the package's; may be given again."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the verbs ``catalog list`` and ``catalog show`` to ``app``."""
    app.add_typer(catalog_app, name="catalog")


@catalog_app.command("list")
def list_entries(
    family: Annotated[
        str | None, typer.Argument(help="gpus, servers, nics, switches or cables; all if none is named.")
    ] = None,
    overlay: Overlays = None,
    as_json: AsJson = False,
) -> None:
    """List the entries: the name to type, the title, and how many of its figures have a source."""
    # The models take a while to import: other verbs, and the list of verbs, need not wait for them.
    from coldiron.catalog.load import load

    catalog = load(overlay or ())
    rows = [_summary(catalog.family_of(name), entry) for name, entry in catalog.entries(family).items()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for line in _listed(rows):
        typer.echo(line)


@catalog_app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="An entry, as `coldiron catalog list` names it.")],
    overlay: Overlays = None,
    as_json: AsJson = False,
) -> None:
    """Show every figure of an entry with its source; a figure without one is said to be unknown."""
    from coldiron.catalog.load import load

    entry = load(overlay or ()).find(name)
    if as_json:
        typer.echo(json.dumps(entry.model_dump(mode="json"), indent=2))
        return
    for line in _shown(entry):
        typer.echo(line)


def _known(entry: Entry) -> tuple[int, int]:
    """Return how many figures of an entry have a source, and how many there could be."""
    values = [value for _, value in entry.figures()]
    return sum(value is not None for value in values), len(values)


def _summary(family: str, entry: Entry) -> dict[str, Any]:
    known, figures = _known(entry)
    return {
        "name": entry.name,
        "family": family,
        "title": entry.title,
        "figures_known": known,
        "figures": figures,
    }


def _listed(rows: list[dict[str, Any]]) -> Iterator[str]:
    for family in dict.fromkeys(row["family"] for row in rows):
        inside = [row for row in rows if row["family"] == family]
        width = max(len(row["name"]) for row in inside)
        yield f"{family}:"
        for row in inside:
            known = f"{row['figures_known']}/{row['figures']}"
            title = textwrap.shorten(row["title"], max(_WIDTH - width - 11, 20), placeholder="…")
            yield f"  {row['name']:<{width}} {known:>6}  {title}"


def _shown(entry: Entry) -> Iterator[str]:
    sources: dict[tuple[str, str | None], int] = {}
    unknown = []
    yield f"{entry.title} ({entry.name})"
    yield ""
    for figure, value in entry.figures():
        source = entry.source_of(figure)
        if value is None or source is None:
            unknown.append(figure)
            continue
        number = sources.setdefault((source.title, source.url), len(sources) + 1)
        text = _text(value)
        if isinstance(text, list):
            yield f"  {figure}  [{number}]"
            yield from (f"    {line}" for line in text)
        else:
            yield f"  {figure:<38} {text}  [{number}]"
    if unknown:
        yield ""
        yield f"No source found for {counted(len(unknown), 'figure')}:"
        yield from textwrap.wrap(
            ", ".join(unknown), _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
    yield ""
    yield "Sources:"
    for (title, url), number in sources.items():
        source = next(one for one in entry.sources if (one.title, one.url) == (title, url))
        yield from _cited(number, source)


def _cited(number: int, source: Source) -> Iterator[str]:
    words = f"[{number}] {source.title} ({_BY[source.by]}, read {source.read.isoformat()})"
    yield from textwrap.wrap(words, _WIDTH, initial_indent="  ", subsequent_indent="      ")
    if source.url:
        # An address stays whole, so that it can be opened.
        yield f"      {source.url}"


def _text(value: object) -> str | list[str]:
    """Return a figure as a person reads it; a list of records is one line each."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if value < 1e6 else f"{value:.0f}"
    if isinstance(value, tuple):
        if any(hasattr(item, "model_dump") for item in value):
            return [_row(item.model_dump(exclude_none=True)) for item in value]
        return ", ".join(str(_text(item)) for item in value) or "none"
    return str(value)


def _row(record: dict[str, Any]) -> str:
    if "slices" in record:
        # A MIG profile.
        places = record.get("placements")
        starts = ", ".join(str(start) for start in places["starts"]) if places else ""
        where = f"size {places['size']} at {starts}" if places else "placements unknown"
        number = f"id {record['id']}" if "id" in record else ""
        return f"{record['name']:<12} {record['count']}x  {number:<6} {where}".rstrip()
    return ", ".join(f"{key} {_text(value)}" for key, value in record.items())
