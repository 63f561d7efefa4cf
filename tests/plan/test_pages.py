"""Every code of the offline checks: its wrong example yields it where it stands, its near miss does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron.plan.codes import Page, pages
from tests.plan.cases import BASES, base, found, line_of, text_of

# Those of CV2 need role variables beside cluster.yml; test_policy.py tries them.
OFFLINE = [
    page
    for page in pages().values()
    if page.family in BASES and page.wrong and not page.code.startswith("CV2")
]


@pytest.mark.parametrize("page", OFFLINE, ids=lambda page: page.code)
def test_the_wrong_example_yields_the_code_where_it_stands(tmp_path: Path, page: Page) -> None:
    text = text_of(page, page.wrong)
    lines = [line_of(finding) for finding in found(tmp_path, text) if finding.code == page.code]
    assert lines
    first = text.count("\n") - page.wrong.count("\n") + 1
    assert any(line >= first for line in lines)


@pytest.mark.parametrize("page", OFFLINE, ids=lambda page: page.code)
def test_the_right_example_does_not(tmp_path: Path, page: Page) -> None:
    assert page.right, "a near miss belongs to every code"
    assert page.code not in {finding.code for finding in found(tmp_path, text_of(page, page.right))}


@pytest.mark.parametrize("name", sorted({page.base or BASES[page.family] for page in OFFLINE}))
def test_the_base_is_sound(tmp_path: Path, name: str) -> None:
    assert [str(finding) for finding in found(tmp_path, base(name))] == []


def test_every_code_of_the_offline_checks_is_tried() -> None:
    untried = {page.code for page in pages().values() if page.family in BASES and not page.wrong}
    assert untried == set()
