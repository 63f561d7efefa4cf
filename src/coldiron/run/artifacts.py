"""Runs as others have left them: a run's directory, or the artifacts of a bare ansible-runner."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError
from coldiron.inventory.findings import shown_path
from coldiron.run.catalog import SITE, Catalog
from coldiron.run.events import END, START, Event
from coldiron.run.mask import Mask
from coldiron.run.reducer import Reducer, no_header
from coldiron.run.session import EXIT_CODES, outcome_of, shorten
from coldiron.run.state import Outcome, RunState
from coldiron.run.store import EVENTS, Runs, StoredRun
from coldiron.run.survey import ask
from coldiron.run.trim import trim

# Written by `coldiron.run.export` beside the inventory: what a recorded run says in its first event.
ABOUT = "coldiron.json"
_NAME = re.compile(r"(\d+)-[0-9a-fA-F-]+\.json")


def state_of(source: str, inventory: Path) -> tuple[RunState, Path]:
    """The state that ``source`` means, and the directory it was found in.

    ``source`` is a run of ``inventory`` by its name, a run's directory, a private data directory of
    ansible-runner or one of its artifacts. Raises ColdironError.
    """
    path = Path(source)
    if not path.is_dir():
        if path.exists():
            raise ColdironError(f"{shown_path(path)} is no directory; name a run or a directory with one")
        if "/" in source:
            raise ColdironError(f"{shown_path(path)} does not exist; name a run or a directory with one")
        stored = Runs(inventory if inventory.is_dir() else inventory.parent).open(source)
        return stored.state(), stored.directory
    if (path / EVENTS).exists():
        return StoredRun(path).state(), path
    return _from_runner(path), path


def _from_runner(path: Path) -> RunState:
    events = _job_events(path)
    private = next(
        (place for place in (path, *path.absolute().parents[:3]) if (place / "artifacts").is_dir()), path
    )
    about = _about(private)
    mask = Mask(_secrets(private))
    reducer = Reducer()
    raw = list(_raw(events))
    kept = [one for one in map(trim, raw) if one is not None]
    began = min((moment for moment, _, _ in kept if moment), default=0.0)
    header = {"started": began, **about.get("header", {}), "id": events.parent.name}
    header["started"] = header["started"] or began
    reducer.feed(Event(1, began, START, {**about, "header": header}))
    roots = [f"{private.absolute()}/"]
    number = 1
    for moment, kind, data in kept:
        number += 1
        if "task_path" in data:
            data["task_path"] = shorten(str(data["task_path"]), roots)
        reducer.feed(Event(number, moment, kind, mask.data(data)))
    state = reducer.state
    state.damaged = len(list(events.glob("*.json"))) - len(raw)
    code = _text(events.parent / "rc")
    status = _text(events.parent / "status")
    if re.fullmatch(r"-?\d{1,4}", code):
        outcome = outcome_of(int(code), state, stopped=status in ("canceled", "timeout"))
        end = {"outcome": outcome.value, "exit_code": int(EXIT_CODES[outcome])}
        reducer.feed(Event(number + 1, state.last_event, END, end))
    else:
        # ansible-runner writes its code last of all.
        state.outcome = Outcome.KILLED
    return state


def _job_events(path: Path) -> Path:
    """The newest directory of events that ``path`` holds."""
    itself = [path] if path.name == "job_events" else []
    places = [*itself, path / "job_events", *path.glob("*/job_events"), *path.glob("artifacts/*/job_events")]
    found = [place for place in places if place.is_dir()]
    if not found:
        raise ColdironError(
            f"{shown_path(path)} holds neither a recorded run ({EVENTS}) nor artifacts of ansible-runner "
            "(artifacts/*/job_events)"
        )
    return max(found, key=lambda place: place.stat().st_mtime)


def _raw(events: Path) -> Iterator[Mapping[str, Any]]:
    """The events that can be read, in their order."""
    numbered = [(int(match[1]), file) for file in events.iterdir() if (match := _NAME.fullmatch(file.name))]
    for _, file in sorted(numbered):
        try:
            event = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


def _about(private: Path) -> dict[str, Any]:
    """What the export said about the run; else what the site's playbooks say."""
    try:
        about = json.loads((private / ABOUT).read_text(encoding="utf-8"))
        if isinstance(about, dict) and isinstance(about.get("header"), dict):
            return about
    except (OSError, ValueError):
        pass
    plays = Catalog().plays([SITE])
    stages = list(dict.fromkeys(play.stage for play in plays))
    header = {**vars(no_header()), "verb": "apply", "cluster": private.absolute().name, "stages": stages}
    return {"header": header, "plays": [{"name": play.name, "stage": play.stage} for play in plays]}


def _secrets(private: Path) -> list[str]:
    """The secrets of the inventory that lies in the directory; none where it cannot be opened."""
    inventory = private / "inventory"
    if not inventory.exists():
        return []
    try:
        return ask(inventory).secrets
    except ColdironError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
