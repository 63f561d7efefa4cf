"""Whatever the file holds, the loader answers with a cluster or with findings, and soon."""

from __future__ import annotations

import copy
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from coldiron.inventory import InventoryError
from coldiron.inventory.check import build
from coldiron.inventory.ranges import MAX_NODES, RangeError, expand, expand_names
from coldiron.inventory.source import parse
from tests.unit.inventory.samples import SOUND

# Generous: the machine may be busy. What is guarded against runs for minutes or for ever.
SOON = timedelta(seconds=10)
SETTINGS = settings(max_examples=150, deadline=SOON)
YAML_SIGNS = " \n-:?,[]{}&*#!|>'\"%@`~\t\x85\ufeff"
YAML_WORDS = "on 08 name nodes gpu[01-04] 12:34:56 10.99.0.1 null é 0x1f 1e9 .nan &a *a !!int --- ..."
YAML_PIECES = st.sampled_from([*YAML_SIGNS, "  ", "- ", ": ", "? ", "<<: ", "---\n", *YAML_WORDS.split(" ")])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["gpu[1-9]", "10.99.0.[1-3]", "10.99.0.0/24", "head", "@all", "a,b", "[", "x" * 5000, "on"]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


def answer(text: str) -> None:
    """Load ``text``; anything but a usable cluster or usable findings fails the test."""
    try:
        cluster = build(parse(text, "cluster.yml"), Path("cluster.yml"))
    except InventoryError as error:
        caught = error
    else:
        assert set(cluster.groups()["cluster"]) == {node.name for node in cluster.expand()}
        assert all(node.hostvars() for node in cluster.expand())
        return
    assert caught.findings
    lines = len(text.splitlines()) + 1
    assert all(0 <= finding.line <= lines for finding in caught.findings)
    assert all("\n" not in str(finding) for finding in caught.findings)
    caught.message.encode()


@SETTINGS
@given(st.text())
def test_any_text(text: str) -> None:
    answer(text)


@SETTINGS
@given(st.lists(YAML_PIECES, max_size=60).map("".join))
def test_pieces_of_yaml(text: str) -> None:
    answer(text)


@SETTINGS
@given(st.data())
def test_a_damaged_cluster(data: st.DataObject) -> None:
    lines = SOUND.splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.sampled_from(["drop", "double", "insert", "swap"])):
            case "drop":
                lines[index] = ""
            case "double":
                lines[index] *= 2
            case "insert":
                column = data.draw(st.integers(0, len(lines[index])))
                lines[index] = lines[index][:column] + data.draw(YAML_PIECES) + lines[index][column:]
            case _:
                other = data.draw(st.integers(0, len(lines) - 1))
                lines[index], lines[other] = lines[other], lines[index]
    answer("".join(lines))


@SETTINGS
@given(st.data())
def test_a_cluster_with_a_strange_value(data: st.DataObject) -> None:
    cluster: Any = copy.deepcopy(yaml.safe_load(SOUND))
    place = cluster
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(VALUES)
            break
        place = place[key]
    answer(yaml.safe_dump(cluster, allow_unicode=True))


@SETTINGS
@given(st.text(alphabet="gpu0123456789[]-,/ .", max_size=30))
def test_any_range(text: str) -> None:
    try:
        names = expand_names(text)
    except RangeError:
        return
    assert 0 < len(names.names) <= MAX_NODES
    assert len(set(names.names)) == len(names.names) == len(names.offsets)
    assert list(names.names) == list(expand(text))
