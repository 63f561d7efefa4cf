"""docs/plan.md shows what the commands really print."""

from __future__ import annotations

from pathlib import Path

from coldiron.plan.codes import FAMILIES, pages
from coldiron.plan.show import shown_page

TEXT = (Path(__file__).parents[3] / "docs" / "plan.md").read_text()


def test_the_page_of_a_code() -> None:
    assert "\n".join(shown_page(pages()["CI101"])) in TEXT


def test_every_family_is_named() -> None:
    assert [family for family in FAMILIES if f"`{family}`" not in TEXT] == []
