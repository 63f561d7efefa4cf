"""The cap that is found, and its price."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldiron.plan.caps import FeedLimit, feed_load, highest, over, price, solve
from coldiron.plan.circuits import RackKind
from coldiron.plan.draw import Machine
from tests.plan.power_cases import machine, rack, wall, workstation


def _fit(one: Machine) -> bool:
    return one.fit


def test_two_workstations_on_a_wall_circuit_get_the_highest_cap_that_holds() -> None:
    box = workstation(fit=True)
    kind = rack([wall(16)], [box, box])
    assert kind.loads({})[0][1] > 3680
    found = solve([kind], [], _fit)
    cap = found.caps[kind][box]
    assert not over(kind, {box: cap})
    assert over(kind, {box: cap + 1})
    assert not found.unfit


def test_what_fits_without_a_cap_gets_none() -> None:
    box = workstation(fit=True)
    assert not solve([rack([wall(32)], [box, box])], [], _fit).caps


def test_a_cap_below_the_least_limit_is_no_cap() -> None:
    box = workstation(fit=True, cap_min_watts=310)
    kind = rack([wall(16)], [box, box])
    found = solve([kind], [], _fit)
    assert not found.caps
    breaker, carried, lost = found.unfit[kind]
    assert breaker.name == "wall"
    assert carried == pytest.approx(kind.loads({box: 310})[0][1])
    assert lost is None


def test_a_card_at_its_least_limit_lets_others_go_lower() -> None:
    stiff, soft = workstation(fit=True, cap_min_watts=320), workstation(fit=True)
    kind = rack([wall(16)], [stiff, soft])
    caps = solve([kind], [], _fit).caps[kind]
    assert caps[stiff] == 320
    assert caps[soft] < 320
    assert not over(kind, caps)


def test_breakers_that_no_cap_changes_are_left_alone() -> None:
    box = workstation(fit=True, pdus=("a",))
    heavy = machine(9000, 1, pdus=("b",))
    kind = rack([wall(16, name="a"), wall(16, name="b")], [box, heavy])
    assert not solve([kind], [], _fit).unfit


def test_one_feed_lost_is_reckoned_with() -> None:
    box = workstation(fit=True, supplies=2)
    kind = rack([wall(8, name="a", feed="A"), wall(8, name="b", feed="B")], [box])
    cap = solve([kind], [], _fit).caps[kind][box]
    assert not over(kind, {box: cap})
    assert [lost for _, _, lost in over(kind, {box: cap + 1})] == [("feed", "B"), ("feed", "A")]


def test_a_feed_lowers_the_caps_of_all_its_racks_alike() -> None:
    box = workstation(fit=True)
    kind = rack([wall(32, feed="A")], [box, box], ("r01", "r02", "r03"))
    feed = FeedLimit(("feed", "A"), 10_000)
    found = solve([kind], [feed], _fit)
    cap = found.caps[kind][box]
    assert feed_load(feed.key, [feed], [kind], found.caps)[0] <= 10_000
    assert feed_load(feed.key, [feed], [kind], {kind: {box: cap + 1}})[0] > 10_000
    unfit = solve([kind], [FeedLimit(("feed", "A"), 2000)], _fit)
    assert not unfit.caps
    assert unfit.unfit_feeds[("feed", "A")] > 2000


def test_a_feed_carries_all_when_the_other_is_lost() -> None:
    kind = rack([wall(name="a", feed="A"), wall(name="b", feed="B")], [machine(1000, 2)], ("r01", "r02"))
    feeds = [FeedLimit(("feed", "A"), 1e9), FeedLimit(("feed", "B"), 1e9)]
    assert feed_load(("feed", "A"), feeds, [kind], {}) == (1000, 2000)


@given(st.integers(-5, 500), st.integers(0, 500))
def test_the_highest_is_found(border: int, top: int) -> None:
    expected = min(border, top)
    assert highest(lambda cap: cap <= border, top) == (expected if expected >= 1 else None)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(6, 40), st.sampled_from(["A", "B", None])), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 8), st.integers(1, 3)), min_size=1, max_size=4),
    st.integers(0, 4000),
)
def test_the_found_cap_holds_and_one_watt_more_does_not(
    walls: list[tuple[int, str | None]], boxes: list[tuple[int, int, int]], other_watts: int
) -> None:
    fitted = [
        workstation(base, gpus, supplies=supplies, fit=True, supply_watts=4000, tdp_watts=300 + 50 * supplies)
        for base, gpus, supplies in boxes
    ]
    kind = rack(
        [wall(amps, name=f"p{number}", feed=feed) for number, (amps, feed) in enumerate(walls)],
        [*fitted, machine(other_watts + 1, 1)],
    )
    found = solve([kind], [], _fit)
    changed = _changed(kind, fitted)
    caps = found.caps.get(kind, {})
    assert bool(_over(kind, caps) & changed) == (kind in found.unfit)
    if kind in found.unfit:
        assert not caps
        assert _over(kind, dict.fromkeys(fitted, 1.0)) & changed
    elif caps:
        (cap,) = set(caps.values())
        assert cap == math.floor(cap)
        more = {one: min(cap + 1, one.tdp_watts or math.inf) for one in caps}
        assert _over(kind, more) & changed


def _over(kind: RackKind, caps: dict[Machine, float]) -> set[str]:
    return {breaker.name for breaker, _, _ in over(kind, caps)}


def _changed(kind: RackKind, fitted: list[Machine]) -> set[str]:
    """The breakers that a cap changes."""
    low, high = kind.loads(dict.fromkeys(fitted, 1.0)), kind.loads({})
    return {one[0].name for one, two in zip(low, high, strict=True) if two[2] > one[2] + 1e-6}


@pytest.mark.parametrize(("cap", "share"), [(350, 1), (315, 0.975), (280, 0.95), (279, None), (100, None)])
def test_the_price_is_what_somebody_measured(cap: float, share: float | None) -> None:
    found, words = price(workstation(), cap)
    assert found == (None if share is None else pytest.approx(share))
    assert "Puget Systems" in words


@pytest.mark.parametrize(("gpu", "tdp_watts"), [("t4", 70), ("rtx-3090-ti", 450), ("rtx-3090", None)])
def test_the_price_of_a_card_that_nobody_measured_is_unknown(gpu: str, tdp_watts: float | None) -> None:
    share, words = price(workstation(gpu=gpu, tdp_watts=tdp_watts), 50)
    assert share is None
    assert f"not known of {gpu}" in words


def test_the_same_card_under_another_cooler_has_the_same_price() -> None:
    assert price(workstation(gpu="rtx-3090-turbo"), 280)[0] == pytest.approx(0.95)
