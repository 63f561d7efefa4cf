"""Every option of every role, checked as site.yml checks them at its start: by the same plugin, without a node."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coldiron.inventory.findings import shown_path
from coldiron.inventory.ranges import fold
from coldiron.plan.alike import looks
from coldiron.plan.findings import Finding, Severity, one_line
from coldiron.plan.resolved import Resolved, is_vault

# Ansible lists these in another order each time.
_ORDER = re.compile(r" Valid booleans include: .*$")
_MISSING = re.compile(r"^missing required arguments?: ")
# How Ansible's validator begins what it says; a role's own sentences begin otherwise.
_SPEC = re.compile(
    r"^(argument |value of |Unsupported parameters|parameters are |missing |Elements value|dictionary requested"
    r"|unable to )|must be a non-empty string$|found in |of type .* unable to convert"
)


def check(resolved: Resolved) -> list[Finding]:
    """What is wrong with the options, each fault once with all of its nodes."""
    told: dict[tuple[str, str, str], list[str]] = {}
    everybody = resolved.hosts("cluster")
    for look in looks(resolved):
        only = None if look.others else look.roles
        for role, code, message in _of_host(resolved, look.host, only):
            told.setdefault((role, code, message), []).extend(look.roles.get(role, look.others))
    return [
        _finding(resolved, role, code, message, hosts, everybody)
        for (role, code, message), hosts in told.items()
    ]


def _of_host(
    resolved: Resolved, host: str, only: Iterable[str] | None = None
) -> Iterable[tuple[str, str, str]]:
    """(role, code, sentence) of each fault of ``host``; the role is empty where none could be asked.

    ``only`` are the roles to ask; all that it runs if None.
    """
    from ansible.errors import AnsibleError
    from ansible.template import Templar

    try:
        variables = resolved.variables(host)
        roles = only
        if roles is None:
            roles = Templar(loader=resolved.loader, variables=variables).template(variables["coldiron_roles"])
    except AnsibleError as error:
        yield "", "CR104", _sentence(error)
        return
    for role in map(str, roles):
        usable = dict(variables)
        try:
            errors = _ask(resolved, role, usable)
        except AnsibleError as whole:
            # One expression that cannot be worked out must not hide the role's other faults.
            bad = _unusable(resolved, role, usable)
            for name, reason in bad.items():
                usable.pop(name)
                yield role, "CR104", f"{name}: {_sentence(reason)}"
            if not bad:
                yield role, "CR104", _sentence(whole)
                continue
            try:
                errors = [
                    text for text in _ask(resolved, role, usable) if not any(name in text for name in bad)
                ]
            except AnsibleError:
                continue
        for text in errors:
            message = _ORDER.sub("", one_line(text.removeprefix(f"role {role}: ")))
            yield role, _code(message), message


def _plugin(resolved: Resolved, role: str, variables: dict[str, Any]) -> Any:
    """The action plugin of site.yml's first task, ready to be asked about ``role``."""
    from ansible.playbook.play_context import PlayContext
    from ansible.playbook.task import Task
    from ansible.plugins.loader import action_loader, connection_loader
    from ansible.template import Templar

    task, context = Task(), PlayContext()
    task.args = {"roles": [role]}
    return action_loader.get(
        "coldiron.cluster.role_options",
        task=task,
        # The plugin never connects; Ansible's base class wants a connection all the same.
        connection=connection_loader.get("ansible.builtin.local", context),
        play_context=context,
        loader=resolved.loader,
        templar=Templar(loader=resolved.loader, variables=variables),
        shared_loader_obj=None,
    )


def _ask(resolved: Resolved, role: str, variables: dict[str, Any]) -> list[str]:
    result = _plugin(resolved, role, variables).run(task_vars=variables)
    return [str(text) for text in result.get("errors", [])]


def _unusable(resolved: Resolved, role: str, variables: dict[str, Any]) -> dict[str, Exception]:
    """The options of ``role`` whose expressions end in an error."""
    from ansible.errors import AnsibleError
    from ansible.template import Templar

    module = sys.modules[type(_plugin(resolved, role, variables)).__module__]
    templar = Templar(loader=resolved.loader, variables=variables)
    found: dict[str, Exception] = {}
    for name in module.load_options(role):
        try:
            templar.template(variables.get(name))
        except AnsibleError as error:
            found[name] = error
    return found


def _code(message: str) -> str:
    if _MISSING.search(message):
        return "CR101"
    return "CR102" if _SPEC.search(message) else "CR103"


def _sentence(error: Exception) -> str:
    return one_line(str(getattr(error, "message", "") or error))


def _finding(
    resolved: Resolved, role: str, code: str, message: str, hosts: list[str], everybody: list[str]
) -> Finding:
    where = _place(resolved, hosts[0], role, message) or f"{shown_path(resolved.directory)}/group_vars"
    advice = {
        "CR101": "write it there",
        "CR102": f"see roles/{role}/README.md for what it takes",
        "CR104": "mend the expression",
    }.get(code, "")
    what = f"role {role}: {message}" if role else message
    return Finding(
        code,
        Severity.REFUSE,
        where,
        what.rstrip("."),
        advice,
        fold(hosts) if len(hosts) < len(everybody) else "",
    )


def _place(resolved: Resolved, host: str, role: str, message: str) -> str:
    """``FILE:LINE`` where the first variable that ``message`` names is set for ``host``; empty where nowhere."""
    words = re.findall(r"[a-z][a-z0-9_]{2,}", message)
    named = [word for word in dict.fromkeys(words) if "_" in word]
    if not named and role:
        named = [f"{role}_[a-z0-9_]+"]
    return resolved.place(host, *named)


def unreadable(files: Iterable[Path]) -> list[Finding]:
    """The files of variables that are not YAML, or no mapping."""
    from coldiron.errors import ColdironError
    from coldiron.testing.stages import load_yaml

    found: list[Finding] = []
    for path in files:
        if path.suffix not in ("", ".yml", ".yaml", ".json") or is_vault(path):
            continue
        try:
            content = load_yaml(path)
        except ColdironError as error:
            place, _, what = error.message.removeprefix(str(path)).partition(": ")
            found.append(
                Finding("CR105", Severity.REFUSE, shown_path(path) + place, one_line(what), "mend it")
            )
            continue
        if content is not None and not isinstance(content, dict):
            found.append(
                Finding(
                    "CR105",
                    Severity.REFUSE,
                    f"{shown_path(path)}:1",
                    "this is no mapping of variables",
                    "write `name: value` lines",
                )
            )
    return found
