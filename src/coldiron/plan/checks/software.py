"""Checks of versions and features; their codes begin with CV."""

from __future__ import annotations

from coldiron.plan.design import Check

CHECKS: tuple[Check, ...] = ()
