"""What the rack tells while it works: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


class Report:
    """Progress of one command. Used as a context, so that a terminal is left in order."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr)
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._done = 0
        self._total = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def say(self, text: str) -> None:
        """One line about what happens now."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def count(self, text: str, total: int) -> None:
        """From now on ``total`` nodes are counted towards ``text``."""
        self._stop()
        self._done, self._total = 0, total
        if self.console.is_terminal:
            self._progress = Progress(
                SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                TimeElapsedColumn(), console=self.console, transient=True,
            )  # fmt: skip
            self._task = self._progress.add_task(text, total=total)
            self._progress.start()
        else:
            self.say(f"{text}: {total} to go")

    def ready(self, node: str) -> None:
        """One node more is done."""
        self._done += 1
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)
        # A line a node would drown a log of hundreds.
        elif self._total <= 16 or self._done % 16 == 0 or self._done == self._total:
            self.say(f"  {node} ({self._done}/{self._total})")
        if self._done == self._total:
            self._stop()
