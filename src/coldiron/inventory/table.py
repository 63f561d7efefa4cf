"""The CSV of single nodes: what each has of its own, one row a node, read from a file and written from a cluster.

A spreadsheet is where serials and MACs are kept, so what spreadsheets do to such a file is understood (a byte order
mark, semicolons, tabs, `sep=;`, empty rows) or told (numbers in place of serials).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coldiron.inventory.cluster import Cluster, Node
from coldiron.inventory.findings import Finding, did_you_mean, shown, shown_path
from coldiron.inventory.model import NodeOwn
from coldiron.inventory.source import Document, KeyPath

COLUMNS = ("name", "address", "mac", "serial", "bmc_address", "bmc_mac", "rack", "u")
# `address_storage` is the address on the network `storage`.
MORE_ADDRESSES = "address_"
# 20,000 nodes with every column and ten networks fill half of it.
MAX_BYTES = 8 * 1024 * 1024
KEY = "nodes_csv"
CODE = "CI224"

Rows = dict[str, tuple[KeyPath, NodeOwn]]

_CODES = {"mac": "CI111", "bmc_mac": "CI111", "address": "CI109", "bmc_address": "CI109"}
_EXPONENT = re.compile(r"[0-9](\.[0-9]+)?E\+[0-9]+", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class _Broken(Exception):
    """The file as a whole cannot be used."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


def read_rows(path: Path, document: Document, networks: Iterable[str]) -> Rows:
    """What the CSV file at ``path`` says of each node, by its name; its faults go to ``document``'s findings.

    ``networks`` are the names that ``address_NETWORK`` may have. The rows' lines are noted in ``document``.
    """
    name = shown_path(path)
    columns = (*COLUMNS, *(MORE_ADDRESSES + network for network in networks if network != "cluster"))
    try:
        return _rows(_text(path), name, document, columns)
    except _Broken as broken:
        if broken.line:
            document.findings.append(Finding(name, broken.line, broken.text, CODE))
        else:
            document.find((KEY,), f"{name} {broken.text}", CODE)
        return {}


def check_names(document: Document, rows: Rows, known: Collection[str]) -> None:
    """Note each row whose node is not among ``known``."""
    for name, (path, _) in rows.items():
        if name not in known:
            document.find(path, f"there is no node `{shown(name)}`; {did_you_mean(name, known)}", CODE)


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise _Broken(0, "is a directory; write the name of a file in it")
        if path.exists() and not path.is_file():
            raise _Broken(0, "is not a regular file; save the table as a plain file")
        with path.open("rb") as handle:
            data = handle.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _Broken(
            0, "is not there; take this line out, and `coldiron nodes export` writes the file"
        ) from None
    except OSError as error:
        raise _Broken(0, f"cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise _Broken(0, f"has more than {MAX_BYTES // 1024 // 1024} MiB; keep one row a node")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _Broken(1, "the file is UTF-16; save it as CSV in UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _Broken(
            line, f"byte 0x{data[error.start]:02x} is not UTF-8; save the table as CSV in UTF-8"
        ) from None
    if found := _CONTROL.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise _Broken(line, f"control character {shown(found.group())} in the text; save the table as CSV")
    return text


def _records(text: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that hold anything, with the line that each begins on; values without the blanks around them."""
    skipped = 0
    first, _, rest = text.partition("\n")
    if match := re.fullmatch(r"sep=([,;\t])\r?", first, re.IGNORECASE):
        skipped, text, sign = 1, rest, match[1]
    else:
        sign = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sign, strict=True)
    before = 0
    try:
        for values in reader:
            line, before = before + skipped + 1, reader.line_num
            stripped = [value.strip() for value in values]
            while stripped and not stripped[-1]:
                stripped.pop()
            if stripped:
                yield line, stripped
    except csv.Error as error:
        line = max(reader.line_num, 1) + skipped
        why = "a quote is not closed" if "unexpected end" in str(error) else shown(str(error))
        raise _Broken(
            line, f"this row cannot be read ({why}); put a value with a quote or comma in quotes"
        ) from None


def _rows(text: str, file: str, document: Document, columns: Collection[str]) -> Rows:
    records = _records(text)
    line, head = next(records, (1, []))
    if not head:
        raise _Broken(1, "the file is empty; `coldiron nodes export` writes one with all columns")
    head = [column.lower() for column in head]
    faulty = _head_faults(head, columns)
    if faulty:
        document.findings += [Finding(file, line, fault, CODE) for fault in faulty]
        return {}
    found: Rows = {}
    lines: dict[str, int] = {}
    for line, values in records:
        fault = ""
        name = values[head.index("name")] if len(values) > head.index("name") else ""
        if len(values) > len(head):
            fault = (
                f"{len(values)} values for {len(head)} columns; a value that holds the separator needs quotes"
            )
        elif not name:
            fault = "the row names no node; fill in its `name`"
        elif name in lines:
            fault = f"{shown(name)} has a row on line {lines[name]} already; keep one of them"
        elif "[" in name or "," in name:
            fault = f"`{shown(name)}` is a range; write one row a node"
        if fault:
            document.findings.append(Finding(file, line, fault, CODE))
            continue
        lines[name] = line
        path: KeyPath = (KEY, name)
        document.elsewhere[path] = (file, line)
        if (own := _own(dict(zip(head, values, strict=False)), path, document)) is not None:
            found[name] = (path, own)
    return found


def _head_faults(head: list[str], columns: Collection[str]) -> list[str]:
    faults = [
        f"unknown column `{shown(column)}`; {did_you_mean(column, columns)}"
        if column
        else f"column {number} has no name; write one, or take the column out"
        for number, column in enumerate(head, 1)
        if column not in columns
    ]
    faults += [
        f"the column `{column}` is there twice; keep one of them"
        for column in dict.fromkeys(head)
        if head.count(column) > 1
    ]
    if "name" not in head:
        faults.append("there is no column `name`; begin the first line with it, e.g. name,mac,serial")
    return faults


def _own(row: dict[str, str], path: KeyPath, document: Document) -> NodeOwn | None:
    """What a row says of its node; None where it says something wrong, which goes to the findings."""
    given = {column: value for column, value in row.items() if value and column != "name"}
    data: dict[str, Any] = {name: given[name] for name in ("address", "mac", "rack") if name in given}
    if bmc := {name: given[f"bmc_{name}"] for name in ("address", "mac") if f"bmc_{name}" in given}:
        data["bmc"] = bmc
    if more := {
        column.removeprefix(MORE_ADDRESSES): value
        for column, value in given.items()
        if column.startswith(MORE_ADDRESSES)
    }:
        data["addresses"] = more
    faults: list[tuple[str, str]] = []
    if "serial" in given:
        data["serial"] = given["serial"]
        if _EXPONENT.fullmatch(given["serial"]):
            advice = "make its column text in the spreadsheet, and write it anew"
            faults.append(("serial", f"`{given['serial']}` is a serial turned into a number; {advice}"))
    if "u" in given:
        if re.fullmatch(r"[0-9]{1,3}", given["u"]):
            data["u"] = int(given["u"])
        else:
            faults.append(("u", f"`{shown(given['u'])}` is no unit of a rack; write a whole number, e.g. 9"))
    for column, value in given.items():
        if column not in ("serial", "u") and ("[" in value or "," in value):
            faults.append((column, f"`{shown(value)}` is a range or a list; write one value"))
    own: NodeOwn | None = None
    try:
        own = NodeOwn.model_validate(data)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            reason = one.get("ctx", {}).get("error", "this value is not allowed; write another")
            faults.append((_column(one["loc"]), str(reason)))
    for column, text in dict(faults).items():
        document.find(path, f"`{column}`: {text}", _CODES.get(column, CODE))
    return None if faults else own


def _column(place: tuple[int | str, ...]) -> str:
    """The column of a value of NodeOwn."""
    if place[0] == "bmc" and len(place) > 1:
        return f"bmc_{place[1]}"
    return f"{MORE_ADDRESSES}{place[1]}" if place[0] == "addresses" and len(place) > 1 else str(place[0])


def written(cluster: Cluster) -> str:
    """The CSV of all nodes of ``cluster``, in the file's order; as ``nodes_csv`` it changes nothing."""
    networks = [name for name in cluster.networks if any(name in node.addresses for node in cluster.nodes)]
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*COLUMNS, *(MORE_ADDRESSES + name for name in networks)])
    for node in cluster.nodes:
        table.writerow([*_cells(node), *(node.addresses.get(name, "") for name in networks)])
    return text.getvalue()


def _cells(node: Node) -> list[object]:
    cells = (
        node.name,
        node.address,
        node.mac,
        node.serial,
        node.bmc_address,
        node.bmc_mac,
        node.rack,
        node.u,
    )
    return ["" if cell is None else cell for cell in cells]
