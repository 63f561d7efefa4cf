"""The tables of docs/repair.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron.docs_gen import repair_tables
from coldiron.errors import ColdironError

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_says_what_the_code_does() -> None:
    assert repair_tables.stale(ROOT) == {}, "run `python -m coldiron.docs_gen`"


def test_a_page_is_filled(tmp_path: Path) -> None:
    assert repair_tables.stale(tmp_path) == {}
    page = tmp_path / repair_tables.PAGE
    page.parent.mkdir()
    page.write_text(
        "".join(f"<!-- {name} -->\nyesterday\n<!-- /{name} -->\n" for name in repair_tables.TABLES)
    )
    (text,) = repair_tables.stale(tmp_path).values()
    assert "yesterday" not in text
    assert "| `deploy` | 2 | `power` |" in text
    page.write_text(text)
    assert repair_tables.stale(tmp_path) == {}


def test_a_page_without_a_place_for_a_table() -> None:
    with pytest.raises(ColdironError, match="write <!-- states --> and <!-- /states -->"):
        repair_tables.filled("nothing")


def test_cells_hold_no_bar() -> None:
    for table in repair_tables.TABLES.values():
        assert len({line.count("|") for line in table().splitlines()}) == 1
