"""Ansible's markup (``C(code)``, ``O(option)``, ``M(module)``) as HTML, and as Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from antsibull_docs_parser import dom
from antsibull_docs_parser.format import LinkProvider
from antsibull_docs_parser.html import PlainHTMLFormatter, to_html
from antsibull_docs_parser.parser import Context, parse

from coldiron.errors import ColdironError

# Our own texts also use the backticks that people read in a README.
_CODE = re.compile(r"`([^`]+)`")


def anchor(name: str) -> str:
    """Return an option's name, such as ``users[].append``, as the anchor of its row."""
    return re.sub(r"[^\w]+", "-", name).strip("-")


class _Links(LinkProvider):
    """Links to the site's own pages. What has no page here stays a word: readers may be offline."""

    def __init__(self, plugins: Mapping[str, str]) -> None:
        self._plugins = plugins

    def plugin_link(self, plugin: dom.PluginIdentifier) -> str | None:
        return self._plugins.get(plugin.fqcn)

    def plugin_option_like_link(
        self,
        plugin: dom.PluginIdentifier,
        entrypoint: str | None,
        what: object,
        name: list[str],
        current_plugin: bool,
    ) -> str | None:
        if what != "option":
            return None
        place = f"#{anchor('.'.join(name))}"
        return place if current_plugin else None


def _parsed(parts: list[str], speaker: dom.PluginIdentifier | None) -> list[dom.Paragraph]:
    """Return texts as their parts; markup that cannot be read is a ColdironError that quotes it."""
    parsed = list(parse(parts, Context(current_plugin=speaker)))
    for part in (part for paragraph in parsed for part in paragraph):
        if isinstance(part, dom.ErrorPart):
            raise ColdironError(f"{speaker.fqcn if speaker else 'a description'}: {part.message}")
    return parsed


def inline(text: str) -> str:
    """Return a description of one paragraph as Markdown: names and values as code, the rest as it is."""
    words = []
    for part in (part for paragraph in _parsed([text], None) for part in paragraph):
        if isinstance(part, dom.TextPart):
            words.append(part.text)
        elif isinstance(part, dom.OptionNamePart):
            words.append(f"`{part.name}`" if part.value is None else f"`{part.name}: {part.value}`")
        elif isinstance(part, dom.ModulePart):
            words.append(f"`{part.fqcn}`")
        elif isinstance(part, (dom.CodePart, dom.BoldPart, dom.ItalicPart)):
            words.append(f"`{part.text}`")
        elif isinstance(part, dom.OptionValuePart):
            words.append(f"`{part.value}`")
        else:
            raise ColdironError(f"{part.source or text}: a README has no way to show this markup")
    return "".join(words)


def paragraphs(text: object, plugins: Mapping[str, str], current: tuple[str, str] | None = None) -> str:
    """Return a description (a string, or a list of one string a paragraph) as HTML.

    ``plugins`` gives the address of a plugin's page by its full name, ``current`` the full name and the type
    of the plugin that speaks. Markup that cannot be read is a ColdironError that quotes it.
    """
    parts = [str(part) for part in text] if isinstance(text, list) else [str(text or "")]
    speaker = dom.PluginIdentifier(*current) if current else None
    rendered = to_html(
        _parsed(parts, speaker),
        formatter=PlainHTMLFormatter(),
        link_provider=_Links(plugins),
        current_plugin=speaker,
    )
    return _CODE.sub(r"<code>\1</code>", rendered)


def code(text: str) -> str:
    """Return a text as inline code."""
    return f"<code>{html.escape(text, quote=False)}</code>"
