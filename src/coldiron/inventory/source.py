"""YAML read with the line of every value, bounded, and with YAML 1.1's surprises explained.

Ansible's own loader would take ``52:54:00:12:34:56`` for a number and ``on`` for true without a word. Here
the parser's events are composed by hand, so each value keeps its line and its spelling, and a file can
neither nest nor multiply without end.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from coldiron.inventory.findings import MAX_FINDINGS, Finding, InventoryError, shown, shown_path

# 10,000 nodes that a program wrote one by one, each with MAC, BMC, serial and its disks', are some 6 MB.
MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 20
# Values after anchors are written out. Those 10,000 nodes have some 250,000: more than they need, less than hurts.
MAX_VALUES = 400_000
# Of one list or mapping: no more nodes than that can be there either.
MAX_ENTRIES = 20_000

Key = str | int
KeyPath = tuple[Key, ...]

_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_ODD_INTEGER = re.compile(
    r"[-+]?(0b[01_]+|0[0-7_]+|0x[0-9a-fA-F_]+|[1-9][0-9_]*(?P<sixty>(:[0-5]?[0-9])+)|[1-9][0-9_]*)"
)
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_ODD_FLOAT = re.compile(
    r"[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|[0-9][0-9_]*(?P<sixty>(:[0-5]?[0-9])+)\.[0-9_]*|\.(inf|Inf|INF))"
    r"|\.(nan|NaN|NAN)"
)
_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE_FALSE = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_OTHER_BOOLEAN = re.compile(r"yes|Yes|YES|on|On|ON|no|No|NO|off|Off|OFF")
# YAML's own allowance: no control character but tab and the line ends.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")


@dataclass
class Document:
    """A file's plain data, the line of each of its paths, and what was found wrong while reading.

    ``spoilt`` names paths whose value a finding already complains of: checks leave them alone. ``elsewhere`` holds
    the file and line of paths whose values stand in another file, as a row of a CSV file.
    """

    path: str
    data: object = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    spoilt: set[KeyPath] = field(default_factory=set)
    elsewhere: dict[KeyPath, tuple[str, int]] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int:
        """The line of ``path``, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def place(self, path: KeyPath) -> tuple[str, int]:
        """The file and line of ``path``, or of the nearest thing around it."""
        if self.elsewhere:
            for length in range(len(path), 0, -1):
                if (found := self.elsewhere.get(path[:length])) is not None:
                    return found
        return self.path, self.line(path)

    def where(self, path: KeyPath) -> str:
        """The place of ``path`` as an editor takes it: ``FILE:LINE``."""
        file, line = self.place(path)
        return f"{file}:{line}"

    @property
    def full(self) -> bool:
        """Whether no more is noted: there is more to mend than anybody reads."""
        return len(self.findings) >= MAX_FINDINGS

    def find(self, path: KeyPath, text: str, code: str) -> None:
        """Note that the value at ``path`` is wrong: ``text`` says how, and what to write instead."""
        if not self.full:
            file, line = self.place(path)
            self.findings.append(Finding(file, line, text, code))

    def is_spoilt(self, path: KeyPath) -> bool:
        """Whether ``path`` or something around it has been complained of."""
        return any(path[:length] in self.spoilt for length in range(len(path) + 1))


class _Broken(Exception):
    """Reading cannot go on: the file as a whole is unusable."""

    def __init__(self, line: int, text: str, code: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text
        self.code = code


@dataclass(slots=True)
class _Node:
    """One YAML node: a scalar with its ``text``, a list with ``items`` or a mapping with ``pairs``."""

    line: int
    text: str = ""
    plain: bool = False
    tag: str | None = None
    closed: bool = False
    kind: str = "scalar"
    items: list[_Node] = field(default_factory=list)
    pairs: list[tuple[_Node, _Node]] = field(default_factory=list)


def read(path: Path) -> Document:
    """Read the YAML file at ``path``.

    Raises InventoryError when there is no document to speak of; lesser faults are in the result's findings.
    """
    name = shown_path(path)
    try:
        text = _read_text(path)
        return parse(text, name)
    except _Broken as broken:
        raise InventoryError([Finding(name, broken.line, broken.text, broken.code)]) from None


def parse(text: str, name: str) -> Document:
    """Parse ``text``; ``name`` stands for the file in the findings. Raises InventoryError like ``read``."""
    document = Document(name)
    try:
        _check_text(text)
        root = _compose(text)
        _Reader(document).convert(root, (), root.line, 0)
    except _Broken as broken:
        raise InventoryError(
            [*document.findings, Finding(name, broken.line, broken.text, broken.code)]
        ) from None
    return document


def _read_text(path: Path) -> str:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise _Broken(0, "this is a directory; cluster.yml is a file in it", "CI001")
        if not stat.S_ISREG(status.st_mode):
            raise _Broken(0, "this is not a regular file; write cluster.yml as a plain text file", "CI001")
        if status.st_size > MAX_BYTES:
            raise _Broken(
                0, f"{status.st_size} bytes are too many (at most {MAX_BYTES}); write ranges", "CI001"
            )
        with path.open("rb") as handle:
            data = handle.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _Broken(
            0, "there is no such file; begin with `coldiron init inventories/NAME`", "CI001"
        ) from None
    except OSError as error:
        raise _Broken(0, f"cannot be read: {error.strerror or error}", "CI001") from None
    except ValueError:
        raise _Broken(0, "this is no file name; it holds a NUL character", "CI001") from None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _Broken(1, "the file is UTF-16; save it as UTF-8", "CI002")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _Broken(
            line, f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8", "CI002"
        ) from None


def _check_text(text: str) -> None:
    if len(text) > MAX_BYTES:
        raise _Broken(0, f"{len(text)} characters are too many (at most {MAX_BYTES}); write ranges", "CI001")
    if text.lstrip().startswith("$ANSIBLE_VAULT"):
        raise _Broken(
            1,
            "this is an ansible-vault file; cluster.yml holds no secrets and is kept readable: "
            "decrypt it (ansible-vault decrypt) and keep secrets in group_vars/all/vault.yml",
            "CI003",
        )
    if found := _CONTROL.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise _Broken(line, f"control character {shown(found.group())} in the text; remove it", "CI002")
    if not text.strip():
        raise _Broken(
            0, "the file is empty; `coldiron init inventories/NAME` writes one to begin with", "CI001"
        )


def _compose(text: str) -> _Node:
    """The tree of the only document in ``text``, from the parser's events, with aliases shared."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _compose_events(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        raise _explain(error, text) from None
    except UnicodeError:
        raise _Broken(0, "the text holds half of a surrogate pair; save the file as UTF-8", "CI002") from None


def _compose_events(events: Iterator[yaml.Event]) -> _Node:
    root: _Node | None = None
    anchors: dict[str, _Node] = {}
    stack: list[_Node] = []
    pending_keys: list[_Node | None] = []
    documents = 0
    made = 0
    for event in events:
        mark = event.start_mark
        line = mark.line + 1 if mark else 0
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _Broken(
                    line, "a second document begins here; keep one, without a second `---`", "CI004"
                )
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            node = stack.pop()
            node.closed = True
            pending_keys.pop()
            continue
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                name = shown(event.anchor)
                raise _Broken(line, f"`*{name}` refers to no anchor; write `&{name}` above it", "CI005")
            node = anchors[event.anchor]
            if not node.closed:
                raise _Broken(line, f"`*{shown(event.anchor)}` holds itself; write its lines out", "CI005")
        elif isinstance(event, yaml.ScalarEvent):
            tag = None if event.tag in (None, "!") else event.tag
            node = _Node(line, event.value, plain=event.implicit[0], tag=tag, closed=True)
        elif isinstance(event, yaml.CollectionStartEvent):
            kind = "mapping" if isinstance(event, yaml.MappingStartEvent) else "list"
            node = _Node(line, tag=event.tag, kind=kind)
        else:
            continue
        if isinstance(event, yaml.NodeEvent) and not isinstance(event, yaml.AliasEvent) and event.anchor:
            anchors[event.anchor] = node
        made += 1
        # A mapping's keys are nodes as well.
        if made > 2 * MAX_VALUES:
            raise _Broken(line, f"more than {MAX_VALUES} values up to here; write ranges", "CI001")
        if not stack:
            root = node
        else:
            _attach(stack[-1], pending_keys, node)
        if isinstance(event, yaml.CollectionStartEvent):
            if len(stack) >= MAX_DEPTH:
                raise _Broken(
                    line, f"nested more than {MAX_DEPTH} deep; cluster.yml needs no more than five", "CI005"
                )
            stack.append(node)
            pending_keys.append(None)
    if root is None:
        raise _Broken(
            0,
            "the file holds only comments; `coldiron init inventories/NAME` writes one to begin with",
            "CI001",
        )
    return root


def _attach(parent: _Node, pending_keys: list[_Node | None], node: _Node) -> None:
    if parent.kind == "list":
        parent.items.append(node)
    elif (key := pending_keys[-1]) is None:
        pending_keys[-1] = node
    else:
        parent.pairs.append((key, node))
        pending_keys[-1] = None
    if max(len(parent.items), len(parent.pairs)) > MAX_ENTRIES:
        raise _Broken(node.line, f"more than {MAX_ENTRIES} entries in one block; write ranges", "CI001")


def _explain(error: yaml.YAMLError, text: str) -> _Broken:
    """The parser's complaint in the words of someone who edits a cluster.yml."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return _Broken(0, f"this is not YAML: {shown(str(error))}", "CI004")
    line = mark.line + 1
    problem = str(getattr(error, "problem", None) or error)
    lines = text.splitlines()
    here = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in here[: len(here) - len(here.lstrip())] or "\\t" in problem:
        return _Broken(
            line, "a tab indents this line, and YAML takes only spaces; write two spaces a level", "CI004"
        )
    if "unexpected end of stream" in problem:
        opened = getattr(error, "context_mark", None) or mark
        return _Broken(opened.line + 1, "a quote that opens here is never closed; close it", "CI004")
    if "mapping values are not allowed" in problem:
        return _Broken(
            line,
            "a `:` where none can stand; check the indent, and put text that holds `: ` in quotes",
            "CI004",
        )
    if "could not find expected ':'" in problem:
        return _Broken(line, "a key without `:`; write `key: value`, with a space after the colon", "CI004")
    if (
        "did not find expected" in problem
        or "expected <block end>" in problem
        or "expected ',' or" in problem
    ):
        return _Broken(
            line,
            "this line does not fit the lines above it; check its indent, and that every quote and bracket "
            "above is closed",
            "CI004",
        )
    if "cannot start any token" in problem:
        return _Broken(
            line,
            "a value cannot begin with this character; put the value in quotes, and indent with spaces",
            "CI004",
        )
    return _Broken(line, f"this is not YAML: {shown(problem)}", "CI004")


class _Reader:
    """Turns nodes into plain values, notes their lines, and complains of YAML's traps."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.values = 0

    def complain(self, line: int, text: str, code: str, path: KeyPath | None = None) -> None:
        if path is not None:
            self.document.spoilt.add(path)
        if not self.document.full:
            self.document.findings.append(Finding(self.document.path, line, text, code))

    def convert(self, node: _Node, path: KeyPath, line: int, depth: int) -> object:
        """The plain value of ``node``; kept as the document's data when it is the root."""
        self.values += 1
        if self.values > MAX_VALUES:
            raise _Broken(node.line, f"aliases make more than {MAX_VALUES} values; write fewer", "CI005")
        if depth > MAX_DEPTH:
            raise _Broken(node.line, f"aliases nest more than {MAX_DEPTH} deep; write the lines out", "CI005")
        self.document.lines[path] = line
        value: object
        if node.tag is not None and not self._harmless_tag(node, path):
            value = None
        elif node.kind == "mapping":
            value = self._mapping(node, path, depth)
        elif node.kind == "list":
            value = [
                self.convert(item, (*path, index), item.line, depth + 1)
                for index, item in enumerate(node.items)
            ]
        else:
            value = self._scalar(node, path)
        if not path:
            self.document.data = value
        return value

    def _harmless_tag(self, node: _Node, path: KeyPath) -> bool:
        if node.tag in {"tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}:
            return True
        if node.tag in {"!vault", "!vault-encrypted"}:
            text = "an encrypted value; cluster.yml holds no secrets: keep it in group_vars/all/vault.yml"
            code = "CI003"
        else:
            code = "CI009"
            text = f"the tag `{shown(node.tag)}` has no meaning here; remove it"
        self.complain(node.line, text, code, path)
        return False

    def _mapping(self, node: _Node, path: KeyPath, depth: int) -> dict[str, object]:
        result: dict[str, object] = {}
        seen: dict[str, int] = {}
        merged: list[_Node] = []
        for key_node, value_node in node.pairs:
            if key_node.kind == "scalar" and key_node.plain and key_node.text == "<<":
                merged.extend(self._merge_sources(value_node))
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            if key in seen:
                self.complain(
                    key_node.line,
                    f"`{shown(key)}` stands here a second time (first on line {seen[key]}), and YAML would "
                    "silently keep only this one; remove one of them",
                    "CI007",
                )
                continue
            seen[key] = key_node.line
            result[key] = self.convert(value_node, (*path, key), key_node.line, depth + 1)
        for source in merged:
            for key, value in self._mapping(source, path, depth + 1).items():
                result.setdefault(key, value)
        return result

    def _merge_sources(self, node: _Node) -> list[_Node]:
        found = [source for source in [node, *node.items] if source.kind == "mapping"]
        if not found:
            self.complain(node.line, "`<<` merges a mapping; write `<<: *anchor`", "CI005")
        return found

    def _key(self, node: _Node, path: KeyPath) -> str | None:
        if node.kind != "scalar":
            self.complain(node.line, "a key is one word; write `key: value`", "CI007", path)
            return None
        if not node.plain:
            return node.text
        if _OTHER_BOOLEAN.fullmatch(node.text) or node.text in _TRUE_FALSE:
            self.complain(
                node.line, f"YAML reads the key `{node.text}` as true or false; write another", "CI008"
            )
            return None
        if node.text in _NULL:
            self.complain(node.line, "a key is missing before `:`; write `key: value`", "CI007")
            return None
        return node.text

    def _scalar(self, node: _Node, path: KeyPath) -> object:
        text = node.text
        if not node.plain:
            return text
        if text in _NULL:
            return None
        if text in _TRUE_FALSE:
            return _TRUE_FALSE[text]
        if _OTHER_BOOLEAN.fullmatch(text):
            means = "true" if text.lower() in {"yes", "on"} else "false"
            self.complain(
                node.line,
                f'YAML reads `{text}` as {means}; write {means}, or "{text}" for the word',
                "CI008",
                path,
            )
            return text
        if _DECIMAL.fullmatch(text):
            if len(text) > 18:
                self.complain(
                    node.line, f"the number {shown(text)} is too large; write a smaller one", "CI008", path
                )
                return text
            return int(text)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if not math.isfinite(number):
                self.complain(
                    node.line, f"the number {shown(text)} is too large; write a smaller one", "CI008", path
                )
                return text
            return number
        if odd := _ODD_INTEGER.fullmatch(text) or _ODD_FLOAT.fullmatch(text):
            return self._odd_number(node, text, odd, path)
        return text

    def _odd_number(self, node: _Node, text: str, odd: re.Match[str], path: KeyPath) -> object:
        if odd.group("sixty"):
            value = 0.0
            for part in text.lstrip("+-").replace("_", "").split(":")[:20]:
                value = value * 60 + float(part)
            why = f"YAML takes `{shown(text)}` for a number in base 60 ({value:.0f})"
        elif re.fullmatch(r"[-+]?0[0-7_]+", text):
            octal = text.replace("_", "")
            means = f" ({int(octal, 8)})" if len(octal) < 20 else ""
            why = f"YAML takes `{shown(text)}` for a number in base 8{means}"
        else:
            why = f"YAML takes `{shown(text)}` for a number in a notation of its own"
        self.complain(
            node.line,
            f'{why}; put text in quotes ("{shown(text)}"), write a number in plain decimal digits',
            "CI008",
            path,
        )
        return text
