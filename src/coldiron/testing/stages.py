"""Which host runs which role, read from the stage playbooks as text: no node and no Ansible run is needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from coldiron.errors import ColdironError

COLLECTION = "coldiron.cluster"
ROLE_WORDS = ("import_role", "include_role")
PLAYBOOK_WORD = "import_playbook"
TASK_LISTS = ("pre_tasks", "tasks", "post_tasks")
BLOCK_LISTS = ("block", "rescue", "always")


class _Loader(yaml.SafeLoader):
    """Plain YAML with Ansible's own tags read as the text they hold."""


def _as_text(loader: _Loader, node: yaml.Node) -> Any:
    return node.value


_Loader.add_constructor("!vault", _as_text)
_Loader.add_constructor("!unsafe", _as_text)


def load_yaml(path: Path) -> Any:
    """Return the content of a YAML file; an unreadable one is a ColdironError with its place."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise ColdironError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ColdironError(f"{place}: not valid YAML: {getattr(error, 'problem', error)}") from error


def find_collection() -> Path:
    """Return the folder of the collection ``coldiron.cluster`` that this Python's Ansible would use.

    It is the checkout when that is linked into the virtual environment, else the installed copy.
    """
    for entry in sys.path:
        folder = Path(entry or ".") / "ansible_collections" / "coldiron" / "cluster"
        if (folder / "playbooks").is_dir():
            # In a checkout's environment the parts are links into it.
            return (folder / "playbooks").resolve().parent
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "playbooks").is_dir():
        return checkout
    raise ColdironError(
        "the collection coldiron.cluster is not installed beside this Python: run `make setup`"
    )


@dataclass(frozen=True)
class RoleUse:
    """One use of a role in a play: its short name, the conditions on it and the variables given there."""

    role: str
    conditions: tuple[str, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Play:
    """A play of a stage: the playbook's file, its pattern of hosts, its variables and its roles in order."""

    playbook: Path
    name: str
    hosts: str
    roles: tuple[RoleUse, ...]
    variables: Mapping[str, Any] = field(default_factory=dict)


def short_name(role: str) -> str:
    """Return a role's name without the collection's: ``coldiron.cluster.time`` is ``time``."""
    return role.removeprefix(f"{COLLECTION}.")


def _word(task: Mapping[str, Any], words: tuple[str, ...]) -> Any:
    for word in words:
        for key in (word, f"ansible.builtin.{word}"):
            if key in task:
                return task[key]
    return None


def _conditions(item: Mapping[str, Any]) -> tuple[str, ...]:
    when = item.get("when", [])
    return tuple(str(condition) for condition in (when if isinstance(when, list) else [when]))


def _uses_in_tasks(tasks: Any, inherited: tuple[str, ...]) -> Iterator[RoleUse]:
    for task in tasks or []:
        if not isinstance(task, Mapping):
            continue
        conditions = inherited + _conditions(task)
        for block in BLOCK_LISTS:
            yield from _uses_in_tasks(task.get(block), conditions)
        included = _word(task, ROLE_WORDS)
        if isinstance(included, Mapping) and "name" in included:
            yield RoleUse(
                short_name(str(included["name"])),
                conditions,
                dict(task.get("vars") or {}),
            )


def _uses(play: Mapping[str, Any]) -> Iterator[RoleUse]:
    yield from _uses_in_tasks(play.get("pre_tasks"), ())
    for entry in play.get("roles") or []:
        if isinstance(entry, str):
            yield RoleUse(short_name(entry))
            continue
        given = {
            key: value for key, value in entry.items() if key not in ("role", "name", "when", "tags", "vars")
        }
        name = str(entry.get("role") or entry.get("name"))
        yield RoleUse(short_name(name), _conditions(entry), {**given, **(entry.get("vars") or {})})
    for key in ("tasks", "post_tasks"):
        yield from _uses_in_tasks(play.get(key), ())


def _imported(path: Path, reference: str) -> Path:
    """Return the file that ``import_playbook: reference`` in ``path`` means."""
    if reference.startswith(f"{COLLECTION}."):
        return find_collection() / "playbooks" / f"{reference.removeprefix(f'{COLLECTION}.')}.yml"
    return path.parent / reference


def read_plays(path: Path) -> list[Play]:
    """Return the plays of a playbook in order, imported playbooks included.

    A file that is no list of plays is a ColdironError that names it.
    """
    content = load_yaml(path)
    if not isinstance(content, list):
        raise ColdironError(f"{path}:1: a playbook is a list of plays: begin with `- name: …`")
    plays: list[Play] = []
    for item in content:
        reference = _word(item, (PLAYBOOK_WORD,))
        if reference is not None:
            plays += read_plays(_imported(path, str(reference)))
            continue
        hosts = item.get("hosts", "")
        pattern = ":".join(hosts) if isinstance(hosts, list) else str(hosts)
        plays.append(
            Play(
                path,
                str(item.get("name", pattern)),
                pattern,
                tuple(_uses(item)),
                dict(item.get("vars") or {}),
            )
        )
    return plays


def roles_in_order(plays: list[Play]) -> list[str]:
    """Return the roles that the plays use, each once, in the order of first use."""
    return list(dict.fromkeys(use.role for play in plays for use in play.roles))
