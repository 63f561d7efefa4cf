"""One thing that a plan found, as plain data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from coldiron.inventory.findings import Finding as InventoryFinding


class Severity(StrEnum):
    """``ERROR`` refuses a run; ``WARNING`` is only told."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """``where`` is ``FILE:LINE`` or what else locates it, ``what`` says what is wrong, ``advice`` what to do.

    ``hosts`` are the nodes that it concerns, folded (``gpu[01-03]``); empty where it concerns the whole cluster.
    """

    code: str
    severity: Severity
    where: str
    what: str
    advice: str = ""
    hosts: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" + (f" ({self.hosts})" if self.hosts else "")
        return text + (f"; {self.advice}" if self.advice else "") + f" [{self.code}]"

    def as_data(self) -> dict[str, str]:
        """The finding as JSON types."""
        return {**asdict(self), "severity": str(self.severity)}

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
    return Finding(finding.code, Severity.ERROR, finding.where, what, advice)


def one_line(text: str) -> str:
    """``text`` on one line."""
    return re.sub(r"\s+", " ", text).strip()
