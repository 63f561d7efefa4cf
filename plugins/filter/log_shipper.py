"""Filters that role log_shipper writes Filebeat's configuration with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MIB = 1024 * 1024
# Classes of POSIX, for what knows none. What is not here is refused.
CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": " \\t", "digit": "0-9", "lower": "a-z", "space": "\\s",
    "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
BRACKET = re.compile(r"\\.|\[(\^?)(\]?(?:\[:\w+:\]|[^\]])*)\]", re.DOTALL)


def ere_to_javascript(pattern: str) -> str:
    """Return a POSIX extended regular expression as JavaScript takes it: what stands in brackets means the same there.

    In POSIX a first ``]`` is one of the characters, a backslash is only itself, and ``[:digit:]`` is a class.
    """

    def one(match: re.Match[str]) -> str:
        if match[0].startswith("\\"):
            return match[0]
        inner = match[2].replace("\\", "\\\\")
        inner = inner.replace("]", "\\]", 1) if inner.startswith("]") else inner
        inner = re.sub(r"\[:(\w+):\]", lambda found: CLASSES.get(found[1], found[0]), inner)
        return f"[{match[1]}{inner}]"

    return BRACKET.sub(one, str(pattern))


def _inputs(words: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "journald", "id": "coldiron-journal", "seek": "head"}
    for number, file in enumerate(words["files"]):
        more: dict[str, Any] = {}
        if file.get("begins"):
            multiline = {
                "type": "pattern", "pattern": str(file["begins"]), "negate": True, "match": "after",
                "max_lines": 10000,
            }  # fmt: skip
            more["parsers"] = [{"multiline": multiline}]
        yield {
            "type": "filestream",
            "id": f"coldiron-file-{number}",
            "paths": [str(file["path"])],
            # A file of a few lines is a file too.
            "file_identity.native": {},
            "prospector.scanner.fingerprint.enabled": False,
            "message_max_bytes": int(words["line_kib"]) * 1024,
            "fields": {"name": str(file["name"]), "severity": str(file.get("severity") or "notice")},
            **more,
        }


def _processors(words: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    # Audit's lines hold command lines, and whatever people typed there.
    yield {"drop_event": {"when": {"equals": {"systemd.transport": "audit"}}}}
    for unit in words["ignored_units"]:
        yield {"drop_event": {"when": {"equals": {"systemd.unit": str(unit)}}}}
    lines = [
        {
            "program": ere_to_javascript(line["program"]),
            "after": str(line["after"]),
            "kept": ere_to_javascript(line.get("kept") or ""),
        }
        for line in words["command_lines"]
    ]
    hardware = [
        {"name": str(name), "pattern": ere_to_javascript(pattern)}
        for name, pattern in words["hardware_patterns"].items()
    ]
    script = {
        "lang": "javascript",
        "id": "coldiron",
        "file": f"{words['etc']}/filebeat.js",
        "params": {"command_lines": lines, "hardware": hardware},
    }
    yield {"script": script}
    # Of a line that the script broke off at, nobody knows what it quotes.
    yield {"drop_event": {"when": {"contains": {"tags": "_js_exception"}}}}
    names = {
        name: str(words[name]) for name in ("cluster", "rack", "kind") if name == "cluster" or words[name]
    }
    yield {"add_fields": {"target": "", "fields": {"host": {"name": str(words["host"])}, "coldiron": names}}}
    longest = {"fields": ["message"], "max_bytes": int(words["line_kib"]) * 1024}
    yield {"truncate_fields": {**longest, "fail_on_error": False, "ignore_missing": True}}
    # With an id a line is created, and never twice.
    yield {"add_id": {}}


def _log_files(words: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {
        "path": f"{words['state']}/log",
        "name": name,
        "rotateeverybytes": int(words["rejected_mib"]) * MIB,
        "keepfiles": 2,
        "permissions": 0o600,
    }


def filebeat_config(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Filebeat is told, as filebeat.yml holds it; ``words`` are the role's options without its name."""
    output = {
        "hosts": [f"https://{server}:{words['port']}" for server in words["servers"]],
        "username": str(words["user"]),
        "password": str(words["password"]),
        "index": str(words["data_stream"]),
        "loadbalance": True,
        "bulk_max_size": int(words["batch_lines"]),
        "backoff": {"init": "5s", "max": "30s"},
        "ssl": {
            "certificate_authorities": [f"{words['etc']}/ca.crt"],
            "verification_mode": "full",
            "supported_protocols": ["TLSv1.2", "TLSv1.3"],
        },
    }
    return {
        "name": str(words["host"]),
        "path": {
            "home": "/usr/share/filebeat",
            "config": str(words["etc"]),
            "data": str(words["state"]),
            "logs": f"{words['state']}/log",
        },
        # Jobs have the node's cores.
        "max_procs": 1,
        "filebeat": {"inputs": list(_inputs(words)), "shutdown_timeout": "3s"},
        "processors": list(_processors(words)),
        "queue": {"disk": {"path": f"{words['state']}/queue", "max_size": int(words["queue_mib"]) * MIB}},
        "output": {"elasticsearch": output},
        # The stream, its template and how long it is kept are role elasticsearch's.
        "setup": {
            "template": {"enabled": False},
            "ilm": {"enabled": False},
            "dashboards": {"enabled": False},
        },
        "http": {"enabled": False},
        "monitoring": {"enabled": False},
        "logging": {
            "level": "info",
            "to_stderr": False,
            "to_files": True,
            "files": _log_files(words, "filebeat"),
            # What no server takes.
            "event_data": {"files": _log_files(words, "rejected")},
            "metrics": {"enabled": False},
        },
    }


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value


def filebeat_unreadable(config: Mapping[str, Any]) -> str:
    """Return what is wrong with words that Filebeat would read as its own, without those words; empty is nothing."""
    faults = []
    if any("${" in text for text in _texts(config)):
        faults.append(
            "Filebeat takes ${ in an option or in the password for the name of a variable: write none."
        )
    script = next(one["script"]["params"] for one in config["processors"] if "script" in one)
    strange = sorted({found for text in _texts(script) for found in re.findall(r"\[[:.=]\w+[:.=]\]", text)})
    if strange:
        faults.append(
            f"log_shipper_command_lines, log_shipper_hardware_patterns: Filebeat knows no {', '.join(strange)}."
        )
    return " ".join(faults)


class FilterModule:
    """Filters of role log_shipper."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "ere_to_javascript": ere_to_javascript,
            "filebeat_config": filebeat_config,
            "filebeat_unreadable": filebeat_unreadable,
        }
