"""Checks of a node's hardware; their codes begin with CH."""

from __future__ import annotations

from coldiron.plan.design import Check

CHECKS: tuple[Check, ...] = ()
