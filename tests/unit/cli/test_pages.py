"""The pages on runs, CI and exit codes say what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main
import yaml

from coldiron.cli import app
from coldiron.errors import ExitCode
from coldiron.run.state import Outcome

DOCS = Path(__file__).parents[3] / "docs"
FILES = sorted((DOCS / "ci").glob("*.yml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_page_shows_the_whole_file(file: Path) -> None:
    text = file.read_text()
    assert f"```yaml\n{text}```" in (DOCS / "ci.md").read_text()
    jobs = yaml.safe_load(text)
    assert "apply" in (jobs.get("jobs") or jobs)


@pytest.mark.parametrize("page", [*FILES, DOCS / "ci.md", DOCS / "runs.md"], ids=lambda page: page.name)
def test_every_command_can_be_typed(page: Path) -> None:
    # A command stands at the head of its line, without backticks around it; what follows it explains it.
    commands = re.findall(r"^[ -]*coldiron ([a-z][^`\n]*?)(?:  .*|\|.*|\\)?$", page.read_text(), re.MULTILINE)
    assert commands
    for command in commands:
        group = typer.main.get_command(app)
        words = command.replace('"$INVENTORY"', "x").split()
        while hasattr(group, "commands"):
            name = words.pop(0)
            assert name in group.commands, command
            group = group.commands[name]
        known = {option for parameter in group.params for option in parameter.opts}
        for word in words:
            if word.startswith("-"):
                assert word in known, f"{command}: {word}"


def test_every_exit_code_and_outcome_is_told() -> None:
    page = (DOCS / "exit-codes.md").read_text()
    assert re.findall(r"^\| (\d) \|", page, re.MULTILINE) == [str(int(code)) for code in ExitCode]
    told = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert told == {outcome.value for outcome in Outcome} - {"running"}
