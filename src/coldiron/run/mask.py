"""Known secrets, taken out of whatever a run says before it is written or shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

MASK = "********"
# Shorter values would blank out half of every text ("yes", "1234").
LEAST_LENGTH = 6


class Mask:
    """Replaces each of the ``secrets``: as written, line by line, and as JSON or Python would quote them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms: set[str] = set()
        for secret in secrets:
            quoted = (
                repr(secret)[1:-1],
                json.dumps(secret)[1:-1],
                json.dumps(secret, ensure_ascii=False)[1:-1],
            )
            forms |= {secret, secret.strip(), *secret.splitlines(), *quoted}
        longest_first = sorted((form for form in forms if len(form) >= LEAST_LENGTH), key=len, reverse=True)
        # What no text matches, where there is no secret.
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def text(self, text: str) -> str:
        """``text`` without the secrets."""
        return self._pattern.sub(MASK, text)

    def data(self, value: Any) -> Any:
        """A nested value without the secrets, in keys as in values."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.data(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return value
