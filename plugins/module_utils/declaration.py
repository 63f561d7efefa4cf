# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What may be declared to converge: every list, every key, every default, and what is wrong with a declaration."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

Item = dict[str, Any]
Check = Callable[[Any], Any]
UNIT = r"[A-Za-z0-9_.:@\\-]+"
UNIT_KINDS = r".*\.(service|socket|timer|mount|automount|path|target|slice|swap)"


class Wrong(Exception):
    """What a value should have been."""


def kind_of(value: Any) -> str:
    words: dict[Any, str] = {bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    words |= {Mapping: "a mapping", list: "a list"}
    return next((word for kind, word in words.items() if isinstance(value, kind)), type(value).__name__)


def did_you_mean(word: Any, words: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(word), list(words), 1)
    return f"; did you mean {near[0]}?" if near else ""


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
setting = like(r"\w[\w./-]*", "a kernel setting's name")
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


def check(args: Mapping[str, Any]) -> tuple[dict[str, list[Item]], list[str]]:
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
    return declared, wrong + check_together(declared)


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
