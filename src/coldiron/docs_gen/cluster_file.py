"""The reference of cluster.yml from the model that reads it: docs/reference/cluster.md, and its JSON schema.

Both are committed, so that they are read in a checkout and found by editors; a test sees that they are current.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from coldiron.inventory.json_schema import schema_text
from coldiron.inventory.model import ClusterFile

FOLDER = Path("docs/reference")
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
    "array": "list",
    "null": "nothing",
}
_HEAD = "| key | type | default | what it says |\n|---|---|---|---|\n"


def files() -> dict[Path, str]:
    """The files of the reference, by their path from the checkout's root."""
    return {FOLDER / "cluster.md": page(), FOLDER / "cluster.schema.json": schema_text()}


def stale(root: Path) -> dict[Path, str]:
    """Those files that are not current in the checkout at ``root``; none where it has no such folder."""
    if not (root / FOLDER).is_dir():
        return {}
    return {
        path: text
        for path, text in files().items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    }


def page() -> str:
    """Every block of cluster.yml with every key, as Markdown."""
    schema = ClusterFile.model_json_schema()
    blocks: dict[str, Mapping[str, Any]] = {"ClusterFile": schema, **schema["$defs"]}
    places = _places(blocks)
    text = (
        "# cluster.yml, key by key\n\n"
        "What each key may hold; an unknown key is an error. How the file is written, and what the keys mean together,"
        " is in\n[How do I describe my cluster?](../inventory.md) An editor completes and checks the file by\n"
        "[its JSON schema](cluster.schema.json), which `coldiron schema` prints too.\n\n"
        "<!-- Generated from src/coldiron/inventory/model.py by `make docs`. -->\n"
    )
    for name in places:
        text += _section(name, blocks[name], places[name])
    return text


def _places(blocks: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Where each block stands, by its name, in the order in which a reader meets them."""
    found: dict[str, list[str]] = {"ClusterFile": []}
    queue = ["ClusterFile"]
    while queue:
        outer = queue.pop(0)
        for key, field in _keys(blocks[outer]):
            for inner in _references(field):
                if inner not in found:
                    found[inner] = []
                    queue.append(inner)
                found[inner].append(
                    key if outer == "ClusterFile" else f"{key}` of [{_title(outer)}]({_anchor(outer)})"
                )
    return found


def _keys(block: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The keys of a block, its own before those that it has from another."""
    own = list(_model(block["title"]).__annotations__)
    yield from sorted(block["properties"].items(), key=lambda item: item[0] not in own)


def _model(name: str, base: type[BaseModel] = BaseModel) -> type[BaseModel]:
    """The class of a block."""
    for one in base.__subclasses__():
        if one.__name__ == name and one.__module__.startswith("coldiron.inventory"):
            return one
        try:
            return _model(name, one)
        except KeyError:
            continue
    raise KeyError(name)


def _references(field: Any) -> Iterator[str]:
    """The blocks that a field's schema names."""
    if isinstance(field, dict):
        if "$ref" in field:
            yield field["$ref"].rsplit("/", 1)[1]
        for value in field.values():
            yield from _references(value)
    elif isinstance(field, list):
        for value in field:
            yield from _references(value)


def _title(name: str) -> str:
    if name in ("Pdu", "Ups", "Bmc"):
        return name.upper()
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", name)
    return "The file" if name == "ClusterFile" else words.capitalize()


def _anchor(name: str) -> str:
    return "#" + _title(name).lower().replace(" ", "-")


def _section(name: str, block: Mapping[str, Any], places: list[str]) -> str:
    model = _model(name)
    text = f"\n## {_title(name)}\n\n{_first(model)}\n"
    if places:
        listed = ", ".join(f"`{place}" if "`" in place else f"`{place}`" for place in dict.fromkeys(places))
        text += f"\nStands under {listed}.\n"
    needed = block.get("required", [])
    rows = [_row(key, field, key in needed) for key, field in _keys(block)]
    return text + "\n" + _HEAD + "".join(rows)


def _first(model: type[BaseModel]) -> str:
    """The first paragraph of a block's words."""
    return " ".join(inspect.cleandoc(model.__doc__ or "").split("\n\n", 1)[0].split())


def _row(key: str, field: Mapping[str, Any], needed: bool) -> str:
    default = field.get("default")
    shown = "**required**" if needed else f"`{_yaml(default)}`" if default not in (None, [], {}) else ""
    # Where the words are the block's own, the schema leaves them out.
    words = str(field.get("description") or "".join(_first(_model(one)) for one in _references(field)))
    if examples := field.get("examples"):
        words += " For example " + " or ".join(f"`{_yaml(example)}`" for example in examples) + "."
    cells = (f"`{key}`", _type(field), shown, words)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _type(field: Mapping[str, Any]) -> str:
    """What a field may hold, in words."""
    if "$ref" in field:
        name = next(_references(field))
        return f"[{_title(name)}]({_anchor(name)})"
    if "anyOf" in field:
        parts = [_type(part) for part in field["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(parts))
    if "const" in field:
        return f"`{_yaml(field['const'])}`"
    if "enum" in field:
        return "one of " + ", ".join(f"`{_yaml(one)}`" for one in field["enum"])
    kind = _TYPES[field["type"]]
    if kind == "list":
        return f"list of {_type(field['items'])}" if field.get("items") else kind
    if kind == "mapping" and isinstance(field.get("additionalProperties"), dict):
        return f"by name: {_type(field['additionalProperties'])}"
    return kind + _bounds(field)


def _bounds(field: Mapping[str, Any]) -> str:
    words = [
        f"{word} {_plain(field[bound])}"
        for bound, word in (
            ("minimum", "from"),
            ("exclusiveMinimum", "above"),
            ("maximum", "to"),
            ("maxLength", "at most"),
        )
        if bound in field
    ]
    return ", " + " ".join(words) + (" characters" if "maxLength" in field else "") if words else ""


def _plain(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ") if number == int(number) else f"{number:g}"


def _yaml(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return re.sub(r"\s+", " ", text.strip().removesuffix("...").strip())
