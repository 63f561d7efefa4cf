"""What stands at the end of a run: who failed where and why, what was advised, and how to go on."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from coldiron.display.picture import slowest
from coldiron.display.symbols import BAD_OUTCOME, FAINT, OUTCOME_STYLES, STRONG, STYLES, Symbols, symbols_for
from coldiron.display.words import hosts, one_line, span
from coldiron.inventory.findings import shown_path
from coldiron.run.state import CellStatus, Failure, Outcome, RunState
from coldiron.text import counted

# More faults than this are in the log; each one here has its own cause.
_FAULTS_AT_MOST = 20
_MESSAGES_AT_MOST = 20
_SLOWEST = 3


def print_end(state: RunState, console: Console, *, log: Path | None, go_on: str) -> None:
    """Print the end of ``state``'s run. ``log`` holds its full output; ``go_on`` is the command to type next.

    Hosts that met the same fault at the same place are told of together. ``go_on`` is left out where
    nothing is left to do.
    """
    symbols = symbols_for(console)
    out = _Out(console)
    failures = [failure for failure in state.failures if not failure.ignored]
    style = OUTCOME_STYLES.get(state.outcome, BAD_OUTCOME)
    out.blank()
    out.line(_headline(state), style)
    for fault in _faults(failures)[:_FAULTS_AT_MOST]:
        out.blank()
        _print_fault(fault, out, symbols)
    if (more := len(_faults(failures)) - _FAULTS_AT_MOST) > 0:
        out.blank()
        out.line(f"and {counted(more, 'other fault')}, in the output", FAINT)
    if state.outcome in (Outcome.REFUSED, Outcome.ERROR) or (
        state.outcome is not Outcome.OK and not failures
    ):
        for message in state.messages[-_MESSAGES_AT_MOST:]:
            out.line(message.rstrip(), indent=2)
    _print_slowest(state, out)
    out.blank()
    if log is not None:
        out.pair("output in full", shown_path(log))
    if state.outcome is not Outcome.OK and go_on:
        out.pair("go on from there", go_on, STRONG)


class _Out:
    """A console that prints text as it is: no markup, no guessed colours, indented where it wraps."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def blank(self) -> None:
        self.console.print()

    def line(self, text: str | Text, style: Style | str = "", indent: int = 0) -> None:
        made = text if isinstance(text, Text) else Text(text, style=style)
        # Only a terminal has a width to wrap at; in a file a line stays whole, to be searched.
        if self.console.is_terminal:
            self.console.print(Padding(made, (0, 0, 0, indent), expand=False), highlight=False)
        else:
            self.console.print(Text(" " * indent) + made, highlight=False, soft_wrap=True)

    def pair(self, what: str, text: str, style: Style | str = "") -> None:
        """A name and what to copy: never broken into lines."""
        made = Text(f"{what:<17}", style=FAINT).append(text, style=style or "")
        self.console.print(made, highlight=False, soft_wrap=True)


Fault = tuple[Failure, list[str]]


def _faults(failures: list[Failure]) -> list[Fault]:
    """The failures that are alike, each once, with their hosts."""
    found: dict[tuple[object, ...], Fault] = {}
    for one in failures:
        key = (one.stage, one.role, one.task, one.path, one.sentence, one.hint, one.item, one.unreachable)
        found.setdefault(key, (one, []))[1].append(one.host)
    return list(found.values())


def _print_fault(fault: Fault, out: _Out, symbols: Symbols) -> None:
    failure, names = fault
    status = CellStatus.UNREACHABLE if failure.unreachable else CellStatus.FAILED
    who = hosts(dict.fromkeys(names))
    many = f" ({counted(len(set(names)), 'node')})" if len(set(names)) > 1 else ""
    title = Text(f"{symbols.status[status]} {who}", style=STYLES[status]).append(many, style=FAINT)
    if failure.role:
        title.append(f"  role {failure.role}", style=STRONG)
    title.append(f"  stage {failure.stage}" if failure.stage else "", style=FAINT)
    out.line(title)
    if failure.task:
        item = f", item {one_line(failure.item)}" if failure.item else ""
        handler = "handler: " if failure.handler else ""
        out.line(f"{handler}{one_line(failure.task)}{item}", indent=2)
    if failure.path:
        out.line(failure.path, FAINT, indent=2)
    out.line(one_line(failure.sentence), STYLES[status], indent=2)
    if failure.hint:
        out.line(Text("hint: ", style=STRONG).append(one_line(failure.hint), style=""), indent=2)


def _headline(state: RunState) -> str:
    header = state.header
    took = span((state.ended or state.last_event or header.started) - header.started)
    total = len(state.hosts)
    bad = state.count(CellStatus.FAILED) + state.count(CellStatus.UNREACHABLE)
    changed = sum(host.counts.changed for host in state.hosts.values())
    on = sum(bool(host.counts.changed) for host in state.hosts.values())
    would = "would change" if header.check else "changed"
    if changed:
        things = f"{counted(changed, 'task')} {would} something on {counted(on, 'node')}"
    elif state.outcome is Outcome.OK:
        things = "nothing would change" if header.check else "nothing had to be changed"
    else:
        # What a task had changed before it failed, nobody counted.
        things = f"no finished task {would} anything"
    what = f"{header.verb} {header.cluster}"
    match state.outcome:
        case Outcome.OK:
            return f"{what}: done, {counted(total, 'node')} in {took}; {things}"
        case Outcome.FAILED | Outcome.UNREACHABLE:
            return f"{what}: {bad} of {counted(total, 'node')} failed or out of reach, after {took}; {things}"
        case Outcome.REFUSED:
            return f"{what}: refused; no node was changed"
        case Outcome.INTERRUPTED:
            where = f" in stage {state.stage}" if state.stage else ""
            return f"{what}: interrupted{where} after {took}; {things}"
        case Outcome.KILLED:
            where = f" in stage {state.stage}" if state.stage else ""
            return f"{what}: killed{where} after {took}; {things}"
        case Outcome.ERROR:
            return f"{what}: ansible-playbook ended with an error after {took}"
        case Outcome.RUNNING:
            return f"{what}: still on, for {took} now; {things}"


def _print_slowest(state: RunState, out: _Out) -> None:
    tasks = slowest(state.tasks, _SLOWEST)
    if not tasks:
        return
    out.blank()
    for place, task in enumerate(tasks):
        name = f"{task.role}: {one_line(task.name)}" if task.role else one_line(task.name)
        text = Text("slowest" if place == 0 else "", style=FAINT)
        text.append(" " * (8 - len(text))).append(f"{span(task.seconds):>11}  {name}", style="")
        if task.slowest_host and task.hosts > 1:
            text.append(f"  {task.slowest_host} {span(task.slowest_seconds)}", style=FAINT)
        if out.console.is_terminal:
            out.console.print(text, highlight=False, no_wrap=True, overflow="ellipsis")
        else:
            out.console.print(text, highlight=False, soft_wrap=True)
