"""One frame of the live view: a picture laid out for a terminal of a given size. Pure: no clock, no output."""

from __future__ import annotations

from coldiron.display.estimate import Remaining
from coldiron.display.lines import Frame, Line
from coldiron.display.matrix import matrix
from coldiron.display.picture import Picture
from coldiron.display.symbols import (
    BAD_OUTCOME,
    FAINT,
    OUTCOME_STYLES,
    PLAIN,
    STRONG,
    STYLES,
    WORDS,
    Symbols,
)
from coldiron.display.words import about, clock, hosts, one_line, span
from coldiron.run.state import CellStatus, Failure, Outcome
from coldiron.text import counted

# Below this there is room for one line only.
LEAST_WIDTH = 40
LEAST_HEIGHT = 8
_NOW_LINES = {False: 2, True: 4}  # on a low and on a high terminal
_HIGH = 30
_FAILURES_AT_MOST = 4
_SLOWEST_AT_MOST = 3
_FOLDED_AT_MOST = 24
_WHO = {False: 16, True: 24}  # on a narrow and on a wide terminal
_WIDE = 110

_OUTCOMES = {
    Outcome.OK: "done",
    Outcome.FAILED: "failed",
    Outcome.UNREACHABLE: "nodes out of reach",
    Outcome.REFUSED: "refused",
    Outcome.INTERRUPTED: "interrupted",
    Outcome.KILLED: "killed",
    Outcome.ERROR: "ended with an error",
}


def frame(
    picture: Picture, width: int, height: int, now: float, symbols: Symbols, left: Remaining | None = None
) -> Frame:
    """``picture`` at ``now`` (seconds since the epoch) in at most ``height`` lines of ``width`` cells.

    ``left`` is what earlier runs say about the rest. Sections keep their place and size from frame to frame
    for as long as no host fails.
    """
    end = picture.ended if picture.ended is not None else now
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Frame([_in_one_line(picture, end, symbols).fit(width, symbols.ellipsis)], symbols.ellipsis)
    lines = [_title(picture, end, width), _progress(picture, end, width, symbols, left)]
    lines.append(_counts(picture, width, symbols))
    going_on = picture.outcome is Outcome.RUNNING
    # What must be there beside the matrix: what runs now, and why something failed.
    kept = (2 + 2 * bool(picture.failures)) if going_on else 0
    head, rows = matrix(picture, width, height - len(lines) - 1 - kept, now, symbols)
    if rows:
        lines += [Line(), *head, *rows]
    room = height - len(lines)
    if going_on:
        spared = 1 + min(2, len(picture.failures)) + bool(picture.failures)
        most = min(_NOW_LINES[height >= _HIGH], max(1, room - spared))
        block = _now(picture, most, width, now, symbols)
        lines += ([Line()] if room > len(block) else []) + block
    else:
        # The summary follows, and tells of failures and slow tasks at length.
        return Frame((line.fit(width, symbols.ellipsis) for line in lines[:height]), symbols.ellipsis)
    room = height - len(lines)
    if picture.failures and room >= 1:
        blank = room >= 2
        block = _failures(picture.failures, min(_FAILURES_AT_MOST, room - blank), symbols)
        lines += ([Line()] if blank else []) + block
    room = height - len(lines)
    if picture.slowest and room >= 2:
        lines += [Line(), *_slowest(picture, min(_SLOWEST_AT_MOST, room - 1))]
    return Frame((line.fit(width, symbols.ellipsis) for line in lines[:height]), symbols.ellipsis)


def _in_one_line(picture: Picture, end: float, symbols: Symbols) -> Line:
    """All that fits into a terminal too small for more."""
    line = Line(clock(end - picture.started), STRONG).add(f" {picture.stage or picture.verb}")
    for status in (CellStatus.FAILED, CellStatus.UNREACHABLE, CellStatus.RUNNING):
        if number := picture.statuses.get(status, 0):
            line.add(" ").add(f"{symbols.status[status]}{number}", STYLES[status])
    return line


def _title(picture: Picture, end: float, width: int) -> Line:
    line = Line(picture.verb, STRONG).add(f" {picture.cluster}", STRONG)
    line.add(f"  {counted(len(picture.hosts), 'node')}", FAINT)
    if picture.check:
        line.add("  check: nothing is changed", STYLES[CellStatus.CHANGED])
    time = clock(end - picture.started)
    if line.cells + len(time) + 2 <= width:
        line.to(width - len(time)).add(time, STRONG)
    return line


def _progress(picture: Picture, end: float, width: int, symbols: Symbols, left: Remaining | None) -> Line:
    if picture.outcome is not Outcome.RUNNING:
        style = OUTCOME_STYLES.get(picture.outcome, BAD_OUTCOME)
        return Line(_OUTCOMES[picture.outcome], style)
    names = [stage.name for stage in picture.stages]
    if picture.stage in names:
        line = Line(f"stage {names.index(picture.stage) + 1} of {len(names)}: {picture.stage}")
    else:
        line = Line("reading the inventory" if not picture.now else picture.stage)
    if left is None:
        return line
    words = f"{about(left.seconds)} left, as in {counted(left.runs, 'earlier run')}"
    if left.seconds <= 0:
        words = "longer than in earlier runs"
    size = min(40, width - line.cells - len(words) - 5)
    if size >= 10:
        elapsed = end - picture.started
        share = elapsed / (elapsed + left.seconds) if elapsed + left.seconds > 0 else 0.0
        full = min(size, int(size * share))
        line.add("  ").add(symbols.bar_done * full, STYLES[CellStatus.RUNNING])
        line.add(symbols.bar_open * (size - full), FAINT)
    return line.add("  ").add(words, PLAIN)


def _counts(picture: Picture, width: int, symbols: Symbols) -> Line:
    """Tasks by outcome, then nodes by status. It also says what the signs of the matrix mean."""
    counts, statuses = picture.counts, picture.statuses
    tasks = [(CellStatus.OK, counts.ok), (CellStatus.CHANGED, counts.changed)]
    if width >= _WIDE:
        tasks.append((CellStatus.SKIPPED, counts.skipped))
    nodes = [CellStatus.FAILED, CellStatus.UNREACHABLE]
    if width >= _WIDE:
        nodes += [CellStatus.RUNNING, CellStatus.WAITING]
    line = Line("tasks", FAINT)
    digits = max(3, len(str(max(counts.ok, len(picture.hosts)))))
    for status, number in tasks:
        word = "skipped" if status is CellStatus.SKIPPED else WORDS[status]
        line.add("  ").extend(_counted(status, number, digits, word, symbols))
    line.add("   nodes", FAINT)
    for status in nodes:
        line.add("  ").extend(_counted(status, statuses.get(status, 0), 1, WORDS[status], symbols))
    return line


def _counted(status: CellStatus, number: int, digits: int, word: str, symbols: Symbols) -> Line:
    style = STYLES[status] if number else FAINT
    return Line(f"{symbols.status[status]} {number:>{digits}} {word}", style)


def _who(names: tuple[str, ...], width: int) -> str:
    if len(names) <= _FOLDED_AT_MOST:
        folded = hosts(names)
        if len(folded) <= width:
            return folded
    return counted(len(names), "node")


def _now(picture: Picture, most: int, width: int, now: float, symbols: Symbols) -> list[Line]:
    """What runs, longest first. Always ``most`` lines, so that what is below stays where it is."""
    lines = []
    who = _WHO[width >= _WIDE]
    shown = picture.now[:most] if len(picture.now) <= most else picture.now[: most - 1]
    for at in shown:
        line = Line(
            f"{symbols.status[CellStatus.RUNNING]} {clock(now - at.started):>6}", STYLES[CellStatus.RUNNING]
        )
        line.add("  ").add(_who(at.hosts, who)).to(10 + who).add("  ")
        lines.append(line.add(_task(at.role, at.task)))
    if len(shown) < len(picture.now):
        others = len({name for at in picture.now[len(shown) :] for name in at.hosts})
        more = counted(len(picture.now) - len(shown), "other task")
        lines.append(Line(f"  and {more} on {counted(others, 'node')}", FAINT))
    if not lines:
        lines.append(Line("  between two tasks" if picture.stage else "  no task yet", FAINT))
    return lines[:most] + [Line() for _ in range(most - len(lines))]


def _task(role: str, task: str) -> str:
    return f"{role}: {one_line(task)}" if role else one_line(task)


def _failures(failures: tuple[Failure, ...], most: int, symbols: Symbols) -> list[Line]:
    """Why hosts failed, newest last, hosts with the same fault in one line."""
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for failure in failures:
        key = (failure.role or failure.task, failure.sentence, failure.unreachable)
        groups.setdefault(key, []).append(failure.host)
    lines = []
    newest = list(groups.items())
    if len(newest) > most:
        newest = newest[-(most - 1) :] if most > 1 else newest[-1:]
        if most > 1:
            older = len(groups) - len(newest)
            lines.append(Line(f"  and {counted(older, 'earlier fault')}, told at the end", FAINT))
    for (role, sentence, unreachable), names in newest:
        status = CellStatus.UNREACHABLE if unreachable else CellStatus.FAILED
        line = Line(f"{symbols.status[status]} {hosts(dict.fromkeys(names))}", STYLES[status])
        lines.append(line.add(f"  {role}: " if role else "  ").add(one_line(sentence)))
    return lines


def _slowest(picture: Picture, most: int) -> list[Line]:
    lines = []
    for place, task in enumerate(picture.slowest[:most]):
        line = Line("slowest" if place == 0 else "", FAINT).to(8)
        line.add(f" {span(task.seconds):>11}  ").add(_task(task.role, task.name))
        if task.slowest_host and task.hosts > 1:
            line.add(f"  {task.slowest_host} {span(task.slowest_seconds)}", FAINT)
        lines.append(line)
    return lines
