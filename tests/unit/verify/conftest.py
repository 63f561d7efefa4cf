"""The toy cluster, for verifications of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.testing.toy import Toy, make_toy


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    """A converged toy cluster: node01 and node02, role toy on both, ssh replaced."""
    yield make_toy(tmp_path, monkeypatch)
    # The toys of all tests have the same modules, and this process loads each anew.
    for name in [name for name in sys.modules if name == "roles" or name.startswith("roles.")]:
        del sys.modules[name]
