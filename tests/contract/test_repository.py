"""This repository keeps its own rules."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import pytest

from coldiron.testing.contract import ROLE_RULES, TREE_RULES
from coldiron.testing.contract.reading import Findings
from coldiron.testing.contract.tree import collections_are_carried, product_files

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
APT_SOURCES = Path("/etc/apt")


def told(findings: Findings) -> str:
    """Return the findings, one a line, with paths from the checkout's root."""
    return "\n".join(str(finding).replace(f"{ROOT}/", "") for finding in findings)


@pytest.mark.parametrize("rule", ROLE_RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_role_keeps_the_rule(role: Path, rule: object) -> None:
    assert told(rule(role)) == ""  # type: ignore[operator]


@pytest.mark.parametrize("rule", TREE_RULES, ids=lambda rule: rule.__name__)
def test_the_checkout_keeps_the_rule(rule: object) -> None:
    assert told(rule(ROOT)) == ""  # type: ignore[operator]


def test_the_locked_distribution_carries_the_collections() -> None:
    """Collections that are newer or older than the lock's would be other code than what was tested."""
    installed = Path(sysconfig.get_path("purelib")) / "ansible_collections"
    findings = list(collections_are_carried(ROOT, installed))
    if any("not carried" in finding.text for finding in findings):
        pytest.fail(told(iter(findings)))
    for finding in findings:
        # On another Python the lock has another distribution; the bound is the oldest one's.
        assert re.search(r">=", finding.text), str(finding)


def test_no_file_names_the_mirror_of_this_machine() -> None:
    """Where this machine takes its packages from is nobody's business but its own configuration's."""
    sources = [path for path in APT_SOURCES.rglob("*") if path.suffix in (".list", ".sources")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    mirrors = {name for name in re.findall(r"https?://([\w.-]+)", text) if "." in name}
    named = [
        str(path)
        for path in product_files(ROOT)
        if not path.is_symlink()
        for name in mirrors
        if name.encode() in path.read_bytes()
    ]
    assert named == []
