"""Fixtures of the harness's own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.testing.toy import Toy, make_toy


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """A converged toy cluster: node01 and node02, role toy on both, ssh and ansible-playbook replaced."""
    return make_toy(tmp_path, monkeypatch)
