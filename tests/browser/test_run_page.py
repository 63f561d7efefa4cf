"""The page of a run, used as people use it."""

from __future__ import annotations

import pytest

from coldiron.report import write_run_report
from tests.unit.report.test_run_report import recorded, state


@pytest.fixture
def page(tmp_path):
    """The page of a run that failed on one node."""
    return write_run_report(state(), tmp_path)[0]


def test_search_finds_failures_changes_and_tasks(browser, page):
    browser.open(page)
    assert len(browser.all("#failures article")) == 1
    browser.type("chrony.conf")
    assert [one.text for one in browser.all("li[data-item=change] .title")] == ["/etc/chrony.conf"]
    assert browser.all("#failures") == []
    browser.type("late gpu01")
    assert len(browser.all("article")) == 1


def test_a_red_cell_leads_to_its_failure(browser, page):
    browser.open(page)
    browser.one("a.cell.bad").click()
    assert browser.run("return document.activeElement.id") == "f1"


def test_a_diff_unfolds_in_colours(browser, page):
    browser.open(page)
    browser.one("[data-item=role][data-role=time] li summary").click()
    added = browser.until(lambda: browser.all(".diff .add"))[0]
    removed = browser.all(".diff .del")[0]
    assert (added.text, removed.text) == ("+new", "-old")
    assert added.value_of_css_property("color") != removed.value_of_css_property("color")


@pytest.mark.parametrize("width", [360, 800, 1600])
@pytest.mark.parametrize("name", ["failed", "many", "killed"])
def test_nothing_sticks_out(browser, tmp_path, name, width):
    browser.size(width)
    browser.open(write_run_report(recorded(name, tmp_path), tmp_path / "report")[0])
    assert browser.run("return document.documentElement.scrollWidth") <= width
