"""What the rules look at: tasks with their lines, options, declared files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from coldiron.testing.stages import load_yaml

# Words of a task that are no module's name.
TASK_WORDS = frozenset(
    (
        *("any_errors_fatal", "args", "async", "become", "become_exe"),
        *("become_flags", "become_method", "become_user", "block", "always"),
        *("rescue", "changed_when", "check_mode", "collections", "connection"),
        *("debugger", "delay", "delegate_facts", "delegate_to", "diff"),
        *("environment", "failed_when", "ignore_errors", "ignore_unreachable", "listen"),
        *("local_action", "loop", "loop_control", "module_defaults", "name"),
        *("no_log", "notify", "poll", "port", "register"),
        *("remote_user", "retries", "run_once", "tags", "throttle"),
        *("timeout", "until", "vars", "when"),
    )
)

GROUPS = re.compile(r"(?<![\w.'\"])(groups|hostvars)\s*[\[.]|\bgroup_names\b")
CHECK_MODE = re.compile(r"\bansible_check_mode\b")


@dataclass(frozen=True)
class Finding:
    """One breach of a rule: where, which rule, and what to do."""

    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{self.rule}] {self.text}"


class Task(NamedTuple):
    """A task of a task file with its place: first and last line, counted from 1."""

    words: Mapping[str, Any]
    first: int
    last: int
    path: Path


Findings = Iterator[Finding]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def mapping(path: Path) -> dict[str, Any]:
    content = load_yaml(path) if path.is_file() else None
    return content if isinstance(content, dict) else {}


def options_of(role: Path) -> dict[str, Any]:
    spec = mapping(role / "meta" / "argument_specs.yml").get("argument_specs") or {}
    return (spec.get("main") or {}).get("options") or {}


def role_texts(role: Path) -> Iterator[tuple[Path, str]]:
    """Yield the role's YAML and template files (not its tests) with their text."""
    for folder in ("defaults", "handlers", "meta", "tasks", "templates", "vars"):
        for path in sorted((role / folder).rglob("*")):
            if path.is_file():
                yield path, read(path)


def without_comments(text: str) -> str:
    """Return the text with comments blanked out, line by line, so that positions stay."""
    return re.sub(r"(?m)(^\s*|\s)#.*$|\{#.*?#\}", lambda match: " " * len(match[0]), text)


def tasks_of(path: Path) -> list[Task]:
    """Return every task of a task or handler file, those in blocks included, with their lines."""
    found: list[Task] = []

    def visit(node: yaml.Node | None) -> None:
        if not isinstance(node, yaml.SequenceNode):
            return
        for item in node.value:
            if not isinstance(item, yaml.MappingNode):
                continue
            words = yaml.SafeLoader("").construct_document(item) if not _has_tags(item) else {}
            found.append(Task(words, item.start_mark.line + 1, item.end_mark.line, path))
            for key, value in item.value:
                if key.value in ("block", "rescue", "always"):
                    visit(value)

    visit(yaml.compose(read(path), Loader=yaml.SafeLoader))
    return found


def _has_tags(node: yaml.Node) -> bool:
    if not node.tag.startswith("tag:yaml.org,2002:"):
        return True
    if isinstance(node, yaml.MappingNode):
        return any(_has_tags(key) or _has_tags(value) for key, value in node.value)
    return isinstance(node, yaml.SequenceNode) and any(_has_tags(item) for item in node.value)


def action_of(task: Task) -> str:
    """Return the name of the task's module; empty for a block."""
    names = [word for word in task.words if word not in TASK_WORDS and not word.startswith("with_")]
    return names[0] if names else ""


def role_tasks(role: Path) -> Iterator[Task]:
    for folder in ("tasks", "handlers"):
        for path in sorted((role / folder).rglob("*.yml")):
            yield from tasks_of(path)


def commented(task: Task) -> bool:
    """Tell whether a comment stands in the task or on the line above it."""
    lines = read(task.path).splitlines()
    above = lines[max(task.first - 2, 0) : task.first - 1]
    within = lines[task.first - 1 : task.last]
    return any(re.match(r"\s*#", line) for line in above) or any(
        re.search(r"(^|\s)#\s", line) for line in within
    )


def declared_files(role: Path) -> Iterator[tuple[Path, int, Mapping[str, Any]]]:
    """Yield every mapping with a ``dest`` in the role's tasks and variables, with its place."""
    for folder in ("tasks", "handlers", "vars", "defaults"):
        for path in sorted((role / folder).rglob("*.yml")):
            node = yaml.compose(read(path), Loader=yaml.SafeLoader)
            yield from ((path, line, item) for line, item in _mappings_with(node, "dest"))


def _mappings_with(node: yaml.Node | None, key: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _mappings_with(item, key)
    elif isinstance(node, yaml.MappingNode):
        if any(name.value == key for name, _ in node.value) and not _has_tags(node):
            yield node.start_mark.line + 1, yaml.SafeLoader("").construct_document(node)
        for _, value in node.value:
            yield from _mappings_with(value, key)
