"""A headless Chromium, and pages in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One browser for all tests, with a profile of its own."""
    if not BROWSER or not DRIVER:
        pytest.fail("Chromium is not installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


class Browser:
    """A page in the browser, and what a person does with it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what a script on the page returns."""
        return self.driver.execute_script(script, *arguments)

    def size(self, width: int, height: int = 900) -> None:
        """Make the window so many pixels wide."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def media(self, media: str = "screen", scheme: str = "light") -> None:
        """Show the page as on that medium, in a light or dark scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def open(self, page: Path) -> Browser:
        """Open a file."""
        self.driver.get(page.as_uri())
        return self

    def all(self, selector: str) -> list[Any]:
        """Return the elements that a person can see."""
        return [one for one in self.driver.find_elements("css selector", selector) if one.is_displayed()]

    def one(self, selector: str) -> Any:
        """Return the one element that a person can see."""
        [found] = self.all(selector)
        return found

    def until(self, check: Callable[[], Any]) -> Any:
        """Wait until something holds."""
        from selenium.webdriver.support.wait import WebDriverWait

        return WebDriverWait(self.driver, 20, poll_frequency=0.05).until(lambda _: check())

    def type(self, text: str) -> None:
        """Type into the search box, and wait for the page to answer."""
        from selenium.webdriver.common.keys import Keys

        self.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.until(lambda: self.run("return document.getElementById('found').textContent") == "")
        box = self.driver.find_element("id", "search")
        box.clear()
        box.send_keys(text)
        # The page waits 60 ms after a key before it looks: by now it has looked for the whole text.
        self.driver.execute_async_script("setTimeout(arguments[0], 100)")
        self.until(lambda: self.run("return document.getElementById('found').textContent") != "")


@pytest.fixture
def browser(chromium: Any) -> Iterator[Browser]:
    """A browser of 1280 pixels in light mode; nothing may be said on its console."""
    made = Browser(chromium)
    made.size(1280)
    made.media()
    chromium.get_log("browser")
    yield made
    assert chromium.get_log("browser") == []
