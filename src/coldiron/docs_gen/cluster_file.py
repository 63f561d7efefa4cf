"""The reference of cluster.yml, from the model that reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from coldiron.docs_gen import options
from coldiron.docs_gen.page import Page
from coldiron.inventory.model import ClusterFile

_NAMES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "object": "dict",
    "array": "list",
}


def _resolved(schema: Mapping[str, Any], blocks: Mapping[str, Any]) -> dict[str, Any]:
    """Return a key's schema with its block put in place of the reference, and null taken out of its choices."""
    found = dict(schema)
    for part in found.pop("anyOf", []):
        if part.get("type") != "null":
            found = {**_resolved(part, blocks), **found} if "type" not in found else found
    if "$ref" in found:
        found = {**blocks[found.pop("$ref").rsplit("/", 1)[1]], **found}
    return found


def _option(schema: Mapping[str, Any], required: bool, blocks: Mapping[str, Any]) -> dict[str, Any]:
    """Return one key in the words of an argument specification, so that one table shows both."""
    found = _resolved(schema, blocks)
    words = [str(found["description"])] if "description" in found else []
    if "minimum" in found and "maximum" in found:
        words.append(f"From {found['minimum']} to {found['maximum']}.")
    if found.get("examples"):
        shown = ", ".join(f"`{options.yaml_text(example)}`" for example in found["examples"])
        words.append(f"For example {shown}.")
    option: dict[str, Any] = {"type": _NAMES.get(found.get("type", ""), "str"), "description": words}
    if required:
        option["required"] = True
    choices = found.get("enum") or ([found["const"]] if "const" in found else [])
    if choices:
        option["choices"] = choices
    if found.get("default") is not None and not isinstance(found["default"], (dict, list)):
        option["default"] = found["default"]
    inner = found
    if found.get("type") == "array":
        inner = _resolved(found.get("items", {}), blocks)
        option["elements"] = _NAMES.get(inner.get("type", ""), "str")
    elif isinstance(found.get("additionalProperties"), dict):
        inner = _resolved(found["additionalProperties"], blocks)
        option["options"] = {
            "NAME": {"type": "dict", "description": [], "options": dict(_keys(inner, blocks))}
        }
        return option
    if "properties" in inner:
        option["options"] = dict(_keys(inner, blocks))
    return option


def _keys(block: Mapping[str, Any], blocks: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    needed = block.get("required", [])
    for name, schema in block.get("properties", {}).items():
        yield name, _option(schema, name in needed, blocks)


def page() -> Page:
    """Return the page with every key of cluster.yml."""
    schema = ClusterFile.model_json_schema()
    # The file's own keys before those that every inventory plugin has.
    own = list(ClusterFile.__annotations__)
    keys = dict(sorted(_keys(schema, schema.get("$defs", {})), key=lambda key: key[0] not in own))
    text = (
        "# cluster.yml, key by key\n\nWhat each key may hold, from the model that reads the file; an unknown key is an"
        " error. How the file is\nwritten, and what the keys mean together, is in"
        " [How do I describe my cluster?](../inventory.md)\n\n"
    )
    return Page("reference/cluster-yml.md", text + options.table(keys, {}, {}, heads=("Key", "What it says")))
