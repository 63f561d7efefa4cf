"""How long a run still takes, from earlier ones; nothing where nothing is known."""

from __future__ import annotations

import pytest

from coldiron.display.estimate import from_states
from coldiron.display.words import about, clock, group_of, hosts, span
from coldiron.run.state import Outcome, RunState
from coldiron.text import counted
from tests.unit.display.samples import (
    BEGAN,
    LARGE,
    SMALL,
    begun,
    end,
    end_task,
    fail,
    finish_stage,
    start_stage,
)


def run(seconds: float, names: list[str] = SMALL) -> RunState:
    """A whole run whose every stage took ``seconds`` and has two tasks, the second from half time on."""
    state = begun(names)
    time = BEGAN
    for stage in state.stages:
        start_stage(state, stage, time, "role", "first")
        end_task(state, time + seconds / 2)
        start_stage(state, stage, time + seconds / 2, "role", "second")
        end_task(state, time + seconds)
        finish_stage(state, stage, time, time + seconds)
        time += seconds
    return end(state, Outcome.OK, time)


def at(stage: str, names: list[str] = SMALL, each: float = 60) -> RunState:
    """A run at the first task of ``stage``, whose earlier stages took ``each`` seconds."""
    state = begun(names)
    time = BEGAN
    for name in state.stages:
        if name == stage:
            start_stage(state, name, time, "role", "first")
            break
        finish_stage(state, name, time, time + each)
        time += each
    return state


def remaining(earlier: list[RunState], state: RunState, after: float) -> float | None:
    found = from_states(earlier).remaining(state, BEGAN + after)
    return found.seconds if found else None


def test_nothing_known_nothing_said() -> None:
    assert remaining([], at("base"), 60) is None
    other = run(60)
    other.header.verb = "node add"
    assert remaining([other], at("base"), 60) is None
    checked = run(60)
    checked.header.check = True
    assert remaining([checked], at("base"), 60) is None
    cut_off = run(60)
    cut_off.stages["scheduler"].ended = None
    assert remaining([cut_off], at("base"), 60) is None
    failed = run(60)
    start_stage(failed, "storage", BEGAN, "role", "x")
    fail(failed, "gpu01", "no")
    assert remaining([failed], at("base"), 60) is None
    assert remaining([run(60)], run(60), 300) is None


def test_it_counts_down_by_the_task_that_runs() -> None:
    earlier = [run(60)]
    assert remaining(earlier, begun(SMALL), 0) == 240
    assert remaining(earlier, at("base"), 60) == 180
    assert remaining(earlier, at("base"), 70) == 170
    late = at("base")
    # The second task began earlier than it did then: half of the stage is left, whatever the clock says.
    start_stage(late, "base", BEGAN + 70, "role", "second")
    assert remaining(earlier, late, 70) == 30 + 120
    assert remaining(earlier, late, 1000) == 120
    unknown = at("base")
    unknown.tasks.clear()
    assert remaining(earlier, unknown, 70) == 170


def test_runs_that_went_alike_are_asked() -> None:
    """First runs take minutes, later ones seconds: which one this is shows in its finished stages."""
    earlier = [run(5), run(5), run(5), run(5), run(100), run(100), run(100)]
    assert remaining(earlier, at("storage", each=100), 200) == 200
    assert remaining(earlier, at("storage", each=5), 10) == 10
    assert remaining([run(5), run(5), run(100)], at("storage", each=100), 200) == 200
    # A stage that is on for longer than it was then says so too.
    assert remaining(earlier, at("validate"), 90) == pytest.approx(100 - 90 + 300)


def test_a_run_that_is_faster_than_any_before_stays_so() -> None:
    assert remaining([run(100)], at("scheduler", each=10), 30) == pytest.approx(100 * 31 / 301)


def test_more_hosts_take_longer_beyond_what_runs_side_by_side() -> None:
    assert remaining([run(60, SMALL)], at("base", LARGE), 60) == pytest.approx(
        180 * 500 / 32 * (61 / (60 * 500 / 32 + 1))
    )
    assert remaining([run(60, SMALL)], begun(LARGE), 0) == pytest.approx(240 * 500 / 32)
    assert remaining([run(60, SMALL[:2])], at("base", SMALL), 60) == 180


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (0.44, "0.4 s"),
        (9.97, "10 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7440, "2 h 04 min"),
    ],
)
def test_spans(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_words() -> None:
    assert [clock(s) for s in (-1, 7.9, 761, 3761)] == ["0:00", "0:07", "12:41", "1:02:41"]
    assert [about(s) for s in (3, 42, 350, 9000)] == [
        "a few seconds",
        "about 40 s",
        "about 6 min",
        "about 2.5 h",
    ]
    assert [counted(1, "node"), counted(2, "node"), counted(2, "box", "boxes")] == [
        "1 node",
        "2 nodes",
        "2 boxes",
    ]
    assert hosts(["gpu03", "gpu01", "gpu02"]) == "gpu[01-03]"
    assert hosts(["a[b", "c"]) == "a[b,c"
    assert group_of("gpu017") == "gpu"
    assert group_of("17") == "17"
