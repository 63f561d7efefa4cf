"""What the checks say of fabrics and switches, beyond the examples of their pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldiron.inventory.check import build
from coldiron.inventory.source import parse
from coldiron.plan.checks import network
from coldiron.plan.checks.fabric import fold_numbers
from coldiron.plan.design import Design, run
from coldiron.plan.findings import Finding, Severity
from tests.plan.cases import base, over


def found(blocks: str, directory: Path = Path()) -> list[Finding]:
    """What the checks of networks find in the base with ``blocks`` over it."""
    text = over(base("network"), blocks)
    return run(Design(build(parse(text, "cluster.yml"), directory / "cluster.yml")), network.CHECKS)


def codes(blocks: str) -> set[str]:
    """Those of fabrics, without the advice that other networks have no switches."""
    return {finding.code for finding in found(blocks)} - {"CL113"}


def one(blocks: str, code: str) -> Finding:
    (finding,) = [finding for finding in found(blocks) if finding.code == code]
    return finding


DGX = """\
networks:
  cluster: {subnet: 10.50.0.0/24, vlan: 100, gateway: 10.50.0.254, gbit_per_s: 1}
  bmc: {subnet: 10.51.0.0/24, vlan: 101}
fabrics:
  compute: {link_layer: infiniband, gbit_per_s: 400, rails: 8}
switches:
  - {name: "leaf[01-04]", model: qm9700, function: leaf, fabric: compute}
  - {name: "spine[01-02]", model: qm9700, function: spine, fabric: compute}
  - {name: mgmt01, model: sn2201, function: management, networks: [cluster, bmc]}
nodes:
  - {name: head01, kind: head, address: 10.50.0.1}
  - name: dgx[01-12]
    kind: gpu
    model: dgx-h100
    address: 10.50.0.11
    bmc: {address: 10.51.0.11}
    hardware:
      cores_per_socket: 56
      memory_gib: 2048
      ports: [{count: 8, gbit_per_s: 400}, {count: 2, gbit_per_s: 200}, {count: 2, gbit_per_s: 10}]
"""


def test_twelve_dgx_at_full_bisection() -> None:
    assert found(DGX) == []
    text = over(base("network"), DGX)
    drawn = Design(build(parse(text, "cluster.yml"), Path("cluster.yml"))).cabling
    assert drawn.down["fabrics", "compute"] == 96
    assert sum(drawn.up.values()) == 96
    assert {(face.down, face.up) for name, face in drawn.faces.items() if "leaf" in name} == {(24, 24)}
    assert {face.taken for name, face in drawn.faces.items() if "spine" in name} == {48}


def test_twelve_dgx_on_three_leaves_fill_them() -> None:
    assert found(DGX.replace("leaf[01-04]", "leaf[01-03]").replace("spine[01-02]", "spine[01-02]")) == []


def test_twelve_dgx_do_not_fit_two_leaves() -> None:
    finding = one(DGX.replace("leaf[01-04]", "leaf[01-02]"), "CL124")
    assert dict(finding.figures) == {"down": 48, "up": 48, "taken": 96, "spare_ports": 0, "ports": 64}
    assert finding.severity is Severity.REFUSE
    assert "leaf[01-02]: 48 links down and 48 up take 96 ports, and qm9700 has 64" in finding.what


HGX = """\
networks:
  cluster: {subnet: 10.60.0.0/24, vlan: 200, gateway: 10.60.0.254, gbit_per_s: 1}
  bmc: {subnet: 10.61.0.0/24, vlan: 201}
fabrics:
  compute: {link_layer: infiniband, gbit_per_s: 400, rails: 8, oversubscription: 1}
switches:
  - {name: "leaf[01-08]", model: qm9700, function: leaf, fabric: compute, rails: [1, 2, 3, 4, 5, 6, 7, 8]}
  - {name: "spine[01-04]", model: qm9700, function: spine, fabric: compute}
  - {name: mgmt01, model: sn2201, function: management, networks: [cluster]}
  - {name: mgmt02, model: sn2201, function: management, networks: [bmc]}
nodes:
  - {name: head01, kind: head, address: 10.60.0.1}
  - name: hgx[01-32]
    kind: gpu
    address: 10.60.0.11
    bmc: {address: 10.61.0.11}
    hardware:
      cores_per_socket: 56
      memory_gib: 2048
      gpus: {model: h200-sxm5-141gb, count: 8}
      ports: [{count: 8, gbit_per_s: 400}, {count: 2, gbit_per_s: 10}]
"""


def test_thirty_two_hgx_in_two_layers() -> None:
    assert found(HGX) == []
    text = over(base("network"), HGX)
    drawn = Design(build(parse(text, "cluster.yml"), Path("cluster.yml"))).cabling
    assert drawn.down["fabrics", "compute"] == 256
    # Leaf n is rail n, and every port of all twelve switches is used.
    assert drawn.leaves[("fabrics", "compute"), 3] == {"leaf03"}
    assert {face.free for name, face in drawn.faces.items() if "mgmt" not in name} == {0}
    assert set(drawn.up.values()) == {8}


def test_a_thirty_third_hgx_is_one_too_many() -> None:
    more = HGX.replace("hgx[01-32]", "hgx[01-33]")
    finding = one(more, "CL124")
    assert dict(finding.figures)["taken"] == 66
    assert codes(more) == {"CL124", "CL125", "CL130"}


def test_a_promise_that_is_not_full_bisection() -> None:
    halved = HGX.replace("oversubscription: 1}", "oversubscription: 2}").replace(
        "spine[01-04]", "spine[01-02]"
    )
    assert found(halved) == []
    finding = one(halved.replace("rails: [1,", "uplinks: 14, rails: [1,"), "CL129")
    assert "32 links down share 14 up, 2.29:1, and `compute` promises 2:1" in finding.what
    assert finding.advice == "write 16 uplinks, or `oversubscription: 2.29` for the fabric"
    # What the advice says mends it.
    assert codes(halved.replace("rails: [1,", "uplinks: 16, rails: [1,")) == set()
    told = halved.replace("rails: [1,", "uplinks: 14, rails: [1,").replace(
        "oversubscription: 2}", "oversubscription: 2.29}"
    )
    assert codes(told) == set()


FABRIC = 'fabrics:\n  compute: {link_layer: infiniband, gbit_per_s: 400, nodes: "cpu[01-20]"}\nswitches:\n'


@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        # Two leaves that a plug joins are one fabric.
        (
            '  - {name: "leaf[1-2]", model: qm9700, function: leaf, fabric: compute, ports: 19,'
            ' plugs: [{cages: 28-32, to: "leaf[1-2]"}]}\n',
            {"CL124"},
        ),
        ('  - {name: "leaf[1-2]", model: qm9700, function: leaf, fabric: compute}\n', {"CL132", "CL152"}),
        # uplinks: 0 joins nothing, though there are spines.
        (
            '  - {name: "leaf[1-2]", model: qm9700, function: leaf, fabric: compute, uplinks: 0}\n'
            "  - {name: spine1, model: qm9700, function: spine, fabric: compute}\n",
            {"CL132", "CL152"},
        ),
        # Spines alone take no node.
        ("  - {name: spine1, model: qm9700, function: spine, fabric: compute}\n", {"CL128"}),
        ("  - {name: leaf1, model: qm9700, function: leaf, fabric: compute, rails: [0, 1]}\n", {"CL133"}),
        (
            "  - {name: leaf1, model: qm9700, function: leaf, fabric: compute,"
            ' plugs: [{cages: 1-10, to: "cpu[01-20]", port: 2}]}\n',
            {"CL133"},
        ),
        # A plug to nodes and switches at once; to a switch that carries nothing of this; to itself.
        (
            "  - {name: leaf1, model: qm9700, function: leaf, fabric: compute,"
            ' plugs: [{cages: 1-10, to: "cpu[01-20],leaf2"}]}\n'
            "  - {name: leaf2, model: qm9700, function: leaf, fabric: compute}\n",
            {"CL144", "CL132", "CL152"},
        ),
        (
            "  - {name: leaf1, model: qm9700, function: leaf, fabric: compute, plugs: [{cages: 20, to: m1}]}\n"
            "  - {name: m1, model: sn2201, function: management, networks: [bmc]}\n",
            {"CL144"},
        ),
        (
            "  - {name: leaf1, model: qm9700, function: leaf, fabric: compute, plugs: [{cages: 20, to: leaf1}]}\n",
            {"CL144"},
        ),
        (
            "  - {name: leaf1, model: qm9700, function: leaf, fabric: compute,"
            ' plugs: [{cages: 20, breakout: 1, to: "spine[1-2]"}]}\n'
            '  - {name: "spine[1-2]", model: qm9700, function: spine, fabric: compute}\n',
            {"CL143", "CL152"},
        ),
        # Each link of a cage that is split in four carries 200.
        (
            "  - {name: leaf1, model: qm9700, function: leaf, fabric: compute,"
            ' plugs: [{cages: 1-5, breakout: 4, to: "cpu[01-20]"}]}\n',
            {"CL122"},
        ),
        # InfiniBand does not carry an Ethernet network.
        ("  - {name: leaf1, model: qm9700, function: leaf, fabric: compute, networks: [bmc]}\n", {"CL121"}),
    ],
)
def test_fabrics_that_cannot_be(switches: str, expected: set[str]) -> None:
    assert codes(FABRIC + switches) == expected


def test_a_network_that_is_faster_than_its_switch() -> None:
    text = """\
networks:
  cluster: {subnet: 10.99.0.0/24, gbit_per_s: 25}
  bmc: {subnet: 10.98.0.0/24}
fabrics: {}
switches:
  - {name: mgmt01, model: sn2201, function: management, networks: [cluster, bmc]}
"""
    assert codes(text) == {"CL122"}
    assert codes(text.replace("gbit_per_s: 25", "gbit_per_s: 1")) == set()


def test_a_fault_of_a_range_is_said_once() -> None:
    text = FABRIC.replace("400,", "400, rails: 2,") + (
        '  - {name: "leaf[1-2]", model: qm9700, function: leaf, fabric: compute, rails: [1, 2],'
        ' plugs: [{cages: 40, to: "cpu[01-20]"}]}\n'
    )
    assert [finding.code for finding in found(text)].count("CL142") == 1


def test_figures_that_nobody_gives_are_named(tmp_path: Path) -> None:
    (tmp_path / "catalog.yml").write_text("switches:\n  mystery: {title: Mystery}\n")
    text = (
        "site: {catalog: [catalog.yml]}\n"
        + FABRIC
        + "  - {name: leaf1, model: mystery, function: leaf, fabric: compute,"
        ' plugs: [{cages: 1-20, to: "cpu[01-20]"}]}\n'
    )
    said = {finding.subject: finding.what for finding in found(text, tmp_path) if finding.code == "CA101"}
    assert said == {
        "mystery": "not known of mystery: link_layer, gbit_per_s, ports, ports_per_cage; not looked at: whether it "
        "speaks InfiniBand, its ports' speed, its links against its ports, how many links a plugged cage holds"
    }


PRICES = "site: {currency: EUR, prices: {sn2700: 12000, sn2100: 7000}}\n"
ROCE = """\
fabrics:
  compute: {link_layer: roce, gbit_per_s: 100, nodes: "cpu[01-16]"}
switches:
  - {name: leaf01, model: sn2700, function: leaf, fabric: compute}
"""


def test_what_a_smaller_switch_saves() -> None:
    finding = one(PRICES + ROCE, "CL151")
    assert "sn2100 with 16 would do and cost 5,000 EUR less" in finding.what
    assert dict(finding.figures)["saving"] == 5000
    assert dict(one(ROCE, "CL151").figures)["saving"] is None


def test_a_smaller_switch_that_costs_more_is_no_advice() -> None:
    assert "CL151" not in codes(PRICES.replace("7000", "13000") + ROCE)


def test_what_fewer_switches_save() -> None:
    text = (
        "site: {prices: {qm9700: 1000}}\n"
        + FABRIC
        + """\
  - {name: "leaf[1-2]", model: qm9700, function: leaf, fabric: compute}
  - {name: spine1, model: qm9700, function: spine, fabric: compute}
"""
    )
    finding = one(text, "CL152")
    assert "one switch would do the work of 3 and cost 2,000 less" in finding.what
    spare = text.replace('"cpu[01-20]"}', '"cpu[01-20]", spare_ports: 45}')
    assert "CL152" not in codes(spare)


def test_ids_are_the_same_from_run_to_run() -> None:
    text = DGX.replace("leaf[01-04]", "leaf[01-02]")
    assert [finding.id for finding in found(text)] == ["CL124:switch leaf[01-02]"]


@pytest.mark.parametrize(("numbers", "text"), [([3], "3"), ([1, 2, 3, 7], "1-3,7")])
def test_numbers_are_folded(numbers: list[int], text: str) -> None:
    assert fold_numbers(numbers) == text


@pytest.mark.parametrize(
    ("cable", "more", "said"),
    [
        ("mcp7y10-n", "", []),
        ("mms4x00-ns", "", []),
        # QSFP56 takes what was made for QSFP28; an OSFP cage does not.
        ("mcp7y10-n", ", cage: qsfp56", []),
        (
            "mcp7y10-n",
            ", cage: osfp",
            ["mcp7y10-n ends in qsfp112 at the nodes, and cpu[01-20] has osfp cages"],
        ),
        (
            "mcp7y70-h",
            "",
            [
                "mcp7y70-h carries 400 Gbit/s, and a cage here 2 links of 400",
                "mcp7y70-h has 4 far ends, and a cage here 2 links",
            ],
        ),
    ],
)
def test_cables_fit_their_cages(cable: str, more: str, said: list[str]) -> None:
    text = FABRIC + (
        f"""\
  - name: leaf01
    model: qm9700
    function: leaf
    fabric: compute
    plugs: [{{cages: 1-10, to: "cpu[01-20]", cable: {cable}}}]
nodes:
  - {{name: head01, kind: head, address: 10.99.0.1}}
  - name: cpu[01-20]
    kind: cpu
    address: 10.99.0.11
    hardware: {{cores_per_socket: 32, memory_gib: 512, ports: [{{count: 2, gbit_per_s: 400{more}}}]}}
"""
    )
    assert [finding.what for finding in found(text) if finding.code == "CL147"] == said


def test_a_cable_of_another_form_than_the_switch() -> None:
    text = FABRIC.replace("infiniband, gbit_per_s: 400", "roce, gbit_per_s: 100") + (
        "  - {name: leaf1, model: sn2700, function: leaf, fabric: compute,"
        ' plugs: [{cages: 1-20, to: "cpu[01-20]", cable: mcp4y10-n}]}\n'
    )
    assert "ends in osfp, and sn2700 has qsfp28 cages" in one(text, "CL147").what


TARGETS = ["cpu[01-20]", "cpu[01-05]", "head01", "leaf1", "leaf[1-2]", "spine[1-2]", "mgmt1", "leaf1,cpu01"]
PLUG = st.fixed_dictionaries(
    {"cages": st.integers(1, 34), "more": st.integers(0, 12), "to": st.sampled_from(TARGETS)},
    optional={"port": st.integers(1, 3), "breakout": st.integers(1, 8)},
)


def _plugs(plugs: list[dict[str, object]]) -> str:
    if not plugs:
        return ""
    written = []
    for plug in plugs:
        first, more = int(str(plug["cages"])), int(str(plug["more"]))
        keys = "".join(f", {key}: {plug[key]}" for key in ("port", "breakout") if key in plug)
        written.append(f'{{cages: {first}-{first + more}, to: "{plug["to"]}"{keys}}}')
    return f", plugs: [{', '.join(written)}]"


@settings(max_examples=80, deadline=None)
@given(
    leaf=st.lists(PLUG, max_size=4),
    spine=st.lists(PLUG, max_size=3),
    management=st.lists(PLUG, max_size=3),
    rails=st.integers(1, 3),
    uplinks=st.sampled_from(["", ", uplinks: 0", ", uplinks: 7"]),
    ports=st.sampled_from(["", ", ports: 10", ", ports: 65", ", ports: 128"]),
    carried=st.sampled_from(["[cluster]", "[cluster, bmc]"]),
)
def test_whatever_is_plugged_is_judged(
    leaf: list[dict[str, object]],
    spine: list[dict[str, object]],
    management: list[dict[str, object]],
    rails: int,
    uplinks: str,
    ports: str,
    carried: str,
) -> None:
    text = f"""\
fabrics:
  compute: {{link_layer: infiniband, gbit_per_s: 400, rails: {rails}, nodes: "cpu[01-20]"}}
switches:
  - {{name: "leaf[1-2]", model: qm9700, function: leaf, fabric: compute{uplinks}{ports}{_plugs(leaf)}}}
  - {{name: "spine[1-2]", model: qm9700, function: spine, fabric: compute{_plugs(spine)}}}
  - {{name: mgmt1, model: sn2201, function: management, networks: {carried}{_plugs(management)}}}
"""
    cluster = build(parse(over(base("network"), text), "cluster.yml"), Path("cluster.yml"))
    drawn = Design(cluster)
    for finding in run(drawn, network.CHECKS):
        assert str(finding)
    ends = [
        (end.device, end.port) for link in drawn.links for end in (link.a, link.b) if "cpu" not in end.device
    ]
    switch_ends = [end for end in ends if end[0] in drawn.switches]
    assert len(set(switch_ends)) == len(switch_ends)
    node_ends = [(link.network, link.a) for link in drawn.links if link.a.device in drawn.nodes]
    assert len(set(node_ends)) == len(node_ends)
    # A port that nothing comes to is said.
    wanted = 20 * rails
    assert (
        drawn.cabling.down.get(("fabrics", "compute"), 0)
        + sum(len(one.nodes) for one in drawn.cabling.unserved if one.plane.fabric)
        == wanted
    )
