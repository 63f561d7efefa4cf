"""One page of the site that no file in docs/ holds, and links from files to pages."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_FENCE = re.compile(r"(^(?P<mark>```+|~~~+).*?^(?P=mark)\s*$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Page:
    """A page: its place among the site's sources, its Markdown, and the file that its links start from.

    ``origin`` is a path from the checkout's root, such as ``roles/time/README.md``; empty for text whose
    links are the site's own already.
    """

    uri: str
    text: str
    origin: str = ""


def relative(target: str, origin: str) -> str:
    """Return the path, from the checkout's root, that ``target`` means in the file ``origin``."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))


def relink(text: str, page: Page, places: Mapping[str, str], exists: Callable[[str], bool]) -> str:
    """Return Markdown whose links to files of the checkout lead to their pages.

    ``places`` gives the page of a file or folder, both by path. A link to a file without a page becomes its
    words and the file's path, since the site holds no sources; a link to nothing is left, for the build to
    refuse.
    """
    here = posixpath.dirname(page.uri)

    def linked(match: re.Match[str]) -> str:
        target, hash_mark, heading = match["target"].partition("#")
        if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
            return match[0]
        path = relative(target, page.origin)
        if path in places:
            return f"[{match['text']}]({posixpath.relpath(places[path], here or '.')}{hash_mark}{heading})"
        if not exists(path):
            return match[0]
        return match["text"] if path.rstrip("/") in match["text"] else f"{match['text']} (`{path}`)"

    parts = _FENCE.split(text)
    # split() gives text, fence, mark, text …: only the texts have links.
    return "".join(
        _LINK.sub(linked, part) if number % 3 == 0 else part if number % 3 == 1 else ""
        for number, part in enumerate(parts)
    )
