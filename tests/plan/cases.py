"""Composing cluster.yml files out of a sound base and blocks over it, and what the checks find in them."""

from __future__ import annotations

import re
from pathlib import Path

from coldiron.inventory import load
from coldiron.plan.checks import CHECKS
from coldiron.plan.codes import Page
from coldiron.plan.design import Design, run
from coldiron.plan.findings import Finding

HERE = Path(__file__).parent
# The base that a family's pages stand on when they name none.
BASES = {"CH": "node", "CU": "space", "CP": "power", "CL": "network", "CV": "software", "CA": "node"}
_BLOCK = re.compile(r"^(?=[a-z_]+:)", re.MULTILINE)


def base(name: str) -> str:
    """A sound cluster.yml of tests/plan/base."""
    return (HERE / "base" / f"{name}.yml").read_text(encoding="utf-8")


def over(text: str, blocks: str) -> str:
    """``text`` with its top-level blocks replaced by those of the same name in ``blocks``, which go last."""
    ours = {block.partition(":")[0]: block for block in _BLOCK.split(text) if block}
    theirs = {block.partition(":")[0]: block for block in _BLOCK.split(blocks) if block}
    return "".join([*(block for key, block in ours.items() if key not in theirs), *theirs.values()])


def text_of(page: Page, example: str) -> str:
    """The whole file that a page's example makes."""
    return example if page.whole else over(base(page.base or BASES[page.family]), example)


def found(directory: Path, text: str) -> list[Finding]:
    """What the offline checks find in a cluster.yml of this text. Raises InventoryError where it is not sound."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "cluster.yml"
    file.write_text(text, encoding="utf-8")
    return run(Design(load(file)), CHECKS)


def line_of(finding: Finding) -> int:
    """The line that a finding names; 0 where it names none."""
    tail = finding.where.rpartition(":")[2]
    return int(tail) if tail.isdigit() else 0
