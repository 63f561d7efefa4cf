"""The reference designs plan without a word of advice, are what they say they are, and their pages are true."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest

from coldiron.catalog.load import load as load_catalog
from coldiron.inventory.functions import FUNCTIONS
from coldiron.plan import Plan, Severity
from coldiron.plan.data import site_data
from coldiron.plan.design import Design
from tests.plan.designs import BLOCK, INVENTORIES, NAMES, PAGES, filled, planned


@cache
def plan(name: str) -> Plan:
    return planned(name)


def design(name: str) -> Design:
    found = plan(name).design
    assert found is not None
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_design_plans_without_a_word_of_advice(name: str) -> None:
    assert [str(finding) for finding in plan(name).findings] == []
    assert plan(name).complete
    assert plan(name).verdict == "sound: nothing to mend"


@pytest.mark.parametrize("name", NAMES)
def test_every_machine_of_a_design_has_its_draw_and_its_place(name: str) -> None:
    made = design(name)
    machines = {*made.nodes, *made.switches}
    assert machines == {*made.power.nodes, *made.power.switches}
    assert {place.name for place in made.positions.values() if place.u is not None} == machines
    assert made.power.circuits
    for circuit in [*made.power.circuits, *made.power.feeds]:
        assert 0 <= circuit.watts <= circuit.failover_watts <= circuit.limit_watts, circuit


@pytest.mark.parametrize("name", NAMES)
def test_no_secret_lies_beside_a_design(name: str) -> None:
    held = [path.read_text(encoding="utf-8") for path in (INVENTORIES / name).rglob("*.yml")]
    assert not any(re.search(r"(?m)^\w*(password|secret|_key):", text) for text in held)


@pytest.mark.parametrize("name", NAMES)
def test_a_design_assumes_nothing_that_the_catalog_knows(name: str) -> None:
    """A figure that a text was found for since must not be hidden behind what somebody assumed before."""
    known = load_catalog().entries()
    hidden = []
    for entry in design(name).cluster.catalog.entries().values():
        if entry.name in known:
            before = dict(known[entry.name].figures())
            hidden += [
                f"{entry.name}: {figure}"
                for figure, value in entry.figures()
                if value != before[figure] and before[figure] is not None
            ]
    assert hidden == []


@pytest.mark.parametrize("name", ["dgx-h100-12", "hgx-h200-256"])
def test_one_of_two_heads_runs_slurm(name: str) -> None:
    heads = [node for node in design(name).nodes.values() if node.kind == "head"]
    assert len(heads) == 2
    single = {function for function in FUNCTIONS if function.startswith("slurm_") or function == "mariadb"}
    assert single & set(heads[0].functions) == {"mariadb", "slurm_controller", "slurm_dbd"}
    assert single & set(heads[1].functions) == set()
    assert {"dns_server", "time_server"} <= set(heads[1].functions)


def links(name: str) -> tuple[Counter[str], Counter[str], Counter[tuple[str, int | None]]]:
    """Of the fabric: links down by leaf, links up by leaf, and links down by leaf and rail."""
    made = design(name)
    fabric = [link for link in made.links if link.network == "compute"]
    down = [link for link in fabric if link.a.device in made.nodes]
    up = [link for link in fabric if link.a.device in made.switches]
    assert len(down) + len(up) == len(fabric)
    assert {link.gbit_per_s for link in fabric} == {400}
    return (
        Counter(link.b.device for link in down),
        Counter(link.a.device for link in up),
        Counter((link.b.device, link.rail) for link in down),
    )


def test_twelve_dgx_have_96_links_at_full_bisection() -> None:
    down, up, rails = links("dgx-h100-12")
    assert sum(down.values()) == 96 == sum(up.values())
    assert set(down.values()) == {24}
    assert down == up
    # Two rails a leaf, and all twelve nodes of a rail on one leaf.
    assert set(rails.values()) == {12}
    assert sorted(rail for _, rail in rails) == [*range(1, 9)]


def test_256_gpus_have_a_leaf_a_rail_and_as_many_links_up_as_down() -> None:
    down, up, rails = links("hgx-h200-256")
    assert sum(down.values()) == 256 == sum(up.values())
    assert rails == {(f"leaf0{rail}", rail): 32 for rail in range(1, 9)}
    assert down == up
    spines = Counter(
        link.b.device for link in design("hgx-h200-256").links if link.b.device.startswith("spine")
    )
    assert spines == {f"spine0{number}": 64 for number in range(1, 5)}


@pytest.mark.parametrize(("name", "machines"), [("dgx-h100-12", 12), ("hgx-h200-256", 32)])
def test_storage_gives_ten_gib_a_second_to_each_machine_of_eight_gpus(name: str, machines: int) -> None:
    made = design(name)
    served = sum(
        kind.build.hardware.storage.read_gib_per_s * len(kind.nodes)
        for kind in made.kinds
        if kind.build.hardware.storage and kind.build.hardware.storage.read_gib_per_s
    )
    eight = sum(len(kind.nodes) for kind in made.kinds if kind.build.gpu_count == 8)
    assert eight == machines
    assert served >= 10 * machines


def test_three_feeds_carry_what_one_of_them_loses() -> None:
    feeds = design("dgx-h100-12").power.feeds
    assert [feed.id for feed in feeds] == ["A", "B", "C"]
    assert all(feed.failover_watts > feed.watts for feed in feeds)


def test_either_feed_carries_all_of_256_gpus() -> None:
    power = design("hgx-h200-256").power
    whole = sum([*power.nodes.values(), *power.switches.values()])
    assert [feed.id for feed in power.feeds] == ["A", "B"]
    for feed in power.feeds:
        assert feed.failover_watts == pytest.approx(whole, rel=0.001)


def test_the_plan_finds_the_starters_cap() -> None:
    caps = design("starter").power.caps
    assert set(caps) == {"ws01", "ws02"}
    (cap,) = set(caps.values())
    assert 250 <= cap < 350
    (circuit,) = design("starter").power.circuits
    # The highest that holds: eight watts more, one a card, would not.
    assert circuit.watts <= circuit.limit_watts < circuit.watts + 8 * 1.2


def test_without_its_cap_the_starter_is_refused_and_told_the_cap() -> None:
    found = planned("starter", without_cap=True)
    assert found.refused
    (over,) = found.of(Severity.REFUSE)
    (cap,) = set(design("starter").power.caps.values())
    assert "carries" in over.what
    assert f"{cap:.0f} W" in over.advice
    assert any(f"cap each GPU at {cap:.0f} W" in finding.what for finding in found.findings)


def test_the_interactive_nodes_hold_rtx_6000_ada() -> None:
    gpus = site_data(design("dgx-h100-12"))["gpus"]
    assert gpus == {"rtx-6000-ada": 8, "h100-sxm5-80gb": 96}
    made = design("dgx-h100-12")
    assert {made.nodes[name].workload for name in made.nodes if name.startswith("viz")} == {"interactive"}


def test_only_login_nodes_are_where_users_come_from() -> None:
    for name in ("dgx-h100-12", "hgx-h200-256"):
        outside = {node.kind for node in design(name).nodes.values() if "external" in node.addresses}
        assert outside == {"login"}


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("*.md")))
def test_a_page_shows_the_plan_as_it_is(page: str) -> None:
    text = (PAGES / page).read_text(encoding="utf-8")
    assert filled(text) == text, "the plan says something else now: python -m tests.plan.designs"


def test_every_design_has_a_page_with_its_plan_and_a_line_in_the_list() -> None:
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    for name in NAMES:
        shown = [
            match["words"] for match in BLOCK.finditer((PAGES / f"{name}.md").read_text(encoding="utf-8"))
        ]
        assert shown[0] == name
        data = site_data(design(name))
        gpus, draw = sum(data["gpus"].values()), data["draw_kw"]
        assert f"| {gpus} | {draw:,.1f} kW |" in index
