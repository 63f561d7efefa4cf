"""Secrets in tests: usable as strings, never shown, and removed from whatever pytest reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MASK = "<secret>"
# Shorter values would blank out half of every report ("yes", "1234").
LEAST_LENGTH = 6
SECRET_NAME = re.compile(
    r"(^|_)(password|passwords|passwd|secret|secrets|token|key_content|private_key)$|_key$"
)
# Credentials that no inventory knows: munge's, tokens, and the hashes of passwords.
SHAPES = re.compile(
    r"MUNGE:[A-Za-z0-9+/=]+:|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+|\$(?:y|\d|2[abxy])\$[./A-Za-z0-9$=,]{8,}|\*[0-9A-F]{40}\b"
)


class Secret(str):
    """A string that can be compared, searched for and sent to a node, and shows itself as a mask."""

    __slots__ = ()

    def __repr__(self) -> str:
        return MASK


def is_secret_name(name: str) -> bool:
    """Tell whether a variable of this name holds a secret by the house's naming."""
    return bool(SECRET_NAME.search(name))


def leaves(value: Any) -> Iterable[str]:
    """Yield every string in a nested value."""
    if isinstance(value, str):
        yield str.__str__(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)


def wrap(value: Any) -> Any:
    """Return a nested value with every string in it turned into a Secret."""
    if isinstance(value, str):
        return Secret(str.__str__(value))
    if isinstance(value, Mapping):
        return {key: wrap(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [wrap(item) for item in value]
    return value


class Redactor:
    """Removes known secrets from text: as written, line by line, and as Python would quote them."""

    def __init__(self) -> None:
        self._forms: set[str] = set()

    def learn(self, value: Any) -> None:
        """Remember every string in ``value`` as a secret; very short ones are left out."""
        for text in leaves(value):
            forms = {text, text.strip(), repr(text)[1:-1], *text.splitlines()}
            self._forms |= {form for form in forms if len(form) >= LEAST_LENGTH}

    def found_in(self, text: str) -> bool:
        """Tell whether a known secret, or what looks like one, is in the text."""
        return SHAPES.search(text) is not None or any(form in text for form in self._forms)

    def clean(self, text: str) -> str:
        """Return the text with each known secret, and what looks like one, replaced by a mask."""
        text = SHAPES.sub(MASK, text)
        for form in sorted(self._forms, key=len, reverse=True):
            text = text.replace(form, MASK)
        return text
