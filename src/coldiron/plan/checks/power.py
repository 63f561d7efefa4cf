"""Checks of electricity and heat; their codes begin with CP."""

from __future__ import annotations

from coldiron.plan.design import Check

CHECKS: tuple[Check, ...] = ()
