"""Signs and styles of each status: a sign that stands alone without colour, and in ASCII where it must."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.style import Style

from coldiron.run.state import CellStatus, Outcome

# Worst first: the order in which a cell tells what its hosts do.
ORDER = (
    CellStatus.FAILED,
    CellStatus.UNREACHABLE,
    CellStatus.RUNNING,
    CellStatus.CHANGED,
    CellStatus.OK,
    CellStatus.SKIPPED,
    CellStatus.WAITING,
)
BAD = frozenset({CellStatus.FAILED, CellStatus.UNREACHABLE})
DONE = frozenset({CellStatus.OK, CellStatus.CHANGED, CellStatus.SKIPPED})

WORDS = {
    CellStatus.WAITING: "waiting",
    CellStatus.RUNNING: "running",
    CellStatus.SKIPPED: "nothing to do",
    CellStatus.OK: "ok",
    CellStatus.CHANGED: "changed",
    CellStatus.UNREACHABLE: "unreachable",
    CellStatus.FAILED: "failed",
}

PLAIN = Style()
STRONG = Style(bold=True)
FAINT = Style(dim=True)
HEADING = Style(bold=True, underline=False)
STYLES = {
    CellStatus.WAITING: FAINT,
    CellStatus.RUNNING: Style(color="cyan", bold=True),
    CellStatus.SKIPPED: FAINT,
    CellStatus.OK: Style(color="green"),
    CellStatus.CHANGED: Style(color="yellow"),
    CellStatus.UNREACHABLE: Style(color="magenta", bold=True),
    CellStatus.FAILED: Style(color="red", bold=True),
}
OUTCOME_STYLES = {
    Outcome.RUNNING: STRONG,
    Outcome.OK: Style(color="green", bold=True),
    Outcome.INTERRUPTED: Style(color="yellow", bold=True),
}
BAD_OUTCOME = Style(color="red", bold=True)


@dataclass(frozen=True)
class Symbols:
    """The signs of one character set. Each is one cell wide, so columns stay where they are."""

    status: dict[CellStatus, str]
    bar_done: str
    bar_open: str
    dot: str
    ellipsis: str
    dash: str


UNICODE = Symbols(
    status={
        CellStatus.WAITING: "·",
        CellStatus.RUNNING: "▸",
        CellStatus.SKIPPED: "-",
        CellStatus.OK: "✓",
        CellStatus.CHANGED: "±",
        CellStatus.UNREACHABLE: "!",
        CellStatus.FAILED: "✗",
    },
    bar_done="━",
    bar_open="─",
    dot="·",
    ellipsis="…",
    dash="-",
)
ASCII = Symbols(
    status={
        CellStatus.WAITING: ".",
        CellStatus.RUNNING: ">",
        CellStatus.SKIPPED: "-",
        CellStatus.OK: "+",
        CellStatus.CHANGED: "~",
        CellStatus.UNREACHABLE: "!",
        CellStatus.FAILED: "x",
    },
    bar_done="=",
    bar_open="-",
    dot="|",
    ellipsis="...",
    dash="-",
)


def symbols_for(console: Console) -> Symbols:
    """The signs that ``console``'s encoding can carry."""
    return ASCII if console.options.ascii_only else UNICODE
