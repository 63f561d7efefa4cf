"""One thing that a plan found, as plain data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from coldiron.inventory.findings import Finding as InventoryFinding


class Severity(StrEnum):
    """``REFUSE`` keeps a run from beginning; ``WARN`` wants a look; ``ADVICE`` says what would be better."""

    REFUSE = "refuse"
    WARN = "warn"
    ADVICE = "advice"


# Worst first.
ORDER = (Severity.REFUSE, Severity.WARN, Severity.ADVICE)
Figure = str | int | float | None


@dataclass(frozen=True)
class Finding:
    """``where`` is ``FILE:LINE`` or what else locates it, ``what`` says what is wrong, ``advice`` what to do.

    ``hosts`` are the nodes that it concerns, folded (``gpu[01-03]``); empty where it concerns the whole cluster.
    ``subject`` is the thing that it is about, as ``rack r01``, ``PDU r01/a`` or a node group; with the code it is the
    finding's ``id``, which stays the same from run to run. ``figures`` are the numbers behind the words, their units in
    their names (``watts``, ``limit_watts``).
    """

    code: str
    severity: Severity
    where: str
    what: str
    advice: str = ""
    hosts: str = ""
    subject: str = ""
    figures: tuple[tuple[str, Figure], ...] = ()

    @property
    def id(self) -> str:
        """What the finding is called from run to run: its code and what it is about."""
        return f"{self.code}:{self.subject or self.hosts or self.where}"

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" + (f" ({self.hosts})" if self.hosts else "")
        return text + (f"; {self.advice}" if self.advice else "") + f" [{self.code}]"

    def as_data(self) -> dict[str, Any]:
        """The finding as JSON types."""
        return {"id": self.id, **asdict(self), "severity": str(self.severity), "figures": dict(self.figures)}

    def without(self, secrets: Iterable[str]) -> Finding:
        """The finding with each of ``secrets`` masked."""
        what, advice = self.what, self.advice
        for secret in sorted(secrets, key=len, reverse=True):
            # Shorter ones are ordinary words; no secret that passes the checks is that short.
            if len(secret) >= 8:
                what, advice = what.replace(secret, "********"), advice.replace(secret, "********")
        return replace(self, what=what, advice=advice)


def of_inventory(finding: InventoryFinding) -> Finding:
    """A finding about cluster.yml; its sentence is ``WHAT; ADVICE``."""
    what, _, advice = finding.text.partition("; ")
    return Finding(finding.code, Severity.REFUSE, finding.where, what, advice)


def one_line(text: str) -> str:
    """``text`` on one line."""
    return re.sub(r"\s+", " ", text).strip()
