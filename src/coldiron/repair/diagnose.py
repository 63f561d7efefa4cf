"""What the evidence of a node says: hardware (open a ticket), software (a new image helps), or neither clearly. Pure.

The rules are data, ``evidence.yml``, each with its source. Given the same files the verdict and its evidence are the
same, in the same order, and every piece of evidence is quoted with its file and line.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown, shown_path
from coldiron.repair.fields import Field, fields
from coldiron.repair.machine import Outcome

# The kinds of evidence, by what their files' names begin with: `smart-sda.json` is of the kind `smart`.
KINDS = ("dmesg", "journal", "nvidia", "smart", "sel", "redfish", "sensors")
_JSON = ("smart", "redfish")
# A node in trouble repeats itself: so many lines of a rule are quoted, the others are counted.
QUOTED = 5
_LONGEST_QUOTE = 300
# Bytes of one file that are read; the end of a log is what matters.
LONGEST_FILE = 64 * 1024 * 1024


class Severity(StrEnum):
    """What a rule says of a line. The same words as in evidence.yml, worst first."""

    HARDWARE = "hardware"
    SOFTWARE = "software"
    UNCLEAR = "unclear"
    HARMLESS = "harmless"


@dataclass(frozen=True)
class Rule:
    """A rule of evidence.yml, whose head explains the fields."""

    id: str
    files: tuple[str, ...]
    severity: Severity
    means: str
    source: str
    pattern: re.Pattern[str] | None = None
    unless_pattern: re.Pattern[str] | None = None
    path: tuple[str, ...] = ()
    test: tuple[str, Any] | None = None
    when: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    unless: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    clears: bool = False


@dataclass(frozen=True)
class Quote:
    """A line of the evidence; ``line`` counts from 1."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Evidence:
    """What one rule found: the first lines, and how many there were in all."""

    rule: str
    severity: Severity
    means: str
    source: str
    quotes: tuple[Quote, ...]
    count: int


@dataclass(frozen=True)
class Diagnosis:
    """``unread`` are files that are not what their name says, ``missing`` the kinds that nobody gathered."""

    verdict: Severity
    evidence: tuple[Evidence, ...]
    unread: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        """The verdict as the machine takes it."""
        return {
            Severity.HARDWARE: Outcome.HARDWARE,
            Severity.SOFTWARE: Outcome.OK,
        }.get(self.verdict, Outcome.UNCLEAR)

    @property
    def reason(self) -> str:
        """The verdict in one line, as the scheduler shows it beside the drained node."""
        if not self.evidence:
            kinds = len(KINDS) - len(self.missing)
            return f"nothing in the evidence says what is wrong ({kinds} of {len(KINDS)} kinds gathered)"
        first = self.evidence[0]
        more = f", and {len(self.evidence) - 1} more" if len(self.evidence) > 1 else ""
        advice = {Severity.HARDWARE: "open a ticket: ", Severity.SOFTWARE: "a new image helps: "}
        return f"{advice.get(self.verdict, 'unclear: ')}{first.means} ({first.quotes[0]}){more}"


def judge(
    files: Mapping[str, str], since: float | None = None, rules: Sequence[Rule] | None = None
) -> Diagnosis:
    """Judge ``files``, text by name. A name that begins with none of ``KINDS`` is a ColdironError.

    What a BMC logged before ``since`` (seconds since the epoch) is passed over: its log outlives the parts. An entry
    without a time counts. The BMC's clock is believed, as UTC where it names no zone: leave ``since`` out where it is
    not known to be right.
    """
    known = load() if rules is None else rules
    found: dict[str, list[Quote]] = {}
    unread = []
    for name in sorted(files):
        kind = kind_of(name)
        try:
            pairs = list(_json(name, files[name], kind, known, since)) if kind in _JSON else []
        except ValueError:
            unread.append(name)
            continue
        pairs += [] if kind in _JSON else list(_lines(name, files[name], kind, known, since))
        for rule, quote in pairs:
            found.setdefault(rule.id, []).append(quote)
    order = list(Severity)
    evidence = [
        Evidence(rule.id, rule.severity, rule.means, rule.source, tuple(quotes[:QUOTED]), len(quotes))
        for rule in known
        if rule.severity is not Severity.HARMLESS and (quotes := found.get(rule.id))
    ]
    evidence.sort(key=lambda one: order.index(one.severity))
    gathered = {kind_of(name) for name in files if name not in unread}
    return Diagnosis(
        evidence[0].severity if evidence else Severity.UNCLEAR,
        tuple(evidence),
        tuple(unread),
        tuple(kind for kind in KINDS if kind not in gathered),
    )


def kind_of(name: str) -> str:
    """The kind of evidence in a file, by its name."""
    kind = re.split(r"[-.]", name, maxsplit=1)[0]
    if kind not in KINDS:
        raise ColdironError(
            f"{shown(name)}: this is no kind of evidence; name it {', '.join(KINDS)}, then - or ."
        )
    return kind


def read(directory: Path) -> dict[str, str]:
    """The files of a bundle, for ``judge``. Of one that is too long the end is read. Raises ColdironError."""
    found = {}
    try:
        for path in sorted(directory.iterdir()):
            if not path.is_file():
                continue
            with path.open("rb") as stream:
                size = path.stat().st_size
                skipped = max(0, size - LONGEST_FILE)
                lines = 0
                while stream.tell() < skipped:
                    lines += stream.read(min(1 << 20, skipped - stream.tell())).count(b"\n")
                # Lines that are left out stay as empty ones: a quote must name the line of the file.
                found[path.name] = "\n" * lines + stream.read(LONGEST_FILE).decode("utf-8", errors="replace")
    except OSError as error:
        raise ColdironError(
            f"{shown_path(directory)}: the evidence cannot be read: {error.strerror or error}",
            ExitCode.ENVIRONMENT,
        ) from None
    return found


@cache
def load() -> tuple[Rule, ...]:
    """The rules of evidence.yml, in its order."""
    text = resources.files("coldiron.repair").joinpath("evidence.yml").read_text(encoding="utf-8")
    return tuple(_rule(one) for one in yaml.safe_load(text)["rules"])


def _rule(data: dict[str, Any]) -> Rule:
    """A rule as it is written. Raises ValueError where a field is unknown, or a rule tests nothing."""
    left = dict(data)
    tests = [(word, left.pop(word)) for word in ("equals", "bits", "above") if word in left]
    patterns = {word: re.compile(left.pop(word)) for word in ("pattern", "unless_pattern") if word in left}
    files, severity = tuple(left.pop("files")), Severity(left.pop("severity"))
    path = tuple(left.pop("field", "").split(".")) if "field" in left else ()
    unknown = set(left) - {"id", "means", "source", "when", "unless", "clears"} or set(files) - set(KINDS)
    if unknown or len(tests) > 1 or not (tests or "pattern" in patterns) or bool(path) != (files[0] in _JSON):
        raise ValueError(f"the rule {data.get('id')} is not whole: {', '.join(sorted(unknown))}")
    return Rule(
        files=files,
        severity=severity,
        path=path,
        test=tests[0] if tests else None,
        pattern=patterns.get("pattern"),
        unless_pattern=patterns.get("unless_pattern"),
        **left,
    )


def _lines(
    name: str, text: str, kind: str, rules: Iterable[Rule], since: float | None
) -> Iterator[tuple[Rule, Quote]]:
    of_kind = [rule for rule in rules if kind in rule.files]
    lines = text.split("\n")
    cleared = _cleared(lines) if kind == "sel" else frozenset()
    for number, line in enumerate(lines, 1):
        rule = next((rule for rule in of_kind if _holds(rule, line)), None)
        if rule is None or (rule.clears and number in cleared):
            continue
        if kind == "sel" and since is not None and (at := _sel_time(line)) is not None and at < since:
            continue
        yield rule, Quote(name, number, _short(line))


def _holds(rule: Rule, text: str) -> bool:
    if rule.pattern is not None and not rule.pattern.search(text):
        return False
    return rule.unless_pattern is None or not rule.unless_pattern.search(text)


def _cleared(lines: Sequence[str]) -> frozenset[int]:
    """The lines of a SEL whose event was taken back later: same sensor, same event, `Deasserted`."""
    open_lines: dict[tuple[str, str], list[int]] = {}
    cleared: set[int] = set()
    for number, line in enumerate(lines, 1):
        columns = [column.strip() for column in line.split("|")]
        if len(columns) < 6:
            continue
        key = (columns[3], columns[4])
        if columns[5] == "Asserted":
            open_lines.setdefault(key, []).append(number)
        elif columns[5] == "Deasserted":
            cleared.update(open_lines.pop(key, []))
    return frozenset(cleared)


def _sel_time(line: str) -> float | None:
    columns = [column.strip() for column in line.split("|")]
    try:
        # ipmitool prints the BMC's time; a zone, where there is one, follows the time.
        at = datetime.datetime.strptime(f"{columns[1]} {columns[2].split()[0]}", "%m/%d/%Y %H:%M:%S")
    except (ValueError, IndexError):
        return None
    return at.replace(tzinfo=datetime.UTC).timestamp()


def _json(
    name: str, text: str, kind: str, rules: Iterable[Rule], since: float | None
) -> Iterator[tuple[Rule, Quote]]:
    of_kind = [rule for rule in rules if kind in rule.files]
    found = fields(text)
    values = {one.path: one.value for one in found}
    lines = text.split("\n")
    for one in found:
        rule = next((rule for rule in of_kind if _says(rule, one, values)), None)
        if rule is None:
            continue
        if (
            since is not None
            and (at := _created(values.get((*one.path[:-1], "Created")))) is not None
            and at < since
        ):
            continue
        # A text without line breaks would be quoted whole.
        quote = lines[one.line - 1] if len(lines) > 1 else f'"{one.path[-1]}": {json.dumps(one.value)}'
        yield rule, Quote(name, one.line, _short(quote))


def _says(rule: Rule, one: Field, values: Mapping[tuple[str | int, ...], Any]) -> bool:
    if len(rule.path) != len(one.path):
        return False
    if any(word not in ("*", part) for word, part in zip(rule.path, one.path, strict=True)):
        return False
    if not _holds(rule, str(one.value)) or not _passes(rule.test, one.value):
        return False
    if any(_neighbour(one, path, values) not in wanted for path, wanted in rule.when.items()):
        return False
    return not any(_neighbour(one, path, values) in wanted for path, wanted in rule.unless.items())


def _neighbour(one: Field, path: str, values: Mapping[tuple[str | int, ...], Any]) -> Any:
    beside = one.path[:-1] if path.startswith(".") else ()
    return values.get((*beside, *path.removeprefix(".").split(".")))


def _passes(test: tuple[str, Any] | None, value: object) -> bool:
    if test is None:
        return True
    word, wanted = test
    if word == "equals":
        # 0 equals False in Python, not in JSON.
        return type(value) is type(wanted) and value == wanted
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return bool(int(value) & wanted) if word == "bits" else value > wanted


def _created(value: object) -> float | None:
    try:
        at = datetime.datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp()


def _short(text: str) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…"
