"""The site, built once, and a way to build a changed one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What a build reads.
SOURCES = ("mkdocs.yml", "docs", "roles", "plugins", "playbooks", "src", "README.md", "CONTRIBUTING.md",
           "CHANGELOG.md", "SECURITY.md", "inventories")  # fmt: skip

Build = Callable[[Path, Path], "subprocess.CompletedProcess[str]"]


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout, strictly."""
    # Not --quiet: it would drop the warnings before --strict counts them.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(
        [*command, "--config-file", str(root / "mkdocs.yml"), "--site-dir", str(site)],
        cwd=root,
        capture_output=True,
        text=True,
        # The theme's makers advertise on stderr otherwise.
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The outcome of the build and the site's folder."""
    site = tmp_path_factory.mktemp("site") / "site"
    return build(ROOT, site), site


@pytest.fixture(scope="session")
def site(built: tuple[subprocess.CompletedProcess[str], Path]) -> Path:
    """The folder of the built site."""
    result, folder = built
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout whose documents can be changed: docs/ copied, the rest linked."""
    for name in SOURCES:
        if name == "docs":
            shutil.copytree(ROOT / name, tmp_path / name)
        else:
            (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path
