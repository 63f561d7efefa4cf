"""What the machines draw, and what circuits, PDUs, feeds, racks and rooms carry of it."""

from __future__ import annotations

from coldiron.plan.design import Design
from coldiron.plan.results import PowerPlan


def power(design: Design) -> PowerPlan:
    """See the module."""
    return PowerPlan()
