"""docs/inventory.md names every key and shows examples that work."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from coldiron.inventory import load
from coldiron.inventory.functions import FUNCTIONS, KINDS
from coldiron.inventory.model import Block, ClusterFile

TEXT = (Path(__file__).parents[3] / "docs" / "inventory.md").read_text()


def blocks(model: type[BaseModel] = Block) -> list[type[BaseModel]]:
    return [model, *(inner for one in model.__subclasses__() for inner in blocks(one))]


@pytest.mark.parametrize("model", blocks(), ids=lambda model: model.__name__)
def test_every_key_is_explained(model: type[BaseModel]) -> None:
    missing = [name for name in model.model_fields if f"`{name}`" not in TEXT]
    assert not missing


def test_every_choice_is_named() -> None:
    words = {word for word in re.findall(r'"(?:enum|const)": (\[[^]]*\]|"[^"]*")', _schema()) if word}
    choices = {choice for word in words for choice in re.findall(r'"([^"]+)"', word)}
    assert {*KINDS, "rocky-9", "slurm"} <= choices
    assert not [choice for choice in choices | set(FUNCTIONS) if f"`{choice}`" not in TEXT]


def _schema() -> str:
    return json.dumps(ClusterFile.model_json_schema())


def test_the_example_works(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "cluster.yml"
    file.write_text(example)
    cluster = load(file)
    assert str(cluster.node("gpu07").address) == "10.20.1.7"
    assert cluster.groups()["home_server"] == ["head01"]
