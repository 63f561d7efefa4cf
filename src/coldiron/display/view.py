"""Which view of a run fits where it is shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console

from coldiron.display.estimate import Estimate
from coldiron.display.live import LiveView
from coldiron.display.plain import PlainView
from coldiron.run.state import RunState


class View(Protocol):
    """Shows a run while it is on. Used as a context; left in order however the run ends."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show the last state, and leave the terminal as it was."""

    def update(self, state: RunState) -> None:
        """Note the newest state. Called after each event, by the thread that changes it, so it is cheap."""


def make_view(
    console: Console,
    *,
    estimate: Estimate | None = None,
    verbose: bool = False,
    clock: Callable[[], float] = time.time,
) -> View:
    """The live view on a terminal, plain lines elsewhere.

    ``verbose`` asks for every task, which only plain lines can carry. ``clock`` gives seconds since the epoch; a
    run that is replayed has a clock of its own.
    """
    if verbose or not console.is_terminal or console.is_dumb_terminal:
        return PlainView(console, verbose=verbose, clock=clock)
    return LiveView(console, estimate=estimate, clock=clock)
