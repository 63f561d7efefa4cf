"""What is wrong with the links of a built site, looked at offline: from its files alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes by which a page loads something, and those by which it only points somewhere.
LOADS = {
    ("script", "src"),
    ("img", "src"),
    ("source", "src"),
    ("iframe", "src"),
    ("video", "src"),
    ("embed", "src"),
    ("object", "data"),
    ("link", "href"),
    ("image", "href"),
    ("use", "href"),
}
POINTS = {("a", "href"), ("area", "href"), ("form", "action")}
STYLE_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


@dataclass
class Parsed(HTMLParser):
    """The anchors of a page, what it loads, and where it points."""

    anchors: set[str] = field(default_factory=set)
    doubled: set[str] = field(default_factory=set)
    loads: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                (self.doubled if value in self.anchors else self.anchors).add(value or "")
            elif (tag, name) in LOADS and value:
                self.loads.append(value)
            elif (tag, name) in POINTS and value:
                self.points.append(value)
            elif name == "style" and value:
                self.loads += styled(value)

    def handle_data(self, data: str) -> None:
        if self.rawdata and "url(" in data:
            self.loads += styled(data)


def styled(css: str) -> list[str]:
    """Return what a style sheet loads."""
    return [first or second for first, second in STYLE_URL.findall(css)]


@cache
def parsed(page: Path) -> Parsed:
    """Return a page, read once."""
    found = Parsed()
    found.feed(page.read_text(encoding="utf-8"))
    found.close()
    return found


def problem(link: str, page: Path, site: Path, *, loads: bool) -> str:
    """Say what is wrong with one link of a page; an empty string if nothing is."""
    parts = urlsplit(link)
    if parts.scheme == "data" or (parts.scheme == "mailto" and not loads):
        return ""
    if parts.scheme or parts.netloc:
        if loads:
            return f"loads {link} from outside the site"
        right = parts.scheme in ("http", "https") and re.fullmatch(r"[\w.-]+(:\d+)?", parts.netloc)
        return "" if right else f"{link} is no address"
    path = unquote(parts.path)
    start = site if path.startswith("/") else page.parent
    target = (start / path.lstrip("/")).resolve() if path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return f"{link} leads nowhere"
    anchor = unquote(parts.fragment)
    if anchor and target.suffix == ".html" and anchor not in parsed(target).anchors:
        return f"{link}: the page has no such place"
    return ""


def problems(site: Path) -> Iterator[str]:
    """Yield every wrong link and doubled anchor of a site with its page, and all that it loads from outside."""
    site = site.resolve()
    for page in sorted(site.rglob("*.html")):
        where = page.relative_to(site)
        yield from (f"{where}: the anchor {name} is there twice" for name in sorted(parsed(page).doubled))
        for links, loads in ((parsed(page).loads, True), (parsed(page).points, False)):
            for link in links:
                if wrong := problem(link, page, site, loads=loads):
                    yield f"{where}: {wrong}"
    for sheet in sorted(site.rglob("*.css")):
        for link in styled(sheet.read_text(encoding="utf-8")):
            if not link.startswith("#") and (wrong := problem(link, sheet, site, loads=True)):
                yield f"{sheet.relative_to(site)}: {wrong}"
