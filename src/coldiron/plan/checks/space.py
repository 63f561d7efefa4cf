"""Checks of racks and space; their codes begin with CU."""

from __future__ import annotations

from coldiron.plan.design import Check

CHECKS: tuple[Check, ...] = ()
