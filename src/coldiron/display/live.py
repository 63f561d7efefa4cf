"""The live view: a frame of the newest state four times a second, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleDimensions
from rich.live import Live

from coldiron.display.estimate import Estimate, Remaining
from coldiron.display.frame import frame
from coldiron.display.lines import Frame
from coldiron.display.picture import take
from coldiron.display.symbols import symbols_for
from coldiron.run.state import RunState

FRAMES_PER_SECOND = 4
# The rest of a run is guessed anew this often, in seconds: a guess that is redrawn at every frame only flickers.
_GUESS_EVERY = 1.0


class LiveView:
    """Draws the newest state at a steady rate, whatever the rate of events.

    ``clock`` gives seconds since the epoch, as the events' times are.
    """

    def __init__(
        self, console: Console, *, estimate: Estimate | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._console = console
        self._estimate = estimate
        self._clock = clock
        self._symbols = symbols_for(console)
        self._state: RunState | None = None
        self._live: Live | None = None
        self._size: ConsoleDimensions | None = None
        self._left: Remaining | None = None
        self._guessed = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._draw_on, name="coldiron-live-view", daemon=True)

    def __enter__(self) -> Self:
        self._begin()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        # A terminal that is gone (a connection that broke) must not end the run that was shown on it.
        with suppress(OSError):
            self.draw()
        with suppress(OSError):
            if self._live is not None:
                self._live.stop()

    def update(self, state: RunState) -> None:
        """Note the newest state. It is read at the next frame, not here."""
        self._state = state

    def render(self, width: int, height: int) -> Frame | None:
        """The frame of this moment; None where there is no state yet or it changed while it was read."""
        state = self._state
        if state is None:
            return None
        now = self._clock()
        try:
            if self._estimate is not None and abs(now - self._guessed) >= _GUESS_EVERY:
                self._left, self._guessed = self._estimate.remaining(state, now), now
            return frame(take(state), width, height, now, self._symbols, self._left)
        except RuntimeError:
            # A dictionary grew while it was copied: the last frame stands for another quarter of a second.
            return None

    def draw(self) -> None:
        """Draw one frame."""
        size = self._console.size
        if size != self._size:
            self._resize(size)
        # The last line is the cursor's: a frame as high as the terminal would scroll it.
        drawn = self.render(size.width, size.height - 1)
        if drawn is not None and self._live is not None:
            self._live.update(drawn, refresh=True)

    def _begin(self) -> None:
        self._size = self._console.size
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def _resize(self, size: ConsoleDimensions) -> None:
        """Begin anew on a clear screen: how a terminal breaks the old lines in its new width cannot be known."""
        if self._live is not None and self._size is not None:
            self._live.stop()
            self._console.clear()
        self._begin()

    def _draw_on(self) -> None:
        with suppress(OSError):
            while not self._stop.wait(1 / FRAMES_PER_SECOND):
                self.draw()
