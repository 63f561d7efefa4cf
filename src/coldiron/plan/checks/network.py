"""Checks of networks and fabrics; their codes begin with CL."""

from __future__ import annotations

from coldiron.plan.design import Check

CHECKS: tuple[Check, ...] = ()
