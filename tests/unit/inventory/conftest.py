"""A sound cluster.yml to change, and the way to write one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.inventory.samples import SOUND


@pytest.fixture
def sound() -> str:
    """The text of a cluster.yml without a fault."""
    return SOUND


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], Path]:
    """Writes a cluster.yml into an inventory directory of its own and returns its path."""

    def _write(text: str | bytes) -> Path:
        file = tmp_path / "cluster.yml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    return _write
