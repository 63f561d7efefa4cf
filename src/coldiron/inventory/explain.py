"""Pydantic's errors in the words of someone who edits a cluster.yml."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from coldiron.inventory.findings import MAX_FINDINGS, did_you_mean, nearest, shown
from coldiron.inventory.model import PLUGIN, ClusterFile
from coldiron.inventory.ranges import RangeError
from coldiron.inventory.source import Document, Key, KeyPath

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list (lines that begin with `- `)",
    "dict_type": "a mapping (`key: value` lines)",
    "model_type": "a mapping (`key: value` lines)",
}
_CODES = {
    "extra_forbidden": "CI101",
    "missing": "CI102",
    "literal_error": "CI103",
    "string_pattern_mismatch": "CI106",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}

# A sign of a pattern, and what it asks for; the first that is there counts.
_FORMS = {
    "[A-Z]{3}": "three capital letters",
    "gb": "a profile as nvidia-smi names it",
    "A-Za-z": "letters, digits, - and _",
    "^[0-9]": "numbers with dots between them",
    "[.-]": "a name of the catalog: lower-case letters and digits with - or . between them",
    "_]": "lower-case letters, digits and _",
}


def explain(document: Document, errors: list[ErrorDetails]) -> None:
    """Add a finding to ``document`` for each of ``errors``, except where one is there already."""
    errors = errors[:MAX_FINDINGS]
    misspelt = {
        (*path[:-1], near)
        for path in (tuple(error["loc"]) for error in errors if error["type"] == "extra_forbidden")
        if (near := nearest(str(path[-1]), _fields(path[:-1])))
    }
    for error in errors:
        path = _written(document, tuple(error["loc"]))
        # The misspelt key is the one to mend; that the right one is missing says no more.
        if not document.is_spoilt(path) and not (error["type"] == "missing" and path in misspelt):
            document.find(path, _text(error, path), _code(error, path))
            document.spoilt.add(path)


def _written(document: Document, path: KeyPath) -> KeyPath:
    """The path of what the reader wrote: no item where one value stands for a list, and no mark of a key."""
    if path and path[-1] == "[key]":
        return path[:-1]
    return path[:-1] if path and path[-1] == 0 and path not in document.lines else path


def _text(error: ErrorDetails, path: KeyPath) -> str:
    kind = error["type"]
    value = error["input"]
    key = _key(path)
    context: dict[str, Any] = error.get("ctx", {})
    example = _example(path)
    if path == ("plugin",):
        return f"the file must say who reads it; write `plugin: {PLUGIN}`"
    if kind == "missing":
        return f"`{key}` is missing here; write e.g. `{key}: {example}`"
    if kind == "extra_forbidden":
        return f"unknown key `{key}`; {did_you_mean(str(path[-1]), _fields(path[:-1]))}"
    if kind == "literal_error":
        choices = _choices(path)
        if value is None:
            return f"`{key}` has no value; write one of: {', '.join(map(str, choices))}"
        if isinstance(value, (list, dict, bool)):
            return f"`{key}` wants one of {', '.join(map(str, choices))}, not {_called(value)}"
        if all(isinstance(choice, int) for choice in choices):
            # Nobody misspells a number, and they are read in their order.
            return f"`{key}: {shown(value)}` is not known; write one of: {', '.join(map(str, choices))}"
        return f"`{key}: {shown(value)}` is not known; {did_you_mean(str(value), map(str, choices))}"
    if kind == "value_error":
        return f"`{key}`: {context['error']}"
    if kind == "string_pattern_mismatch":
        hint = f", e.g. {example}" if example else ""
        said = key if error["loc"][-1] == "[key]" else f"{key}: {shown(value)}"
        return f"`{said}` is not allowed; write {_form(context['pattern'])}{hint}"
    if kind in ("too_short", "string_too_short"):
        return f"`{key}` is empty; {'list at least one' if kind == 'too_short' else f'write e.g. {example}'}"
    if kind in ("too_long", "string_too_long"):
        many = "items" if kind == "too_long" else "characters"
        return f"`{key}` is too long; write at most {context['max_length']} {many}"
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return f"`{key}: {shown(value)}` must be {words} {_number(context[bound])}"
    if value is None:
        return f"`{key}` has no value; write {_WANTED.get(kind, 'one')}, or remove the line"
    if kind in ("int_type", "float_type") and isinstance(value, str) and value.strip("0123456789.") == "":
        return f"`{key}` wants {_WANTED[kind]}; write {shown(value)} without quotes"
    if kind in _WANTED:
        hint = f", e.g. `{key}: {example}`" if example else ""
        return f"`{key}` wants {_WANTED[kind]}, not {_called(value)}{hint}"
    return f"`{key}`: {error['msg']}"


def _form(pattern: str) -> str:
    """What a text must look like, in words, from the pattern that it does not match."""
    for sign, words in _FORMS.items():
        if sign in pattern:
            return words
    return "lower-case letters and digits"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"


def _code(error: ErrorDetails, path: KeyPath) -> str:
    """The kind of fault, as `coldiron explain` knows it."""
    kind = error["type"]
    if path == ("plugin",):
        return "CI110"
    if kind in _CODES:
        return _CODES[kind]
    if kind in _BOUNDS or kind.endswith(("too_short", "too_long")):
        return "CI105"
    if kind != "value_error":
        return "CI104"
    reason = error.get("ctx", {}).get("error")
    if "YAML takes" in str(reason):
        return "CI008"
    if "list is empty" in str(reason):
        return "CI105"
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    if key == "name" and len(path) > 1:
        return "CI108" if isinstance(reason, RangeError) else "CI107"
    return {"mac": "CI111", "name": "CI106", "domain": "CI106"}.get(key, "CI109")


def _called(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return f"the number {shown(value)}"
    if isinstance(value, str):
        return f"the text `{shown(value)}`"
    return "a list" if isinstance(value, list) else "a mapping"


def _key(path: KeyPath) -> str:
    """How a reader calls the place: its own key, and the position where it is an item of a list."""
    words = ""
    for part in reversed(path):
        if isinstance(part, str):
            return f"{shown(part)}{words}"
        words = f"[{part + 1}]{words}"
    return f"cluster.yml{words}"


def _inner(annotation: object) -> object:
    """``annotation`` without None, Annotated and the like."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, UnionType):
            rest = [one for one in get_args(annotation) if one is not type(None)]
            annotation = rest[0]
        else:
            return annotation


def _step(annotation: object, part: Key) -> object:
    annotation = _inner(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(part))
        return field.annotation if field else None
    if get_origin(annotation) in (list, dict, tuple):
        return get_args(annotation)[-1]
    return None


def _annotation(path: KeyPath) -> object:
    annotation: object = ClusterFile
    for part in path:
        annotation = _step(annotation, part)
    return _inner(annotation)


def _block(path: KeyPath) -> type[BaseModel] | None:
    annotation = _annotation(path)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _fields(path: KeyPath) -> list[str]:
    block = _block(path)
    return list(block.model_fields) if block else []


def _choices(path: KeyPath) -> tuple[object, ...]:
    annotation = _annotation(path)
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _example(path: KeyPath) -> str:
    items = 0
    while path and isinstance(path[-1], int):
        path, items = path[:-1], items + 1
    block = _block(path[:-1]) if path else None
    field = block.model_fields.get(str(path[-1])) if block else None
    if field is None or not field.examples:
        return ""
    example = field.examples[0]
    if items and isinstance(example, list):
        example = example[0]
    if isinstance(example, (list, dict)):
        return yaml.safe_dump(example, default_flow_style=True, sort_keys=False, width=1000).strip()
    return str(example)
