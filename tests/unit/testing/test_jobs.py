"""Nodes that are away for a moment are waited for; any other refusal is an answer."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from coldiron.testing import fixtures, jobs

AWAY = "srun: error: Unable to allocate resources: Required node not available (down, drained or reserved)"


@dataclass
class Said:
    stderr: str


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixtures.time, "sleep", lambda seconds: None)


def test_a_node_that_is_away_is_waited_for() -> None:
    answers = [Said(AWAY), Said(AWAY), Said("")]
    assert jobs.with_nodes(lambda: answers.pop(0)).stderr == ""
    assert answers == []


def test_another_refusal_is_an_answer() -> None:
    assert jobs.with_nodes(lambda: Said("srun: error: Invalid account")).stderr.endswith("account")


def test_one_that_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "BACK_SECONDS", 0)
    with pytest.raises(AssertionError, match="Required node not available"):
        jobs.with_nodes(lambda: Said(AWAY))
