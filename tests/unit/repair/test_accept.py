"""When a node may take jobs again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from coldiron.repair.accept import verdict
from coldiron.verify.results import Node, Result, Test


def passed(count: int) -> list[Test]:
    return [Test("base", "cpu01", f"test_{number}", Result.PASSED) for number in range(count)]


def test_a_node_is_accepted_by_its_tests() -> None:
    assert verdict(passed(3), []) == (True, "3 tests passed")


def test_that_it_is_drained_is_no_failure() -> None:
    drained = Test("slurm_worker", "cpu01", "test_the_node_is_in_service", Result.FAILED)
    assert verdict([*passed(2), drained], []) == (True, "2 tests passed")


def test_what_failed_is_named() -> None:
    bad = [Test("time", "cpu01", f"test_the_clock_{number}", Result.FAILED) for number in range(5)]
    assert verdict([*passed(1), *bad], []) == (
        False,
        "5 of 6 tests failed: time: The clock 0; time: The clock 1; time: The clock 2 and 2 more",
    )


def test_a_node_that_nobody_tested_is_not_accepted() -> None:
    assert verdict([], []) == (False, "no test ran on it")
    assert verdict([], [Node("cpu01", silent="ssh timed out")]) == (
        False,
        "the node does not answer: ssh timed out",
    )


def test_an_inventory_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "coldiron.repair.accept", str(tmp_path / "none"), "cpu01"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    assert len(done.stderr.splitlines()) == 1
