"""The command line's reference, and whether a command in a text is the program's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer
import typer.main

from coldiron.docs_gen import cli
from coldiron.errors import ColdironError

app = typer.Typer(help="A lamp.")
room = typer.Typer(help="The rooms.")
app.add_typer(room, name="room")


@app.callback()
def _root() -> None:
    """A lamp. It lights rooms."""


@app.command()
def on(
    rooms: Annotated[list[str], typer.Argument(help="Which `rooms`.")],
    level: Annotated[int, typer.Option("--level", "-l", min=1, help="How <bright>.")] = 3,
    dim: Annotated[bool, typer.Option("--dim/--no-dim", help="Slowly.")] = False,
    ghost: Annotated[bool, typer.Option("--ghost", hidden=True)] = False,
) -> None:
    """Light rooms.

    One after the other.
    """


@room.command("list", epilog="Examples:  coldiron room list  |  coldiron room list -h")
def listed() -> None:
    """Say which rooms there are. All of them."""


@app.command(hidden=True)
def secret() -> None:
    """Not shown."""


@pytest.fixture
def lamp(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, str]]]:
    """The reference of another program; returns its examples."""
    tree = typer.main.get_command(app)
    monkeypatch.setattr(cli, "program", lambda: tree)
    examples = {"on": [{"type": "coldiron on hall", "to": "one room"}]}
    monkeypatch.setattr(cli, "examples", lambda: examples)
    return examples


@pytest.mark.usefixtures("lamp")
def test_every_verb_is_told() -> None:
    made = {page.uri: page.text for page in cli.pages()}
    assert sorted(made) == ["cli/index.md", "cli/on.md", "cli/room.md"]
    assert "| [`coldiron on`](on.md) | Light rooms. |" in made["cli/index.md"]
    room_line = "| [`coldiron room list`](room.md#coldiron-room-list) | Say which rooms there are. |"
    assert room_line in made["cli/index.md"]
    text = made["cli/on.md"]
    assert text.startswith("# coldiron on\n\nLight rooms.\n\nOne after the other.\n")
    assert "<code>--level, -l</code>" in text
    assert "How &lt;bright&gt;." in text
    assert '<span class="cd-type">int range</span>' in text
    assert "[default: 3; x&gt;=1]" in text
    assert "Which <code>rooms</code>." in text
    assert "--no-dim" in text
    assert "ghost" not in text
    assert "```sh\ncoldiron on hall  # one room\n```" in text
    assert "## coldiron room list" in made["cli/room.md"]
    assert "```sh\ncoldiron room list\n" in made["cli/room.md"]


@pytest.mark.usefixtures("lamp")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("on hall --level 4", ""),
        ("on hall --level=4 -h", ""),
        ("on -- --whatever", ""),
        ("room list", ""),
        ("room", ""),
        ("--install-completion", ""),
        ("NAME list", ""),
        ("…", ""),
        ("off", "`coldiron` has no verb `off`"),
        ("room paint", "`coldiron room` has no verb `paint`"),
        ("on hall --lvl 4", "`coldiron on` has no option `--lvl`"),
        ("on --install-completion", "`coldiron on` has no option `--install-completion`"),
    ],
)
def test_a_command_is_the_programs_or_not(line: str, told: str) -> None:
    assert cli.problem(line.split()) == told


def test_examples_are_held_against_the_program(lamp: dict[str, list[dict[str, str]]]) -> None:
    assert cli.wrong_examples() == []
    lamp["on"] += [{"type": "coldiron on --lvl 3", "to": ""}, {"type": "coldiron room list", "to": ""}]
    lamp["off"] = []
    assert cli.wrong_examples() == [
        "on: `coldiron on` has no option `--lvl`",
        "on: coldiron room list is not an example of it",
        "off: there is no such verb",
    ]


def test_a_verb_without_an_example_is_named(lamp: dict[str, list[dict[str, str]]]) -> None:
    lamp.clear()
    assert [text.partition(";")[0] for text in cli.wrong_examples()] == ["on: no example"]


def test_commands_are_found_in_fences_and_in_code() -> None:
    text = """Type `coldiron on hall`, or `coldiron` alone, not coldiron off.
```sh
coldiron on --level 4   # bright
    $ coldiron room list | less
alice@desk$ coldiron on 'a b'
coldiron on "unfinished
coldiron room paint [COLOUR…]    what it does
```
"""
    assert list(cli.typed(text)) == [
        (1, ["on", "hall"]),
        (3, ["on", "--level", "4"]),
        (4, ["room", "list"]),
        (5, ["on", "a b"]),
        (7, ["room", "paint"]),
    ]


def test_examples_must_be_a_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "examples.yml"
    wrong.write_text("- a\n", encoding="utf-8")
    monkeypatch.setattr(cli, "EXAMPLES", wrong)
    with pytest.raises(ColdironError, match=r"examples\.yml: is not a mapping"):
        cli.examples()
