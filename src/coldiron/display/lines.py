"""Lines of styled text that know how wide they are: what a frame is made of.

Rich's Text can wrap, justify and parse, and pays for it on each frame; a frame needs none of that.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from coldiron.display.symbols import PLAIN


class Line:
    """One line, built from left to right."""

    __slots__ = ("cells", "parts")

    def __init__(self, text: str = "", style: Style = PLAIN) -> None:
        self.parts: list[tuple[str, Style]] = []
        self.cells = 0
        if text:
            self.add(text, style)

    def add(self, text: str, style: Style = PLAIN) -> Line:
        """Append ``text``."""
        if text:
            self.parts.append((text, style))
            self.cells += cell_len(text)
        return self

    def extend(self, other: Line) -> Line:
        """Append all of ``other``."""
        self.parts.extend(other.parts)
        self.cells += other.cells
        return self

    def to(self, column: int) -> Line:
        """Fill with blanks up to ``column``; a line that is longer already stays as it is."""
        return self.add(" " * (column - self.cells)) if column > self.cells else self

    def fit(self, width: int, ellipsis: str = "…") -> Line:
        """The line in at most ``width`` cells; one that is cut ends in ``ellipsis``."""
        if self.cells <= width:
            return self
        fitted = Line()
        room = max(0, width - cell_len(ellipsis))
        for text, style in self.parts:
            size = cell_len(text)
            if size <= room:
                fitted.add(text, style)
                room -= size
                continue
            return fitted.add(set_cell_size(text, room), style).add(ellipsis[:width], style)
        return fitted

    @property
    def text(self) -> str:
        """The line without its styles."""
        return "".join(text for text, _ in self.parts)


class Frame:
    """Lines as something that rich can draw; each is cut at the console's width."""

    def __init__(self, lines: Iterable[Line], ellipsis: str = "…") -> None:
        self.lines = list(lines)
        self.ellipsis = ellipsis

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        end = Segment.line()
        for line in self.lines:
            for text, style in line.fit(options.max_width, self.ellipsis).parts:
                yield Segment(text, style)
            yield end

    @property
    def text(self) -> str:
        """The frame without its styles, for tests and logs."""
        return "\n".join(line.text for line in self.lines)
