"""Alerts of the roles' rules files, the cases that try them, and promtool's answers to those.

A case is a few series and a moment: ``tests/rules/cases/ROLE.yml`` says for each alert when it ``fires`` and when it
stays ``quiet``. All cases of an alert, with as many broken variants of it as wanted, are one run of promtool.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CASES = HERE / "cases"
KNOWN = HERE / "metrics.yml"
RUNBOOKS = ROOT / "docs" / "runbooks"

# A word of PromQL that is no metric's name.
_WORDS = frozenset(
    ("and", "or", "unless", "on", "ignoring", "by", "without", "group_left", "group_right", "offset", "bool")
)
_MASKED = re.compile(
    r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)'
)
_NAME = re.compile(r"(?<![\w:.])[a-zA-Z_:][\w:]*(?!\s*\()(?![\w:])")
_COMPARISON = re.compile(r"(==|!=|>=|<=|>|<)\s*(-?\d+(?:\.\d+)?(?:e-?\d+)?)?")
_OPPOSITE = {">": "<=", "<=": ">", "<": ">=", ">=": "<", "==": "!=", "!=": "=="}
NO_METRIC = "coldiron_no_such_metric"

# An alert that fired: its labels, and its annotations as promtool writes them.
Fired = tuple[dict[str, str], str]


@dataclass(frozen=True)
class Alert:
    """One alerting rule, and the recording rules of its file."""

    role: str
    rule: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.rule["alert"])


@dataclass(frozen=True)
class Case:
    """What is the case at a moment, and whether the alert fires then."""

    why: str
    at: str
    series: Mapping[str, str]
    fires: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    says: str = ""
    count: str = "1"


def rule_files() -> list[Path]:
    """Every role's rules."""
    return sorted((ROOT / "roles").glob("*/files/*.rules.yml"))


def _groups(path: Path) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    return found


def alerts() -> list[Alert]:
    """Every alert of every role, in the files' order."""
    found = []
    for path in rule_files():
        rules = [rule for group in _groups(path) for rule in group["rules"]]
        records = tuple(rule for rule in rules if "record" in rule)
        found += [Alert(path.parts[-3], rule, records) for rule in rules if "alert" in rule]
    return found


@cache
def _said(role: str) -> Mapping[str, Any]:
    """The cases of a role's alerts, without types: 0x20 is zero, twenty times and once."""
    path = CASES / f"{role}.yml"
    found = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader) if path.is_file() else {}
    return dict(found)


def cases(alert: Alert) -> list[Case]:
    """The cases of an alert; a series may end with one of the file's ``_labels`` by name."""
    said = _said(alert.role)
    short: Mapping[str, str] = said.get("_labels", {})

    def whole(text: str) -> str:
        ends = [name for name in short if text.endswith(name)]
        return text if not ends else text.removesuffix(max(ends, key=len)) + short[max(ends, key=len)]

    return [
        Case(**{**one, "series": {whole(key): text for key, text in one["series"].items()}}, fires=fires)
        for kind, fires in (("fires", True), ("quiet", False))
        for one in said.get(alert.name, {}).get(kind, ())
    ]


def _mask(expr: str) -> str:
    """The expression with labels, ranges and strings blanked, every character at its place."""
    return _MASKED.sub(lambda match: " " * len(match[0]), expr)


def _names(expr: str) -> Iterator[re.Match[str]]:
    return (match for match in _NAME.finditer(_mask(expr)) if match[0].lower() not in _WORDS)


def metrics(expr: str) -> set[str]:
    """The names of the metrics that an expression asks for."""
    return {match[0] for match in _names(expr)}


def mutants(rule: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Broken variants of an alert, by what was broken: comparisons, thresholds, metrics and the time it waits."""
    expr = str(rule["expr"])
    found: dict[str, dict[str, Any]] = {}

    def add(what: str, start: int, end: int, text: str) -> None:
        found[f"{what} at {start}"] = {**rule, "expr": expr[:start] + text + expr[end:]}

    for match in _COMPARISON.finditer(_mask(expr)):
        sign, number = match[1], match[2]
        add(f"turned {sign}", match.start(1), match.end(1), _OPPOSITE[sign])
        if number is None:
            continue
        add(f"dropped {match[0]}", match.start(), match.end(), "")
        value = float(number)
        if value == 0 or sign in ("==", "!="):
            continue
        # Eager: what is nearly as bad must be quiet. Slow: what is bad enough must not have to be far worse.
        eager, slow = (0.9, 1.5) if (sign[0] == ">") == (value > 0) else (1.1, 1 / 1.5)
        add(f"eager {number}", match.start(2), match.end(2), repr(value * eager))
        if value >= 2 or not value.is_integer() or value < 0:
            add(f"slow {number}", match.start(2), match.end(2), repr(value * slow))
    for match in _names(expr):
        add(f"no {match[0]}", match.start(), match.end(), NO_METRIC)
    if "for" in rule:
        found["waits for nothing"] = {**rule, "for": "0s"}
        number, unit = re.fullmatch(r"(\d+)([smhd])", str(rule["for"])).groups()  # type: ignore[union-attr]
        found["waits twice as long"] = {**rule, "for": f"{2 * int(number)}{unit}"}
    return found


def asked(
    promtool: str, alert: Alert, variants: Mapping[str, Mapping[str, Any]], place: Path
) -> dict[str, list[str]]:
    """What of each variant was not as its alert's cases want it; an empty list is as they want it."""
    wanted = cases(alert)
    names = {f"v{number}": variant for number, variant in enumerate(variants)}
    rules = [*alert.records] + [{**variants[variant], "alert": name} for name, variant in names.items()]
    # promtool does not say which case it speaks of; the seconds do: rules are evaluated each minute.
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": key, "values": text} for key, text in case.series.items()],
            "alert_rule_test": [
                {"eval_time": f"{case.at}{second}s", "alertname": name, "exp_alerts": []} for name in names
            ],
        }
        for second, case in enumerate(wanted, 1)
    ]
    place.mkdir(parents=True, exist_ok=True)
    (place / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "tried", "rules": rules}]}))
    (place / "test.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests})
    )
    done = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=place, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0 or "alertname:" in said, said
    got = _answers(said)
    return {
        variant: [
            f"{case.why}: {wrong}"
            for second, case in enumerate(wanted, 1)
            for wrong in _wrong(case, got.get((name, second), []))
        ]
        for name, variant in names.items()
    }


def _answers(said: str) -> dict[tuple[str, int], list[Fired]]:
    """What fired, by variant and second, out of promtool's complaints that nothing was expected."""
    found: dict[tuple[str, int], list[Fired]] = {}
    for block in re.split(r"\balertname:\s*(?=v\d+,)", said)[1:]:
        head = re.match(r"(v\d+), time: (?:.*?\D)?(\d+)s,", block)
        fired = re.findall(r"Labels:\{(.*?)\}\s*Annotations:\{(.*?)\}\s*(?=\d+:|\])", block, re.DOTALL)
        assert head, block
        assert fired, block
        found[head[1], int(head[2])] = [
            (dict(re.findall(r'(\w+)="([^"]*)"', labels)), notes) for labels, notes in fired
        ]
    return found


def _wrong(case: Case, got: list[Fired]) -> Iterator[str]:
    if not case.fires:
        if got:
            yield f"fires for {got[0][0]}"
        return
    if len(got) != int(case.count):
        yield f"{len(got)} alerts, {case.count} wanted"
        return
    labels, notes = got[0]
    different = {key: labels.get(key) for key, text in case.labels.items() if labels.get(key) != text}
    if different:
        yield f"labels {different}, wanted {dict(case.labels)}"
    if case.says not in notes:
        yield f"says {notes!r}, without {case.says!r}"
    if "no value" in notes or "<error" in notes:
        yield f"says {notes!r}"
