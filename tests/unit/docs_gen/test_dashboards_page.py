"""docs/dashboards.md tells of every panel that Grafana is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron.docs_gen import dashboards_page
from coldiron.errors import ColdironError

ROOT = Path(__file__).resolve().parents[3]


def test_the_committed_page_is_current() -> None:
    assert dashboards_page.stale(ROOT) == {}, "run `python -m coldiron.docs_gen`"


def test_every_panel_has_its_line() -> None:
    text = dashboards_page.outline(ROOT / dashboards_page.FOLDER)
    assert text.startswith("### Cluster")
    assert "| Who uses which GPU | GPUs in jobs | table |" in text
    assert "To choose: Rack, Node." in text
    # A row is named once.
    assert text.count("| Who uses which GPU |") == 1


def test_a_page_without_a_place_for_it_is_said() -> None:
    with pytest.raises(ColdironError, match="has no place for the outline"):
        dashboards_page.filled("nothing", ROOT / dashboards_page.FOLDER)


def test_a_checkout_without_the_page_has_nothing_to_do(tmp_path: Path) -> None:
    assert dashboards_page.stale(tmp_path) == {}
