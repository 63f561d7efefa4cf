"""The repository's rules that a machine can check: pure functions from files to findings.

Each rule is a function ``path -> findings``; ROLE_RULES look at one role's folder, TREE_RULES at a whole
checkout. Every rule is shown to fail on a planted example in tests/contract.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

from coldiron.errors import ColdironError
from coldiron.testing.contract.reading import Finding, Findings
from coldiron.testing.contract.roles import ROLE_RULES
from coldiron.testing.contract.tree import TREE_RULES

__all__ = ["ROLE_RULES", "TREE_RULES", "Finding", "check_role", "check_tree"]


def check_role(role: Path) -> list[Finding]:
    """Return every finding of every rule on one role."""
    return [finding for rule in ROLE_RULES for finding in _apply(rule, role)]


def check_tree(root: Path) -> list[Finding]:
    """Return every finding of every rule on the checkout as a whole (roles apart)."""
    return [finding for rule in TREE_RULES for finding in _apply(rule, root)]


def _apply(rule: Callable[[Path], Findings], path: Path) -> list[Finding]:
    """Return a rule's findings; a file that it cannot read is one too."""
    try:
        return list(rule(path))
    except (ColdironError, yaml.YAMLError, SyntaxError) as error:
        return [Finding(path, 1, "unreadable", str(error))]
