"""All pages of the site that are not files of docs/, and the way from files to pages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from coldiron.docs_gen import alerts, cli, codes, plugins, roles
from coldiron.docs_gen.page import Page

# Documents at the checkout's root that are pages too.
DOCUMENTS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}


def generated(root: Path) -> list[Page]:
    """Return every generated page of a checkout. A source that cannot be read is a ColdironError."""
    found = plugins.find(root)
    filters = plugins.filters(root)
    folders = sorted(path.parent for path in (root / "roles").glob("*/README.md"))
    up = plugins.addresses(found, "../")
    return [
        *(Page(uri, (root / name).read_text(encoding="utf-8"), name) for name, uri in DOCUMENTS.items()),
        roles.index(root, folders),
        *(roles.page(folder, up) for folder in folders),
        plugins.index(found, filters),
        *(plugins.page(plugin, up) for plugin in found),
        plugins.filters_page(filters),
        *cli.pages(),
        codes.page(),
        alerts.page(root),
        _decisions(root),
    ]


def _decisions(root: Path) -> Page:
    lines = []
    for path in sorted((root / "docs" / "decisions").glob("[0-9]*.md")):
        title = path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ")
        lines.append(f"- [{title}]({path.name})")
    text = "# Decisions\n\nWhat was decided, why, what was measured, and what was not chosen.\n\n"
    return Page("decisions/index.md", text + "\n".join(lines) + "\n", "docs/decisions/index.md")


def places(pages: Iterable[Page], root: Path) -> dict[str, str]:
    """Return the page of each file and folder of the checkout that has one, by path from its root."""
    found = {page.origin: page.uri for page in pages if page.origin}
    found |= {f"docs/{path.relative_to(root / 'docs')}": str(path.relative_to(root / "docs"))
              for path in (root / "docs").rglob("*.md")}  # fmt: skip
    found |= {
        "docs/decisions": "decisions/index.md",
        "docs/runbooks": "runbooks/index.md",
        "roles": "roles/index.md",
    }
    found |= {f"roles/{name}": uri for name, uri in _folders(found)}
    return found


def _folders(found: dict[str, str]) -> list[tuple[str, str]]:
    return [
        (match[1], uri)
        for path, uri in found.items()
        if (match := re.fullmatch(r"roles/(\w+)/README\.md", path))
    ]


def expand(entry: object, uris: Iterable[str]) -> object:
    """Return a navigation with patterns such as ``roles/*.md`` replaced by the pages they match.

    A page that the same list names itself is not repeated.
    """
    known = sorted(uris)
    if isinstance(entry, dict):
        return {title: expand(inner, known) for title, inner in entry.items()}
    if not isinstance(entry, list):
        return entry
    named = {item for item in entry if isinstance(item, str)}
    named |= {
        uri for item in entry if isinstance(item, dict) for uri in item.values() if isinstance(uri, str)
    }
    whole: list[object] = []
    for item in entry:
        if isinstance(item, str) and "*" in item:
            pattern = re.escape(item).replace(r"\*", "[^/]*")
            whole += [uri for uri in known if re.fullmatch(pattern, uri) and uri not in named]
        else:
            whole.append(expand(item, known))
    return whole
