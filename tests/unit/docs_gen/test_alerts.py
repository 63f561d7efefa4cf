"""The list of alerts says how soon each wants somebody, and an alert without a page ends the build."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron.docs_gen import alerts
from coldiron.errors import ColdironError

RULES = """
groups:
  - name: a
    rules:
      - {record: "coldiron:a", expr: a}
      - {alert: ColdironNight, expr: a > 1, labels: {severity: page}}
      - {alert: ColdironDay, expr: a > 1, labels: {severity: ticket}}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    rules = tmp_path / "roles/thing/files/coldiron-thing.rules.yml"
    rules.parent.mkdir(parents=True)
    rules.write_text(RULES)
    (tmp_path / alerts.FOLDER).mkdir(parents=True)
    for name in ("ColdironNight", "ColdironDay"):
        text = f"# {name}\n\n## What it means\nThe thing\n[burns](b.md). Much more.\n"
        (tmp_path / alerts.FOLDER / f"{name}.md").write_text(text)
    return tmp_path


def test_alerts_are_listed_by_severity_with_their_first_sentence(checkout: Path) -> None:
    page = alerts.page(checkout)
    assert page.uri == "runbooks/index.md"
    night, day = page.text.split("\n## page\n")[1].split("\n## ticket\n")
    assert "| [ColdironNight](ColdironNight.md) | The thing burns. | thing |" in night
    assert "| [ColdironDay](ColdironDay.md) | The thing burns. | thing |" in day
    assert "## info" not in page.text


def test_an_alert_without_a_page_is_refused(checkout: Path) -> None:
    (checkout / alerts.FOLDER / "ColdironDay.md").unlink()
    with pytest.raises(ColdironError, match=r"ColdironDay\.md"):
        alerts.page(checkout)
