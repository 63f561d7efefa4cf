"""A filter that lets a declaration be made only if nothing speaks against it: a preflight that costs no task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleFilterError


def refuse(value: Any, problems: Sequence[str]) -> Any:
    """Return ``value`` as it is, unless there are ``problems``: sentences, of which empty ones do not count.

    A declaration is templated on the controller before its node is spoken to, so nothing has been touched then.
    """
    found = [str(sentence).strip() for sentence in problems if str(sentence).strip()]
    if found:
        raise AnsibleFilterError(" ".join(found))
    return value


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"refuse": refuse}
