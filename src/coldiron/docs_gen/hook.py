"""What MkDocs calls while it builds the site (``hooks:`` in mkdocs.yml)."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page as SitePage

from coldiron.docs_gen import pages
from coldiron.docs_gen.page import Page, relink
from coldiron.errors import ColdironError

_DRAWING = re.compile(r'<img alt="(?P<alt>[^"]*)" src="(?P<src>(?!https?:)[^"]+\.svg)"\s*/?>')
_known: dict[str, Page] = {}


def root_of(config: MkDocsConfig) -> Path:
    """Return the checkout."""
    return Path(config.config_file_path).parent


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and put them where the navigation's patterns stand."""
    try:
        made = pages.generated(root_of(config))
    except ColdironError as error:
        raise PluginError(error.message) from None
    _known.clear()
    _known.update({page.uri: page for page in made})
    for page in made:
        files.append(File.generated(config, page.uri, content=page.text, inclusion=InclusionLevel.INCLUDED))
    uris = [file.src_uri for file in files.documentation_pages()]
    config.nav = pages.expand(config.nav, uris)
    return files


def on_page_markdown(markdown: str, page: SitePage, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the checkout into links to their pages."""
    root = root_of(config)
    uri = page.file.src_uri
    source = _known.get(uri, Page(uri, "", f"docs/{uri}"))
    if not source.origin:
        return markdown
    places = pages.places(_known.values(), root)
    return relink(markdown, source, places, lambda path: (root / path).exists())


def on_page_content(html: str, page: SitePage, config: MkDocsConfig, files: Files) -> str:
    """Put drawings into the page itself, where they follow the reader's choice of light or dark."""

    def inlined(match: re.Match[str]) -> str:
        file = Path(config.docs_dir) / Path(page.file.src_uri).parent / match["src"]
        drawing = file.read_text(encoding="utf-8")
        return drawing[drawing.index("<svg") :]

    return _DRAWING.sub(inlined, html)
