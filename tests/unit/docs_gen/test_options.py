"""Options as a table: type, unit, choices, default, and what is within."""

from __future__ import annotations

import re

import pytest

from coldiron.docs_gen import options


def row(name: str, option: dict[str, object], **defaults: object) -> str:
    """Return one option's row, without its tags."""
    return re.sub(r"<[^>]+>", " ", next(iter(options.rows({name: option}, defaults, {}))))


@pytest.mark.parametrize(
    ("name", "kind", "unit"),
    [
        ("dns_timeout_seconds", "int", "seconds"),
        ("slurm_memory_mib", "int", "MiB"),
        ("hardware.memory_gib", "float", "GiB"),
        ("slurm_headroom_percent", "int", "per cent"),
        ("slurm_seconds", "str", ""),
        ("dns_cache_size", "int", ""),
    ],
)
def test_the_last_word_of_a_number_is_its_unit(name: str, kind: str, unit: str) -> None:
    assert options.unit(name, {"type": kind}) == unit


def test_a_row_says_all_that_the_specification_says() -> None:
    said = row("lamp_level", {"type": "str", "choices": ["low", "off"], "description": "How bright."})
    assert "How bright." in said
    assert re.search(r"Choices:\s+low\s+,\s+'off'", said)
    assert "Default" not in said
    assert "required" in row("lamp", {"required": True})
    assert "secret" in row("lamp", {"no_log": True})
    assert "list of dict" in row("lamp", {"type": "list", "elements": "dict"})
    assert re.search(r"Also called:\s+light", row("lamp", {"aliases": ["light"]}))


def test_the_roles_default_goes_before_the_specifications() -> None:
    assert re.search(r"Default:\s+7", row("lamp", {"type": "int", "default": 3}, lamp=7))
    assert re.search(r"Default:\s+3", row("lamp", {"type": "int", "default": 3}))
    assert re.search(r"Default:\s+null", row("lamp", {"type": "int"}, lamp=None))
    assert "Default" not in row("lamp", {"type": "int", "required": True}, lamp=7)


def test_a_long_default_is_shown_whole() -> None:
    words = ["linux-image-", "nvidia-", "libnvidia-", "slurm", "libslurm"]
    text = options.yaml_text({"held": words, "more": {"a": 1}})
    assert "\n" in text
    assert all(word in text for word in words)
    assert "<pre><code>" in next(iter(options.rows({"lamp": {"default": {"held": words, "b": 2}}}, {}, {})))
    assert options.yaml_text([1, 2]) == "[1, 2]"
    assert options.yaml_text("x" * 80) == "x" * 80


def test_what_is_within_follows_a_step_in() -> None:
    spec = {
        "lamps": {"type": "list", "elements": "dict", "options": {"name": {"type": "str"}}},
        "room": {"type": "dict", "suboptions": {"wall": {"type": "dict", "contains": {"hue": {}}}}},
    }
    said = list(options.rows(spec, {}, {}))
    names = [re.findall(r'<tr id="([^"]+)"><td class="cd-depth-(\d)"><code>([^<]+)', one)[0] for one in said]
    assert names == [
        ("lamps", "0", "lamps"),
        ("lamps-name", "1", "lamps[].name"),
        ("room", "0", "room"),
        ("room-wall", "1", "room.wall"),
        ("room-wall-hue", "2", "room.wall.hue"),
    ]


def test_no_options_are_no_table() -> None:
    assert options.table({}, {}, {}) == ""
    assert "<th>Key</th>" in options.table({"a": {}}, {}, {}, heads=("Key", "What"))
