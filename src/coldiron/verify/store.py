"""Where verifications are kept: ``<inventory>/.coldiron/verify/<time>/``, the newest twenty."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.report.verify import write_verify_report
from coldiron.verify.results import Verification

KEPT = 20
RESULTS = "results.json"
_NAME = re.compile(r"\d{8}-\d{6}(-\d+)?")


def write(found: Verification, folder: Path) -> Path:
    """Write index.html, junit.xml and results.json into a folder and return the page's path."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page, _ = write_verify_report(found, folder)
        text = json.dumps(found.as_json(), indent=1, ensure_ascii=False)
        (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ColdironError(
            f"{folder}: the report cannot be written there: {error.strerror}; --output DIR takes it elsewhere",
            ExitCode.ENVIRONMENT,
        ) from error
    return page


def keep(found: Verification, inventory: Path) -> Path:
    """Write a verification below the inventory's folder, take the oldest ones away, and return its page."""
    own = inventory / ".coldiron"
    folder = own / "verify"
    name = time.strftime("%Y%m%d-%H%M%S", time.gmtime(found.started))
    number, place = 1, folder / name
    while place.exists():
        number += 1
        place = folder / f"{name}-{number}"
    page = write(found, place)
    ignore = own / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    kept = sorted(
        (path for path in folder.iterdir() if path.is_dir() and _NAME.fullmatch(path.name)),
        key=lambda path: (path.name[:15], len(path.name), path.name),
    )
    for path in kept[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)
    return page


def writable(inventory: Path) -> None:
    """Raise a ColdironError, before anything is run, where a verification could not be kept."""
    place = inventory
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        raise ColdironError(
            f"{place} cannot be written to: say with --output DIR where the report goes", ExitCode.ENVIRONMENT
        )
