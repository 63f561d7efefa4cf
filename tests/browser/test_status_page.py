"""The page of a cluster's state, used as people use it."""

from __future__ import annotations

import pytest

from coldiron.status.overview import look
from coldiron.status.page import overview_page
from tests.unit.status.test_overview import NOW, Fake, alert

EVIL = "<img src=x onerror=document.title='broken'>"


@pytest.fixture
def page(tmp_path):
    """Three nodes: one well, one down, one whose GPU fell off the bus under an alert with a hostile text."""
    names = ("head01", "gpu01", "gpu02")
    gpus = [{"host": "gpu01", "gpu": str(number), "uuid": "", "model": "NVIDIA H200"} for number in range(8)]
    answers = {
        "up": [({"instance": name}, float(name != "gpu02")) for name in names],
        "kind": [({"instance": name, "kind": name[:-2], "rack": "a1"}, 1.0) for name in names],
        "disk": [({"instance": "head01"}, 0.99)],
        "utilization": [(labels, 50.0) for labels in gpus],
        "xid": [(gpus[3], 79.0)],
    }
    raised = [alert("Down", "gpu02", summary="gpu02 is away"), alert("Xid", "gpu01", "ticket", summary=EVIL)]
    fake = Fake(answers, raised)
    file = tmp_path / "status.html"
    overview = look(fake, fake, "hopper", names, NOW)  # type: ignore[arg-type]
    file.write_text(overview_page(overview, "https://head01:9090"), encoding="utf-8")
    return file


def test_the_first_look_says_how_it_is(browser, page):
    browser.open(page)
    assert "2 of 3 nodes up, 2 alerts firing" in browser.one("h1").text
    assert "Not up: gpu02." in browser.one(".lede").text
    assert [one.text for one in browser.all("#alerts h3")] == ["gpu02 is away", EVIL]
    # Only what a person has to act on is open.
    assert [one.get_attribute("open") for one in browser.all("#alerts details")] == ["true", None]
    assert len(browser.all("#gpus tbody tr")) == 8


def test_search_leaves_a_nodes_own(browser, page):
    browser.open(page)
    browser.type("gpu02")
    assert [one.text.split("\n")[0] for one in browser.all("#nodes tbody th")] == ["gpu02"]
    assert len(browser.all("#alerts article")) == 1


def test_wrong_shows_what_is_wrong(browser, page):
    browser.open(page)
    browser.one("[data-show=bad]").click()
    assert [one.text.split("\n")[0] for one in browser.all("#nodes tbody th")] == ["gpu02"]
    assert [one.text for one in browser.all("#gpus tbody tr .bad")] == ["79"]


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_runs_over_the_edge(browser, page, width):
    browser.size(width)
    browser.open(page)
    assert browser.run("return document.documentElement.scrollWidth") <= width
