"""promtool: as it is installed, else taken out of Debian's package, whose daemon nobody needs here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Newer releases have the program in a package of its own.
PACKAGES = ("promtool", "prometheus")


def _fetched(place: Path) -> Path:
    program = place / "usr/bin/promtool"
    if not program.exists():
        place.mkdir(parents=True, exist_ok=True)
        for package in PACKAGES:
            said = subprocess.run(
                ["apt-get", "-q", "download", package], cwd=place, capture_output=True, text=True, check=False
            )
            for deb in place.glob(f"{package}_*.deb"):
                subprocess.run(["dpkg-deb", "-x", str(deb), str(place)], check=True)
                deb.unlink()
            if program.exists():
                break
        else:
            pytest.fail(f"promtool is not installed, and cannot be fetched: {said.stderr.strip()}")
    return program


@pytest.fixture(scope="session")
def promtool() -> str:
    """The program's path."""
    return shutil.which("promtool") or str(_fetched(ROOT / ".cache/promtool"))
