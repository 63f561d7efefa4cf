"""A module's documentation names the arguments that it takes, fragments included."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coldiron.docs_gen.plugins import find

ROOT = Path(__file__).resolve().parents[3]
# Those that say their arguments in a function of that name.
NAMES = sorted(
    path.stem
    for path in (ROOT / "plugins" / "modules").glob("*.py")
    if "\ndef argument_spec()" in path.read_text(encoding="utf-8")
)


def shape(options: Mapping[str, Any]) -> dict[str, Any]:
    """What a caller has to know of arguments, without the words."""
    return {
        name: {
            "type": one.get("type", "str"),
            "elements": one.get("elements"),
            "required": bool(one.get("required")),
            "default": one.get("default"),
            "choices": one.get("choices"),
            "options": shape(one.get("options") or one.get("suboptions") or {}),
        }
        for name, one in options.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_what_is_documented_is_what_is_taken(name: str) -> None:
    (plugin,) = (one for one in find(ROOT) if (one.name, one.kind) == (name, "module"))
    module = importlib.import_module(f"ansible_collections.coldiron.cluster.plugins.modules.{name}")
    assert shape(plugin.doc["options"]) == shape(module.argument_spec())


def test_those_that_ask_a_server_have_its_options_from_one_place() -> None:
    assert {"elasticsearch_content", "elasticsearch_node", "kibana_objects"} <= set(NAMES)
    for name in ("elasticsearch_content", "elasticsearch_node", "kibana_objects"):
        text = (ROOT / "plugins" / "modules" / f"{name}.py").read_text(encoding="utf-8")
        assert "\n  - coldiron.cluster.elasticsearch\n" in text
        assert "\n  ca:\n" not in text
