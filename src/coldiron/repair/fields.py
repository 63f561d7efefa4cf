"""The fields of a JSON text with the lines that they stand on: evidence is quoted with its line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
Path = tuple[str | int, ...]
Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Field:
    """One value that is no list or object. ``path`` counts list items from 0, ``line`` from 1."""

    path: Path
    value: Scalar
    line: int


def fields(text: str) -> list[Field]:
    """The fields of ``text``, in its order. Raises ValueError where it is no JSON, or too deep to be honest."""
    try:
        json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return list(_walk(text))


def _walk(text: str) -> Iterator[Field]:
    """Yield the fields of a text that is known to be JSON: only strings, brackets and scalars are told apart."""
    path: list[str | int] = []
    objects: list[bool] = []
    line, at, key = 1, 0, False
    for token in _TOKEN.finditer(text):
        line += text.count("\n", at, token.start())
        at = token.start()
        word = token[0]
        if word in "{[":
            objects.append(word == "{")
            key = objects[-1]
            path.append("" if key else 0)
        elif word in "}]":
            objects.pop()
            path.pop()
            key = False
        elif word == ",":
            key = objects[-1]
            last = path[-1]
            if isinstance(last, int):
                path[-1] = last + 1
        elif word == ":":
            key = False
        elif key:
            path[-1] = json.loads(word)
        else:
            yield Field(tuple(path), json.loads(word), line)
