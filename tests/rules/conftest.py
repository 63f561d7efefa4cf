"""promtool: as it is installed, else taken out of Debian's package, whose daemon nobody needs here."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Newer releases have the program in a package of its own.
PACKAGES = ("promtool", "prometheus")


def _fetched(place: Path) -> Path:
    program = place / "usr/bin/promtool"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    # Tests that run side by side may all fetch it: each for itself, and the last one's stays.
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for package in PACKAGES:
            said = subprocess.run(
                ["apt-get", "-q", "download", package],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            for deb in Path(folder).glob(f"{package}_*.deb"):
                subprocess.run(["dpkg-deb", "-x", str(deb), folder], check=True)
            unpacked = Path(folder) / "usr/bin/promtool"
            if unpacked.exists():
                return unpacked.replace(program)
    pytest.fail(f"promtool is not installed, and cannot be fetched: {said.stderr.strip()}")


@pytest.fixture(scope="session")
def promtool() -> str:
    """The program's path."""
    return shutil.which("promtool") or str(_fetched(ROOT / ".cache/promtool"))
