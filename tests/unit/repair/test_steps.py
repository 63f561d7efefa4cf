"""The steps that the action plugin takes, each as a process of its own would: through the journal alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.repair import journal, keep, steps, view
from coldiron.repair.machine import ROWS, Kind, Outcome, State

CONTAINER = {"coldiron_platform": "container"}
AGREED = steps.Wanted(Kind.REPAIR, ["cpu01"])


@pytest.fixture
def repairs(tmp_path: Path) -> Iterator[Path]:
    """Where repairs lie, the node's lock held by this process, as the command line holds it."""
    held = journal.take(tmp_path, "cpu01", "coldiron node repair cpu01", 0.0)
    yield tmp_path
    held.release()


def opened(repairs: Path, wanted: steps.Wanted = AGREED) -> dict[str, Any]:
    return steps.open_repair(repairs, "cpu01", wanted, CONTAINER, "coldiron", os.getpid())


def through(repairs: Path, state: State) -> None:
    """Bring the repair to where ``state`` is due."""
    for row in ROWS:
        if row.state is state:
            return
        assert steps.begin(repairs, "cpu01", row.state)["due"]
        steps.end(repairs, "cpu01", row.state, Outcome.OK, "")


def test_a_repair_from_end_to_end(repairs: Path) -> None:
    assert opened(repairs)["next"] == "drain"
    for row in ROWS:
        assert steps.begin(repairs, "cpu01", State.RESUME)["due"] is (row.state is State.RESUME)
        if row.state is not State.RESUME:
            begun = steps.begin(repairs, "cpu01", row.state)
            assert begun["due"]
            assert ("evidence" in begun) is (row.state is State.DIAGNOSE)
        ended = steps.end(repairs, "cpu01", row.state, Outcome.OK, "")
        assert ended["msg"].startswith(f"cpu01: {row.state} ok; next: ")
    stands = steps.where(repairs, "cpu01")
    assert (stands["next"], stands["well"], stands["drained"]) == ("done", True, False)
    # What has ended has no state that is due.
    assert steps.begin(repairs, "cpu01", State.DRAIN) == {"due": False}
    assert steps.settle(repairs, "cpu01", "x") == {"settled": False}


def test_nothing_is_begun_that_nobody_has_agreed_to(repairs: Path) -> None:
    with pytest.raises(ColdironError, match="cpu01: deploy would wipe cpu01") as refused:
        opened(repairs, steps.Wanted(Kind.REPAIR))
    assert refused.value.exit_code is ExitCode.REFUSED
    assert steps.where(repairs, "cpu01")["next"] == "refused"


def test_a_webhook_needs_no_consent_and_ends_held(repairs: Path) -> None:
    opened(repairs, steps.Wanted(Kind.WEBHOOK))
    steps.begin(repairs, "cpu01", State.DRAIN)
    steps.end(repairs, "cpu01", State.DRAIN, Outcome.OK, "")
    steps.begin(repairs, "cpu01", State.DIAGNOSE)
    ended = steps.judge(repairs, "cpu01", {"journal-0.txt": "all is well"}, {"node": "cpu01"}, str)
    assert (ended["next"], ended["verdict"]) == ("held", "unclear")
    stands = steps.where(repairs, "cpu01")
    assert (stands["well"], stands["drained"]) == (True, True)


def test_hardware_ends_with_a_ticket(repairs: Path) -> None:
    opened(repairs)
    through(repairs, State.DIAGNOSE)
    steps.begin(repairs, "cpu01", State.DIAGNOSE)
    line = "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus."
    ended = steps.judge(repairs, "cpu01", {"dmesg.txt": line}, {"node": "cpu01"}, str)
    assert ended["next"] == "ticket"
    (one,) = view.repairs(repairs)
    said = view.ended_lines([one], repairs, "coldiron node repair cpu01")
    assert said[0] == "cpu01: ticket: the evidence says hardware: open a ticket; the node stays drained"
    assert "dmesg.txt:1" in said[1]
    assert Path(ended["bundle"], "ticket.txt").is_file()
    assert said[-1] == "  once the part is replaced: coldiron node reimage cpu01"


def test_what_dropped_out_of_a_run_has_failed_and_is_tried_again(repairs: Path) -> None:
    opened(repairs)
    through(repairs, State.DEPLOY)
    steps.begin(repairs, "cpu01", State.DEPLOY)
    assert steps.settle(repairs, "cpu01", "out of reach")["next"] == "power"
    assert steps.where(repairs, "cpu01")["msg"] == "cpu01: goes on at power: out of reach"
    assert opened(repairs)["next"] == "power"
    steps.begin(repairs, "cpu01", State.POWER)
    steps.end(repairs, "cpu01", State.POWER, Outcome.OK, "")
    assert steps.begin(repairs, "cpu01", State.DEPLOY)["msg"] == "cpu01: deploy begins, attempt 2"
    assert steps.settle(repairs, "cpu01", "out of reach again")["next"] == "failed"
    assert steps.where(repairs, "cpu01")["msg"] == "cpu01: failed in deploy: out of reach again"
    # A new one begins at the beginning.
    assert opened(repairs)["next"] == "drain"


def test_a_repair_that_lost_its_lock_writes_nothing_more(tmp_path: Path) -> None:
    held = journal.take(tmp_path, "cpu01", "coldiron", 0.0)
    opened(tmp_path)
    steps.begin(tmp_path, "cpu01", State.DRAIN)
    held.release()
    before = journal.path_of(tmp_path, "cpu01").read_bytes()
    for call in (
        lambda: steps.begin(tmp_path, "cpu01", State.DRAIN),
        lambda: steps.end(tmp_path, "cpu01", State.DRAIN, Outcome.OK, ""),
        lambda: steps.judge(tmp_path, "cpu01", {}, {}, str),
    ):
        with pytest.raises(ColdironError, match="has ended"):
            call()
    assert journal.path_of(tmp_path, "cpu01").read_bytes() == before


def test_a_node_without_a_repair_stands_nowhere(repairs: Path) -> None:
    assert steps.where(repairs, "gpu09")["msg"] == "gpu09: no repair"
    assert steps.begin(repairs, "cpu01", State.DRAIN) == {"due": False}
    with pytest.raises(ColdironError, match="no repair is under way"):
        journal.Journal.join(repairs, "cpu01")
    with pytest.raises(ColdironError, match="has not been repaired"):
        view.journal_steps(repairs, "gpu09")


def test_the_list_says_who_stands_where(repairs: Path) -> None:
    opened(repairs)
    steps.begin(repairs, "cpu01", State.DRAIN)
    lines = view.listed(view.repairs(repairs))
    assert lines[0].split() == ["node", "kind", "state", "since", "by"]
    assert lines[1].startswith("cpu01  repair  drain, under way  ")
    assert view.repairs(repairs, ["gpu09"]) == []
    told = view.journal_steps(repairs, "cpu01")
    assert [line.split("  ", 2)[2] for line in told] == [
        f"repair begun by {view.repairs(repairs)[0].by}",
        "drain begins",
    ]
    opened(repairs)
    steps.begin(repairs, "cpu01", State.DRAIN)
    steps.end(repairs, "cpu01", State.DRAIN, Outcome.FAILED, "job 12 is still there")
    assert view.listed(view.repairs(repairs))[2] == "  job 12 is still there"
    assert "taken up by" in view.journal_steps(repairs, "cpu01")[2]
    lines = view.ended_lines(view.repairs(repairs), repairs, "coldiron node repair cpu01")
    assert lines == [
        "cpu01: cut off in drain; the same command goes on from there: coldiron node repair cpu01"
    ]


def test_the_list_as_the_lock_is_given_back(tmp_path: Path) -> None:
    held = journal.take(tmp_path, "cpu01", "coldiron", 0.0)
    opened(tmp_path)
    held.release()
    assert "drain, cut off" in view.listed(view.repairs(tmp_path))[1]
    assert not keep.ours(tmp_path, "cpu01")
    assert (
        json.loads(journal.path_of(tmp_path, "cpu01").read_text().splitlines()[0])["data"]["node"] == "cpu01"
    )
