"""Fixtures of the tests on machines: one rack of a head and two machines, made for the session and taken away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.metal.site import BAKE_SECONDS, CLASSES, Metal, make_inventory


@pytest.fixture(scope="session")
def metal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metal]:
    """The site: secrets made, images baked, head up, machines powered off with empty disks."""
    site = Metal(make_inventory(), tmp_path_factory.mktemp("metal"))
    site.verb("secrets", "init")
    for node_class in CLASSES:
        site.verb("image", "bake", node_class, seconds=BAKE_SECONDS)
    site.verb("rack", "up", seconds=300)
    yield site
    site.verb("rack", "down", seconds=120)
