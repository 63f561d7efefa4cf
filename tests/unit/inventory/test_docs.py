"""docs/reference names every key and is current; docs/inventory.md shows examples that work."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from coldiron.docs_gen import cluster_file
from coldiron.inventory import load
from coldiron.inventory.functions import FUNCTIONS, KINDS
from coldiron.inventory.model import Block, ClusterFile

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "inventory.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "cluster.md").read_text(encoding="utf-8")
SCHEMA = json.loads((ROOT / "docs" / "reference" / "cluster.schema.json").read_text(encoding="utf-8"))
INVENTORIES = sorted((ROOT / "inventories").glob("*/cluster.yml"))


def blocks(model: type[BaseModel] = Block) -> list[type[BaseModel]]:
    return [model, *(inner for one in model.__subclasses__() for inner in blocks(one))]


def test_the_reference_is_current() -> None:
    assert [str(path) for path in cluster_file.stale(ROOT)] == [], "run `make docs`"


def test_a_stale_reference_is_found_and_written(tmp_path: Path) -> None:
    assert cluster_file.stale(tmp_path) == {}
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "docs" / "reference" / "cluster.md").write_text("# old\n")
    assert set(cluster_file.stale(tmp_path)) == set(cluster_file.files())


@pytest.mark.parametrize("model", blocks(), ids=lambda model: model.__name__)
def test_every_key_is_explained(model: type[BaseModel]) -> None:
    missing = [name for name in model.model_fields if f"| `{name}` |" not in REFERENCE]
    assert not missing


def test_every_key_has_words_and_a_type() -> None:
    rows = [line.split(" | ") for line in REFERENCE.splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    assert [row[0] for row in rows if len(row) != 4 or len(row[3]) < 5 or not row[1].strip()] == []
    assert "| `mtu` | whole number, from 576 to 9 216 |" in REFERENCE
    assert "| `scheduler` | one of `slurm`, `kubernetes`, `none` | `slurm` |" in REFERENCE


def test_every_link_inside_the_reference_leads_to_a_block() -> None:
    headings = {
        line[3:].lower().replace(" ", "-") for line in REFERENCE.splitlines() if line.startswith("## ")
    }
    assert set(re.findall(r"\(#([^)]+)\)", REFERENCE)) - headings == set()
    assert len(headings) > 25


def test_every_kind_and_function_is_named_in_the_guide() -> None:
    assert [word for word in (*KINDS, *FUNCTIONS) if f"`{word}`" not in TEXT] == []


def test_every_block_of_the_file_is_in_the_guide() -> None:
    assert [name for name in ClusterFile.model_fields if name not in TEXT] == []


def test_the_examples_work_one_after_the_other(tmp_path: Path) -> None:
    first, *more = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "cluster.yml"
    file.write_text(first)
    cluster = load(file)
    assert str(cluster.node("gpu07").address) == "10.20.1.7"
    assert cluster.groups()["home_server"] == ["head01"]
    assert len(more) >= 4
    data = yaml.safe_load(first)
    heads = data["nodes"][:1]
    for example in more:
        data |= yaml.safe_load(example)
    # The guide's nodes leave the head out.
    data["nodes"] = heads + data["nodes"]
    (tmp_path / data["nodes_csv"]).write_text("name,serial,u\ngpu02,S2,\n")
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    whole = load(file)
    assert whole.node("gpu02").serial == "S2"
    assert whole.node("gpu07").rack == "r04"


@pytest.mark.parametrize("file", INVENTORIES, ids=lambda file: file.parent.name)
def test_the_schema_takes_the_shipped_files_and_they_name_it(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    where = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (file.parent / where).resolve() == ROOT / "docs" / "reference" / "cluster.schema.json"
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"features": {"scheduler": "slrm"}}, "'slrm' is not one of"),
        ({"nam": "x"}, "'nam' was unexpected"),
        ({"racks": [{"name": "r01", "units": 100}]}, "100 is greater than the maximum"),
        ({"nodes": []}, "should be non-empty"),
    ],
)
def test_the_schema_refuses_what_an_editor_should_mark(change: dict[str, object], told: str) -> None:
    data = yaml.safe_load((ROOT / "inventories" / "virtual" / "cluster.yml").read_text()) | change
    errors = list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(data))
    assert any(told in error.message for error in errors), errors
