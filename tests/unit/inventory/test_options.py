"""Every option of the model answers a wrong value with a clear line, on its own line of the file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from coldiron.inventory import Finding, InventoryError
from coldiron.inventory.check import build
from coldiron.inventory.source import Document, parse
from tests.unit.inventory import options
from tests.unit.inventory.options import FILE, with_value

OPTIONS = list(options.options())
WRONG: list[Any] = [
    "some text",
    3.5,
    True,
    None,
    [],
    {},
    [[]],
    [1.5],
    ["?"],
    {"a": 1},
    {"A b": {}},
    -1,
    10**9,
    "x" * 5000,
]
# What pydantic would say by itself.
RAW = re.compile(r"should|valid |Input|Value error|type=|String|\[key\]|None|e\.g\. ?$|; write $")


def findings(data: dict[str, Any]) -> tuple[Document, list[Finding]]:
    """What is wrong with a file of this data."""
    # JSON is YAML, and written faster.
    document = parse(json.dumps(data, indent=1), "cluster.yml")
    try:
        build(document, Path("cluster.yml"))
    except InventoryError as error:
        return document, error.findings
    return document, []


def test_the_file_around_is_sound() -> None:
    assert findings(FILE) == (findings(FILE)[0], [])
    assert len(OPTIONS) > 250


def test_every_block_of_the_model_is_reached() -> None:
    blocks = {path[-2] for path in OPTIONS if len(path) > 1}
    assert {"ups", "cooling", "overrides", "bmc", "supplies", "outlets"} <= {
        str(part) for path in OPTIONS for part in path
    }
    assert blocks


@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: ".".join(map(str, path)))
def test_a_wrong_value_is_told_clearly(path: options.Path) -> None:
    told = 0
    for value in WRONG:
        document, found = findings(with_value(path, value))
        told += bool(found)
        here = document.line(path)
        for finding in found:
            text = str(finding)
            assert not RAW.search(finding.text), text
            assert re.fullmatch(r"cluster\.yml:\d+: \S.* \[C[A-Z]\d{3}\]", text), text
            assert len(text) < 700, text
        # What is wrong with the value itself is told where it stands.
        its_own = [finding for finding in found if finding.code < "CI2" and finding.code != "CI102"]
        assert all(abs(finding.line - here) <= 3 for finding in its_own), [here, *map(str, its_own)]
    # No option takes all of them.
    assert told >= 6
