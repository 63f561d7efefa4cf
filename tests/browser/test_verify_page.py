"""The page of a verification, used as people use it."""

from __future__ import annotations

import pytest

from coldiron.report import write_verify_report
from coldiron.verify.results import Node
from tests.unit.report.test_verify_report import HOSTILE, big
from tests.unit.verify.samples import failed, mixed, passed, verification


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a cluster with a bit of everything."""
    return write_verify_report(mixed(), tmp_path_factory.mktemp("mixed"))[0]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The page of 500 nodes and 100 tests, one of which fails on a hundred nodes and two on one."""

    def bad(test, node):
        return (test == 42 and node >= 400) or (test == 7 and node == 3) or (test == 8 and node == 9)

    return write_verify_report(big(500, 100, bad), tmp_path_factory.mktemp("large"))[0]


def titles(browser):
    return [one.text for one in browser.all("article.failure h3")]


def nodes(browser):
    return [one.get_attribute("data-node") for one in browser.all("tr[data-item=row]")]


def test_search_filters_everything(browser, page):
    browser.open(page)
    assert titles(browser) == ["The daemon runs", "The clocks agree"]
    browser.type("clocks")
    assert titles(browser) == ["The clocks agree"]
    assert [one.text for one in browser.all("li[data-item=test] .title")] == ["The clocks agree"]
    browser.type("gpu01 time")
    assert titles(browser) == ["The daemon runs"]
    assert nodes(browser) == ["gpu01"]
    assert "1 failure" in browser.one("#found").text
    browser.type("inactive")
    assert titles(browser) == ["The daemon runs"]
    browser.type("no such thing")
    assert titles(browser) == []
    assert not browser.all("#failures")


def test_the_keyboard_is_enough(browser, page):
    from selenium.webdriver.common.keys import Keys

    browser.open(page)
    body = browser.driver.find_element("tag name", "body")
    body.send_keys("/")
    assert browser.run("return document.activeElement.id") == "search"
    browser.driver.switch_to.active_element.send_keys("clocks")
    browser.until(lambda: titles(browser) == ["The clocks agree"])
    browser.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert len(titles(browser)) == 2
    browser.run("document.activeElement.blur()")
    body.send_keys(Keys.TAB)
    seen = []
    for _ in range(40):
        seen.append(browser.run("return document.activeElement.outerHTML.slice(0, 60)"))
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
    assert any("cell bad" in one for one in seen)
    assert any(one.startswith("<summary") for one in seen)


def test_a_red_cell_leads_to_its_failures(browser, page):
    browser.open(page)
    cell = next(one for one in browser.all("a.cell.bad") if "gpu01, time" in one.get_attribute("aria-label"))
    cell.click()
    assert titles(browser) == ["The daemon runs"]
    assert browser.run("return document.activeElement.id") == "f1"
    assert 0 <= browser.run("return document.activeElement.getBoundingClientRect().top") < 300


def test_what_is_shown_can_be_chosen(browser, page):
    browser.open(page)
    browser.one("[data-show=bad]").click()
    assert nodes(browser) == ["gpu01", "gpu02", "gpu03"]
    assert {one.text for one in browser.all("li[data-item=test] .title")} == {
        "The daemon runs",
        "The clocks agree",
    }
    assert browser.one("[data-show=bad]").get_attribute("aria-pressed") == "true"
    browser.one("[data-show=skipped]").click()
    assert [one.text for one in browser.all("li[data-item=test] .title")] == ["Mounts are there [a]"]
    assert titles(browser) == []
    browser.one("[data-show=all]").click()
    assert len(nodes(browser)) == 4


def test_failures_and_tests_fold(browser, page):
    browser.open(page)
    first = browser.all("article.failure > details > summary")[0]
    assert len(browser.all("#f1 figure")) == 1
    first.click()
    assert browser.all("#f1 figure") == []
    first.click()
    browser.one("#f1 .others > summary").click()
    assert len(browser.all("#f1 figure")) == 2
    browser.one("#role-time > summary").click()
    browser.all("#role-time li summary")[0].click()
    rows = browser.until(lambda: [one.text for one in browser.all("#role-time .lazy tbody tr")])
    assert [row.split()[0] for row in rows] == ["gpu01", "gpu02", "head01"]
    assert "failed" in rows[0]
    assert "systemctl is-active chrony" in rows[0]


@pytest.mark.parametrize("width", [360, 800, 1600])
@pytest.mark.parametrize("which", ["page", "large"])
def test_nothing_sticks_out(browser, request, which, width):
    browser.size(width)
    browser.open(request.getfixturevalue(which))
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run("return getComputedStyle(document.querySelector('.scroll')).overflowX") == "auto"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "selector",
    [
        "h1",
        ".lede",
        "dt",
        ".message",
        ".legend",
        ".cell.ok",
        ".cell.bad",
        ".hint",
        ".exchange .rc",
        ".exchange .wrong",
    ],
)
def test_texts_stand_out_in_both_schemes(browser, page, scheme, selector):
    """WCAG 2 AA: 4.5 to 1."""
    browser.media(scheme=scheme)
    browser.open(page)
    contrast = browser.run(
        """
        const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
        const light = (c) => c.slice(0, 3).map((v) => v / 255)
          .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
          .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const element = document.querySelector(arguments[0]);
        let behind = element;
        const clear = /, 0\\)|transparent/;
        while (behind && clear.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
        const a = light(rgb(getComputedStyle(element).color));
        const b = light(rgb(getComputedStyle(behind || document.body).backgroundColor));
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        """,
        selector,
    )
    assert contrast >= 4.5


def test_dark_is_dark(browser, page):
    browser.media(scheme="dark")
    browser.open(page)
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert sum(int(part) for part in background[4:-1].split(",")) < 120


def test_paper_shows_every_failure_and_no_tools(browser, page):
    browser.open(page)
    browser.type("no such thing")
    browser.run("for (const one of document.querySelectorAll('.failure > details')) one.open = false")
    browser.media("print")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert titles(browser) == ["The daemon runs", "The clocks agree"]
    assert browser.all("#f1 pre.out")[0].text == "inactive"
    assert browser.all(".tools") == []
    colors = [
        browser.all("a.cell.bad")[0].value_of_css_property(name) for name in ("color", "background-color")
    ]
    assert colors == ["rgba(143, 29, 17, 1)", "rgba(0, 0, 0, 0)"]
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.run("dispatchEvent(new Event('afterprint'))")
    browser.media()
    assert browser.all("#f1 pre.out") == []


def test_five_hundred_nodes_fold_and_unfold(browser, large):
    browser.open(large)
    assert nodes(browser) == ["gpu0003", "gpu0009", *(f"gpu{number:04d}" for number in range(400, 500))]
    browser.one(".kind button").click()
    assert browser.run("return [...document.querySelectorAll('tr.right')].every((row) => row.offsetParent)")
    browser.one(".kind button").click()
    browser.type("gpu0123")
    assert nodes(browser) == ["gpu0123"]
    assert titles(browser) == []
    browser.type("test_number_42")
    assert titles(browser) == ["Number 42"]
    browser.all("li[data-item=test] > details > summary")[0].click()
    rows = browser.until(lambda: browser.driver.find_elements("css selector", ".lazy tbody tr"))
    assert len(rows) == 200
    assert "… and 300 more" in browser.one(".lazy .rest").text


def test_hostile_output_stays_text(browser, tmp_path):
    found = verification(
        failed("time", "gpu01", message=HOSTILE),
        passed("base", "gpu01", f"test_x[{HOSTILE}]", HOSTILE),
        nodes=[Node("gpu01", "gpu")],
    )
    browser.open(write_verify_report(found, tmp_path)[0])
    assert HOSTILE.replace("\u2028", "") in browser.one(".message").text.replace("\u2028", "")
    browser.one("#role-base > summary").click()
    browser.one("#role-base li summary").click()
    assert browser.until(lambda: browser.all(".lazy code"))
    assert browser.all("img") == []


def test_without_scripts_everything_important_is_there(browser, page):
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(page)
        source = browser.driver.execute_cdp_cmd("DOM.getDocument", {"depth": 1})
        assert source
        found = browser.driver.execute_cdp_cmd("DOM.performSearch", {"query": "article.failure pre.out"})
        assert found["resultCount"] >= 1
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
