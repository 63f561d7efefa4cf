"""The bundle of a repair's evidence on the controller: files of evidence, the findings, the text for a ticket."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_path
from coldiron.repair import diagnose
from coldiron.repair.diagnose import Diagnosis, Severity

EVIDENCE = "evidence"
FINDINGS = "findings.txt"
TICKET = "ticket.txt"


def place(repairs: Path, node: str, opened: float) -> Path:
    """Where the bundle of the repair lies that was opened at ``opened`` (seconds since the epoch)."""
    return repairs / node / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(opened))


def begin(directory: Path) -> Path:
    """Make the folder of the evidence, empty: an earlier try's is thrown away. Raises ColdironError."""
    evidence = directory / EVIDENCE
    try:
        shutil.rmtree(evidence, ignore_errors=True)
        evidence.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise _cannot(directory, error) from None
    return evidence


def gather(
    directory: Path,
    files: Mapping[str, str],
    about: Mapping[str, str],
    mask: Callable[[str], str],
) -> Diagnosis:
    """Write ``files`` (text by name) beside those that are there, judge them all, and write what was found.

    Secrets are masked in all of them. ``about`` is what a ticket says of the machine, value by name. Raises
    ColdironError where a name is no kind of evidence or the bundle cannot be written.
    """
    for name in files:
        diagnose.kind_of(name)
    evidence = directory / EVIDENCE
    try:
        there = diagnose.read(evidence)
        for name, text in {**there, **files}.items():
            if text.strip() and (name in files or mask(text) != text):
                _write(evidence / name, mask(text))
        found = diagnose.judge(diagnose.read(evidence))
        _write(directory / FINDINGS, "\n".join(findings(found)) + "\n")
        if found.verdict is Severity.HARDWARE:
            _write(directory / TICKET, "\n".join(ticket(found, about)) + "\n")
    except OSError as error:
        raise _cannot(directory, error) from None
    return found


def findings(found: Diagnosis) -> list[str]:
    """The judgement in lines: the verdict, then each finding with the lines that it rests on."""
    lines = [f"verdict: {found.verdict}"]
    for one in found.evidence:
        more = f" ({one.count} lines)" if one.count > 1 else ""
        lines += ["", f"{one.severity}: {one.means}{more}", f"  see {one.source}"]
        lines += [f"  {quote}" for quote in one.quotes]
    if not found.evidence:
        lines += ["", "no rule fits a line of the evidence"]
    if found.missing:
        lines += ["", f"not gathered: {', '.join(found.missing)}"]
    if found.unread:
        lines += ["", f"not readable: {', '.join(found.unread)}"]
    return lines


def ticket(found: Diagnosis, about: Mapping[str, str]) -> list[str]:
    """What to send to whoever mends the machine."""
    parts = "; ".join(one.means for one in found.evidence if one.severity is Severity.HARDWARE)
    lines = [f"Hardware fault: {about.get('node', '')}: {parts}", ""]
    lines += [f"{name}: {value}" for name, value in about.items() if value]
    for one in found.evidence:
        if one.severity is Severity.HARDWARE:
            lines += ["", f"{one.means} ({one.count} in all):", *(f"  {quote}" for quote in one.quotes)]
    return lines


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as stream:
        stream.write(text)


def _cannot(directory: Path, error: OSError) -> ColdironError:
    return ColdironError(
        f"{shown_path(directory)}: the evidence cannot be kept: {error.strerror or error}",
        ExitCode.ENVIRONMENT,
    )
