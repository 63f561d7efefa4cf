"""The documentation: it builds strictly, its links hold, and it says what the code says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from coldiron.docs_gen import cli, plugins
from coldiron.docs_gen.markup import anchor
from tests.docs import links
from tests.docs.conftest import ROOT, build

ROLES = sorted(path.parent for path in (ROOT / "roles").glob("*/README.md"))
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "roles").glob("*/README.md")]
)


def text_of(page: Path) -> str:
    """Return a page's text without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_the_site_builds_without_a_warning(
    built: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    result, _ = built
    told = [line for line in result.stderr.splitlines() if not line.startswith("INFO")]
    assert (result.returncode, told) == (0, [])


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_outside(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > 40
    assert list(links.problems(site)) == []


def test_every_page_is_in_the_navigation(site: Path) -> None:
    front = links.parsed(site / "index.html")
    reached = {(site / link.partition("#")[0]).resolve() for link in front.points if ":" not in link}
    pages = {page.resolve() for page in site.rglob("*.html")} - {(site / "404.html").resolve()}
    assert sorted(str(page.relative_to(site.resolve())) for page in pages - reached) == []


def nested(options: dict[str, dict[str, object]], prefix: str = "") -> Iterator[str]:
    """Yield every option's name, those within others too."""
    for name, option in options.items():
        yield prefix + name
        inner = option.get("options")
        dots = "[]." if option.get("type") == "list" else "."
        yield from nested(inner if isinstance(inner, dict) else {}, prefix + name + dots)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_has_a_page_with_every_option(site: Path, role: Path) -> None:
    spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    wanted = {anchor(name) for name in nested(spec["argument_specs"]["main"].get("options") or {})}
    assert wanted - links.parsed(site / "roles" / f"{role.name}.html").anchors == set()


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "plugins").glob("[ailm]*/*.py")),
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_a_plugin_has_a_page(site: Path, path: Path) -> None:
    if path.parent.name == "module_utils":
        return
    kind = {"action": "module", "modules": "module"}.get(path.parent.name, path.parent.name)
    assert f"coldiron.cluster.{path.stem}" in text_of(site / "plugins" / f"{path.stem}_{kind}.html")


def test_every_filter_is_told(site: Path) -> None:
    page = links.parsed(site / "plugins" / "filters.html")
    names = {item.name for item in plugins.filters(ROOT)}
    assert len(names) > 15
    assert names - page.anchors == set()


def test_every_verb_is_told_with_its_options(site: Path) -> None:
    for path, command in cli.verbs():
        page = site / "cli" / f"{path[0]}.html"
        assert "-".join(("coldiron", *path)) in links.parsed(page).anchors
        text = text_of(page)
        options = [option for parameter in command.params for option in parameter.opts if option[0] == "-"]
        assert [option for option in options if option not in text] == [], path


def test_every_verb_has_an_example_that_the_program_knows() -> None:
    assert cli.wrong_examples() == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_a_document_are_the_programs(document: Path) -> None:
    wrong = [
        f"line {line}: {found}"
        for line, words in cli.typed(document.read_text(encoding="utf-8"))
        if (found := cli.problem(words))
    ]
    assert wrong == []


def test_the_search_knows_options_and_verbs(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    text = " ".join(entry["text"] for entry in index["docs"])
    assert "time_upstream_servers" in text
    assert "coldiron rack up" in " ".join(entry["title"] for entry in index["docs"])


def test_the_drawing_is_in_its_page(site: Path) -> None:
    page = (site / "architecture.html").read_text(encoding="utf-8")
    assert '<svg class="coldiron-drawing"' in page
    assert 'src="images/architecture.svg"' not in page


def test_the_build_refuses_each_planted_mistake(copy: Path) -> None:
    planted = {
        "time.md": "[a](nowhere.md) [b](users.md#no-such-place) [c](../roles/lamp/README.md)",
        "forgotten.md": "# A page that nobody finds",
    }
    for page, line in planted.items():
        with (copy / "docs" / page).open("a", encoding="utf-8") as document:
            document.write(f"\n{line}\n")
    result = build(copy, copy / "site")
    assert result.returncode != 0
    warnings = result.stderr.split("WARNING")[1:]
    for words in ("nowhere.md", "no-such-place", "roles/lamp/README.md", "forgotten.md"):
        assert sum(words in warning for warning in warnings) == 1, words
    assert len(warnings) == 4


@pytest.mark.parametrize(
    ("tag", "told"),
    [
        ('<a href="roles/lamp.html">x</a>', "roles/lamp.html leads nowhere"),
        ('<a href="time.html#lamp">x</a>', "no such place"),
        ('<a href="#lamp">x</a>', "no such place"),
        ('<a href="http://">x</a>', "is no address"),
        ('<a href="javascript:void(0)">x</a>', "is no address"),
        ('<script src="https://cdn.example/mermaid.js"></script>', "from outside"),
        ('<script src="//cdn.example/mermaid.js"></script>', "from outside"),
        ('<link rel="stylesheet" href="https://fonts.example/css">', "from outside"),
        ('<img src="http://pictures.example/a.png">', "from outside"),
        ('<p style="background: url(https://pictures.example/a.png)">', "from outside"),
        ("<style>@font-face { src: url('https://fonts.example/a.woff2') }</style>", "from outside"),
        ('<img src="images/lamp.svg">', "images/lamp.svg leads nowhere"),
        ('<p id="lamp"></p><p id="lamp"></p>', "the anchor lamp is there twice"),
    ],
)
def test_the_check_of_links_finds(site: Path, tmp_path: Path, tag: str, told: str) -> None:
    for name in ("exit-codes.html", "time.html"):
        shutil.copy(site / name, tmp_path / name)
    before = set(links.problems(tmp_path))
    with (tmp_path / "exit-codes.html").open("a", encoding="utf-8") as page:
        page.write(tag)
    links.parsed.cache_clear()
    found = set(links.problems(tmp_path)) - before
    assert len(found) == 1
    assert told in found.pop()


def test_the_check_of_links_finds_what_a_style_sheet_loads(tmp_path: Path) -> None:
    (tmp_path / "site.css").write_text(
        '@import "https://fonts.example/css";\na { fill: url(#here) }\n', encoding="utf-8"
    )
    assert list(links.problems(tmp_path)) == [
        "site.css: loads https://fonts.example/css from outside the site"
    ]
