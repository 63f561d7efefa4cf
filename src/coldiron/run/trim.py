"""From one event of ansible-runner to the few fields that are kept of it.

ansible-runner's own events repeat the play, the module's arguments and the whole result many times over: a site
of 64 nodes would write hundreds of megabytes. What a person may ask for later is kept: who, where, how long,
what changed, and of a failure all that it said.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

# Kinds that the state is made from. Items of loops are in their task's result, diffs as well.
KEPT = frozenset(
    {
        "playbook_on_start",
        "playbook_on_play_start",
        "playbook_on_task_start",
        "playbook_on_no_hosts_matched",
        "playbook_on_no_hosts_remaining",
        "playbook_on_stats",
        "runner_on_start",
        "runner_on_ok",
        "runner_on_failed",
        "runner_on_skipped",
        "runner_on_unreachable",
        "warning",
        "system_warning",
        "deprecated",
        "error",
        "verbose",
    }
)
_SAID = ("warning", "system_warning", "deprecated", "error", "verbose")
_WORDS = ("play", "task", "task_uuid", "task_path", "role", "host")
_STATS = ("ok", "changed", "skipped", "failures", "dark", "rescued", "ignored")
# What is kept of a result that is well; of a failed one everything but these.
_GOOD = frozenset(
    {"changed", "msg", "hint", "rc", "path", "dest", "name", "item", "censored", "skip_reason", "warnings"}
    # What converge says that it did.
    | {"packages", "paths", "users", "sysctl", "units"}
)
_NEVER = frozenset(
    {"invocation", "diff", "results", "ansible_facts", "stdout_lines", "stderr_lines", "exception"}
)
# Characters of one text in a result, lines of one diff, results of one loop.
LONGEST_TEXT = 16_000
LONGEST_DIFF = 1_000
MOST_ITEMS = 200
_TOLD = re.compile(r"\s*(\[?(ERROR|WARNING)\]?|Traceback|usage:|ansible-playbook: error|.*command not found)")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def plain_text(text: str) -> str:
    """``text`` without what only a terminal understands."""
    return _COLOURS.sub("", text).replace("\r", "")


def trim(event: Mapping[str, Any]) -> tuple[float, str, dict[str, Any]] | None:
    """Time, kind and data of an event of ansible-runner; None where nothing of it is kept."""
    kind = str(event.get("event", ""))
    if kind not in KEPT:
        return None
    source = event.get("event_data")
    source = source if isinstance(source, Mapping) else {}
    said = plain_text(str(event.get("stdout") or ""))
    data: dict[str, Any] = {word: source[word] for word in _WORDS if source.get(word)}
    if kind in _SAID:
        if not said.strip() or (kind == "verbose" and not _is_told(said)):
            return None
        data["text"] = _cut(said.strip())
    elif kind == "playbook_on_stats":
        data = {word: source[word] for word in _STATS if isinstance(source.get(word), Mapping)}
    elif kind == "playbook_on_task_start":
        # ansible-runner's way to say that a task is a handler's.
        data["handler"] = bool(source.get("is_conditional"))
    elif kind.startswith("runner_on_") and kind != "runner_on_start":
        for word in ("start", "end"):
            if (moment := seconds(source.get(word))) is not None:
                data[word] = moment
        if source.get("ignore_errors"):
            data["ignored"] = True
        res = source.get("res")
        data["result"] = _result(res if isinstance(res, Mapping) else {}, good=kind in _FINE)
        # A result that is hidden (no_log) or was too large for ansible-runner says it in its output only.
        if "changed" not in data["result"] and said.lstrip().startswith("changed:"):
            data["result"]["changed"] = True
    return seconds(event.get("created")) or 0.0, kind, data


_FINE = ("runner_on_ok", "runner_on_skipped")


def seconds(moment: object) -> float | None:
    """An ISO date with its zone in seconds since the epoch; None where it is none."""
    if not isinstance(moment, str):
        return None
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return parsed.timestamp()


def _is_told(text: str) -> bool:
    """Whether a line that Ansible printed outside its events says more than where it is."""
    return bool(_TOLD.match(text))


def _result(result: Mapping[str, Any], *, good: bool) -> dict[str, Any]:
    if "censored" in result:
        kept: dict[str, Any] = {"censored": True}
    elif good:
        kept = {name: _value(result[name]) for name in _GOOD if name in result}
    else:
        kept = {
            str(name): _value(value)
            for name, value in result.items()
            if name not in _NEVER and not str(name).startswith("_ansible")
        }
        # Ansible's own errors say everything in msg; a module that broke says it here.
        if isinstance(trace := result.get("exception"), str) and "module_stderr" in result:
            kept["exception"] = _cut(trace)
    if "_ansible_item_label" in result:
        kept["item"] = _value(result["_ansible_item_label"])
    if diffs := unified(result.get("diff")):
        kept["diffs"] = diffs
    results = result.get("results")
    if isinstance(results, Sequence) and not isinstance(results, str) and "censored" not in result:
        items = [item for item in results if isinstance(item, Mapping)]
        telling = [item for item in items if item.get("changed") or _failed(item)]
        kept["results"] = [_result(item, good=not _failed(item)) for item in telling[:MOST_ITEMS]]
        kept["items"] = len(items)
    return kept


def _failed(item: Mapping[str, Any]) -> bool:
    return bool(item.get("failed") or item.get("unreachable"))


def _value(value: Any) -> Any:
    """A value as JSON has it, its texts cut."""
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, Mapping):
        return {str(key): _value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item) for item in value[:MOST_ITEMS]]
    return value if isinstance(value, int | float | bool | None) else str(value)


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters are left out here …]\n{text[-half:]}"


def unified(diff: Any) -> list[dict[str, str]]:
    """Ansible's diffs (one, or a list of them) as unified ones: ``[{"what": path, "diff": text}, …]``."""
    found = []
    for item in diff if isinstance(diff, list) else [diff]:
        if not isinstance(item, Mapping):
            continue
        if isinstance(item.get("prepared"), str):
            text, name = item["prepared"], ""
        else:
            before, after = (_text_of(item.get(word)) for word in ("before", "after"))
            if before is None and after is None:
                continue
            old, new = (str(item.get(f"{word}_header") or word) for word in ("before", "after"))
            lines = difflib.unified_diff(
                (before or "").splitlines(), (after or "").splitlines(), old, new, lineterm=""
            )
            text = "\n".join(lines)
            name = new if new != "after" else old if old != "before" else ""
        lines_of = text.splitlines()
        if len(lines_of) > LONGEST_DIFF:
            text = "\n".join([*lines_of[:LONGEST_DIFF], f"[… {len(lines_of) - LONGEST_DIFF} more lines …]"])
        if text.strip():
            # converge's header goes on with the mode; what counts is the path.
            found.append({"what": name.split(" (")[0], "diff": _cut(text)})
    return found


def _text_of(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(
            f"{key}: {item}" for key, item in sorted(value.items(), key=lambda pair: str(pair[0]))
        )
    return str(value)
