"""What Alertmanager posts (the webhook's version 4), read strictly: what is not understood does nothing to a node.

https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coldiron.errors import ColdironError

# Alertmanager's own max_alerts is without a limit; a cluster whose every node has some alerts stays below this.
MOST_ALERTS: Final = 2000
_MOST_LABELS: Final = 100
_LONGEST_NAME = 100
_Text = Annotated[str, Field(max_length=4096)]
_Labels = Annotated[dict[_Text, _Text], Field(max_length=_MOST_LABELS)]


class _Strict(BaseModel):
    """No value is bent into another type. A field that a later Alertmanager adds is passed over."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Alert(_Strict):
    """One alert. ``starts`` is when this firing of it began, as Alertmanager writes it."""

    status: Literal["firing", "resolved"]
    labels: _Labels
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$")]
    starts: Annotated[
        str, Field(alias="startsAt", pattern=r"^\d{4}-\d{2}-\d{2}T[0-9:.]{8,30}(Z|[+-]\d{2}:\d{2})$")
    ]

    @property
    def name(self) -> str:
        """The alert's name, fit for a line and for a node's reason: letters that could mean more become ``?``."""
        return re.sub(r"[^A-Za-z0-9 _.:/-]", "?", self.labels.get("alertname", "without a name"))[
            :_LONGEST_NAME
        ]

    @property
    def key(self) -> str:
        """One firing of one alert: when it has been resolved and fires anew, that is another one."""
        return f"{self.fingerprint}@{self.starts}"


class _Message(_Strict):
    version: Literal["4"]
    alerts: Annotated[list[Alert], Field(max_length=MOST_ALERTS)]


def parse(body: bytes) -> list[Alert]:
    """The alerts in the body of a request. Raises ColdironError, in one line that quotes nothing of it."""
    try:
        return _Message.model_validate_json(body).alerts
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part in _KNOWN)
        raise ColdironError(
            f"not what Alertmanager's webhook sends (version 4): {where + ': ' if where else ''}{_said(first['type'])}"
        ) from None


_KNOWN = {"version", "alerts", "status", "labels", "fingerprint", "startsAt"}


def _said(kind: str) -> str:
    return {"missing": "is missing", "json_invalid": "no JSON"}.get(kind, kind.replace("_", " "))
