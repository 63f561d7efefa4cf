"""Fixtures of the tests on machines: one rack of a head and two machines, made for the session and taken away."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.metal.site import BAKE_SECONDS, CLASSES, INVENTORY, Metal, make_inventory

# Set, a site that stands is taken as it is and left standing: for single tests, which need not wait for a new one.
STANDING = "COLDIRON_METAL_STANDING"


@pytest.fixture(scope="session")
def metal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metal]:
    """The site: secrets made, images baked, head up, machines powered off with empty disks."""
    scratch = tmp_path_factory.mktemp("metal")
    if os.environ.get(STANDING) and (INVENTORY / ".rack").is_dir():
        yield Metal(INVENTORY, scratch)
        return
    site = Metal(make_inventory(), scratch)
    site.verb("secrets", "init")
    for node_class in CLASSES:
        site.verb("image", "bake", node_class, seconds=BAKE_SECONDS)
    site.verb("rack", "up", seconds=300)
    yield site
    if os.environ.get(STANDING):
        return
    site.verb("rack", "down", seconds=120)
