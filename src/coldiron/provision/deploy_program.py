"""The deploy program as files: the modules that it needs and nothing else, runnable by a bare Python 3.11 or later."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

# Modules that travel as they are. A test starts the program from them alone, without the site's packages.
MODULES = (
    "coldiron.errors",
    "coldiron.inventory.findings",
    "coldiron.inventory.names",
    "coldiron.provision.deploy_boot",
    "coldiron.provision.deploy_cache",
    "coldiron.provision.deploy_disks",
    "coldiron.provision.deploy_http",
    "coldiron.provision.deploy_image",
    "coldiron.provision.deploy_main",
    "coldiron.provision.deploy_network",
    "coldiron.provision.deploy_system",
    "coldiron.provision.deploy_tools",
    "coldiron.provision.disks",
    "coldiron.provision.images",
    "coldiron.provision.layout",
    "coldiron.provision.lsblk",
    "coldiron.provision.order",
)
START = "start.py"
# A script's own directory is not searched in isolated mode.
_START = """import sys

sys.path.insert(0, __file__.rpartition("/")[0])
from coldiron.provision.deploy_main import main

sys.exit(main())
"""


def program() -> dict[str, bytes]:
    """The program's files by relative path; ``python3 -I -S DIRECTORY/start.py`` runs them."""
    # A package's own __init__ reads what is installed beside it, and here nothing is.
    found = {
        f"{package}/__init__.py": b"" for package in ("coldiron", "coldiron/inventory", "coldiron/provision")
    }
    for module in MODULES:
        path = module.replace(".", "/") + ".py"
        found[path] = files("coldiron").joinpath(path.removeprefix("coldiron/")).read_bytes()
    found[START] = _START.encode()
    return found


def write_program(directory: Path) -> None:
    """Write the program's files below ``directory``."""
    for path, content in program().items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
