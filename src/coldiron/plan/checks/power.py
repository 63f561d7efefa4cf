"""Checks of electricity and heat; their codes begin with CP."""

from __future__ import annotations

from coldiron.plan.checks import (
    power_caps,
    power_circuits,
    power_feeds,
    power_heat,
    power_outlets,
    power_unknown,
)
from coldiron.plan.design import Check

CHECKS: tuple[Check, ...] = (
    *power_circuits.CHECKS,
    *power_feeds.CHECKS,
    *power_outlets.CHECKS,
    *power_heat.CHECKS,
    *power_caps.CHECKS,
    *power_unknown.CHECKS,
)
