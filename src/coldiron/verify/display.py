"""What a verification shows: progress by role while it runs, and what it found when it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from coldiron.inventory.ranges import fold
from coldiron.text import counted, duration
from coldiron.verify.results import Command, Node, Result, Test, Verification, grouped

#: Failures told on the terminal, and lines of one output there. The page has all of it.
TOLD, LINES = 10, 8
NAMES = 6


class LiveProgress:
    """A bar for each role, on a terminal."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[bad]}"),
            console=console,
            transient=True,
            refresh_per_second=4,
        )
        self._console = console
        self._rows: dict[str, TaskID] = {}
        self._bad: Counter[str] = Counter()
        self._bad_nodes: dict[str, dict[str, None]] = {}

    def begin(self, totals: dict[str, int], silent: list[Node]) -> None:
        """Show a bar for each role."""
        for role, total in totals.items():
            self._rows[role] = self._bars.add_task(role, total=total, bad="")
        self._bars.start()

    def test(self, test: Test) -> None:
        """Move the role's bar on; name the nodes with failures beside it."""
        if test.result.bad:
            self._bad[test.role] += 1
            self._bad_nodes.setdefault(test.role, {})[test.node] = None
            names = folded_names(list(self._bad_nodes[test.role]))
            self._bars.update(
                self._rows[test.role], bad=f"[red]{self._bad[test.role]} failed: {escape(names)}"
            )
        self._bars.advance(self._rows[test.role])

    def end(self) -> None:
        """Take the bars away."""
        self._bars.stop()


class PlainProgress:
    """A line for each role that is done, where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open: dict[str, int] = {}
        self._totals: dict[str, int] = {}
        self._bad: Counter[str] = Counter()

    def begin(self, totals: dict[str, int], silent: list[Node]) -> None:
        """Say what is about to run."""
        self._open, self._totals = dict(totals), totals

    def test(self, test: Test) -> None:
        """Say so when it was the role's last one."""
        self._bad[test.role] += test.result.bad
        self._open[test.role] -= 1
        if not self._open[test.role]:
            bad = self._bad[test.role]
            said = (
                f"{bad} of {self._totals[test.role]} failed" if bad else f"{self._totals[test.role]} passed"
            )
            self._console.print(Text(f"{test.role}: {said}"))

    def end(self) -> None:
        """Nothing is left to take away."""


def folded_names(names: list[str]) -> str:
    """Return node names folded, a long list cut."""
    text = fold(names)
    return text if len(text) <= 60 else f"{text[:57]}…"


def print_end(found: Verification, console: Console, page: str) -> None:
    """Print what was found: failures first, then the counts and where the page lies."""

    def say(*parts: Any) -> None:
        # Lines are broken by the terminal, so that a pipe and a search find them whole.
        console.print(Text.assemble(*parts), soft_wrap=True)

    for node in found.silent:
        say((f"{node.name} does not answer", "bold red"), f": {node.silent}")
    groups = sorted(grouped(found.bad), key=len, reverse=True)
    if found.silent and groups:
        say()
    for tests in groups[:TOLD]:
        _tell(tests, say)
    if len(groups) > TOLD:
        say(f"… and {len(groups) - TOLD} more on the page\n")
    elif found.silent and not groups:
        say()
    say(*_verdict(found))
    if found.left_out:
        say((f"{counted(len(found.left_out), 'test')} that act left out (--active runs them)", "dim"))
    say("page: ", (page, "bold"))


def _tell(tests: list[Test], say: Callable[..., None]) -> None:
    """Print tests that failed alike: where, which, why, and what came back."""
    test = tests[0]
    names = folded_names([one.node for one in tests if one.node])
    word = "could not be tested" if test.result is Result.ERROR else "failed"
    say((names or "cluster", "bold red"), "  ", (test.role, "bold"), f"  {word}: {test.title}")
    say(_indented(_cut(test.message)))
    if test.telling is not None:
        say((_indented(_command(test.telling)), "dim"))
    if test.hint:
        say((_indented(test.hint), "yellow"))
    say()


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def _command(command: Command) -> str:
    lines = [f"{command.node}$ {_cut(command.command, 3)}"]
    lines += [_cut(text.strip()) for text in (command.stdout, command.stderr) if text.strip()]
    return "\n".join([*lines, *([f"(ended with {command.rc})"] if command.rc else [])])


def _cut(text: str, most: int = LINES) -> str:
    lines = text.splitlines()
    shown = [line if len(line) <= 400 else f"{line[:400]}…" for line in lines[:most]]
    return "\n".join([*shown, "…"] if len(lines) > most else shown)


def _verdict(found: Verification) -> tuple[tuple[str, str], str]:
    passed, total = found.count(Result.PASSED), len(found.tests)
    nodes = len(found.nodes)
    took = duration(found.ended - found.started)
    answered = nodes - len(found.silent)
    counts = f"{passed} of {counted(total, 'test')} passed on {answered} of {counted(nodes, 'node')} ({took})"
    if found.green:
        return (f"{found.cluster} is as declared", "bold green"), f": {counts}"
    return (f"{found.cluster} is not as declared", "bold red"), f": {counts}"


def make_progress(console: Console) -> LiveProgress | PlainProgress:
    """Return the progress that suits where it is shown."""
    return (
        LiveProgress(console)
        if console.is_terminal and not console.is_dumb_terminal
        else PlainProgress(console)
    )
