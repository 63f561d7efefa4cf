"""For every option of every block: what is wrong with it is found on its line, with the right code, in plain words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from coldiron.inventory import InventoryError
from coldiron.inventory.check import build
from coldiron.inventory.findings import Finding
from coldiron.inventory.source import KeyPath, parse
from tests.plan.options import Option, bare, block_of, bounds, choices, is_text, options, with_value

ALL = list(options())
# Words that pydantic has for programmers.
RAW = re.compile(
    r"Input should|pydantic|type=|validation|Field required|valid (string|integer|number|list|dictionary|tuple)"
    r"|should (be|have|match)|Extra inputs|instance of|unable to parse",
    re.IGNORECASE,
)
# Values of their own kind say themselves what they want.
SPEAKING = {"mac": "CI111", "cages": "CI109", "gpus": "CI109"}


def faults(path: KeyPath, value: object) -> tuple[int, list[Finding]]:
    """The line of ``path``, and what is said of the blocks of a file that has ``value`` there."""
    document = parse(yaml.safe_dump(with_value(path, value), sort_keys=False, width=1000), "cluster.yml")
    line = document.line(path)
    with pytest.raises(InventoryError) as caught:
        build(document, Path("cluster.yml"))
    # What the blocks mean together is not asked here: the rest of the file is as short as can be.
    return line, [finding for finding in caught.value.findings if finding.code < "CI200"]


def only(path: KeyPath, value: object) -> Finding:
    """The one finding of a wrong ``value`` at ``path``: it stands there, and a person can read it."""
    line, found = faults(path, value)
    assert [finding.line for finding in found] == [line], [str(finding) for finding in found]
    (finding,) = found
    assert not RAW.search(finding.text), finding.text
    assert str(finding).isprintable()
    key = next(str(part) for part in reversed(path) if isinstance(part, str))
    assert key in finding.text
    return finding


def is_a_word_wrong(option: Option) -> bool:
    """Whether a word is of the wrong type there; else a mapping is."""
    inner = bare(option.field.annotation)
    return block_of(inner) is not None or str(inner).startswith(("list", "dict"))


def test_the_walk_is_whole() -> None:
    names = {option.name for option in ALL}
    assert len(ALL) > 300
    assert {"nodes.0.hardware.gpus.mig.0.profiles", "racks.0.pdus.0.circuits.0.outlets.c13"} <= names
    assert {"nodes.0.overrides.gpu03.bmc.mac", "switches.0.plugs.0.cages"} <= names


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.name)
def test_a_wrong_type(option: Option) -> None:
    finding = only(option.path, "word" if is_a_word_wrong(option) else {"x": 1})
    key = str(option.path[-1])
    if option.path == ("plugin",):
        assert finding.code == "CI110"
    elif choices(option.field):
        assert finding.code == "CI103"
    elif finding.code != "CI104":
        assert finding.code == SPEAKING[key]


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.name)
def test_a_misspelt_key(option: Option) -> None:
    # Twice the first letter: no key of this block, and nearest to the one that is meant.
    key = str(option.path[-1])
    line, found = faults((*option.path[:-1], key[0] + key), "x")
    here = [finding for finding in found if finding.code == "CI101"]
    assert [finding.line for finding in here] == [line], [str(finding) for finding in found]
    assert f"did you mean `{key}`?" in here[0].text


NUMBERS = [(option, value) for option in ALL for value in bounds(option.field)]


@pytest.mark.parametrize(
    ("option", "value"), NUMBERS, ids=lambda one: one.name if isinstance(one, Option) else str(one)
)
def test_a_number_out_of_bounds(option: Option, value: float) -> None:
    whole = bare(option.field.annotation) is int
    finding = only(option.path, int(value) if whole else float(value))
    assert finding.code == "CI105"
    assert re.search(r"must be (at least|more than|at most|less than) [\d.]+$", finding.text)


def test_the_bounds_are_those_of_the_model() -> None:
    assert len(NUMBERS) > 100


CHOICES = [option for option in ALL if choices(option.field) and option.path != ("plugin",)]


@pytest.mark.parametrize("option", CHOICES, ids=lambda option: option.name)
def test_a_choice_that_is_none(option: Option) -> None:
    number = isinstance(choices(option.field)[0], int)
    finding = only(option.path, 77 if number else "qqqq")
    assert finding.code == "CI103"
    assert all(str(choice) in finding.text for choice in choices(option.field))


TEXTS = [option for option in ALL if is_text(option.field)]


@pytest.mark.parametrize("option", TEXTS, ids=lambda option: option.name)
def test_a_text_that_yaml_makes_a_number(option: Option) -> None:
    finding = only(option.path, 580)
    assert finding.code == "CI008"
    assert 'put it in quotes ("580")' in finding.text


PATTERNS = [option for option in ALL if "pattern" in repr([option.field.annotation, option.field.metadata])]


@pytest.mark.parametrize("option", PATTERNS, ids=lambda option: option.name)
def test_a_text_of_the_wrong_form(option: Option) -> None:
    inner = bare(option.field.annotation)
    value: object = "!! no !!"
    path = option.path
    if str(inner).startswith("list"):
        value, path = ["!! no !!"], (*option.path, 0)
        line, found = faults(option.path, value)
        assert [(finding.code, finding.line) for finding in found] == [("CI106", line + 1)]
        return
    if str(inner).startswith("dict"):
        line, found = faults(option.path, {"!! no !!": 1})
        assert [(finding.code, finding.line) for finding in found] == [("CI106", line + 1)]
        return
    finding = only(path, value)
    assert finding.code == "CI106"
    assert "not allowed; write " in finding.text


REQUIRED = [option for option in ALL if option.field.is_required() and option.path != ("plugin",)]


@pytest.mark.parametrize("option", REQUIRED, ids=lambda option: option.name)
def test_a_key_without_a_value(option: Option) -> None:
    finding = only(option.path, None)
    assert finding.code in {"CI103", "CI104", "CI109", "CI111"}


def required(block: type[BaseModel]) -> list[str]:
    return [name for name, field in block.model_fields.items() if field.is_required()]


@pytest.mark.parametrize(
    "option", [one for one in REQUIRED if len(one.path) > 1], ids=lambda option: option.name
)
def test_a_key_that_is_missing(option: Option) -> None:
    # The block is there, with nothing in it but what is not asked for.
    around = option.path[:-1]
    line, found = faults(around, {})
    assert [finding.code for finding in found] == ["CI102"] * len(required(option.block))
    assert {finding.line for finding in found} == {line}
    assert any(f"`{option.path[-1]}` is missing here; write e.g. " in finding.text for finding in found)
