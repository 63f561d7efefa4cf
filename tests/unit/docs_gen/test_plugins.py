"""Plugins and filters, read from their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron.docs_gen import plugins
from coldiron.errors import ColdironError

ROOT = Path(__file__).resolve().parents[3]


def write(root: Path, name: str, text: str) -> None:
    """Write one file of a small collection."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


FILTERS = """
def bright(value, level: int = 3):
    '''Return the ``value``, brighter.'''

class FilterModule:
    def filters(self):
        return {"bright": bright, "lit": _plain(lamps.lit)}
"""


def test_filters_are_read_with_their_words(tmp_path: Path) -> None:
    write(tmp_path, "plugins/filter/lamp.py", FILTERS)
    write(tmp_path, "plugins/module_utils/lamps.py", "def lit(room):\n    '''Say whether.'''\n")
    found = plugins.filters(tmp_path)
    assert [(item.name, item.arguments, item.words) for item in found] == [
        ("bright", "value, level: int=3", "Return the ``value``, brighter."),
        ("lit", "room", "Say whether."),
    ]
    text = plugins.filters_page(found).text
    assert (
        "## lamp\n\n### bright\n\n```python\nbright(value, level: int=3)\n```\n\nReturn the `value`" in text
    )


def test_a_filter_whose_function_is_elsewhere_is_named(tmp_path: Path) -> None:
    write(tmp_path, "plugins/filter/lamp.py", FILTERS)
    with pytest.raises(ColdironError, match=r"lamp\.py: the function of the filter lit was not found"):
        plugins.filters(tmp_path)


def test_a_plugin_is_read_with_its_fragments() -> None:
    found = {plugin.name: plugin for plugin in plugins.find(ROOT)}
    assert {"converge", "os_facts", "slurm_account", "os_data", "cluster"} <= set(found)
    assert "cache_timeout" in found["cluster"].doc["options"]
    assert found["os_data"].uri == "plugins/os_data_lookup.md"
    assert plugins.addresses([found["os_data"]], "../") == {
        "coldiron.cluster.os_data": "../plugins/os_data_lookup.html"
    }


def test_documentation_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    write(tmp_path, "plugins/modules/lamp.py", "x = 1\n")
    write(tmp_path, "plugins/modules/lamp.yml", "DOCUMENTATION: [\n")
    with pytest.raises(ColdironError, match=r"lamp\.yml"):
        plugins.find(tmp_path)


def test_a_plugin_without_attributes_or_results_has_no_such_part() -> None:
    plugin = plugins.Plugin("lamp", "module", {"short_description": "Light", "description": "On."}, "", {})
    text = plugins.page(plugin, {}).text
    assert "## Attributes" not in text
    assert "## What it returns" not in text
    assert "## Examples" not in text


def test_options_that_modules_share_are_on_the_page_of_each() -> None:
    found = {plugin.name: plugin for plugin in plugins.find(ROOT)}
    for name in ("elasticsearch_node", "elasticsearch_content"):
        assert {"address", "port", "ca", "user", "password"} <= set(found[name].doc["options"])


def test_a_fragment_that_is_not_there_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "modules"
    folder.mkdir(parents=True)
    text = (
        "module: lamp\nshort_description: A lamp\nextends_documentation_fragment: [coldiron.cluster.gone]\n"
    )
    (folder / "lamp.py").write_text(f'DOCUMENTATION = """\n{text}"""\n')
    with pytest.raises(ColdironError, match=r"coldiron\.cluster\.gone"):
        plugins.find(tmp_path)
