# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The controller's half of converge: check the declaration, render its templates, make one lean call."""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import os
import re
import shlex
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from ansible._internal._templating import _template_vars
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.template import Templar, trust_as_template

# What ansible.builtin.template renders with when it is told nothing else.
OVERRIDES = {
    "block_start_string": "{%",
    "block_end_string": "%}",
    "variable_start_string": "{{",
    "variable_end_string": "}}",
    "comment_start_string": "{#",
    "comment_end_string": "#}",
    "trim_blocks": True,
    "lstrip_blocks": False,
    "newline_sequence": "\n",
}
UNIT_SUFFIXES = (".service", ".socket", ".timer", ".mount", ".automount", ".path", ".target", ".slice", ".swap")


class Wrong(Exception):
    """What a value should have been."""


class Payload(str):
    """What is sent, unseen: the debug log prints a module's arguments by their repr."""

    def __repr__(self) -> str:
        return f"<{len(self)} characters>"


def text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Wrong(f"wants a string, not {kind_of(value)}")
    return str(value)


def pattern(expression: str, words: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not re.fullmatch(expression, text(value)):
            raise Wrong(f"wants {words}, not {value!r}")
        return str(value)

    return check


def mode(value: Any) -> int:
    if not isinstance(value, str) or not re.fullmatch("0?[0-7]{3,4}", value):
        raise Wrong(f'wants four octal digits in quotes such as "0644", not {value!r}')
    return int(value, 8)


def flag(value: Any) -> bool:
    try:
        return bool(boolean(value))
    except TypeError:
        raise Wrong(f"wants true or false, not {value!r}") from None


def choice(*words: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in words:
            raise Wrong(f"wants one of {', '.join(words)}, not {value!r}{did_you_mean(value, words)}")
        return str(value)

    return check


def strings(value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, (list, tuple)):
        raise Wrong(f"wants a list of strings, not {kind_of(value)}")
    return [text(item) for item in value]


def command(value: Any) -> list[str]:
    try:
        words = shlex.split(text(value))
    except ValueError as error:
        raise Wrong(f"is no command line: {str(error).lower()}") from None
    if not words:
        raise Wrong("is empty; wants a command line")
    return words


def unit_name(value: Any) -> str:
    name = pattern(r"[A-Za-z0-9_.:@\\-]+", "the name of a systemd unit")(value)
    return name if name.endswith(UNIT_SUFFIXES) else name + ".service"


path = pattern(r"/|(/(?!\.\.?(/|$))[^/\0\n]+)+", "an absolute path without . or .. or a / at its end")
account = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?", "a name")
number = pattern(r"\d+", "a number")
package = pattern(r"[A-Za-z0-9][A-Za-z0-9+._:-]*", "a package's name (its version has a key of its own)")
version = pattern(r"[A-Za-z0-9*?][A-Za-z0-9+.:~^*?\[\]-]*", "a version, * and ? allowed")
line = pattern(r"[^:\n]*", "one line without a colon")
REQUIRED: Any = object()
PRESENCE = (choice("present", "absent"), "present")

# List by list: the key that names an item, then each key's check and default.
SPEC: dict[str, tuple[str, dict[str, tuple[Callable[[Any], Any], Any]]]] = {
    "packages": (
        "name",
        {"name": (package, REQUIRED), "version": (version, None), "hold": (flag, None), "state": PRESENCE},
    ),
    "groups": (
        "name",
        {"name": (account, REQUIRED), "gid": (number, None), "system": (flag, False), "state": PRESENCE},
    ),
    "users": (
        "name",
        {
            "name": (account, REQUIRED),
            "uid": (number, None),
            "group": (account, None),
            "groups": (strings, None),
            "append": (flag, False),
            "home": (path, None),
            "create_home": (flag, False),
            "shell": (path, None),
            "comment": (line, None),
            "system": (flag, False),
            "password": (line, None),
            "state": PRESENCE,
            "remove": (flag, False),
        },
    ),
    "directories": (
        "path",
        {
            "path": (path, REQUIRED),
            "owner": (account, "root"),
            "group": (account, "root"),
            "mode": (mode, 0o755),
            "exclusive": (flag, False),
            "state": (choice("directory", "absent"), "directory"),
        },
    ),
    "files": (
        "dest",
        {
            "dest": (path, REQUIRED),
            "src": (text, None),
            "content": (text, None),
            "encoding": (choice("text", "base64"), "text"),
            "owner": (account, "root"),
            "group": (account, "root"),
            "mode": (mode, 0o644),
            "validate": (command, None),
            "secret": (flag, False),
            "state": (choice("file", "absent"), "file"),
        },
    ),
    "links": (
        "path",
        {"path": (path, REQUIRED), "src": (text, None), "state": (choice("link", "absent"), "link")},
    ),
    "sysctl": (
        "name",
        {"name": (pattern(r"[\w./*-]+", "a kernel setting's name"), REQUIRED), "value": (text, REQUIRED)},
    ),
    "units": (
        "name",
        {
            "name": (unit_name, REQUIRED),
            "enabled": (flag, None),
            "state": (choice("started", "stopped", "none"), None),
            "masked": (flag, None),
            "restart_on": (strings, []),
            "reload_on": (strings, []),
            "reload_command": (command, None),
        },
    ),
}


def kind_of(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", type(None): "nothing"}
    return "a mapping" if isinstance(value, Mapping) else "a list" if isinstance(value, list) else names.get(
        type(value), type(value).__name__
    )


def did_you_mean(word: Any, words: Any) -> str:
    near = difflib.get_close_matches(str(word), [str(other) for other in words], 1)
    return f"; did you mean {near[0]}?" if near else ""


def check_declaration(args: Mapping[str, Any]) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Every list with checked, complete items, and every mistake found, each naming its item and key."""
    declared: dict[str, list[dict[str, Any]]] = {}
    wrong = [
        f"{key}: no such option{did_you_mean(key, [*SPEC, 'sysctl_file'])}"
        for key in args
        if key not in SPEC and key != "sysctl_file"
    ]
    for section, (name_key, keys) in SPEC.items():
        items = args.get(section)
        declared[section] = []
        if items is None:
            continue
        if not isinstance(items, (list, tuple)):
            wrong.append(f"{section}: wants a list, not {kind_of(items)}")
            continue
        seen: dict[str, int] = {}
        for index, item in enumerate(items):
            item = {"name": item} if section == "packages" and isinstance(item, str) else item
            label = f"{section}[{index}]"
            if not isinstance(item, Mapping):
                wrong.append(f"{label}: wants a mapping with the key {name_key}, not {kind_of(item)}")
                continue
            label += f" {item[name_key]}" if isinstance(item.get(name_key), str) else ""
            entry, mistakes = check_item(item, keys, label)
            wrong += mistakes
            if mistakes:
                continue
            name = entry[name_key]
            if name in seen:
                wrong.append(f"{label}: {section}[{seen[name]}] has the same {name_key}")
            seen[name] = index
            declared[section].append(dict(entry, label=label))
    return declared, wrong


def check_item(
    item: Mapping[str, Any], keys: Mapping[str, tuple[Callable[[Any], Any], Any]], label: str
) -> tuple[dict[str, Any], list[str]]:
    entry: dict[str, Any] = {}
    wrong = [f"{label}: {key}: no such key{did_you_mean(key, keys)}" for key in item if key not in keys]
    for key, (check, default) in keys.items():
        value = item.get(key)
        if value is None:
            if default is REQUIRED:
                wrong.append(f"{label}: {key}: is missing")
            entry[key] = default
            continue
        try:
            entry[key] = check(value)
        except Wrong as error:
            wrong.append(f"{label}: {key}: {error}")
    return entry, wrong


def check_together(declared: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """Mistakes that show only when items are seen beside each other."""
    wrong: list[str] = []
    managed: dict[str, str] = {}
    for section, key in (("directories", "path"), ("files", "dest"), ("links", "path")):
        for item in declared[section]:
            if item[key] in managed:
                wrong.append(f"{item['label']}: {managed[item[key]]} manages the same path")
            managed[item[key]] = item["label"]
    for item in declared["files"]:
        if item["state"] == "file" and (item["src"] is None) == (item["content"] is None):
            wrong.append(f"{item['label']}: wants either src or content")
    for item in declared["links"]:
        if item["state"] == "link" and not item["src"]:
            wrong.append(f"{item['label']}: src: is missing")
    for unit in declared["units"]:
        if unit["masked"]:
            unit["state"] = unit["state"] or "stopped"
            if unit["enabled"] or unit["state"] == "started":
                wrong.append(f"{unit['label']}: masked: a masked unit can be neither enabled nor started")
        elif unit["enabled"] is None:
            unit["enabled"] = True
        unit["state"] = unit["state"] or "started"
        unit["reload_command"] = unit["reload_command"] or []
        for key in ("restart_on", "reload_on"):
            for glob in unit[key]:
                if not re.search(r"[*?\[]", glob) and glob not in managed:
                    hint = did_you_mean(glob, managed)
                    wrong.append(f"{unit['label']}: {key}: {glob} is no path of this declaration{hint}")
    return wrong


class ActionModule(ActionBase):
    """One declaration in, one lean call out."""

    _supports_check_mode = True
    _supports_async = False

    def _update_module_args(self, *_args: Any, **_kwargs: Any) -> None:
        """Nothing beside the payload goes into the module's text: what is pasted there could be code."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        declared, wrong = check_declaration(self._task.args)
        wrong += check_together(declared)
        sysctl_file = self._task.args.get("sysctl_file")
        if declared["sysctl"] and not sysctl_file:
            if self._task._role is None:
                wrong.append("sysctl_file: is missing (outside a role it has no default)")
            else:
                sysctl_file = f"/etc/sysctl.d/90-coldiron-{self._task._role.get_name(False)}.conf"
        if wrong:
            raise self._mistake("; ".join(wrong))
        wanted = {
            "check": bool(self._task.check_mode),
            "diff": bool(self._task.diff and not self._task.no_log),
            "packages": declared["packages"],
            "groups": declared["groups"],
            "users": declared["users"],
            "paths": self._paths(declared, sysctl_file, task_vars),
            "sysctl": {item["name"]: " ".join(item["value"].split()) for item in declared["sysctl"]},
            "units": declared["units"],
        }
        payload = base64.b64encode(zlib.compress(json.dumps(wanted).encode())).decode()
        result: dict[str, Any] = self._execute_module(
            module_name="coldiron.cluster.converge",
            module_args={"payload": Payload(payload)},
            task_vars=task_vars,
        )
        result.pop("invocation", None)
        return result

    def _mistake(self, why: str) -> AnsibleError:
        return AnsibleActionFail(f"{self._task.get_path()}: {why}")

    def _paths(
        self, declared: Mapping[str, list[dict[str, Any]]], sysctl_file: str | None, task_vars: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Directories, files and links in one list, contents rendered, each with the digest units remember it by."""
        entries = [dict(item, kind="directory") for item in declared["directories"]]
        templars: dict[str, Templar] = {}
        for item in declared["files"]:
            content = self._content(item, task_vars, templars) if item["state"] == "file" else b""
            entry = dict(item, kind="file", path=item["dest"], content=content.decode("latin-1"))
            entries.append({key: value for key, value in entry.items() if key not in ("dest", "src", "encoding")})
        if declared["sysctl"]:
            lines = [f"{item['name']} = {' '.join(item['value'].split())}\n" for item in declared["sysctl"]]
            content_of_file = "# Written by Ansible (coldiron.cluster.converge).\n" + "".join(lines)
            own = {"path": sysctl_file, "label": f"sysctl_file {sysctl_file}", "kind": "file", "state": "file"}
            own |= {"content": content_of_file, "owner": "root", "group": "root", "mode": 0o644}  # type: ignore[dict-item]
            entries.append(own)
        entries += [dict(item, kind="link") for item in declared["links"]]
        for entry in entries:
            seen = [entry.get(key) for key in ("kind", "state", "owner", "group", "mode", "content", "src")]
            entry["stamp"] = hashlib.sha256(json.dumps(seen).encode()).hexdigest()
        return entries

    def _content(self, item: dict[str, Any], task_vars: dict[str, Any], templars: dict[str, Templar]) -> bytes:
        if item["content"] is not None:
            if item["encoding"] == "text":
                return str(item["content"]).encode()
            try:
                return base64.b64decode(str(item["content"]), validate=True)
            except ValueError as error:
                raise self._mistake(f"{item['label']}: content: is not base64") from error
        src = item["src"]
        try:
            try:
                source = self._find_needle("templates", src)
            except AnsibleError:
                if src.endswith(".j2"):
                    raise
                source = self._find_needle("files", src)
        except AnsibleError as error:
            raise self._mistake(f"{item['label']}: src: {src} is not found among the role's templates") from error
        if not src.endswith(".j2"):
            real = self._loader.get_real_file(source)  # decrypts what ansible-vault has encrypted
            with open(real, "rb") as stream:
                content = stream.read()
            self._loader.cleanup_tmp_file(real)
            return content
        return self._render(item, src, source, task_vars, templars).encode()

    def _render(
        self, item: dict[str, Any], src: str, source: str, task_vars: dict[str, Any], templars: dict[str, Templar]
    ) -> str:
        """As ansible.builtin.template renders: its search path, trust, newline rules and variables."""
        variables = dict(task_vars)
        variables.update(
            _template_vars.generate_ansible_template_vars(
                path=src,
                fullpath=source,
                dest_path=item["dest"],
                include_ansible_managed="ansible_managed" not in task_vars,
            )
        )
        here = os.path.dirname(source)
        if here not in templars:  # making one costs as much as rendering
            roots = [*task_vars.get("ansible_search_path", []), self._loader.get_basedir(), here]
            search = [os.path.join(root, sub) for root in roots for sub in ("templates", "")]
            templars[here] = self._templar.copy_with_new_env(searchpath=search, available_variables=variables)
        templar = templars[here]
        templar.available_variables = variables
        template = trust_as_template(self._loader.get_text_file_contents(source))
        try:
            rendered = templar.template(template, escape_backslashes=False, overrides=OVERRIDES)
        except AnsibleError as error:
            raise self._mistake(f"{item['label']}: {error}") from error
        return "" if rendered is None else str(rendered)
