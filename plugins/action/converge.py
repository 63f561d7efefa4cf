# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The controller's half of converge: check the declaration, render its templates, make one lean call."""

from __future__ import annotations

import base64
import contextlib
import difflib
import hashlib
import json
import os
import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible._internal._templating import _template_vars
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.template import Templar, trust_as_template

Item = dict[str, Any]
Check = Callable[[Any], Any]
# What ansible.builtin.template renders with when it is told nothing else.
# fmt: off
OVERRIDES: Item = {
    "block_start_string": "{%", "block_end_string": "%}", "variable_start_string": "{{",
    "variable_end_string": "}}", "comment_start_string": "{#", "comment_end_string": "#}",
    "trim_blocks": True, "lstrip_blocks": False, "newline_sequence": "\n",
}
# fmt: on
UNIT = r"[A-Za-z0-9_.:@\\-]+"
UNIT_KINDS = r".*\.(service|socket|timer|mount|automount|path|target|slice|swap)"
HEADER = "# Written by Ansible (coldiron.cluster.converge).\n"


class Wrong(Exception):
    """What a value should have been."""


class Payload(str):
    """What is sent, unseen: Ansible's debug log prints a module's arguments by their repr."""

    def __repr__(self) -> str:
        return f"<{len(self)} characters>"


def kind_of(value: Any) -> str:
    words: dict[Any, str] = {bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    words |= {Mapping: "a mapping", list: "a list"}
    return next((word for kind, word in words.items() if isinstance(value, kind)), type(value).__name__)


def did_you_mean(word: Any, words: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(word), list(words), 1)
    return f"; did you mean {near[0]}?" if near else ""


def line_of(error: BaseException, template: str) -> str:
    """:N, by the syntax error's own line or the first that has the name in question; Ansible does not tell."""
    number = getattr(error.__cause__, "lineno", None)
    names = re.findall(r"'([^']+)'", str(error))
    lines = enumerate(template.splitlines(), 1) if names and not number else ()
    found = (at for at, words in lines if re.search(rf"\b{re.escape(names[-1])}\b", words))
    number = number or next(found, None)
    return f":{number}" if number else ""


def text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Wrong(f"wants a string, not {kind_of(value)}")
    return str(value)


def like(expression: str, words: str) -> Check:
    def check(value: Any) -> str:
        if not re.fullmatch(expression, text(value)):
            raise Wrong(f"wants {words}, not {value!r}")
        return str(value)

    return check


def one_of(*words: str) -> Check:
    def check(value: Any) -> str:
        if value not in words:
            raise Wrong(f"wants {' or '.join(words)}, not {value!r}{did_you_mean(value, words)}")
        return str(value)

    return check


def hidden(value: Any) -> str:
    """As like(), for what an error must not repeat."""
    if not re.fullmatch(r"[^:\n]*", text(value)):
        raise Wrong("wants a password's hash: one line without a colon")
    return str(value)


def mode(value: Any) -> int:
    if not isinstance(value, str) or not re.fullmatch("0?[0-7]{3,4}", value):
        raise Wrong(f'wants octal digits in quotes, such as "0644", not {value!r}')
    return int(value, 8)


def flag(value: Any) -> bool:
    try:
        return bool(boolean(value))
    except TypeError:
        raise Wrong(f"wants true or false, not {value!r}") from None


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
        raise Wrong("wants a command line")
    return words


def unit(value: Any) -> str:
    name = str(like(UNIT, "the name of a systemd unit")(value))
    return name if re.fullmatch(UNIT_KINDS, name) else name + ".service"


path = like(r"/|(/(?!\.\.?(/|$))[^/\0\n]+)+", "an absolute path without . or .. or a / at its end")
account = like(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?", "a name or a number")
number = like(r"\d+", "a number")
package = like(r"[A-Za-z0-9][A-Za-z0-9+._:-]*", "a package's name (its version has a key of its own)")
version = like(r"[A-Za-z0-9*?][A-Za-z0-9+.:~^*?\[\]-]*", "a version (* and ? may stand in it)")
line = like(r"[^:\n]*", "one line without a colon")
setting = like(r"\w[\w./*-]*", "a kernel setting's name")
present = one_of("present", "absent")

# List by list: each key and its check. The first key names the item and must be there.
# fmt: off
SPEC: dict[str, dict[str, Check]] = {
    "packages": {"name": package, "version": version, "hold": flag, "state": present},
    "groups": {"name": account, "gid": number, "system": flag, "state": present},
    "users": {
        "name": account, "uid": number, "group": account, "groups": strings, "append": flag, "home": path,
        "create_home": flag, "shell": path, "comment": line, "system": flag, "password": hidden,
        "state": present, "remove": flag,
    },
    "directories": {
        "path": path, "owner": account, "group": account, "mode": mode, "exclusive": flag,
        "state": one_of("directory", "absent"),
    },
    "files": {
        "dest": path, "src": text, "content": text, "owner": account, "group": account, "mode": mode,
        "validate": command, "secret": flag, "state": one_of("file", "absent"),
    },
    "links": {"path": path, "src": text, "state": one_of("link", "absent")},
    "sysctl": {"name": setting, "value": text},
    "units": {
        "name": unit, "enabled": flag, "state": one_of("started", "stopped", "none"), "masked": flag,
        "restart_on": strings, "reload_on": strings, "reload_command": command,
    },
}
DEFAULTS: dict[str, Item] = {
    "packages": {"state": "present"},
    "groups": {"system": False, "state": "present"},
    "users": {"append": False, "create_home": False, "system": False, "state": "present", "remove": False},
    "directories": {
        "owner": "root", "group": "root", "mode": 0o755, "exclusive": False, "state": "directory",
    },
    "files": {"owner": "root", "group": "root", "secret": False, "state": "file"},
    "links": {"state": "link"},
    "units": {"restart_on": [], "reload_on": [], "reload_command": []},
}
# fmt: on


def check_item(section: str, index: int, item: Any) -> tuple[Item, list[str]]:
    """One complete item with its label, and what is wrong with it."""
    keys, name = SPEC[section], next(iter(SPEC[section]))
    item = {"name": item} if section == "packages" and isinstance(item, str) else item
    label = f"{section}[{index}]"
    if not isinstance(item, Mapping):
        return {}, [f"{label}: wants a mapping with the key {name}, not {kind_of(item)}"]
    label += f" {item[name]}" if isinstance(item.get(name), str) else ""
    wrong = [f"{label}: {key}: no such key{did_you_mean(key, keys)}" for key in item if key not in keys]
    entry: Item = {"label": label, **dict.fromkeys(keys), **DEFAULTS.get(section, {})}
    for key, check in keys.items():
        try:
            if item.get(key) is not None:
                entry[key] = check(item[key])
            elif key == name or (section, key) == ("sysctl", "value"):
                raise Wrong("is missing")
        except Wrong as error:
            wrong.append(f"{label}: {key}: {error}")
    return entry, wrong


def check_declaration(args: Mapping[str, Any]) -> tuple[dict[str, list[Item]], list[str]]:
    """Every list with complete items, and every mistake found, each naming its item and key."""
    options = [*SPEC, "sysctl_file"]
    wrong = [f"{key}: no such option{did_you_mean(key, options)}" for key in args if key not in options]
    declared: dict[str, list[Item]] = {section: [] for section in SPEC}
    for section in SPEC:
        items = args.get(section) if args.get(section) is not None else []
        if not isinstance(items, (list, tuple)):
            wrong.append(f"{section}: wants a list, not {kind_of(items)}")
            continue
        for index, item in enumerate(items):
            entry, mistakes = check_item(section, index, item)
            wrong += mistakes
            declared[section] += [] if mistakes else [entry]
    return declared, wrong


def check_together(declared: Mapping[str, list[Item]]) -> list[str]:
    """Mistakes that show only between keys and items; defaults that depend on other keys."""
    wrong: list[str] = []
    seen: dict[tuple[str, str], str] = {}
    for section, items in declared.items():
        for item in items:
            name = next(iter(SPEC[section]))
            scope = "path" if name in ("path", "dest") else section
            if (scope, item[name]) in seen:
                wrong.append(f"{item['label']}: is declared twice (see {seen[scope, item[name]]})")
            seen[scope, item[name]] = item["label"]
    for item in declared["files"]:
        item["mode"] = item["mode"] or (0o600 if item["secret"] else 0o644)
        if item["state"] == "file" and (item["src"] is None) == (item["content"] is None):
            wrong.append(f"{item['label']}: wants either src or content")
        if item["secret"] and item["mode"] & 0o007:
            wrong.append(f"{item['label']}: mode: a secret that every user may read; write 0600 or 0640")
    links = [item for item in declared["links"] if item["state"] == "link" and not item["src"]]
    wrong += [f"{item['label']}: src: is missing" for item in links]
    managed = [name for scope, name in seen if scope == "path"]
    for item in declared["units"]:
        if item["masked"] and (item["enabled"] or item["state"] == "started"):
            wrong.append(f"{item['label']}: masked: a masked unit can be neither enabled nor started")
        item["enabled"] = not item["masked"] if item["enabled"] is None else item["enabled"]
        item["state"] = item["state"] or ("stopped" if item["masked"] else "started")
        for glob in item["restart_on"] + item["reload_on"]:
            if not re.search(r"[*?\[]", glob) and glob not in managed:
                key, hint = (
                    "restart_on" if glob in item["restart_on"] else "reload_on",
                    did_you_mean(glob, managed),
                )
                wrong.append(f"{item['label']}: {key}: {glob} is no path of this declaration{hint}")
    return wrong


class ActionModule(ActionBase):  # type: ignore[misc]
    """One declaration in, one lean call out."""

    _supports_check_mode = True
    _supports_async = False

    def _update_module_args(self, *_args: Any, **_kwargs: Any) -> None:
        """Nothing beside the payload goes into the module's text: what is pasted there could be code."""

    def run(self, tmp: str | None = None, task_vars: Item | None = None) -> Item:
        super().run(tmp, task_vars)
        declared, wrong = check_declaration(self._task.args)
        wrong += check_together(declared)
        sysctl_file = self._task.args.get("sysctl_file")
        if not sysctl_file and self._task._role:
            sysctl_file = f"/etc/sysctl.d/90-coldiron-{self._task._role.get_name(False)}.conf"
        if declared["sysctl"] and not sysctl_file:
            wrong.append("sysctl_file: is missing (only in a role it has a default)")
        if wrong:
            raise self._mistake("; ".join(wrong))
        wanted: Item = {key: declared[key] for key in ("packages", "groups", "users", "units")}
        wanted["sysctl"] = {item["name"]: " ".join(item["value"].split()) for item in declared["sysctl"]}
        if declared["sysctl"]:
            lines = [f"{name} = {value}\n" for name, value in wanted["sysctl"].items()]
            own: Item = {"label": f"sysctl_file {sysctl_file}", "dest": sysctl_file, "mode": 0o644}
            own |= {"src": None, "content": HEADER + "".join(lines)}
            declared["files"].append(DEFAULTS["files"] | own)
        wanted["paths"] = self._paths(declared, task_vars or {})
        wanted["check"] = bool(self._task.check_mode)
        wanted["diff"] = bool(self._task.diff and not self._task.no_log)
        payload = Payload(base64.b64encode(zlib.compress(json.dumps(wanted).encode())).decode())
        module = "coldiron.cluster.converge"
        result: Item = self._execute_module(module, {"payload": payload}, task_vars=task_vars)
        result.pop("invocation", None)
        return result

    def _mistake(self, why: str) -> AnsibleError:
        return AnsibleActionFail(f"{self._task.get_path()}: {why}")

    def _paths(self, declared: Mapping[str, list[Item]], task_vars: Item) -> list[Item]:
        """Directories, files and links in one list, rendered, each with the digest units remember it by."""
        entries = [dict(item, kind="directory") for item in declared["directories"]]
        templars: dict[str, Templar] = {}
        for item in declared["files"]:
            content = self._content(item, task_vars, templars) if item["state"] == "file" else b""
            entry = dict(item, kind="file", path=item["dest"], content=content.decode("latin-1"))
            entries.append({key: value for key, value in entry.items() if key not in ("dest", "src")})
        entries += [dict(item, kind="link") for item in declared["links"]]
        for entry in entries:
            seen = [entry.get(key) for key in ("kind", "state", "owner", "group", "mode", "content", "src")]
            entry["stamp"] = hashlib.sha256(json.dumps(seen).encode()).hexdigest()
        return entries

    def _content(self, item: Item, task_vars: Item, templars: dict[str, Templar]) -> bytes:
        src, source = item["src"], ""
        if src is None:
            return str(item["content"]).encode(errors="surrogateescape")
        for folder in ("templates",) if src.endswith(".j2") else ("templates", "files"):
            with contextlib.suppress(AnsibleError):
                source = source or self._find_needle(folder, src)
        if not os.path.isfile(source):
            raise self._mistake(
                f"{item['label']}: src: {src} is not among the templates (or files) of the role"
            )
        if src.endswith(".j2"):
            return self._render(item, source, task_vars, templars).encode(errors="surrogateescape")
        real = self._loader.get_real_file(source)  # decrypts what ansible-vault has encrypted
        with open(real, "rb") as stream:
            content = stream.read()
        self._loader.cleanup_tmp_file(real)
        return content

    def _render(self, item: Item, source: str, task_vars: Item, templars: dict[str, Templar]) -> str:
        """As ansible.builtin.template renders: its search path, trust, newline rules and variables."""
        about = {"path": item["src"], "fullpath": source, "dest_path": item["dest"]}
        managed = "ansible_managed" not in task_vars
        known = _template_vars.generate_ansible_template_vars(**about, include_ansible_managed=managed)
        variables = {**task_vars, **known}
        here = os.path.dirname(source)
        if here not in templars:  # making one costs as much as rendering
            roots = [*task_vars.get("ansible_search_path", []), self._loader.get_basedir(), here]
            search = [os.path.join(root, sub) for root in roots for sub in ("templates", "")]
            templars[here] = self._templar.copy_with_new_env(searchpath=search, available_variables=variables)
        templars[here].available_variables = variables
        template = trust_as_template(self._loader.get_text_file_contents(source))
        try:
            rendered = templars[here].template(template, escape_backslashes=False, overrides=OVERRIDES)
        except AnsibleError as error:
            raise self._mistake(f"{item['label']}: {source}{line_of(error, template)}: {error}") from error
        return "" if rendered is None else str(rendered)
