"""Plugs, breakers and phases of a rack."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings

from coldiron.inventory.facility import Circuit, Outlets, Pdu
from coldiron.plan.circuits import Layout, RackKind
from coldiron.plan.draw import Machine
from tests.plan.power_cases import PLENTY, machine, machines, pdus, rack, wall


def _loads(kind: RackKind) -> dict[str, tuple[float, float]]:
    return {breaker.name: (normal, worst) for breaker, normal, worst, _ in kind.loads({})}


def test_a_single_circuit_is_volts_times_amps_times_derating() -> None:
    (breaker,) = Layout([wall(16, 0.8)], ()).breakers
    assert breaker.kind == "circuit"
    assert breaker.limit_watts == pytest.approx(230 * 16 * 0.8)
    assert breaker.amps_for(3000) == math.ceil(3000 / 230 / 0.8)


@pytest.mark.parametrize(
    ("volts", "outlet"), [(400, 400 / math.sqrt(3)), (346, 346 / math.sqrt(3)), (208, 208)]
)
def test_outlets_of_three_phases_hang_to_neutral_where_lines_are_far_apart(
    volts: float, outlet: float
) -> None:
    layout = Layout([Pdu(name="a", volts=volts, phases=3, amps=32)], ())
    assert [bank.volts for bank in layout.banks] == [pytest.approx(outlet)] * 3
    whole = layout.breakers[0]
    assert whole.limit_watts == pytest.approx(math.sqrt(3) * volts * 32 * 0.8)
    assert [breaker.name for breaker in layout.breakers] == ["a", "a/L1", "a/L2", "a/L3"]
    assert sum(breaker.limit_watts for breaker in layout.breakers[1:]) == pytest.approx(whole.limit_watts)


def test_a_circuit_between_two_lines_puts_its_current_on_both() -> None:
    circuits = [Circuit(name="b1", amps=20, phase="L1-L2", outlets=PLENTY)]
    kind = rack([Pdu(name="a", volts=208, phases=3, amps=30, circuits=circuits)], [machine(2080, 1)])
    loads = _loads(kind)
    # 10 A run in both lines, none in the third; 10 A times 120 V.
    assert loads["a/L1"][0] == pytest.approx(10 * 208 / math.sqrt(3))
    assert loads["a/L2"][0] == pytest.approx(10 * 208 / math.sqrt(3))
    assert loads["a/L3"][0] == 0
    assert loads["a"][0] == 2080


def test_three_alike_loads_between_lines_are_a_third_of_the_watts_on_each() -> None:
    kind = rack([Pdu(name="a", volts=208, phases=3, amps=30)], [machine(900, 1)] * 3)
    loads = _loads(kind)
    assert [loads[f"a/L{line}"][0] for line in (1, 2, 3)] == [pytest.approx(900)] * 3


def test_supplies_share_alike_and_the_survivors_take_all() -> None:
    kind = rack([wall(name="a", feed="A"), wall(name="b", feed="B")], [machine(1200, 4)])
    assert _loads(kind) == {"a": (600, 1200), "b": (600, 1200)}


def test_a_machine_that_needs_more_supplies_than_are_left_goes_dark() -> None:
    kind = rack([wall(name="a", feed="A"), wall(name="b", feed="B")], [machine(1200, 4, min_active=3)])
    assert _loads(kind) == {"a": (600, 600), "b": (600, 600)}


def test_pdus_on_one_feed_are_lost_together() -> None:
    kind = rack([wall(name="a", feed="A"), wall(name="b", feed="A")], [machine(1200, 2, pdus=("a", "b"))])
    assert _loads(kind) == {"a": (600, 600), "b": (600, 600)}


def test_named_pdus_are_taken_and_others_in_turn_by_feed() -> None:
    two = [wall(name="a", feed="A"), wall(name="b", feed="B")]
    named = rack(two, [machine(800, 4, pdus=("a", "a", "a", "b"))])
    assert _loads(named)["a"][0] == 600
    in_turn = rack([*two, wall(name="c", feed="A")], [machine(800, 2)] * 2)
    assert [_loads(in_turn)[name][0] for name in "abc"] == [400, 800, 400]


def test_machines_of_one_supply_go_where_most_room_is() -> None:
    kind = rack([wall(16, name="a", feed="A"), wall(32, name="b", feed="B")], [machine(500, 1)] * 3)
    assert [_loads(kind)[name][0] for name in "ab"] == [500, 1000]


def test_plugs_go_into_outlets_of_their_type_and_those_without_are_named() -> None:
    pdu = Pdu(
        name="a",
        volts=230,
        amps=60,
        circuits=[
            Circuit(name="b1", amps=20, outlets=Outlets(c13=1)),
            Circuit(name="b2", amps=20, outlets=Outlets(c13=1, c19=1)),
        ],
    )
    kind = rack(
        [pdu], [machine(400, 1, inlet="c20"), machine(100, 1, inlet="c14"), machine(50, 1, inlet="c14")]
    )
    assert kind.plugs == ((1,), (0,), (1,))
    assert not kind.homeless
    more = rack([pdu], [machine(400, 1, inlet="c20"), machine(300, 1, inlet="c20")])
    assert [(cord.unit, cord.banks) for cord in more.homeless] == [(1, (0, 1))]
    assert sum(more.banks({})) == 700, "its load counts all the same"


def test_a_plug_whose_turn_has_no_outlet_for_it_goes_where_one_is() -> None:
    small = Pdu(name="a", volts=230, amps=32, outlets=Outlets(c13=4))
    large = Pdu(name="b", volts=230, amps=32, outlets=Outlets(c19=1))
    box = machine(400, 1, inlet="c20")
    kind = rack([small, large], [box, box])
    assert kind.plugs == ((1,), (0,))
    assert [(cord.unit, cord.banks) for cord in kind.homeless] == [(1, (0, 1))]
    pinned = rack([small, large], [machine(400, 1, inlet="c20", pdus=("a",))])
    assert [cord.banks for cord in pinned.homeless] == [(0,)]


def test_circuits_without_outlets_take_any_plug() -> None:
    pdu = Pdu(name="a", volts=230, amps=32, circuits=[Circuit(name="b1", amps=16)])
    assert not rack([pdu], [machine(400, 1, inlet="c20")]).homeless


def test_a_busbar_and_an_unknown_number_of_supplies_hang_on_no_circuit() -> None:
    unknown = Machine("box", (), whole_watts=500)
    kind = rack([wall()], [machine(1000, 4, inlet="busbar"), unknown])
    assert kind.plugs == (None, None)
    assert _loads(kind)["wall"] == (0, 0)
    assert kind.watts(0, {}) == 1000


def test_a_circuit_that_does_not_say_its_phase_keeps_phases_from_being_reckoned() -> None:
    circuits = [Circuit(name="b1", amps=16), Circuit(name="b2", amps=16, phase="L2")]
    layout = Layout([Pdu(name="a", volts=400, phases=3, amps=32, circuits=circuits)], ())
    assert layout.unphased == [0]
    assert {breaker.kind for breaker in layout.breakers} == {"circuit", "PDU"}


@settings(max_examples=40)
@given(pdus(), machines())
def test_circuits_carry_what_their_machines_draw(
    given_pdus: list[Pdu], given_machines: list[Machine]
) -> None:
    kind = rack(given_pdus, given_machines)
    circuits = [normal for breaker, normal, _, _ in kind.loads({}) if breaker.kind == "circuit"]
    drawn = [kind.watts(unit, {}) or 0 for unit in range(len(given_machines))]
    assert math.fsum(circuits) == pytest.approx(math.fsum(drawn))


@settings(max_examples=40)
@given(pdus(), machines())
def test_a_lost_feed_never_lightens_what_is_left(
    given_pdus: list[Pdu], given_machines: list[Machine]
) -> None:
    kind = rack(given_pdus, given_machines)
    assert all(worst >= normal for _, normal, worst, _ in kind.loads({}))


@settings(max_examples=40)
@given(pdus(), machines())
def test_a_higher_cap_lowers_no_breaker(given_pdus: list[Pdu], given_machines: list[Machine]) -> None:
    kind = rack(given_pdus, given_machines)
    with_gpus = [one for one in given_machines if one.gpus]
    low, high = (kind.loads(dict.fromkeys(with_gpus, cap)) for cap in (120.0, 260.0))
    for (_, normal, worst, _), (_, more_normal, more_worst, _) in zip(low, high, strict=True):
        assert normal <= more_normal + 1e-6
        assert worst <= more_worst + 1e-6


@settings(max_examples=40)
@given(pdus(), machines())
def test_a_pdu_carries_its_circuits_and_no_phase_less_than_a_third(
    given_pdus: list[Pdu], given_machines: list[Machine]
) -> None:
    kind = rack(given_pdus, given_machines)
    loads = _loads(kind)
    for index, pdu in enumerate(given_pdus):
        if pdu.circuits:
            assert loads[pdu.name][0] == pytest.approx(
                sum(loads[f"{pdu.name}/{circuit.name}"][0] for circuit in pdu.circuits)
            )
        if pdu.phases == 3 and index not in kind.layout.unphased:
            phases = [loads[f"{pdu.name}/L{line}"][0] for line in (1, 2, 3)]
            assert max(phases) >= loads[pdu.name][0] / 3 - 1e-6
