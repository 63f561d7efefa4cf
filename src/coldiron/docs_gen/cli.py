"""The reference of the command line, from the program itself; and whether a command in a text would be taken."""

from __future__ import annotations

import html
import inspect
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from coldiron.docs_gen.page import Page
from coldiron.errors import ColdironError

PROGRAM = "coldiron"
EXAMPLES = Path(__file__).with_name("examples.yml")
# A word of a text that stands for what the reader fills in.
_PLACEHOLDER = re.compile(r"[…<>\[\]]|^[A-Z][A-Z0-9-]*$|\.\.\.")
# How the help of a verb ends: "Examples:  coldiron status  |  coldiron status --json".
_EPILOG = re.compile(r"Examples?: (.*)")


@cache
def program() -> Any:
    """Return the program's command tree. Its shape is click's, whichever copy of click typer brings along."""
    import typer.main

    from coldiron.cli import app

    return typer.main.get_command(app)


def subcommands(command: Any) -> dict[str, Any]:
    """Return the commands under a command that are shown in its help; none for one that does the work."""
    return {
        name: inner for name, inner in (getattr(command, "commands", None) or {}).items() if not inner.hidden
    }


def verbs(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command that does work, with its words after ``coldiron``, in the order of the help."""
    command = command or program()
    inner = subcommands(command)
    if not inner:
        yield path, command
    for name, one in inner.items():
        yield from verbs(one, (*path, name))


def examples() -> dict[str, list[dict[str, str]]]:
    """Return the examples of examples.yml by verb (``rack up``): what each does and what to type."""
    loaded = yaml.safe_load(EXAMPLES.read_text(encoding="utf-8"))
    if not isinstance(loaded, dict):
        raise ColdironError(f"{EXAMPLES.name}: is not a mapping from verbs to examples")
    return loaded


def examples_of(path: tuple[str, ...], command: Any) -> list[dict[str, str]]:
    """Return a command's examples: those of examples.yml, and those that its own help ends with."""
    found = list(examples().get(" ".join(path), []))
    if match := _EPILOG.match(" ".join((command.epilog or "").split())):
        known = {item["type"] for item in found}
        found += [{"type": text, "to": ""} for text in match[1].split(" | ") if text not in known]
    return found


def problem(words: list[str]) -> str:
    """Return why the program would not know a command line (its words without ``coldiron``), or nothing.

    Names of verbs and options are looked at, not values. What follows ``--`` is not the program's.
    """
    command = program()
    path = [PROGRAM]
    words = words[: words.index("--")] if "--" in words else list(words)
    while words and subcommands(command) and not words[0].startswith("-"):
        if _PLACEHOLDER.search(words[0]):
            return ""
        if words[0] not in command.commands:
            return f"`{' '.join(path)}` has no verb `{words[0]}`"
        path.append(words.pop(0))
        command = command.commands[path[-1]]
    known = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    known |= {"-h", "--help"} | ({"--install-completion", "--show-completion"} if len(path) == 1 else set())
    for word in words:
        option = word.split("=", 1)[0]
        if option.startswith("-") and option != "-" and option not in known:
            return f"`{' '.join(path)}` has no option `{option}`"
    return ""


def typed(markdown: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the commands of this program in a text's code, as (line, words after ``coldiron``)."""
    fenced = False
    for number, line in enumerate(markdown.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        found = [line] if fenced else re.findall(r"`([^`]+)`", line)
        for text in found:
            if match := re.match(r"\s*(?:\$ |[\w@-]+[#$] )?coldiron (?P<rest>\S.*)", text):
                rest = re.split(r"\s(?:\||&&|;|>|#)\s|\s#|\s{3,}", match["rest"])[0]
                try:
                    words = shlex.split(rest.rstrip("\\"), comments=True)
                except ValueError:
                    continue
                # A synopsis puts what may be left out into brackets.
                yield number, [word for word in words if not word.startswith("[")]


def _help(command: Any) -> str:
    """Return a command's help as Markdown."""
    return inspect.cleandoc(command.help or "").replace("``", "`").replace("\f", "")


def _named(parameter: Any) -> str:
    if parameter.param_type_name == "option":
        return ", ".join((*parameter.opts, *parameter.secondary_opts))
    name = parameter.metavar or parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return str(name)


def _parameters(command: Any, context: Any) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and words of each argument and option that the help shows."""
    for parameter in command.get_params(context):
        record = None if getattr(parameter, "hidden", False) else parameter.get_help_record(context)
        if record is None:
            continue
        shown, words = record
        value = [word for word in shown.split() if not word.startswith(("-", "/"))]
        is_option = parameter.param_type_name == "option"
        yield _named(parameter), " ".join(value) if is_option else "", words


def _table(command: Any, context: Any) -> str:
    lines = []
    for name, value, words in _parameters(command, context):
        plain, bracket, extra = words.partition("  [")
        said = html.escape(plain, quote=False)
        said = re.sub(r"`([^`]+)`", r"<code>\1</code>", said)
        if bracket:
            said += f' <span class="cd-type">[{html.escape(extra, quote=False)}</span>'
        kind = (
            f'<br><span class="cd-type">{html.escape(value.strip("<>"), quote=False)}</span>' if value else ""
        )
        lines.append(f"<tr><td><code>{html.escape(name, quote=False)}</code>{kind}</td><td>{said}</td></tr>")
    return (
        '<table class="cd-options">\n'
        "<thead><tr><th>Argument or option</th><th>What it says</th></tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody>\n</table>\n"
    )


def _verb(path: tuple[str, ...], command: Any, context: Any, level: int) -> str:
    title = " ".join((PROGRAM, *path))
    usage = " ".join(str(command.get_usage(context)).removeprefix("Usage: ").split())
    text = f"{'#' * level} {title}\n\n{_help(command)}\n\n```text\n{usage}\n```\n\n{_table(command, context)}"
    return text + _examples(path, command)


def _examples(path: tuple[str, ...], command: Any) -> str:
    lines = [
        item["type"] + (f"  # {item['to']}" if item["to"] else "") for item in examples_of(path, command)
    ]
    return "\nExamples:\n\n```sh\n" + "\n".join(lines) + "\n```\n" if lines else ""


def _walk(path: tuple[str, ...], command: Any, parent: Any, level: int) -> str:
    context = command.context_class(command, info_name=path[-1], parent=parent)
    inner = subcommands(command)
    if not inner:
        return _verb(path, command, context, level)
    text = f"{'#' * level} {PROGRAM} {' '.join(path)}\n\n{_help(command)}\n{_examples(path, command)}"
    for name, one in inner.items():
        text += "\n" + _walk((*path, name), one, context, level + 1)
    return text


def pages() -> list[Page]:
    """Return the page of each verb of the program, and the list of all."""
    command = program()
    context = command.context_class(command, info_name=PROGRAM)
    found = [
        Page(f"cli/{name}.md", _walk((name,), one, context, 1)) for name, one in subcommands(command).items()
    ]
    lines = [
        f"| [`{PROGRAM} {' '.join(path)}`]({path[0]}.md{_heading(path)}) | {_first_sentence(one)} |"
        for path, one in verbs(command)
    ]
    text = (
        f"# Command line\n\n{_help(command)} Everything it does can be done with `ansible-playbook` alone;"
        " each verb that runs\nAnsible prints that command.\n\n| verb | what it does |\n|---|---|\n"
        + "\n".join(lines)
        + "\n\nThe exit codes are [the same for all](../exit-codes.md). `--help` after any verb shows the same on the"
        f" terminal, `{PROGRAM} --version` the version, and `{PROGRAM} --install-completion` teaches your shell"
        " (bash, zsh or fish) the verbs, and with them stages, nodes and runs. For all users, or another shell than"
        " the one you type in: `_COLDIRON_COMPLETE=source_fish coldiron` prints the script.\n"
    )
    return [Page("cli/index.md", text), *found]


def _heading(path: tuple[str, ...]) -> str:
    return "#" + "-".join((PROGRAM, *path)) if len(path) > 1 else ""


def _first_sentence(command: Any) -> str:
    paragraph = " ".join(_help(command).split("\n\n", 1)[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z])", paragraph)[0].replace("|", "\\|")


def wrong_examples() -> list[str]:
    """Return what is wrong with the examples: none, of another verb, of no verb, or with an unknown option."""
    found = []
    names = set()
    for path, command in verbs():
        name = " ".join(path)
        names.add(name)
        shown = examples_of(path, command)
        if not shown:
            found.append(
                f"{name}: no example; write one into {EXAMPLES.name}, or at the end of the verb's help"
            )
        for item in shown:
            _, words = next(typed(f"`{item['type']}`"), (0, [""]))
            if tuple(words[: len(path)]) != path:
                found.append(f"{name}: {item['type']} is not an example of it")
            elif wrong := problem(words):
                found.append(f"{name}: {wrong}")
    return found + [f"{name}: there is no such verb" for name in examples() if name not in names]
