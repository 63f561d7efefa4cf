"""The report of a verification."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldiron.report.junit import Case, Suite, write_junit
from coldiron.report.page import as_data, folded, render, told_versions
from coldiron.text import counted
from coldiron.verify.results import Command, Node, Result, Test, Verification, grouped

#: Failures of one kind that are told in full, each node with its own commands.
NODES_TOLD = 12
#: Kinds of failures that are unfolded from the start.
OPENED = 12
#: Kinds of failures that are told in full; beyond them results.json has the rest.
KINDS_TOLD = 400
#: From so many nodes on the matrix folds those without failures.
FOLD_FROM = 25
#: Characters of commands that the page carries for tests that passed.
COMMANDS_LIMIT = 2_000_000
MARKS = {Result.PASSED: "p", Result.FAILED: "f", Result.ERROR: "e", Result.SKIPPED: "s"}


@dataclass
class Failure:
    """Tests that failed alike."""

    role: str
    title: str
    name: str
    message: str
    hint: str
    result: Result
    tests: list[Test]

    @property
    def nodes(self) -> list[str]:
        """The nodes, each once; empty for a test that concerns none."""
        return list(dict.fromkeys(test.node for test in self.tests if test.node))


@dataclass
class Cell:
    """A role on a node."""

    tests: int = 0
    bad: int = 0
    skipped: int = 0


@dataclass
class Row:
    """A node of the matrix."""

    node: Node
    cells: list[Cell | None]

    @property
    def bad(self) -> bool:
        """Whether anything is wrong there."""
        return bool(self.node.silent) or any(cell is not None and cell.bad for cell in self.cells)


@dataclass
class Group:
    """Nodes of one kind."""

    kind: str
    rows: list[Row]

    @property
    def bad(self) -> int:
        """Nodes where something is wrong."""
        return sum(row.bad for row in self.rows)

    def bad_in(self, column: int) -> int:
        """Nodes on which this role failed."""
        cells = [row.cells[column] for row in self.rows]
        return sum(cell is not None and cell.bad > 0 for cell in cells)

    def has(self, column: int) -> bool:
        """Whether any node has this role."""
        return any(row.cells[column] is not None for row in self.rows)


@dataclass
class Line:
    """One test over all its nodes, for the list of tests."""

    number: int
    name: str
    title: str
    results: Counter[Result] = field(default_factory=Counter)
    slowest: float = 0.0

    @property
    def bad(self) -> int:
        """On how many nodes it failed."""
        return self.results[Result.FAILED] + self.results[Result.ERROR]


def write_verify_report(found: Verification, folder: Path) -> tuple[Path, Path]:
    """Write index.html and junit.xml into a folder that is there; return their paths."""
    page, junit = folder / "index.html", folder / "junit.xml"
    page.write_text(verify_page(found), encoding="utf-8")
    write_junit(f"coldiron verify {found.cluster}", _suites(found), junit)
    return page, junit


def verify_page(found: Verification) -> str:
    """Return the page of a verification."""
    failures = [
        Failure(
            tests[0].role,
            tests[0].title,
            tests[0].name,
            tests[0].message,
            tests[0].hint,
            tests[0].result,
            tests,
        )
        for tests in sorted(grouped(found.bad), key=len, reverse=True)
    ]
    lines, data = _lines(found)
    bad_nodes = sorted({test.node for test in found.bad if test.node} | {node.name for node in found.silent})
    return render(
        "verify.html.j2",
        title=f"{found.cluster}: {'as declared' if found.green else 'not as declared'}",
        found=found,
        command=shlex.join(found.command),
        versions=told_versions(found.versions),
        counts={str(result): found.count(result) for result in Result},
        failures=failures[:KINDS_TOLD],
        more_failures=len(failures) - KINDS_TOLD,
        nodes_told=NODES_TOLD,
        opened=OPENED,
        bad_nodes=bad_nodes,
        groups=matrix(found),
        folds=len(found.nodes) >= FOLD_FROM,
        lines=lines,
        lede=_lede(found, bad_nodes),
        data=as_data(data),
    )


def _lede(found: Verification, bad_nodes: list[str]) -> str:
    ran, passed = len(found.tests), found.count(Result.PASSED)
    answered = len(found.nodes) - len(found.silent)
    text = f"{passed} of {counted(ran, 'test')} passed on {answered} of {counted(len(found.nodes), 'node')}."
    if bad_nodes:
        text += f" Something is wrong on {folded(bad_nodes)}."
    return text


def matrix(found: Verification) -> list[Group]:
    """Return nodes by roles, nodes gathered by kind in the order in which the kinds first come."""
    column = {role: number for number, role in enumerate(found.roles)}
    rows = {node.name: Row(node, [None] * len(column)) for node in found.nodes}
    for test in found.tests:
        row = rows.get(test.node)
        if row is None:
            continue
        cell = row.cells[column[test.role]] or Cell()
        cell.tests += 1
        cell.bad += test.result.bad
        cell.skipped += test.result is Result.SKIPPED
        row.cells[column[test.role]] = cell
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows.values():
        kinds[row.node.kind or "node"].append(row)
    return [Group(kind, rows) for kind, rows in kinds.items()]


def _lines(found: Verification) -> tuple[dict[str, list[Line]], dict[str, Any]]:
    """Return the list of tests by role, and what the page looks up when one of them is opened.

    The data: ``nodes`` names; ``commands`` texts; ``runs`` a list for each test of
    [node, mark, milliseconds, commands …], all but the mark as numbers.
    """
    node_number = {node.name: number for number, node in enumerate(found.nodes)}
    known: dict[tuple[str, str], Line] = {}
    texts: dict[str, int] = {}
    room = COMMANDS_LIMIT
    runs: list[list[list[Any]]] = []
    for test in found.tests:
        key = (test.role, test.name)
        if key not in known:
            known[key] = Line(len(runs), test.name, test.title)
            runs.append([])
        line = known[key]
        line.results[test.result] += 1
        line.slowest = max(line.slowest, test.seconds)
        asked = []
        for command in test.commands:
            if command.command not in texts and room > 0:
                room -= len(command.command)
                texts[command.command] = len(texts)
            if command.command in texts:
                asked.append(texts[command.command])
        number = node_number.get(test.node, -1)
        runs[line.number].append(
            [number, MARKS[test.result], round(test.seconds * 1000), *dict.fromkeys(asked)]
        )
    lines: dict[str, list[Line]] = {role: [] for role in found.roles}
    for (role, _), line in known.items():
        lines[role].append(line)
    return lines, {"nodes": [node.name for node in found.nodes], "commands": list(texts), "runs": runs}


def _suites(found: Verification) -> list[Suite]:
    suites = []
    if found.silent:
        cases = [
            Case("nodes", node.name, 0, "error", "does not answer", node.silent) for node in found.silent
        ]
        suites.append(Suite("nodes", found.started, cases))
    by_role: dict[str, Suite] = {role: Suite(role, found.started) for role in found.roles}
    for test in found.tests:
        kind = {Result.FAILED: "failure", Result.ERROR: "error", Result.SKIPPED: "skipped"}.get(
            test.result, ""
        )
        name = f"{test.name}[{test.node}]" if test.node else test.name
        message = (test.message.splitlines() or [""])[0]
        text = "\n\n".join([test.message, *map(_as_text, test.commands)]) if test.result.bad else ""
        by_role[test.role].cases.append(Case(test.role, name, test.seconds, kind, message, text))
    return suites + list(by_role.values())


def _as_text(command: Command) -> str:
    parts = [f"{command.node}$ {command.command}", command.stdout.rstrip(), command.stderr.rstrip()]
    return "\n".join([*filter(None, parts), f"(ended with {command.rc})"])
