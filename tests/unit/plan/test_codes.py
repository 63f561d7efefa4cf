"""Every code has a page, every page an example that really yields it, and `coldiron explain` shows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import InventoryError, load
from coldiron.plan import cli
from coldiron.plan.codes import FAMILIES, Page, pages
from coldiron.plan.show import shown_page

ROOT = Path(__file__).parents[3]
SOUND = """\
plugin: coldiron.cluster.cluster
name: hopper
domain: hopper.internal
networks:
  cluster: {subnet: 10.99.0.0/24}
features: {scheduler: slurm}
defaults: {}
nodes:
  - {name: head01, kind: head, address: 10.99.0.1}
  - {name: cpu01, kind: cpu, address: 10.99.0.2, hardware: {cores_per_socket: 8, memory_gib: 64}}
"""
OF_INVENTORY = [page for page in pages().values() if page.family == "CI"]


def over_sound(blocks: str) -> str:
    """A sound cluster.yml whose top-level blocks are replaced by those of the same name in ``blocks``."""
    split = re.compile(r"^(?=[a-z_]+:)", re.MULTILINE)
    ours = {block.partition(":")[0]: block for block in split.split(SOUND) if block}
    theirs = {block.partition(":")[0]: block for block in split.split(blocks) if block}
    return "".join({**ours, **theirs}.values())


def codes_of(tmp_path: Path, page: Page, example: str) -> list[str]:
    (tmp_path / "nodes.csv").write_text("name,serial\ncpu01,S4471\n")
    (tmp_path / "catalog.yml").write_text("gpus: {}\n")
    file = tmp_path / "cluster.yml"
    file.write_text(example if page.whole else over_sound(example))
    try:
        load(file)
    except InventoryError as error:
        return [finding.code for finding in error.findings]
    return []


@pytest.mark.parametrize("page", OF_INVENTORY, ids=lambda page: page.code)
def test_the_wrong_example_yields_the_code_and_the_right_one_nothing(tmp_path: Path, page: Page) -> None:
    assert codes_of(tmp_path, page, page.wrong) == [page.code]
    assert codes_of(tmp_path, page, page.right) == []


RAISED = "CI|CR|CS|CH|CP|CU|CL|CV|CA"


def raised() -> set[str]:
    """The codes that the source names."""
    files = [path for part in ("inventory", "plan") for path in (ROOT / "src/coldiron" / part).rglob("*.py")]
    return {code for path in files for code in re.findall(rf'"((?:{RAISED})\d{{3}})"', path.read_text())}


def test_every_code_that_is_raised_has_a_page_and_the_other_way_round() -> None:
    explained = {page.code for page in pages().values() if page.family in RAISED.split("|")}
    assert raised() == explained


def test_every_exit_code_has_a_page() -> None:
    assert {f"EX{int(code)}" for code in ExitCode} == {code for code in pages() if code.startswith("EX")}


def test_pages_are_short_and_whole() -> None:
    for page in pages().values():
        assert page.family in FAMILIES
        lines = shown_page(page)
        assert len(lines) < 40
        assert max(map(len, lines)) <= 120
        assert all(line.isprintable() for line in lines)
        assert lines[-1] if page.type else False
        assert bool(page.wrong) == bool(page.right)


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    cli.register(made)
    return made


def explained(app: typer.Typer, *words: str) -> str:
    done = CliRunner().invoke(app, ["explain", *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_explain_shows_a_page(app: typer.Typer) -> None:
    text = explained(app, "ci101")
    assert text.startswith("CI101: unknown key\n")
    assert "Wrong:\n\n    features:\n      sheduler: none\n" in text
    assert "Right:\n\n    features:\n      scheduler: none\n" in text
    assert explained(app, "[CI101]") == text


def test_explain_lists_all(app: typer.Typer) -> None:
    text = explained(app)
    assert [code for code in pages() if f"  {code} " not in text] == []
    assert "exit codes:" in text


def test_an_unknown_code_is_refused_with_the_nearest(app: typer.Typer) -> None:
    done = CliRunner().invoke(app, ["explain", "CI1O1"])
    assert isinstance(done.exception, ColdironError)
    assert done.exception.exit_code == ExitCode.USAGE
    assert "did you mean `CI" in done.exception.message
