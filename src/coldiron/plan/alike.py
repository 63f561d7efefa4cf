"""Which nodes have the same options, so that a role is asked once for all of them.

Nodes of the same groups differ in their own variables, and where a variable of the inventory asks for a node's name or
address. A role is asked anew only for the values that its options can reach: names are followed from expression to
expression, so that a serial number of each node costs nothing, and a host name that follows from the node's name costs
one question to one role.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from coldiron.plan.resolved import IDENTITY, IDENTITY_WORD, Resolved
from coldiron.testing.stages import find_collection, load_yaml

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEMPLATE = re.compile(r"\{\{|\{%")
# Expressions that look variables up by a name which only they know.
_OPAQUE = re.compile(r"\bvars\s*\[|(lookup|query|q)\(\s*['\"](ansible\.builtin\.)?var(s|names)\b")
# What plugins read without being told its name.
_EVERYWHERE = ("coldiron_distribution", "coldiron_platform")
# Ansible's own variables: large, and nobody's option.
_MAGIC = {"hostvars", "vars", "groups"}
# The variable that says which roles a node runs.
_ROLES = "coldiron_roles"


@dataclass
class Look:
    """One node to look at. What is found of a role counts for the nodes in ``roles``, else for ``others``.

    Without ``others`` only the roles in ``roles`` are to be asked.
    """

    host: str
    others: list[str]
    roles: dict[str, list[str]] = field(default_factory=dict)


def looks(resolved: Resolved) -> Iterator[Look]:
    """The nodes to look at, so that of every node each role has been looked at, or that of a node like it."""
    for members in resolved.classes():
        yield from _Class(resolved, members).looks()


class _Class:
    """Hosts of the same groups."""

    def __init__(self, resolved: Resolved, members: list[str]) -> None:
        self.resolved = resolved
        self.members = members
        self.own = {host: resolved.own(host) for host in members}
        raw = resolved.given(members[0])
        self.words: dict[str, set[str]] = {}
        self.opaque: set[str] = set()
        self.by_name: set[str] = set()
        known = _of_playbooks()
        for name, value in [*raw.items(), *(item for own in self.own.values() for item in own.items())]:
            if name in _MAGIC or name in IDENTITY:
                continue
            text = "\n".join(_templates(value))
            self.words.setdefault(name, set()).update(_WORD.findall(text))
            if _OPAQUE.search(text):
                self.opaque.add(name)
            if IDENTITY_WORD.search(text) and text != known.get(name):
                self.by_name.add(name)
        self.seeds = self.by_name | self._differing()

    def looks(self) -> Iterator[Look]:
        """What to look at."""
        first = Look(self.members[0], self.members)
        if len(self.members) == 1 or not self.seeds:
            yield first
            return
        if self._reached({_ROLES}):
            # Each may run roles of its own.
            for host in self.members:
                yield Look(host, [host])
            return
        more: dict[str, Look] = {}
        for role in self._roles():
            seeds = self._reached(_words_of(role))
            if not seeds:
                continue
            shares: dict[object, list[str]] = {}
            for host in self.members:
                shares.setdefault(self._values(host, seeds), []).append(host)
            for hosts in shares.values():
                look = first if hosts[0] == first.host else more.setdefault(hosts[0], Look(hosts[0], []))
                look.roles[role] = hosts
        yield first
        yield from more.values()

    def _roles(self) -> list[str]:
        """The roles that these hosts run; none where that cannot be worked out, which whoever asks will be told."""
        from ansible.errors import AnsibleError

        try:
            return [str(role) for role in self.resolved.value(self.members[0], _ROLES)]
        except AnsibleError:
            return []

    def _differing(self) -> set[str]:
        """The hosts' own variables that not all of them have alike."""
        names = {name for own in self.own.values() for name in own}
        return {name for name in names if len({repr(own.get(name, self)) for own in self.own.values()}) > 1}

    def _reached(self, words: Iterable[str]) -> frozenset[str]:
        """The seeds that an expression with ``words`` in it can depend on."""
        seen: set[str] = set()
        waiting = [*words, *_EVERYWHERE]
        while waiting:
            word = waiting.pop()
            if word in seen:
                continue
            seen.add(word)
            if word in self.opaque:
                return frozenset(self.seeds)
            waiting += self.words.get(word, ())
        return frozenset(self.seeds & seen)

    def _values(self, host: str, seeds: frozenset[str]) -> object:
        """What tells ``host`` from the others as far as ``seeds`` go."""
        own = self.own[host]
        return tuple(
            _evaluated(self.resolved, host, name) if name in self.by_name else repr(own.get(name))
            for name in sorted(seeds)
        )


@functools.lru_cache(maxsize=4096)
def _evaluated(resolved: Resolved, host: str, name: str) -> str:
    """The variable as it is for ``host``, or what is wrong with it there."""
    from ansible.errors import AnsibleError

    try:
        return repr(resolved.value(host, name))
    except AnsibleError as error:
        return str(error)


def _templates(value: object) -> Iterator[str]:
    """The expressions in a variable."""
    if isinstance(value, str):
        if _TEMPLATE.search(value):
            yield str.__str__(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _templates(key)
            yield from _templates(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _templates(item)


@functools.cache
def _of_playbooks() -> Mapping[str, str]:
    """The expressions of the playbooks' own variables: what they make of a name and an address is sound for all."""
    found: dict[str, str] = {}
    for path in sorted((find_collection() / "playbooks" / "group_vars").rglob("*.yml")):
        for name, value in (load_yaml(path) or {}).items():
            found[name] = "\n".join(_templates(value))
    return found


@functools.cache
def _words_of(role: str) -> frozenset[str]:
    """The role's options, and every name in what it makes of them: in its defaults and its variables."""
    folder = find_collection() / "roles" / role
    options = load_yaml(folder / "meta" / "argument_specs.yml")["argument_specs"]["main"].get("options") or {}
    files = [*sorted(folder.glob("defaults/*.yml")), *sorted(folder.glob("vars/*.yml"))]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return frozenset([*options, *(word for text in texts for word in _WORD.findall(text))])
