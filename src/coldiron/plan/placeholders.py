"""Words in the site's variables that somebody meant to replace, and secrets that lie open beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from coldiron.inventory.findings import shown_path
from coldiron.plan.findings import Finding, Severity
from coldiron.plan.resolved import is_vault
from coldiron.secrets.table import USERS, check

# What the last word of a secret's name is.
_SECRET = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|token|credentials?|(munge|jwt|api|private|secret)_key)$"
)
# What no value of any variable is meant to be. The words that only a secret may not be are in secrets.table.
_PLACEHOLDER = re.compile(
    r"(change|replace|fill)[ _-]?(me|this|it|in)\W*|fix[ _-]?me|todo|tbd|placeholder|your[_-]\S+|<[a-z][a-z0-9 _-]*>",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"\{\{|\{%")
# A hash, or a password that opens nothing (`!`, `*`).
_NO_PASSWORD = re.compile(r"[!*x]{0,2}|[!*]?\$\w+\$.*")


def look(directory: Path, files: Iterable[Path]) -> list[Finding]:
    """The findings in the ``files`` of variables of the inventory in ``directory``, but for those that are encrypted.

    No value of a secret is in them.
    """
    advice = f"take the line out and type: coldiron secrets edit -i {shown_path(directory)}"
    found: list[Finding] = []
    for path in files:
        if path.suffix not in ("", ".yml", ".yaml", ".json") or is_vault(path):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            node = yaml.compose(text, Loader=yaml.CSafeLoader)
        except yaml.YAMLError:
            # Whoever reads the variables says so.
            continue
        if node is not None:
            found += (_finding(path, advice, *leaf) for leaf in _leaves(node, ()) if leaf[3])
    return found


def _leaves(node: yaml.Node, path: tuple[str, ...]) -> Iterator[tuple[str, int, bool, str]]:
    """(name, line, whether it is a secret, what is wrong with it) of each value."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _leaves(value, (*path, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _leaves(value, path)
    elif node.tag == "tag:yaml.org,2002:str" and not _TEMPLATE.search(node.value):
        secret = any(_SECRET.search(word) for word in path) and path[-1] not in USERS
        yield ".".join(path), node.start_mark.line + 1, secret, _fault(node.value.strip(), secret)


def _fault(text: str, secret: bool) -> str:
    if secret and _NO_PASSWORD.fullmatch(text):
        return ""
    if secret:
        return "a placeholder" if check({"value": text}) or _PLACEHOLDER.fullmatch(text) else "open"
    return "a placeholder" if _PLACEHOLDER.fullmatch(text) else ""


def _finding(path: Path, vault: str, name: str, line: int, secret: bool, fault: str) -> Finding:
    where = f"{shown_path(path)}:{line}"
    if fault == "open":
        what = f"`{name}` is a secret in plain text"
        return Finding("CS105", Severity.WARN, where, what, vault, subject=name)
    what = f"`{name}` is still a placeholder" + (", or a word that anyone would guess" if secret else "")
    severity = Severity.REFUSE if secret else Severity.WARN
    advice = vault if secret else "write the value that is meant, or remove the line"
    return Finding("CS104", severity, where, what, advice, subject=name)
