"""What Alertmanager posts, cut down to what is read of it and some more."""

from __future__ import annotations

import json
from typing import Any

STARTS = "2026-02-06T13:08:45.828Z"


def alert(node: str = "cpu01", **more: Any) -> dict[str, Any]:
    """One firing alert that asks for ``node`` to be looked at; ``labels`` are added to it."""
    labels = {"alertname": "GpuFellOff", "node": node, "coldiron_repair": "true", "severity": "critical"}
    found = {
        "status": "firing",
        "labels": labels | more.pop("labels", {}),
        "annotations": {"summary": "a GPU is gone"},
        "startsAt": STARTS,
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus.example.org:9090/graph?g0.expr=up",
        "fingerprint": "1a30ba71cca2921f",
    }
    return {**found, **more}


def message(*alerts: dict[str, Any], **more: Any) -> bytes:
    """A whole request's body."""
    found = {
        "receiver": "coldiron",
        "status": "firing",
        "alerts": list(alerts),
        "groupLabels": {"alertname": "GpuFellOff"},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example.org:9093",
        "version": "4",
        "groupKey": '{}:{alertname="GpuFellOff"}',
        "truncatedAlerts": 0,
    }
    return json.dumps({**found, **more}).encode()
