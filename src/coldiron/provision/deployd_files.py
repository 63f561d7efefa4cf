"""``coldiron-deployd`` as it goes to a head: its modules and those they import, as text."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PACKAGE = Path(__file__).resolve().parents[1]
# All of it is the standard library's otherwise; tests/unit/provision runs the program from these alone.
MODULES: Final = (
    "__init__",
    "errors",
    "inventory/__init__",
    "inventory/findings",
    "inventory/names",
    "provision/__init__",
    "provision/deployd",
    "provision/deployd_http",
    "provision/deployd_script",
    "provision/deployd_state",
    "provision/order",
    "provision/token",
    "provision/whole",
)
_MAIN = """\
import sys

from coldiron.provision.deployd import main

sys.exit(main())
"""


def files() -> dict[str, str]:
    """The program's files by their path below its directory, which ``python -I DIRECTORY`` runs."""
    found = {"__main__.py": _MAIN}
    for module in MODULES:
        found[f"coldiron/{module}.py"] = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    return found
