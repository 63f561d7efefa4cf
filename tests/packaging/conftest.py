"""Each thing is built and installed once; the tests look at it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.packaging.builds import (
    SITE_PACKAGES,
    Dist,
    Environment,
    clean_clone,
    constraints,
    dist,
    example_inventory,
)

# What galaxy.yml asks for, out of the locked distribution: no Galaxy server is needed.
OUTSIDE = ("ansible/posix", "community/crypto", "community/general")


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean checkout."""
    return clean_clone(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="session")
def built(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Dist:
    """What it builds."""
    return dist(checkout, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def pins(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lock's versions as constraints."""
    path = tmp_path_factory.mktemp("pins") / "constraints.txt"
    path.write_text(constraints(checkout / "requirements.lock"), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def wheel(built: Dist, pins: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment that had nothing before ``pip install`` of the wheel, and an inventory elsewhere."""
    environment = Environment(tmp_path_factory.mktemp("wheel"))
    environment.make(pins, str(built.wheel))
    example_inventory(environment.elsewhere / "inv")
    return environment


@pytest.fixture(scope="session")
def galaxy(built: Dist, pins: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with ansible-core and the tarball, without the Python package."""
    environment = Environment(tmp_path_factory.mktemp("galaxy"))
    environment.make(pins, "ansible-core")
    collections = environment.folder / "home" / ".ansible" / "collections" / "ansible_collections"
    for name in OUTSIDE:
        shutil.copytree(SITE_PACKAGES / "ansible_collections" / name, collections / name)
    environment.output("ansible-galaxy", "collection", "install", str(built.tarball), "--offline")
    example_inventory(environment.elsewhere / "inv")
    return environment
