"""The generated pages of this checkout, and the hook that hands them over."""

from __future__ import annotations

from pathlib import Path

import pytest
from mkdocs.config import load_config
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files, get_files
from mkdocs.structure.pages import Page as SitePage

from coldiron.docs_gen import pages, roles
from coldiron.docs_gen.codes import page as codes_page
from coldiron.docs_gen.page import Page
from coldiron.plan import codes

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def made() -> dict[str, Page]:
    """Every generated page, by its place."""
    return {page.uri: page for page in pages.generated(ROOT)}


def test_a_role_is_told_with_its_options_and_breaks(made: dict[str, Page]) -> None:
    text = made["roles/time.md"].text
    assert text.startswith("# time\n")
    assert "<!-- options -->" not in text
    assert '<tr id="time_makestep_seconds">' in text
    assert "float · seconds" in text
    assert "| The clock daemon is stopped | `test_the_daemon_runs_and_starts_at_boot` |" in text
    drain = made["roles/slurm_controller.md"].text
    assert "## Options of `tasks_from: drain`" in drain
    assert '<tr id="drain-slurm_controller_drain_nodes">' in drain


def test_the_list_of_roles_has_their_stages(made: dict[str, Page]) -> None:
    text = made["roles/index.md"].text
    assert "| [time](time/README.md) | Heads follow" in text
    assert "nobody else. On `cluster`. |" in text
    assert "On `nfs_server`, `cluster:!nfs_server`. |" in text
    order = ["## Stage base", "[time]", "## Stage storage", "[nfs]", "## Stage scheduler", "[slurm_worker]"]
    assert sorted(order, key=text.index) == order


def test_a_role_without_options_or_sabotage_is_told_too(tmp_path: Path) -> None:
    role = tmp_path / "lamp"
    (role / "meta").mkdir(parents=True)
    (role / "README.md").write_text("# lamp\n\nLights\nthe room. More.\n", encoding="utf-8")
    (role / "meta" / "argument_specs.yml").write_text("argument_specs: {main: {}}\n", encoding="utf-8")
    text = roles.page(role, {}).text
    assert "This role has no options." in text
    assert "What is proven" not in text
    assert roles.summary(role) == "Lights the room."


def test_a_module_is_told_with_examples_and_results(made: dict[str, Page]) -> None:
    text = made["plugins/converge_module.md"].text
    assert text.startswith("# converge {#the-plugin}\n")
    assert '<tr id="users-append">' in text
    assert "## Examples\n\n```yaml\n" in text
    assert '<tr id="returns-changed' in text or "## What it returns" in text
    assert "cache_plugin" in made["plugins/cluster_inventory.md"].text
    assert "Needs:" in made["plugins/cluster_inventory.md"].text
    assert '<tr id="modules_unit">' in made["plugins/gpu_driver_module.md"].text


def test_every_code_is_told(made: dict[str, Page]) -> None:
    text = made["reference/codes.md"].text
    known = codes.pages()
    assert known
    for code in known.values():
        assert f"### {code.code}: {code.title} {{ #{code.code.lower()} }}" in text
    bare = codes.Page("CI999", "Dark", "No light.", "Nobody sees.", "")
    said = codes_page([bare]).text
    assert "## CI: cluster.yml" in said
    assert "```" not in said
    bell = codes.Page("CI999", "Dark", "No light.", "Nobody sees.", "", wrong="name: \x07x\n")
    assert "name: \\x07x\n" in codes_page([bell]).text


def test_a_decision_is_listed_by_its_title(made: dict[str, Page]) -> None:
    assert "(0001-converge.md)" in made["decisions/index.md"].text


def test_files_and_folders_have_their_pages(made: dict[str, Page]) -> None:
    places = pages.places(made.values(), ROOT)
    assert places["roles/time/README.md"] == places["roles/time"] == "roles/time.md"
    assert places["docs/decisions"] == "decisions/index.md"
    assert places["docs/runbooks"] == "runbooks/index.md"
    assert places["CONTRIBUTING.md"] == "contributing.md"
    assert places["docs/time.md"] == "time.md"


def test_the_hook_adds_pages_links_and_drawings() -> None:
    config = load_config(str(ROOT / "mkdocs.yml"))
    files = config.plugins.on_files(get_files(config), config=config)
    assert "roles/time.md" in str(config.nav)

    def page(uri: str) -> SitePage:
        file = files.get_file_from_path(uri)
        assert file is not None
        return SitePage(None, file, config)

    def linked(uri: str, text: str) -> str:
        return str(config.plugins.on_page_markdown(text, page=page(uri), config=config, files=files))

    assert linked("index.md", "[a](docs/time.md)") == "[a](time.md)"
    assert linked("time.md", "[a](../roles/time/README.md)") == "[a](roles/time.md)"
    assert linked("cli/rack.md", "[a](b.md)") == "[a](b.md)"
    drawing = '<p><img alt="x" src="images/architecture.svg" /></p>'
    drawn = config.plugins.on_page_content(drawing, page=page("index.md"), config=config, files=files)
    assert drawn.startswith('<p><svg class="coldiron-drawing"')
    assert drawn.endswith("</svg>\n</p>")


def test_a_source_that_cannot_be_read_stops_the_build(tmp_path: Path) -> None:
    for name in pages.DOCUMENTS:
        (tmp_path / name).write_text("# x\n", encoding="utf-8")
    broken = tmp_path / "plugins" / "modules" / "lamp.py"
    broken.parent.mkdir(parents=True)
    broken.write_text("DOCUMENTATION = ''\n", encoding="utf-8")
    (tmp_path / "docs").mkdir()
    hook = ROOT / "src" / "coldiron" / "docs_gen" / "hook.py"
    (tmp_path / "mkdocs.yml").write_text(f"site_name: x\nhooks: [{hook}]\n", encoding="utf-8")
    config = load_config(str(tmp_path / "mkdocs.yml"))
    with pytest.raises(PluginError, match=r"lamp\.py: has no DOCUMENTATION"):
        config.plugins.on_files(Files([]), config=config)
