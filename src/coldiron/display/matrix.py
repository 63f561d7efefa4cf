"""The matrix of nodes and stages: a row for each node where they are few, for each group where they are many."""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style

from coldiron.display.lines import Line
from coldiron.display.picture import Picture, Row, StageTime, Tally, rows_of_groups, rows_of_hosts
from coldiron.display.symbols import BAD, DONE, FAINT, ORDER, STRONG, STYLES, WORDS, Symbols
from coldiron.display.words import clock, hosts
from coldiron.run.state import CellStatus
from coldiron.text import counted

# More rows than this nobody reads, however high the terminal is.
_ROWS_AT_MOST = 48
_GAP = 2
_HOST_CELL = (7, 14)
_GROUP_CELL = (11, 30)
# The cell that stands for the stages that have no column of their own.
_EARLIER = "\0earlier"


@dataclass(frozen=True)
class _Column:
    stage: str
    title: str
    time: str
    running: bool


def matrix(
    picture: Picture, width: int, height: int, now: float, symbols: Symbols
) -> tuple[list[Line], list[Line]]:
    """The head and the rows, in at most ``height`` lines of ``width`` cells."""
    if not picture.hosts or height < 3:
        return [], []
    room = height - 2
    folded = len(picture.hosts) > min(room, _ROWS_AT_MOST)
    rows = rows_of_groups(picture) if folded else rows_of_hosts(picture)
    labels = [_label(row, width // 3) for row in rows]
    label_width = max(10 if folded else 6, *(len(label) for label in labels))
    cell_width, columns = _columns(picture, width - label_width, folded, now, symbols)
    head = [Line().to(label_width), Line().to(label_width)]
    for place, column in enumerate(columns):
        start = label_width + _GAP + place * (cell_width + _GAP)
        head[0].to(start).add(column.title[:cell_width], STRONG if column.running else FAINT)
        head[1].to(start).add(column.time, STYLES[CellStatus.RUNNING] if column.running else FAINT)
    hidden = [column.stage for column in columns if not column.stage.startswith("\0")]
    lines: list[Line] = []
    bad = {host.name for host in picture.bad}
    for label, row in zip(labels, rows, strict=True):
        style = STYLES[CellStatus.FAILED] if len(row.names) == 1 and row.names[0] in bad else STRONG
        lines.append(_row_line(label, style, row, label_width, cell_width, columns, hidden, now, symbols))
    if folded:
        lines = _with_the_bad(picture, rows, lines, room, width, symbols)
    return [line.fit(width, symbols.ellipsis) for line in head], [
        line.fit(width, symbols.ellipsis) for line in lines[:room]
    ]


def _label(row: Row, most: int) -> str:
    text = hosts(row.names)
    if len(text) <= most:
        return text
    short = f"{row.group} ({len(row.names)})" if len(row.names) > 1 else row.names[0]
    return short[:most]


def _columns(
    picture: Picture, width: int, folded: bool, now: float, symbols: Symbols
) -> tuple[int, list[_Column]]:
    """The width of a cell and the columns that fit: the stage that runs and its neighbours, the rest in one."""
    stages = picture.stages
    least, most = _GROUP_CELL if folded else _HOST_CELL
    least = max([least, *(len(stage.name) for stage in stages)])
    if folded:
        # Done of all, and the failed beside it, must fit whatever the numbers are.
        least = max(least, 3 * len(str(len(picture.hosts))) + 4)
    fit = max(1, width // (least + _GAP))
    shown = list(stages)
    columns: list[_Column] = []
    if len(stages) > fit:
        current = next((i for i, stage in enumerate(stages) if stage.name == picture.stage), None)
        if current is None:
            current = 0 if all(stage.started is None for stage in stages) else len(stages) - 1
        # One column may go to the earlier stages; one later stage is shown where there is room for it.
        room = max(1, fit - 1)
        last = min(len(stages), max(current + 1 + (room > 1), room + 1))
        first = max(0, last - room) if last > fit else 0
        if first == 0:
            last = min(len(stages), fit)
        shown = list(stages[first:last])
        if first and fit > 1:
            columns.append(_Column(_EARLIER, f"{first} earlier", "", False))
    for stage in shown:
        columns.append(_Column(stage.name, stage.name, _time(stage, now), _runs(stage, picture)))
    later = len(stages) - (stages.index(shown[-1]) + 1) if shown else 0
    if later:
        tail = columns[-1]
        columns[-1] = _Column(tail.stage, tail.title, f"{tail.time} +{later} later".strip(), tail.running)
    cell = min(most, max(least, width // max(1, len(columns)) - _GAP))
    return cell, columns


def _runs(stage: StageTime, picture: Picture) -> bool:
    return stage.name == picture.stage and stage.ended is None and picture.ended is None


def _time(stage: StageTime, now: float) -> str:
    if stage.started is None:
        return ""
    return clock((stage.ended if stage.ended is not None else now) - stage.started)


def _row_line(
    label: str,
    style: Style,
    row: Row,
    label_width: int,
    cell_width: int,
    columns: list[_Column],
    own: list[str],
    now: float,
    symbols: Symbols,
) -> Line:
    line = Line(label, style)
    for place, column in enumerate(columns):
        line.to(label_width + _GAP + place * (cell_width + _GAP))
        if column.stage == _EARLIER:
            tally: Tally | None = _earlier(row, own)
        else:
            tally = row.tallies.get(column.stage)
        if tally is None:
            continue
        if len(row.names) == 1:
            line.extend(_host_cell(tally, cell_width, now, symbols))
        else:
            line.extend(_group_cell(tally, cell_width, symbols))
    return line


def _earlier(row: Row, own: list[str]) -> Tally:
    """The stages without a column as one: each host once, by the worst it has met there."""
    sums = Tally()
    for stage, tally in row.tallies.items():
        if stage not in own and tally.worst is not CellStatus.WAITING:
            sums.add(tally)
    if len(row.names) > 1 and sums.statuses:
        scale = {status: number for status, number in sums.statuses.items() if status in BAD}
        rest = len(row.names) - sum(scale.values())
        done = CellStatus.CHANGED if sums.changed else CellStatus.OK
        sums.statuses = {**scale, done: rest} if rest > 0 else scale
    return sums


def _host_cell(tally: Tally, width: int, now: float, symbols: Symbols) -> Line:
    status = tally.worst
    sign = symbols.status[status]
    note = ""
    if status is CellStatus.RUNNING and tally.started is not None:
        note = clock(now - tally.started)
    elif status is CellStatus.CHANGED:
        note = str(tally.changed) if tally.changed else ""
    elif status in BAD:
        note = WORDS[status]
    if len(note) > width - 2:
        note = ""
    return Line(f"{sign} {note}".rstrip(), STYLES[status])


def _group_cell(tally: Tally, width: int, symbols: Symbols) -> Line:
    """How many hosts stand how, worst first, in the longest form that fits."""
    present = [(status, number) for status in ORDER if (number := tally.statuses.get(status, 0))]
    full = Line()
    for status, number in present:
        full.add(" " if full.cells else "").add(f"{symbols.status[status]}{number}", STYLES[status])
    if full.cells <= width:
        return full
    total = sum(tally.statuses.values())
    done = sum(tally.statuses.get(status, 0) for status in DONE)
    tail = Line(f"{done}/{total}", STYLES[CellStatus.RUNNING if done < total else CellStatus.OK])
    each = [(status, number) for status, number in present if status in BAD]
    short = Line()
    for status, number in each:
        short.add(f"{symbols.status[status]}{number} ", STYLES[status])
    if short.cells + tail.cells > width:
        number = sum(number for _, number in each)
        short = Line(f"{symbols.status[tally.worst]}{number} ", STYLES[tally.worst])
    return short.extend(tail)


def _with_the_bad(
    picture: Picture, rows: list[Row], lines: list[Line], room: int, width: int, symbols: Symbols
) -> list[Line]:
    """The group rows with the names of the hosts that failed or did not answer below their group's."""
    bad: dict[tuple[str, CellStatus], list[str]] = {}
    group_of_host = {name: row.group for row in rows if len(row.names) > 1 for name in row.names}
    for host in picture.bad:
        if host.name in group_of_host:
            bad.setdefault((group_of_host[host.name], host.status), []).append(host.name)
    cut = len(lines) > room
    shown = room - 1 if cut else len(lines)
    spare = room - shown - cut
    result: list[Line] = []
    for line, row in zip(lines[:shown], rows[:shown], strict=True):
        result.append(line)
        for status in (CellStatus.FAILED, CellStatus.UNREACHABLE):
            names = bad.pop((row.group, status), []) if len(row.names) > 1 else []
            if names and spare > 0:
                spare -= 1
                text = f"  {symbols.status[status]} {WORDS[status]}: {hosts(names)}"
                result.append(Line(text, STYLES[status]).fit(width, symbols.ellipsis))
    if cut:
        result.append(Line(f"and {counted(len(lines) - shown, 'group')} more", FAINT))
    return result
