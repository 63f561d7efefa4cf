"""A page a plugin, from its DOCUMENTATION, EXAMPLES and RETURN; one for all filters, from their docstrings."""

from __future__ import annotations

import ast
import json
import runpy
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldiron.docs_gen import options
from coldiron.docs_gen.markup import paragraphs
from coldiron.docs_gen.page import Page
from coldiron.docs_gen.tables import cell
from coldiron.errors import ColdironError

COLLECTION = "coldiron.cluster"
# Action plugins are documented by the module of their name.
KINDS = {"modules": "module", "lookup": "lookup", "inventory": "inventory"}


@dataclass(frozen=True)
class Plugin:
    """One documented plugin: its name, its kind (``module``), and what its file says of it."""

    name: str
    kind: str
    doc: Mapping[str, Any]
    examples: str
    returned: Mapping[str, Any]

    @property
    def full_name(self) -> str:
        """``coldiron.cluster.NAME``."""
        return f"{COLLECTION}.{self.name}"

    @property
    def uri(self) -> str:
        """The page among the site's sources."""
        return f"plugins/{self.name}_{self.kind}.md"


class _Fragments:
    """Ansible's own fragments by its loader, the collection's from the checkout that is told of, installed or not."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "plugins" / "doc_fragments"

    def get(self, name: str, *_: Any, **__: Any) -> Any:
        """The fragment of that full name, as the function that Ansible calls; None where there is none."""
        from ansible.plugins.loader import fragment_loader

        own = name.removeprefix(f"{COLLECTION}.")
        if own == name:
            return fragment_loader.get(name)
        path = self.folder / f"{own}.py"
        if not path.is_file():
            return None
        fragment = runpy.run_path(str(path))["ModuleDocFragment"]()
        fragment.ansible_name = name
        return fragment


def _read(path: Path, kind: str, fragments: _Fragments) -> Plugin:
    """Read one plugin's documentation as ansible-doc does, fragments included."""
    from ansible.errors import AnsibleError
    from ansible.utils.plugin_docs import get_docstring

    try:
        doc, examples, returned, _ = get_docstring(
            str(path.resolve()), fragments, collection_name=COLLECTION, plugin_type=kind
        )
    except AnsibleError as error:
        raise ColdironError(f"{path}: {error.message}") from None
    if not doc:
        raise ColdironError(f"{path}: has no DOCUMENTATION")
    # Ansible's values remember where they come from; what is shown is plain data.
    plain = json.loads(json.dumps([doc, returned or {}], default=str))
    return Plugin(path.stem, kind, plain[0], str(examples or "").strip(), plain[1])


def find(root: Path) -> list[Plugin]:
    """Return every documented plugin of the collection, by kind and name."""
    found = []
    fragments = _Fragments(root)
    for folder, kind in KINDS.items():
        for path in sorted((root / "plugins" / folder).glob("*.py")):
            # A file beside it may hold the text, so that it does not travel to the nodes.
            beside = path.with_suffix(".yml")
            found.append(_read(beside if beside.is_file() else path, kind, fragments))
    return found


def addresses(plugins: list[Plugin], up: str) -> dict[str, str]:
    """Return each plugin's address in HTML by its full name; ``up`` leads to the site's root (``../``)."""
    return {plugin.full_name: up + plugin.uri.replace(".md", ".html") for plugin in plugins}


def _attributes(doc: Mapping[str, Any], plugins: Mapping[str, str], speaker: tuple[str, str]) -> str:
    attributes = doc.get("attributes") or {}
    lines = [
        f"<tr><td><code>{name}</code></td><td>{item.get('support', '')}</td>"
        f"<td>{paragraphs(item.get('details') or item.get('description'), plugins, speaker)}</td></tr>"
        for name, item in attributes.items()
    ]
    if not lines:
        return ""
    # Headings have addresses of their own: options and results have theirs by their names.
    head = '\n## Attributes {#what-it-supports}\n\n<table class="cd-plain"><tbody>\n'
    return head + "\n".join(lines) + "\n</tbody></table>\n"


def page(plugin: Plugin, plugins: Mapping[str, str]) -> Page:
    """Return a plugin's page. ``plugins`` are the addresses of all, as seen from a page beside it."""
    speaker = (plugin.full_name, plugin.kind)
    doc = plugin.doc
    text = f"# {plugin.name} {{#the-plugin}}\n\n{doc['short_description'].rstrip('.')}.\n\n"
    text += f"{plugin.kind.capitalize()} `{plugin.full_name}`\n\n"
    text += f"<div>{paragraphs(doc.get('description'), plugins, speaker)}</div>\n"
    if needs := doc.get("requirements"):
        text += "\nNeeds:\n\n" + "".join(f"- {need}\n" for need in needs)
    text += "\n## Options\n\n" + (
        options.table(doc.get("options") or {}, {}, plugins, speaker)
        or f"This {plugin.kind} has no options.\n"
    )
    text += _attributes(doc, plugins, speaker)
    if plugin.examples:
        text += f"\n## Examples\n\n```yaml\n{plugin.examples}\n```\n"
    if plugin.returned:
        table = options.table(plugin.returned, {}, plugins, speaker, "returns: ", ("Key", "What it holds"))
        text += f"\n## What it returns\n\n{table}"
    return Page(plugin.uri, text)


@dataclass(frozen=True)
class Filter:
    """One filter: its name, the file that offers it, what it takes, what its function says."""

    name: str
    file: str
    arguments: str
    words: str


def _functions(path: Path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _offered(path: Path) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names of a file's filters with the expressions that stand for their functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.FunctionDef) and node.name == "filters":
            for inner in ast.walk(node):
                if isinstance(inner, ast.Dict):
                    for key, value in zip(inner.keys, inner.values, strict=True):
                        if isinstance(key, ast.Constant):
                            yield str(key.value), value


def filters(root: Path) -> list[Filter]:
    """Return every filter of the collection, read from the files without running them."""
    found = []
    for path in sorted((root / "plugins" / "filter").glob("*.py")):
        own = _functions(path)
        for name, value in _offered(path):
            # A function may be handed through one that turns its errors into Ansible's.
            target = value.args[0] if isinstance(value, ast.Call) else value
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                file = root / "plugins" / "module_utils" / f"{target.value.id}.py"
                function = _functions(file).get(target.attr) if file.is_file() else None
            else:
                function = own.get(target.id) if isinstance(target, ast.Name) else None
            if function is None:
                raise ColdironError(f"{path}: the function of the filter {name} was not found")
            words = ast.get_docstring(function) or ""
            found.append(Filter(name, path.name, ast.unparse(function.args), words))
    return found


def filters_page(found: list[Filter]) -> Page:
    """Return the page of all filters."""
    text = (
        "# Filters\n\nUsed as `{{ value | coldiron.cluster.NAME }}`. They are the roles' own tools: what a role's"
        " templates need in\nPython, with unit tests, in place of chained expressions.\n"
    )
    file = ""
    for item in found:
        if item.file != file:
            file = item.file
            text += f"\n## {file.removesuffix('.py')}\n"
        text += f"\n### {item.name}\n\n```python\n{item.name}({item.arguments})\n```\n\n"
        text += textwrap.dedent(item.words).replace("``", "`") + "\n"
    return Page("plugins/filters.md", text)


def index(plugins: list[Plugin], found: list[Filter]) -> Page:
    """Return the list of plugins."""
    lines = [
        f"| [{plugin.name}]({plugin.uri.removeprefix('plugins/')}) | {plugin.kind}"
        f" | {cell(plugin.doc['short_description'])} |"
        for plugin in plugins
    ]
    lines.append(f"| [filters](filters.md) | filter | {len(found)} filters that the roles use |")
    text = (
        "# Modules and plugins\n\nAll are called by their full name, `coldiron.cluster.NAME`, and all work with"
        " plain `ansible-playbook`.\n`ansible-doc` shows the same pages on the terminal, for example"
        " `ansible-doc coldiron.cluster.converge`.\n\n| name | kind | what it does |\n|---|---|---|\n"
    )
    return Page("plugins/index.md", text + "\n".join(lines) + "\n")
