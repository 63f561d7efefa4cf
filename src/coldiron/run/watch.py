"""A run before a person's eyes: the view that fits the terminal, or ansible-playbook's own words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from coldiron.display import View, from_states, make_view
from coldiron.errors import ColdironError
from coldiron.provision.watch import Steps
from coldiron.run.session import Watcher
from coldiron.run.state import Outcome, RunState
from coldiron.run.store import Runs, StoredRun

# Earlier runs that say how long this one will take.
_PAST_RUNS = 8


class Shown(Watcher):
    """Shows a run on ``console``; with ``verbose`` what ansible-playbook prints, as it prints it.

    Where ``machines`` are installed, the steps of their deployment are shown in place of stages.
    """

    def __init__(
        self, console: Console, inventory_dir: Path, *, verbose: bool = False, machines: Sequence[str] = ()
    ) -> None:
        self.console = console
        self.inventory_dir = inventory_dir
        self.verbose = verbose
        self.view: View | None = None
        self.steps = Steps(machines) if machines else None

    def begin(self, state: RunState, stored: StoredRun) -> None:
        if self.verbose:
            return
        past = past_states(Runs(self.inventory_dir), state, stored) if self.console.is_terminal else []
        view = make_view(self.console, estimate=from_states(past))
        view.__enter__()
        self.view = view
        view.update(state)

    def update(self, state: RunState) -> None:
        if self.view:
            self.view.update(self.steps.view(state) if self.steps else state)

    def output(self, text: str) -> None:
        if self.verbose:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def say(self, text: str) -> None:
        self.console.print(Text(text), highlight=False, soft_wrap=True)

    def end(self) -> None:
        if self.view:
            self.view.__exit__(None, None, None)
            self.view = None


def past_states(runs: Runs, state: RunState, stored: StoredRun) -> list[RunState]:
    """The newest earlier runs of the same kind that came to their end."""
    header = state.header
    alike = [
        summary.id
        for summary in runs.summaries(40)
        if summary.id != stored.id
        and summary.outcome == Outcome.OK
        and (summary.verb, summary.check) == (header.verb, header.check)
    ]
    found = []
    for name in alike[:_PAST_RUNS]:
        try:
            found.append(StoredRun(runs.directory / name).state())
        except ColdironError:
            continue
    return found
