"""Findings as SARIF 2.1.0, which code hosts show on the line of a merge request.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0", 27 March 2020.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from coldiron import __version__
from coldiron.plan.codes import Page, pages
from coldiron.plan.findings import Finding, Severity

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "SRCROOT"
_LEVELS = {Severity.REFUSE: "error", Severity.WARN: "warning", Severity.ADVICE: "note"}


def sarif(findings: Sequence[Finding], directory: Path) -> dict[str, Any]:
    """A SARIF log of ``findings``, whose places are relative to ``directory``.

    In the log they are relative to the repository's root, the nearest directory around ``directory`` with a `.git`; to
    ``directory`` itself where there is none. The root itself is not in it: it is another on each machine.
    """
    root = next((one for one in (directory, *directory.parents) if (one / ".git").exists()), directory)
    known = pages()
    worst = {finding.code: finding.severity for finding in reversed(findings)}
    codes = [code for code in known if code in worst]
    again: Counter[str] = Counter()
    results = []
    for finding in findings:
        again[finding.id] += 1
        results.append(_result(finding, codes.index(finding.code), again[finding.id], directory, root))
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "coldiron plan",
                        "semanticVersion": __version__,
                        "rules": [_rule(known[code], worst[code]) for code in codes],
                    }
                },
                "originalUriBaseIds": {_ROOT: {"description": {"text": "The root of the repository."}}},
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }


def _rule(page: Page, severity: Severity) -> dict[str, Any]:
    text = f"{page.means}\n\nWhy it matters: {page.why}"
    markdown = f"{page.means}\n\n**Why it matters:** {page.why}"
    for word, example in (("Wrong", page.wrong), ("Right", page.right)):
        if example:
            text += f"\n\n{word}:\n\n{example.rstrip()}"
            markdown += f"\n\n**{word}:**\n\n```yaml\n{example.rstrip()}\n```"
    text += f"\n\nWhat to do: {page.type}"
    markdown += f"\n\n**What to do:** {page.type}"
    if page.source:
        text += f"\n\nSource: {page.source}"
        markdown += f"\n\n**Source:** {page.source}"
    return {
        "id": page.code,
        "shortDescription": {"text": page.title},
        "fullDescription": {"text": page.means},
        "help": {"text": text, "markdown": markdown},
        "defaultConfiguration": {"level": _LEVELS[severity]},
    }


def _result(finding: Finding, rule: int, number: int, directory: Path, root: Path) -> dict[str, Any]:
    text = finding.what + (f" ({finding.hosts})" if finding.hosts else "")
    name, _, tail = finding.where.rpartition(":")
    file, line = (name, int(tail)) if name and tail.isdigit() else (finding.where, 1)
    # The same finding keeps its fingerprint when lines above it come and go.
    mark = hashlib.sha256(f"{finding.id}#{number}".encode()).hexdigest()[:32]
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": text + (f"; {finding.advice}" if finding.advice else "")},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact(file, directory, root),
                    "region": {"startLine": max(line, 1)},
                }
            }
        ],
        "partialFingerprints": {"coldironFinding/v1": mark},
        "properties": {"id": finding.id, "subject": finding.subject, "hosts": finding.hosts}
        | dict(finding.figures),
    }


def _artifact(file: str, directory: Path, root: Path) -> dict[str, str]:
    path = directory / file
    try:
        return {"uri": quote(path.relative_to(root).as_posix()), "uriBaseId": _ROOT}
    except ValueError:
        # A file outside the repository is shown nowhere in it.
        return {"uri": path.as_uri()}
