"""What the checks of versions and features share."""

from __future__ import annotations

from coldiron.inventory.source import KeyPath
from coldiron.plan.design import Design, Kind


def gpus_path(design: Design, kind: Kind) -> KeyPath:
    """Where the GPUs of ``kind`` are written: at its group, else under `defaults`."""
    path = (*kind.path, "hardware", "gpus")
    everybody: KeyPath = ("defaults", "hardware", "gpus")
    lines = design.cluster.document.lines
    return everybody if path not in lines and everybody in lines else path
