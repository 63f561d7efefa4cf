"""The offline checks of a design, family by family. Each is a pure function from a Design to what it found."""

from __future__ import annotations

from coldiron.plan.checks import network, node, power, software, space
from coldiron.plan.design import Check

CHECKS: tuple[Check, ...] = (
    *node.CHECKS,
    *power.CHECKS,
    *space.CHECKS,
    *network.CHECKS,
    *software.CHECKS,
)
