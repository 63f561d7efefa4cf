"""What a person must see in a frame: at 80 and 200 columns, with 7 and with 500 nodes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from coldiron.display.estimate import Remaining
from coldiron.display.frame import frame
from coldiron.display.picture import take
from coldiron.display.symbols import ASCII, UNICODE, Symbols
from coldiron.run.state import CellStatus, Outcome, RunState
from tests.unit.display.samples import (
    ALL_STAGES,
    BEGAN,
    LARGE,
    SMALL,
    begun,
    end,
    fail,
    midway,
    settle,
)

NOW = BEGAN + 120
SIZES = [(80, 23), (200, 49)]


def drawn(
    state: RunState,
    width: int,
    height: int,
    symbols: Symbols = UNICODE,
    left: Remaining | None = None,
    now: float = NOW,
) -> list[str]:
    lines = frame(take(state), width, height, now, symbols, left).text.split("\n")
    assert len(lines) <= height
    assert [line for line in lines if cell_len(line) > width] == []
    return lines


def row(lines: list[str], label: str) -> str:
    (found,) = [line for line in lines if line.startswith(label + " ")]
    return found


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_few_nodes_have_a_row_each(width: int, height: int) -> None:
    lines = drawn(midway(SMALL), width, height)
    assert lines[0].startswith("apply hopper  7 nodes")
    assert lines[0].endswith("2:00")
    assert lines[1].startswith("stage 4 of 4: scheduler")
    assert "± " in lines[2]
    assert "45 changed" in lines[2]
    assert "0 failed" in lines[2]
    head = next(line for line in lines if "validate" in line)
    assert head.split() == ["validate", "base", "storage", "scheduler"]
    assert row(lines, "head01").split() == ["head01", "✓", "±", "3", "±", "3", "±", "1"]
    assert row(lines, "gpu03").split() == ["gpu03", "✓", "±", "3", "±", "3", "▸", "0:25"]
    # What runs, since when and where; and what took longest.
    assert any(re.match(r"▸ +0:25 +cpu01,gpu\[01-03\] +slurm_worker: Configure \| Ensure", x) for x in lines)
    assert any(re.match(r"slowest +22 s +time: Configure \| Step 2", line) for line in lines)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_many_nodes_fold_into_their_groups(width: int, height: int) -> None:
    state = midway(LARGE)
    lines = drawn(state, width, height)
    assert lines[0].startswith("apply hopper  500 nodes")
    assert row(lines, "head[01-03]").split() == ["head[01-03]", "✓3", "±3", "±3", "±3"]
    assert row(lines, "gpu[001-480]").split()[-2:] == ["▸250", "±230"]
    assert any("250 nodes" in line and "slurm_worker" in line for line in lines)
    assert not any("gpu417" in line for line in lines)

    fail(state, "gpu417", "slurmd did not start: no GPU")
    fail(state, "cpu10", "no answer over ssh in 20 s", unreachable=True)
    lines = drawn(state, width, height)
    gpus = lines.index(row(lines, "gpu[001-480]"))
    assert lines[gpus + 1] == "  ✗ failed: gpu417"
    assert "  ! unreachable: cpu10" in lines
    assert "✗1" in lines[gpus]
    assert any(line.startswith("✗ gpu417  slurm_worker: slurmd did not start: no GPU") for line in lines)
    assert any(line.startswith("! cpu10  slurm_worker: no answer over ssh") for line in lines)
    assert "1 failed" in lines[2]
    assert "1 unreachable" in lines[2]


def test_failed_nodes_are_named_also_where_there_is_no_room_for_a_row() -> None:
    state = midway(LARGE)
    for name in LARGE[100:300]:
        fail(state, name, "the same for all")
    text = "\n".join(drawn(state, 80, 12))
    assert "gpu[081-280]" in text


def test_many_faults_are_counted() -> None:
    state = midway(LARGE)
    for number, name in enumerate(LARGE[300:310]):
        fail(state, name, f"fault {number}")
    lines = drawn(state, 80, 40)
    assert any("and 7 earlier faults, told at the end" in line for line in lines)
    assert any("fault 9" in line for line in lines)


@pytest.mark.parametrize("names", [SMALL, LARGE], ids=["7", "500"])
def test_all_stages_fit_at_200_columns_and_the_running_one_always(names: list[str]) -> None:
    state = midway(names, ALL_STAGES, "containers")
    wide = drawn(state, 200, 40)
    head = next(line for line in wide if "validate" in line)
    assert head.split() == ALL_STAGES
    narrow = drawn(state, 80, 23)
    head_at = next(i for i, line in enumerate(narrow) if "earlier" in line)
    assert "containers" in narrow[head_at]
    assert "later" in narrow[head_at + 1]
    # The stages that have no column of their own are one: what they changed, and the worst they met.
    first = row(narrow, "head[01-03]" if len(names) > 7 else "head01")
    assert "±" in first
    state = midway(names, ALL_STAGES, "provision")
    assert "containers" not in "\n".join(drawn(state, 80, 23))
    assert "provision" in "\n".join(drawn(state, 80, 23))


def test_a_failure_in_an_earlier_stage_stays_in_sight() -> None:
    state = midway(LARGE, ALL_STAGES, "base")
    fail(state, "gpu417", "no disk")
    later = midway(LARGE, ALL_STAGES, "science")
    later.hosts["gpu417"].cells["base"].status = CellStatus.FAILED
    later.hosts["gpu417"].status = CellStatus.FAILED
    lines = drawn(later, 80, 23)
    assert "✗1" in row(lines, "gpu[001-480]")
    assert "  ✗ failed: gpu417" in lines


def test_ascii_where_the_terminal_has_nothing_else() -> None:
    state = midway(LARGE)
    fail(state, "gpu417", "slurmd did not start")
    lines = drawn(state, 80, 23, symbols=ASCII, left=Remaining(60, 2))
    assert "\n".join(lines).isascii()
    assert "x1" in row(lines, "gpu[001-480]")


@pytest.mark.parametrize(("width", "height"), [(39, 20), (80, 7), (20, 3), (1, 1)])
def test_a_terminal_too_small_gets_one_line(width: int, height: int) -> None:
    state = midway(LARGE)
    fail(state, "gpu417", "slurmd did not start")
    lines = drawn(state, width, height)
    assert len(lines) == 1
    if width >= 20:
        assert lines[0].startswith("2:00 scheduler ✗1")


def test_the_rest_is_guessed_only_where_something_is_known() -> None:
    assert "left" not in drawn(midway(SMALL), 80, 23)[1]
    assert "about 6 min left, as in 3 earlier runs" in drawn(midway(SMALL), 80, 23, left=Remaining(350, 3))[1]
    assert "1 earlier run" in drawn(midway(SMALL), 80, 23, left=Remaining(350, 1))[1]
    assert "longer than in earlier runs" in drawn(midway(SMALL), 80, 23, left=Remaining(0, 1))[1]


def test_before_the_first_task() -> None:
    lines = drawn(begun(SMALL, check=True), 80, 23)
    assert "check: nothing is changed" in lines[0]
    assert lines[1] == "reading the inventory"
    assert any("no task yet" in line for line in lines)
    nothing = begun([])
    nothing.stages.clear()
    assert drawn(nothing, 80, 23)[0].startswith("apply hopper  0 nodes")


def test_between_tasks_and_many_tasks_at_once() -> None:
    state = midway(SMALL)
    settle(state, SMALL)
    assert any("between two tasks" in line for line in drawn(state, 80, 23))
    state = midway(LARGE)
    for number, host in enumerate(state.hosts.values()):
        if host.running:
            host.running.task = f"task {number}"
    assert any(re.search(r"and \d+ other tasks on \d+ nodes", line) for line in drawn(state, 80, 23))


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Outcome.OK, "done"),
        (Outcome.FAILED, "failed"),
        (Outcome.UNREACHABLE, "out of reach"),
        (Outcome.INTERRUPTED, "interrupted"),
        (Outcome.KILLED, "killed"),
        (Outcome.REFUSED, "refused"),
        (Outcome.ERROR, "error"),
    ],
)
def test_the_last_frame_says_how_it_ended(outcome: Outcome, says: str) -> None:
    lines = drawn(end(midway(SMALL), outcome, NOW), 80, 23, now=NOW + 500)
    assert says in lines[1]
    assert lines[0].endswith("2:00"), "the clock stands still once the run is over"
    assert not any(line.startswith("▸") for line in lines)


def test_nothing_moves_while_numbers_grow() -> None:
    """Columns and sections keep their place from frame to frame."""
    state = midway(LARGE)
    before = drawn(state, 80, 23)
    settle(state, LARGE[250:400])
    after = drawn(state, 80, 23, now=NOW + 7)
    assert len(before) == len(after)
    for label in ("head[01-03]", "gpu[001-480]", "slowest"):
        assert before.index(row(before, label)) == after.index(row(after, label))
    assert row(before, "gpu[001-480]").index("▸") == row(after, "gpu[001-480]").index("▸")


def test_what_a_node_says_cannot_move_the_cursor() -> None:
    state = midway(SMALL)
    fail(state, "gpu01", "bad\x1b[2J\nnews\ttold")
    text = "\n".join(drawn(state, 80, 23))
    assert "\x1b" not in text
    assert "bad?[2J news told" in text


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 250),
    height=st.integers(1, 70),
    names=st.sampled_from([SMALL, LARGE, LARGE[:30], ["a-very-long-host-name-without-any-number", "x1"]]),
    stages=st.sampled_from([ALL_STAGES, ALL_STAGES[:4], ALL_STAGES[:1]]),
    at=st.integers(0, 12),
    bad=st.integers(0, 40),
    left=st.none() | st.builds(Remaining, st.floats(0, 1e5), st.integers(1, 3)),
)
def test_a_frame_fits_whatever_the_size(
    width: int, height: int, names: list[str], stages: list[str], at: int, bad: int, left: Remaining | None
) -> None:
    state = midway(names, stages, stages[min(at, len(stages) - 1)])
    for number, name in enumerate(names[-bad:] if bad else []):
        fail(
            state,
            name,
            f"広い文字 and a long sentence on what went wrong, {number % 5}",
            unreachable=number % 3 == 0,
        )
    drawn(state, width, height, left=left)
    drawn(state, width, height, symbols=ASCII)
