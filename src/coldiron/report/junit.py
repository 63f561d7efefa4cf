"""JUnit XML, as CI systems read it."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

from coldiron.text import printable


@dataclass
class Case:
    """One case. ``kind`` is empty (passed), ``failure``, ``error`` or ``skipped``."""

    group: str
    name: str
    seconds: float = 0.0
    kind: str = ""
    message: str = ""
    text: str = ""


@dataclass
class Suite:
    """A named list of cases. ``started`` is in seconds since the epoch."""

    name: str
    started: float
    cases: list[Case] = field(default_factory=list)


def write_junit(name: str, suites: list[Suite], path: Path) -> None:
    """Write suites as one file."""
    root = ET.Element("testsuites", _totals(name, [case for suite in suites for case in suite.cases]))
    for suite in suites:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(suite.started))
        element = ET.SubElement(root, "testsuite", {**_totals(suite.name, suite.cases), "timestamp": stamp})
        for case in suite.cases:
            _add(element, case)
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _totals(name: str, cases: list[Case]) -> dict[str, str]:
    kinds = [case.kind for case in cases]
    return {
        "name": printable(name),
        "tests": str(len(cases)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }


def _add(suite: ET.Element, case: Case) -> None:
    names = {"classname": printable(case.group), "name": printable(case.name), "time": f"{case.seconds:.3f}"}
    element = ET.SubElement(suite, "testcase", names)
    if case.kind:
        outcome = ET.SubElement(element, case.kind, {"message": printable(case.message)})
        outcome.text = printable(case.text) or None
