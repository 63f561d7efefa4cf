"""Reading the catalog: the package's own files, then a site's over them, checked with file and line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coldiron.catalog.model import IDENTITY, Cable, Entry, Gpu, Nic, Server, Switch, covers
from coldiron.errors import ColdironError
from coldiron.inventory.findings import Finding, InventoryError, did_you_mean, nearest, shown, shown_path
from coldiron.inventory.source import Document, KeyPath, parse

FAMILIES: dict[str, type[Entry]] = {
    "gpus": Gpu,
    "servers": Server,
    "nics": Nic,
    "switches": Switch,
    "cables": Cable,
}
_DOCUMENTS = "documents"
_MAX_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True)
class Catalog:
    """Every entry of each family by its name, in the order of the files."""

    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    servers: Mapping[str, Server] = field(default_factory=dict)
    nics: Mapping[str, Nic] = field(default_factory=dict)
    switches: Mapping[str, Switch] = field(default_factory=dict)
    cables: Mapping[str, Cable] = field(default_factory=dict)

    def entries(self, family: str | None = None) -> dict[str, Entry]:
        """Return the entries of a family, or of all, by name. An unknown family is a ColdironError."""
        if family is not None and family not in FAMILIES:
            raise ColdironError(
                f"the catalog has no family {shown(family)}; {did_you_mean(family, FAMILIES)}"
            )
        return {
            name: entry
            for one in ([family] if family else FAMILIES)
            for name, entry in getattr(self, one).items()
        }

    def find(self, name: str, family: str | None = None) -> Entry:
        """Return the entry of this name. One that is not there is a ColdironError that says what is near."""
        known = self.entries(family)
        if name in known:
            return known[name]
        near = nearest(name, known)
        advice = f"did you mean `{near}`?" if near else "`coldiron catalog list` shows what there is"
        raise ColdironError(f"the catalog has no entry {shown(name)}; {advice}")

    def family_of(self, name: str) -> str:
        """Return the family that an entry is in."""
        return next(family for family in FAMILIES if name in getattr(self, family))


def load(overlays: Sequence[Path] = ()) -> Catalog:
    """Return the package's catalog with the files of ``overlays`` over it, the last on top.

    An entry of a file replaces or adds fields of the entry of that name; a list replaces the list, null takes a figure
    away. Everything that is wrong, a figure without a source too, is one ColdironError with file and line.
    """
    return _load([*(_packaged(family) for family in FAMILIES), *(_read(path) for path in overlays)])


def _packaged(family: str) -> Document:
    file = resources.files("coldiron.catalog").joinpath(f"{family}.yml")
    return parse(file.read_text(encoding="utf-8"), f"{family}.yml")


def _read(path: Path) -> Document:
    """Return a site's file. The words on a missing or an empty one are the catalog's, not the inventory's."""
    name = shown_path(path)
    try:
        with path.open("rb") as handle:
            data = handle.read(_MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise ColdironError(f"{name}: there is no such file; leave it out, or write one") from None
    except UnicodeDecodeError:
        raise ColdironError(f"{name}: this is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise ColdironError(f"{name}: cannot be read: {error.strerror or error}") from None
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        raise ColdironError(f"{name}: the file is empty; write one of {', '.join(FAMILIES)} in it")
    return parse(text, name)


def _load(files: Iterable[Document]) -> Catalog:
    merge = _Merge()
    for file in files:
        merge.add(file)
    return merge.catalog()


def _leaves(data: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """Yield the figures of an entry as it is written, with their dotted names."""
    if isinstance(data, dict):
        for key, value in data.items():
            if path or key not in IDENTITY:
                yield from _leaves(value, (*path, str(key)))
    else:
        yield ".".join(path), data


@dataclass
class _Written:
    """An entry as the files wrote it so far, its sources apart, and the files that spoke of it."""

    data: dict[str, Any] = field(default_factory=dict)
    sources: list[dict[str, Any]] = field(default_factory=list)
    files: list[Document] = field(default_factory=list)


class _Merge:
    """Lays one file over the other, then makes entries of what is written."""

    def __init__(self) -> None:
        self.written: dict[str, dict[str, _Written]] = {family: {} for family in FAMILIES}
        self.documents: dict[str, dict[str, Any]] = {}
        self.findings: list[Finding] = []

    def add(self, file: Document) -> None:
        """Lay a file over those before it."""
        self.findings += file.findings
        for key, block in self._mapping(file, file.data, ()):
            if key == _DOCUMENTS:
                self._add_documents(file, block)
            elif key not in FAMILIES:
                advice = did_you_mean(key, [*FAMILIES, _DOCUMENTS])
                self._find(file, (key,), f"unknown key `{shown(key)}`; {advice}")
            else:
                for name, data in self._mapping(file, block, (key,)):
                    self._entry(file, key, name, data)

    def _add_documents(self, file: Document, block: object) -> None:
        for name, text in self._mapping(file, block, (_DOCUMENTS,)):
            self.documents[name] = dict(self._mapping(file, text, (_DOCUMENTS, name)))

    def _mapping(self, file: Document, data: object, path: KeyPath) -> Iterator[tuple[str, Any]]:
        if not isinstance(data, dict):
            if not file.is_spoilt(path):
                where = f"`{path[-1]}`" if path else "the file"
                self._find(file, path, f"{where} must be a mapping; write `key: value` lines")
            return
        for key, value in data.items():
            yield str(key), value

    def _find(self, file: Document, path: KeyPath, text: str) -> None:
        self.findings.append(Finding(file.path, file.line(path), text))

    def _entry(self, file: Document, family: str, name: str, data: object) -> None:
        path: KeyPath = (family, name)
        fields = dict(self._mapping(file, data, path))
        sources = fields.pop("sources", [])
        written = self.written[family].setdefault(name, _Written())
        written.files.append(file)
        said = dict(_leaves(fields))
        for source in written.sources:
            # What this file says anew is no longer covered by what the files before it read.
            source["what"] = [one for one in source["what"] if not covers(tuple(said), one)]
        written.sources = [source for source in written.sources if source["what"]]
        _lay(written.data, fields)
        written.sources += self._sources(file, (*path, "sources"), sources, said)

    def _sources(
        self, file: Document, path: KeyPath, sources: object, said: Mapping[str, object]
    ) -> list[dict[str, Any]]:
        """Return an entry's sources, the documents they name filled in, ``what`` written out to single figures."""
        if not isinstance(sources, list):
            self._find(file, path, "`sources` must be a list; write `- {what: [...], document: ...}`")
            return []
        found = []
        for index, source in enumerate(sources):
            here = (*path, index)
            filled = dict(self._mapping(file, source, here))
            if (document := filled.pop("document", None)) is not None:
                if document not in self.documents:
                    advice = did_you_mean(str(document), self.documents)
                    self._find(file, here, f"no document `{shown(document)}`; {advice}")
                    continue
                filled = {**self.documents[document], **filled}
            what = filled.get("what")
            if not isinstance(what, list) or not what:
                self._find(file, here, "a source names the figures it covers; write `what: [...]`")
                continue
            filled["what"] = self._covered(file, here, [str(name) for name in what], said)
            if filled["what"]:
                found.append(filled)
        return found

    def _covered(
        self, file: Document, path: KeyPath, what: Sequence[str], said: Mapping[str, object]
    ) -> list[str]:
        known = [figure for figure, value in said.items() if value is not None]
        found = []
        for name in what:
            covered = [figure for figure in known if covers((name,), figure)]
            if not covered:
                near = nearest(name, known)
                advice = f"did you mean `{near}`?" if near else "write the figure too, or leave the name out"
                self._find(
                    file, path, f"a source for `{shown(name)}`, which this entry does not set; {advice}"
                )
            found += covered
        return found

    def catalog(self) -> Catalog:
        """Return the entries, or raise everything that is wrong with them."""
        made: dict[str, dict[str, Any]] = {}
        for family, kind in FAMILIES.items():
            made[family] = {}
            for name, written in self.written[family].items():
                if (entry := self._made(family, name, written, kind)) is not None:
                    made[family][name] = entry
        self._check_names()
        catalog = Catalog(**made)
        if not self.findings:
            self._check_links(catalog)
        if self.findings:
            raise InventoryError(self.findings)
        return catalog

    def _made(self, family: str, name: str, written: _Written, kind: type[Entry]) -> Entry | None:
        covered = tuple(figure for source in written.sources for figure in source["what"])
        for figure, value in _leaves(written.data):
            if value is not None and not covers(covered, figure):
                where: KeyPath = (family, name, *figure.split("."))
                self._find(
                    _speaker(written.files, where),
                    where,
                    f"{name}: `{figure}` has no source; name the text that says it under `sources`,"
                    " or write null",
                )
        # A block that was taken away is an empty one, and what is unknown need not be said.
        data = {key: value for key, value in written.data.items() if value is not None}
        try:
            return kind.model_validate({**data, "name": name, "sources": written.sources})
        except ValidationError as error:
            for fault in error.errors():
                place: KeyPath = (family, name, *fault["loc"])
                self._find(_speaker(written.files, place), place, _explained(name, fault, kind))
        return None

    def _check_names(self) -> None:
        homes: dict[str, str] = {}
        for family, entries in self.written.items():
            for name, written in entries.items():
                if name in homes:
                    file = written.files[-1]
                    self._find(
                        file, (family, name), f"{name} is a name under `{homes[name]}` too; take another"
                    )
                homes.setdefault(name, family)

    def _check_links(self, catalog: Catalog) -> None:
        for name, server in catalog.servers.items():
            wanted: list[tuple[str, str, Mapping[str, Entry]]] = []
            if server.gpu is not None:
                wanted.append(("gpu", server.gpu, catalog.gpus))
            wanted += [("ports", port.nic, catalog.nics) for port in server.ports or () if port.nic]
            for key, other, known in wanted:
                if other not in known:
                    where: KeyPath = ("servers", name, key)
                    file = _speaker(self.written["servers"][name].files, where)
                    advice = did_you_mean(other, known)
                    self._find(file, where, f"{name}: the catalog has no `{shown(other)}`; {advice}")


def _lay(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Lay fields over others: mappings key by key, everything else as a whole."""
    for key, value in over.items():
        if isinstance(value, dict):
            inner = base.get(key)
            base[key] = dict(inner) if isinstance(inner, dict) else {}
            _lay(base[key], value)
        else:
            base[key] = value


def _speaker(files: Sequence[Document], path: KeyPath) -> Document:
    """Return the last file that wrote the value at ``path``, or the last that wrote of the entry at all."""
    return next((file for file in reversed(files) if path in file.lines), files[-1])


def _explained(name: str, fault: Any, kind: type[Entry]) -> str:
    """Return one of pydantic's complaints in the words of someone who edits the file."""
    where = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        model: Any = kind
        for part in fault["loc"][:-1]:
            inner = getattr(model, "model_fields", {}).get(part)
            model = inner.annotation if inner is not None else None
        advice = did_you_mean(str(fault["loc"][-1]), getattr(model, "model_fields", None) or ())
        return f"{name}: unknown key `{shown(where)}`; {advice}"
    said = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "missing":
        return f"{name}: `{where}` is missing; write it"
    return f"{name}: {f'`{where}`: ' if where else ''}{said}" + (
        f", not {shown(fault['input'])!r}" if where and not isinstance(fault["input"], (dict, list)) else ""
    )
