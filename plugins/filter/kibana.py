"""Filters that role kibana writes Kibana's files and objects with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

OWN = Path(__file__).parents[2] / "roles/kibana/files/logs.ndjson"
PREFIX = "coldiron-"
# What role kibana's own options say, or what would let in who shall not be.
TAKEN = (
    "server.host",
    "server.port",
    "server.ssl",
    "elasticsearch.hosts",
    "elasticsearch.username",
    "elasticsearch.password",
    "elasticsearch.serviceAccountToken",
    "elasticsearch.ssl",
    "xpack.security.encryptionKey",
    "xpack.encryptedSavedObjects.encryptionKey",
    "xpack.reporting.encryptionKey",
    "xpack.security.enabled",
)
ANONYMOUS = "xpack.security.authc.providers.anonymous"


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}"


def kibana_settings_taken(settings: Mapping[str, Any]) -> list[str]:
    """Return those of ``settings``, dotted or nested, that the role has options for or that undo its security."""
    return [
        key for key in _flat(settings) if any(key == word or key.startswith(f"{word}.") for word in TAKEN)
    ]


def kibana_settings_anonymous(settings: Mapping[str, Any]) -> list[str]:
    """Return those of ``settings`` that let in who has no password."""
    return [key for key in _flat(settings) if key == ANONYMOUS or key.startswith(f"{ANONYMOUS}.")]


def kibana_objects(searches: Sequence[str], index: str) -> list[dict[str, Any]]:
    """Return the collection's data view, of ``index``, and its ``searches`` by name, as Kibana imports them."""
    found = []
    for line in OWN.read_text("utf-8").splitlines():
        one = json.loads(line)
        if one["type"] == "index-pattern":
            one["attributes"]["title"] = str(index)
        elif one["id"].removeprefix(PREFIX) not in searches:
            continue
        found.append(one)
    return found


def _site(directory: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The objects of a directory's files, and what is wrong with them."""
    folder = Path(directory)
    if not directory:
        return [], []
    if not folder.is_dir():
        return [], [f"kibana_directory: {directory} is no directory of this machine."]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    faults = []
    for path in sorted(folder.glob("*.ndjson")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                one = json.loads(line)
            except ValueError:
                one = None
            # An export ends with how many there are.
            if isinstance(one, dict) and "exportedCount" in one:
                continue
            where = f"kibana_directory: {path}:{number}"
            if not _is_object(one):
                faults.append(f"{where}: this is no object as Kibana exports one.")
            elif one["id"].startswith(PREFIX):
                faults.append(
                    f"{where}: {one['id']}: ids with {PREFIX} are the collection's: give it another."
                )
            elif (one["type"], one["id"]) in found:
                faults.append(f"{where}: {one['type']} {one['id']} is there twice.")
            else:
                found[one["type"], one["id"]] = one
    return list(found.values()), faults


def _is_object(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and all(isinstance(one.get(key), str) and one[key] for key in ("type", "id"))
        and isinstance(one.get("attributes"), dict)
        and isinstance(one.get("references", []), list)
    )


def kibana_site_faults(directory: str) -> list[str]:
    """Return what is wrong with a site's own objects, a sentence each."""
    return _site(directory)[1]


def kibana_site_objects(directory: str) -> list[dict[str, Any]]:
    """Return a site's own objects, of all files ``*.ndjson`` in a directory of the controller."""
    found, faults = _site(directory)
    if faults:
        raise AnsibleFilterError(" ".join(faults))
    return found


def kibana_environment(words: Mapping[str, str]) -> str:
    """Return a file of environment variables as systemd reads it, whatever the values are of."""
    lines = ["# Made by coldiron; role kibana says it anew at each run."]
    for name, value in words.items():
        text = str(value)
        if "\n" in text:
            raise AnsibleFilterError(f"{name} is more than one line, which the file cannot say")
        for sign in '\\"`$':
            text = text.replace(sign, f"\\{sign}")
        lines.append(f'{name}="{text}"')
    return "\n".join(lines) + "\n"


class FilterModule:
    """What Ansible takes the filters from."""

    def filters(self) -> dict[str, Any]:
        """The filters by name."""
        return {
            "kibana_environment": kibana_environment,
            "kibana_objects": kibana_objects,
            "kibana_settings_anonymous": kibana_settings_anonymous,
            "kibana_settings_taken": kibana_settings_taken,
            "kibana_site_faults": kibana_site_faults,
            "kibana_site_objects": kibana_site_objects,
        }
