"""Links by rule and by plug: which port goes where, and that no port is taken twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldiron.inventory.check import build
from coldiron.inventory.source import parse
from coldiron.plan.design import Design
from coldiron.plan.links import link_data
from coldiron.plan.results import Link
from tests.plan.cases import base, over


def design(blocks: str, on: str = "") -> Design:
    """The design of the family's base with ``blocks`` over it."""
    text = over(on or base("network"), blocks)
    return Design(build(parse(text, "cluster.yml"), Path("cluster.yml")))


def of(drawn: Design, network: str) -> list[Link]:
    return [link for link in drawn.links if link.network == network]


def ends(links: list[Link]) -> list[tuple[str, str]]:
    return [(link.a.device, link.b.device) for link in links]


def plain(nodes: int, rails: int, switches: str, more: str = "") -> Design:
    """A fabric of ``nodes`` nodes; ``more`` stands in the fabric's block."""
    return design(
        f"""\
networks:
  cluster: {{subnet: 10.96.0.0/16}}
fabrics:
  compute: {{link_layer: infiniband, gbit_per_s: 400, rails: {rails}, nodes: "cpu[001-{nodes:03}]"{more}}}
switches:
{switches}
nodes:
  - {{name: head01, kind: head, address: 10.96.255.1}}
  - name: cpu[001-{nodes:03}]
    kind: cpu
    address: 10.96.0.1
    hardware: {{cores_per_socket: 32, memory_gib: 512}}
"""
    )


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.integers(1, 40),
    rails=st.integers(1, 8),
    leaves=st.integers(1, 10),
    spines=st.integers(0, 4),
    share=st.sampled_from([1, 1.5, 2, 4]),
    uplinks=st.none() | st.integers(0, 20),
    ports=st.sampled_from([40, 64, 128, 256]),
)
def test_the_laws_of_a_fabric(
    nodes: int, rails: int, leaves: int, spines: int, share: float, uplinks: int | None, ports: int
) -> None:
    up = "" if uplinks is None else f", uplinks: {uplinks}"
    leaf = f"model: qm9700, ports: {ports}, function: leaf, fabric: compute{up}"
    switches = f'  - {{name: "leaf[01-{leaves:02}]", {leaf}}}'
    if spines:
        switches += f'\n  - {{name: "spine[1-{spines}]", model: qm9700, function: spine, fabric: compute}}'
    drawn = plain(nodes, rails, switches, f", oversubscription: {share}")
    down = [link for link in drawn.links if link.rail is not None]
    upward = [link for link in drawn.links if link.rail is None]

    # Every node has each of its rails once, on a leaf that serves it.
    assert Counter((link.a.device, link.rail) for link in down) == {
        (f"cpu{node:03}", rail): 1 for node in range(1, nodes + 1) for rail in range(1, rails + 1)
    }
    plane = drawn.cabling.planes["fabrics", "compute"]
    assert all(link.b.device in {unit.name for unit in plane.serving[link.rail or 0]} for link in down)
    assert len(down) == nodes * rails

    # No port is taken twice, and none has two labels.
    taken = [end for link in drawn.links for end in (link.a, link.b)]
    assert len({(end.device, end.port) for end in taken}) == len(taken)
    switch_ends = [end for end in taken if end.device in drawn.switches]
    assert len({(end.device, end.cage) for end in switch_ends}) == len(switch_ends)

    # Links up are what the file says, else at least what is promised; and every count is that of the links.
    below, above = Counter(link.b.device for link in down), Counter(link.a.device for link in upward)
    for unit in plane.leaves:
        face = drawn.cabling.faces[unit.name]
        assert (face.down, face.up) == (below[unit.name], above[unit.name])
        if not spines:
            assert face.up == 0
        elif uplinks is not None:
            assert face.up == uplinks
        else:
            assert face.up * share >= face.down
    assert Counter(ends(upward)) == drawn.cabling.up

    # A leaf has as many links to each spine, but for one.
    for unit in plane.leaves:
        pairs = [drawn.cabling.up.get((unit.name, spine.name), 0) for spine in plane.spines]
        assert not pairs or max(pairs) - min(pairs) <= 1


def test_the_same_file_gives_the_same_links() -> None:
    assert design("").links == design("").links


@pytest.mark.parametrize(
    ("rails", "leaves", "serving"),
    [
        (8, 8, {1: "01", 8: "08"}),
        (8, 4, {1: "01", 5: "01", 4: "04"}),
        (2, 4, {1: "01 03", 2: "02 04"}),
        # Neither divides the other: each leaf serves all, so that they are loaded alike.
        (8, 3, {1: "01 02 03", 8: "01 02 03"}),
    ],
)
def test_rails_are_shared_out_to_leaves(rails: int, leaves: int, serving: dict[int, str]) -> None:
    drawn = plain(
        24, rails, f'  - {{name: "leaf[01-{leaves:02}]", model: qm9700, function: leaf, fabric: compute}}'
    )
    plane = drawn.cabling.planes["fabrics", "compute"]
    for rail, names in serving.items():
        assert [unit.name for unit in plane.serving[rail]] == [f"leaf{name}" for name in names.split()]
    assert {len([link for link in drawn.links if link.b.device == unit.name]) for unit in plane.leaves} == {
        24 * rails // leaves
    }


def test_rails_that_the_file_gives_to_leaves() -> None:
    drawn = plain(
        4,
        4,
        """\
  - {name: "one[1-2]", model: qm9700, function: leaf, fabric: compute, rails: [2, 1]}
  - {name: rest, model: qm9700, function: leaf, fabric: compute}
""",
    )
    plane = drawn.cabling.planes["fabrics", "compute"]
    served = {rail: [unit.name for unit in units] for rail, units in plane.serving.items()}
    assert served == {1: ["one2"], 2: ["one1"], 3: ["rest"], 4: ["rest"]}


def test_one_list_for_all_leaves() -> None:
    drawn = plain(
        4, 2, '  - {name: "leaf[1-4]", model: qm9700, function: leaf, fabric: compute, rails: [1, 2]}\n'
    )
    first = [link for link in drawn.links if link.rail == 1]
    assert ends(first) == [(f"cpu00{n}", f"leaf{n}") for n in range(1, 5)]


def test_ports_are_filled_from_the_first_and_cages_hold_what_the_catalog_says() -> None:
    drawn = plain(
        3,
        1,
        """\
  - {name: leaf1, model: qm9700, function: leaf, fabric: compute, uplinks: 2}
  - {name: spine1, model: qm9700, function: spine, fabric: compute}
""",
    )
    assert [(link.b.port, link.b.cage) for link in of(drawn, "compute")[:3]] == [
        (1, "1/1"),
        (2, "1/2"),
        (3, "2/1"),
    ]
    # A cable with two links at each end begins a cage.
    up = of(drawn, "compute")[3:]
    assert [(link.a.cage, link.b.cage) for link in up] == [("3/1", "1/1"), ("3/2", "1/2")]


def test_no_cage_is_left_half_empty_where_the_ports_are_needed() -> None:
    drawn = plain(
        31,
        1,
        """\
  - {name: leaf1, model: qm9700, function: leaf, fabric: compute, uplinks: 33}
  - {name: spine1, model: qm9700, function: spine, fabric: compute}
""",
    )
    assert drawn.cabling.faces["leaf1"].free == 0
    assert [link.a.cage for link in drawn.links if link.a.device == "leaf1"][:2] == ["16/2", "17/1"]


def test_what_does_not_divide_goes_to_other_spines_from_leaf_to_leaf() -> None:
    drawn = plain(
        12,
        1,
        """\
  - {name: "leaf[1-3]", model: qm9700, function: leaf, fabric: compute, uplinks: 4}
  - {name: "spine[1-3]", model: qm9700, function: spine, fabric: compute}
""",
    )
    assert [drawn.cabling.faces[f"spine{n}"].down for n in (1, 2, 3)] == [4, 4, 4]


def test_cages_that_are_split_further() -> None:
    drawn = plain(3, 1, "  - {name: leaf1, model: qm9700, ports: 128, function: leaf, fabric: compute}\n")
    face = drawn.cabling.faces["leaf1"]
    assert (face.cages, face.split, face.gbit_per_s) == (32, 4, 200)
    assert [link.b.cage for link in drawn.links] == ["1/1", "1/2", "1/3"]


def test_other_ports_than_the_catalog_counts() -> None:
    drawn = plain(3, 1, "  - {name: leaf1, model: qm9700, ports: 66, function: leaf, fabric: compute}\n")
    face = drawn.cabling.faces["leaf1"]
    assert (face.ports, face.cages, face.split, face.gbit_per_s) == (66, None, 2, 400)


PLUGS = """\
  - name: leaf1
    model: qm9700
    function: leaf
    fabric: compute
    plugs:
      - {cages: 3-4, to: "cpu[001-004]", cable: mcp7y10-n, length_m: 2}
      - {cages: 30, to: spine1, cable: mcp4y10-n}
      - {cages: 31, to: spine2, breakout: 1}
  - {name: "spine[1-2]", model: qm9700, function: spine, fabric: compute}
"""


def test_plugs_say_cage_by_cage() -> None:
    links = of(plain(4, 1, PLUGS), "compute")
    assert [(link.a.device, link.b.cage, link.cable, link.length_m) for link in links[:4]] == [
        ("cpu001", "3/1", "mcp7y10-n", 2),
        ("cpu002", "3/2", "mcp7y10-n", 2),
        ("cpu003", "4/1", "mcp7y10-n", 2),
        ("cpu004", "4/2", "mcp7y10-n", 2),
    ]
    assert [(link.a.cage, link.b.device, link.b.cage, link.cable) for link in links[4:]] == [
        ("30/1", "spine1", "1/1", "mcp4y10-n"),
        ("30/2", "spine1", "1/2", "mcp4y10-n"),
        ("31", "spine2", "1/1", None),
    ]
    assert not any(link.planned for link in links)


def test_a_plugged_cage_is_gone_whole() -> None:
    drawn = plain(4, 1, PLUGS)
    # Two cages of two links to nodes, two to spines, one of them half empty.
    assert (drawn.cabling.faces["leaf1"].taken, drawn.cabling.faces["leaf1"].free) == (8, 56)
    assert drawn.cabling.faces["spine1"].taken == 2


def test_nodes_that_no_plug_names_go_to_leaves_without_plugs() -> None:
    more = PLUGS + "  - {name: leaf2, model: qm9700, function: leaf, fabric: compute}\n"
    drawn = plain(6, 1, more)
    assert ends([link for link in drawn.links if link.planned and link.rail]) == [
        ("cpu005", "leaf2"),
        ("cpu006", "leaf2"),
    ]
    # spine1 and spine2 have no plugs of their own, so that the other leaf goes up to them by rule.
    assert drawn.cabling.up["leaf2", "spine1"] == drawn.cabling.up["leaf2", "spine2"] == 1


def test_nodes_that_no_leaf_is_left_for() -> None:
    (one,) = plain(6, 1, PLUGS).cabling.unserved
    assert (one.rail, one.nodes) == (1, ("cpu005", "cpu006"))


def test_plugs_of_both_ends_are_one_link() -> None:
    drawn = plain(
        4,
        1,
        """\
  - {name: leaf1, model: qm9700, function: leaf, fabric: compute, plugs: [{cages: 31-32, to: spine1}]}
  - {name: spine1, model: qm9700, function: spine, fabric: compute, plugs: [{cages: 7-8, to: leaf1}]}
""",
    )
    up = [link for link in drawn.links if link.rail is None]
    assert [(link.a.cage, link.b.cage) for link in up] == [
        ("31/1", "7/1"),
        ("31/2", "7/2"),
        ("32/1", "8/1"),
        ("32/2", "8/2"),
    ]
    # Nodes are not plugged, and come by rule.
    assert len([link for link in drawn.links if link.rail == 1]) == 4


def test_a_range_of_switches_plugged_to_itself() -> None:
    drawn = design(
        """\
switches:
  - name: eth[1-2]
    model: sn2700
    function: leaf
    networks: [cluster]
    plugs: [{cages: 31-32, to: "eth[1-2]"}]
"""
    )
    (pair,) = drawn.cabling.up.items()
    assert pair == (("eth1", "eth2"), 2)
    assert [(link.a.cage, link.b.cage) for link in of(drawn, "cluster")[-2:]] == [("31", "31"), ("32", "32")]


def test_plugs_written_out_are_the_links_by_rule() -> None:
    by_rule = design("")
    lines = []
    for name, unit in by_rule.switches.items():
        if unit.group.fabric is None:
            continue
        lines.append(
            f"  - name: {name}\n    model: qm9700\n    function: {unit.group.function}\n    fabric: compute"
        )
        mine = [link for link in of(by_rule, "compute") if name in (link.b.device, link.a.device)]
        if unit.group.function == "spine":
            continue
        cages: dict[str, list[tuple[str, int | None]]] = {}
        for link in mine:
            here, there = (link.b, link.a) if link.b.device == name else (link.a, link.b)
            cages.setdefault(str(here.cage).partition("/")[0], []).append((there.device, link.rail))
        lines.append("    plugs:")
        for cage, links in cages.items():
            names = ",".join(dict.fromkeys(device for device, _ in links))
            port = f", port: {links[0][1]}" if links[0][1] else ""
            lines.append(f'      - {{cages: {cage}, to: "{names}"{port}}}')
    by_hand = design("switches:\n" + "\n".join(lines) + "\n")
    assert by_hand.cabling.faults == ()
    said = {replace(link, planned=True) for link in of(by_hand, "compute")}
    assert said == set(of(by_rule, "compute"))


MANAGEMENT = """\
networks:
  cluster: {subnet: 10.99.0.0/24, gbit_per_s: 1}
  bmc: {subnet: 10.98.0.0/24}
fabrics: {}
racks:
  - {name: "r[1-3]"}
"""
NODES = """\
nodes:
  - {name: head01, kind: head, address: 10.99.0.1}
  - name: cpu[01-12]
    kind: cpu
    address: 10.99.0.11
    bmc: {address: 10.98.0.11}
    rack: r[1-3]
    hardware: {cores_per_socket: 32, memory_gib: 512}
"""


def test_a_node_goes_to_the_switch_of_its_rack() -> None:
    drawn = design(
        MANAGEMENT
        + NODES
        + """\
switches:
  - {name: "mgmt[1-2]", model: sn2201, function: management, networks: [cluster, bmc], rack: "r[1-2]"}
"""
    )
    where = dict(ends(of(drawn, "bmc")))
    assert {where[f"cpu0{n}"] for n in range(1, 5)} == {"mgmt1"}
    assert {where[f"cpu0{n}"] for n in range(5, 9)} == {"mgmt2"}
    # Rack r3 has none: its nodes are shared out.
    assert Counter(where[f"cpu{n:02}"] for n in range(9, 13)) == {"mgmt1": 2, "mgmt2": 2}
    # The head has no BMC, and its port is on the cluster's network alone.
    assert "head01" not in where
    assert len(of(drawn, "cluster")) == 13


def test_two_links_of_a_node_go_to_two_switches() -> None:
    text = MANAGEMENT.replace("gbit_per_s: 1", "links: 2") + NODES
    for rack in ("", ", rack: r1"):
        drawn = design(
            text
            + f'switches:\n  - {{name: "mgmt[1-2]", model: sn2201, function: management, networks: [cluster]{rack}}}\n'
        )
        links = of(drawn, "cluster")
        assert len(links) == 26
        if rack:
            inside = [link for link in links if link.a.device in ("cpu01", "cpu02", "cpu03", "cpu04")]
            assert {
                device: {link.b.device for link in inside if link.a.device == device}
                for device in ("cpu01", "cpu04")
            } == {"cpu01": {"mgmt1", "mgmt2"}, "cpu04": {"mgmt1", "mgmt2"}}


def test_a_network_on_another_ones_ports_has_no_links() -> None:
    text = MANAGEMENT + "  \n" + NODES.replace("    rack:", "    addresses: {storage: 10.97.0.11}\n    rack:")
    text = text.replace(
        "fabrics: {}", "  storage: {subnet: 10.97.0.0/24, port_of: cluster, vlan: 5}\nfabrics: {}"
    )
    drawn = design(
        text
        + "switches:\n  - {name: m1, model: sn2201, function: management, networks: [cluster, storage]}\n"
    )
    assert {link.network for link in drawn.links} == {"cluster"}


def test_nodes_on_a_fabric_reach_its_networks_through_it() -> None:
    drawn = design(
        """\
fabrics:
  compute: {link_layer: infiniband, gbit_per_s: 400, nodes: "cpu[01-20]", networks: [cluster]}
switches:
  - {name: leaf01, model: qm9700, function: leaf, fabric: compute}
  - {name: mgmt01, model: sn2201, function: management, networks: [cluster]}
"""
    )
    assert ends(of(drawn, "cluster")) == [("head01", "mgmt01")]


def test_plugs_of_a_switch_with_several_networks() -> None:
    drawn = design(
        """\
switches:
  - name: mgmt01
    model: sn2201
    function: management
    networks: [cluster, bmc]
    plugs:
      - {cages: 1-21, to: "cpu[01-20],head01"}
      - {cages: 25-44, to: "cpu[01-20]", network: bmc}
"""
    )
    assert len(of(drawn, "cluster")) == 21
    assert [link.b.cage for link in of(drawn, "bmc")][:2] == ["25", "26"]
    assert all(not link.planned for link in drawn.links)


def test_cages_beside_the_ports_join_switches(tmp_path: Path) -> None:
    (tmp_path / "catalog.yml").write_text(
        """\
documents:
  ours: {title: Our own bench, read: 2026-11-01, by: site}
switches:
  rack-switch:
    title: Rack switch
    link_layer: ethernet
    ports: 24
    gbit_per_s: 1
    cage: rj45
    uplink_ports: 2
    uplink_gbit_per_s: 10
    uplink_cage: sfp28
    sources:
      - document: ours
        what: [link_layer, ports, gbit_per_s, cage, uplink_ports, uplink_gbit_per_s, uplink_cage]
"""
    )
    text = over(
        base("network"),
        """\
site: {catalog: [catalog.yml]}
networks:
  cluster: {subnet: 10.99.0.0/24}
  bmc: {subnet: 10.98.0.0/24}
fabrics: {}
switches:
  - {name: "mgmt[1-2]", model: rack-switch, function: management, networks: [cluster]}
  - {name: core1, model: rack-switch, function: spine, networks: [cluster]}
""",
    )
    drawn = Design(build(parse(text, "cluster.yml"), tmp_path / "cluster.yml"))
    up = [link for link in drawn.links if link.b.device == "core1"]
    assert [(link.a.device, link.a.cage, link.b.cage, link.gbit_per_s) for link in up] == [
        ("mgmt1", "25", "25", 10),
        ("mgmt2", "25", "26", 10),
    ]
    assert drawn.cabling.faces["mgmt1"].taken == 11
    # Where the cages for it do not reach, ports like all others are taken.
    more = text.replace(
        "networks: [cluster]}\n  - {name: core1", "networks: [cluster], uplinks: 3}\n  - {name: core1"
    )
    drawn = Design(build(parse(more, "cluster.yml"), tmp_path / "cluster.yml"))
    up = [link for link in drawn.links if link.b.device == "core1"]
    assert [(link.a.cage, link.gbit_per_s) for link in up[:3]] == [("12", 1), ("13", 1), ("14", 1)]


def test_how_long_a_link_is() -> None:
    drawn = design(
        """\
fabrics:
  compute: {link_layer: infiniband, gbit_per_s: 400, nodes: "cpu[01-02]"}
racks:
  - {name: "r[1-2]", row: A, position: 1}
switches:
  - {name: leaf01, model: qm9700, function: leaf, fabric: compute, rack: r1, u: 42}
nodes:
  - {name: head01, kind: head, address: 10.99.0.1}
  - name: cpu[01-02]
    kind: cpu
    address: 10.99.0.11
    rack: r[1-2]
    u: 1
    hardware: {cores_per_socket: 32, memory_gib: 512, height_u: 1}
"""
    )
    near, far = (link.length_m for link in of(drawn, "compute"))
    assert near is not None
    assert far is not None
    # 41 units of 44.45 mm and what a cable wants beyond.
    assert near == pytest.approx(41 * 0.04445 + 0.5, abs=0.01)
    assert far > near


def test_counts_as_json_and_the_list_on_demand() -> None:
    data = link_data(design(""))
    assert data["count"] == 80 + 80 + 41
    assert data["fabrics"]["compute"] == {
        "nodes": 20,
        "gbit_per_s": 400.0,
        "leaves": 4,
        "spines": 2,
        "down": 80,
        "up": 80,
        "rails": 4,
    }
    assert data["networks"]["bmc"]["down"] == 20
    assert data["switches"]["leaf01"] == {"ports": 64, "down": 20, "up": 20, "free": 24}
    assert "list" not in data
    drawn = design("")
    every = link_data(drawn, every=True)["list"]
    assert every == [asdict(link) for link in drawn.links]
    assert len(every) == data["count"]
    assert every[0] == {
        "network": "compute",
        "a": {"device": "cpu01", "port": 1, "cage": None},
        "b": {"device": "leaf01", "port": 1, "cage": "1/1"},
        "gbit_per_s": 400.0,
        "rail": 1,
        "cable": None,
        "length_m": None,
        "planned": True,
    }


def test_a_plug_of_a_network_without_ports_of_its_own() -> None:
    drawn = design(
        """\
networks:
  cluster: {subnet: 10.99.0.0/24}
  bmc: {subnet: 10.98.0.0/24}
  storage: {subnet: 10.97.0.0/24, port_of: cluster, vlan: 5}
fabrics: {}
switches:
  - {name: m1, model: sn2201, function: management, networks: [storage], plugs: [{cages: 1, to: head01}]}
"""
    )
    (fault,) = drawn.cabling.faults
    assert fault.code == "CL144"
    assert drawn.links == ()


def test_nodes_of_a_network_whose_switches_are_all_plugged_by_hand() -> None:
    drawn = design(
        """\
fabrics: {}
switches:
  - {name: m1, model: sn2201, function: management, networks: [cluster], plugs: [{cages: 1, to: head01}]}
"""
    )
    (one,) = drawn.cabling.unserved
    assert len(one.nodes) == 20
    assert ends(of(drawn, "cluster")) == [("head01", "m1")]
