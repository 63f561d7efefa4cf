"""`coldiron schema` and `coldiron nodes export` as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import cli, load
from coldiron.inventory.json_schema import schema, schema_text

Write = Callable[[str], Path]


def run(*words: str) -> Result:
    app = typer.Typer()
    cli.register(app)
    return CliRunner().invoke(app, list(words))


def refused(result: Result) -> ColdironError:
    assert isinstance(result.exception, ColdironError), result.output
    return result.exception


def test_the_schema_is_printed_or_written(tmp_path: Path) -> None:
    printed = run("schema")
    assert (printed.exit_code, printed.stdout) == (0, schema_text())
    assert json.loads(printed.stdout) == schema()
    file = tmp_path / "schema.json"
    file.write_text("an old one")
    assert run("schema", "-o", str(file)).exit_code == 0
    assert file.read_text() == schema_text()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    error = refused(run("schema", "-o", str(tmp_path / "nowhere" / "schema.json")))
    assert "schema.json cannot be written: No such file or directory" in error.message
    assert error.exit_code == ExitCode.USAGE


def test_nodes_are_printed_and_written_once(write: Write, sound: str, tmp_path: Path) -> None:
    inventory = str(write(sound).parent)
    printed = run("nodes", "export", "-i", inventory)
    assert printed.exit_code == 0
    assert printed.stdout.splitlines()[:2] == [
        "name,address,mac,serial,bmc_address,bmc_mac,rack,u",
        "head01,10.99.0.1,,,,,,",
    ]
    table = tmp_path / "nodes.csv"
    assert "6 nodes written" in run("nodes", "export", "-i", inventory, "-o", str(table)).stdout
    assert table.read_text() == printed.stdout
    error = refused(run("nodes", "export", "-i", inventory, "-o", str(table)))
    assert "is there already; name another file, or add --replace" in error.message
    assert error.exit_code == ExitCode.REFUSED
    assert run("nodes", "export", "-i", inventory, "-o", str(table), "--replace").exit_code == 0


def test_the_way_round_works(write: Write, sound: str, tmp_path: Path) -> None:
    file = write(sound)
    run("nodes", "export", "-i", str(file), "-o", str(tmp_path / "nodes.csv"))
    before = load(file)
    file.write_text(sound + "nodes_csv: nodes.csv\n")
    assert [node.hostvars() for node in load(file).nodes] == [node.hostvars() for node in before.nodes]


@pytest.mark.parametrize("words", [["nodes", "export", "-i", "nowhere"]])
def test_an_inventory_that_is_not_there_is_told(words: list[str]) -> None:
    assert "nowhere does not exist" in refused(run(*words)).message
