"""What the checks say of addresses and of the nodes' ports, beyond the examples of their pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldiron.inventory.findings import InventoryError
from coldiron.inventory.model import PortGroup
from coldiron.plan.checks.network_ports import Demand, lacking
from coldiron.plan.fabric import Plane
from tests.plan.test_fabric import codes, found, one

NODES = """\
nodes:
  - {name: head01, kind: head, address: 10.99.0.1, mac: "52:54:00:00:00:01"}
  - name: cpu[01-04]
    kind: cpu
    address: 10.99.0.11
    bmc: {address: 10.98.0.11}
    hardware: {cores_per_socket: 32, memory_gib: 512}
fabrics: {}
switches: []
"""


def networks(cluster: str = "", bmc: str = "", more: str = "") -> str:
    return f"""\
networks:
  cluster: {{subnet: 10.99.0.0/24{cluster}}}
  bmc: {{subnet: 10.98.0.0/24{bmc}}}
{more}{NODES}"""


POOL = ", dhcp: [10.99.0.200-10.99.0.202]"


def test_nodes_whose_mac_is_known_ask_no_pool() -> None:
    assert dict(one(networks(POOL), "CL101").figures) == {"pool": 3, "wanted": 4}
    known = networks(POOL).replace("    bmc:", '    overrides: {cpu03: {mac: "52:54:00:00:00:03"}}\n    bmc:')
    assert codes(known) == set()


def test_bmcs_ask_the_pool_of_their_network() -> None:
    assert dict(one(networks(bmc=", dhcp: [10.98.0.200-10.98.0.202]"), "CL101").figures)["wanted"] == 4
    assert codes(networks(bmc=", dhcp: [10.98.0.200-10.98.0.203]")) == set()


def test_containers_ask_no_pool() -> None:
    assert codes(networks(POOL).replace("kind: cpu\n", "kind: cpu\n    platform: container\n")) == set()


def test_unknown_nodes_boot_on_the_provisioning_network_where_there_is_one() -> None:
    more = "  provisioning: {subnet: 10.97.0.0/24, dhcp: [10.97.0.1-10.97.0.3]}\n"
    finding = one(networks(POOL, more=more), "CL101")
    assert finding.subject == "network provisioning"
    assert codes(networks(POOL, more=more.replace("0.3]", "0.4]"))) == set()


def test_spans_of_one_pool_are_added_without_what_they_share() -> None:
    spans = ", dhcp: [10.99.0.200-10.99.0.201, 10.99.0.201-10.99.0.202]"
    assert dict(one(networks(spans), "CL101").figures)["pool"] == 3
    assert "overlap" in one(networks(spans), "CL102").what


@pytest.mark.parametrize(
    ("text", "who"),
    [
        (networks(", gateway: 10.99.0.254, dhcp: [10.99.0.200-10.99.0.254]"), "the gateway"),
        (networks(", dhcp: [10.99.0.11-10.99.0.100]"), "cpu01 and 3 more"),
        (networks(bmc=", dhcp: [10.98.0.14-10.98.0.100]"), "cpu04's BMC"),
        (
            networks(
                more="  storage: {subnet: 10.97.0.0/24, mtu: 9000, dhcp: [10.97.0.12-10.97.0.20]}\n"
            ).replace("    bmc:", "    addresses: {storage: 10.97.0.9}\n    bmc:"),
            "cpu04",
        ),
    ],
)
def test_whose_address_is_in_the_pool(text: str, who: str) -> None:
    assert f"of {who} in the DHCP span" in one(text, "CL102").what


def test_room_for_switches_is_wanted_where_the_bmcs_are() -> None:
    # 14 addresses: 4 BMCs and 10 switches fit, an unmanaged one wants none.
    text = networks().replace("10.98.0.0/24", "10.98.0.0/28").replace("10.98.0.11", "10.98.0.1")
    switches = 'switches:\n  - {name: "m[01-10]", model: sn2700, function: management, networks: [bmc]}\n'
    assert "CL104" not in codes(text.replace("switches: []\n", switches))
    assert "CL104" in codes(text.replace("switches: []\n", switches.replace("10]", "11]")))
    without = text.replace("switches: []\n", switches).replace("  bmc: {subnet: 10.98.0.0/28}\n", "")
    assert "CL104" not in codes(without.replace("[bmc]", "[cluster]"))


def test_infiniband_needs_no_jumbo_packets() -> None:
    fabric = "fabrics:\n  compute: {link_layer: infiniband, gbit_per_s: 200, networks: [storage]}\n"
    text = networks(more="  storage: {subnet: 10.97.0.0/24}\n")
    assert "CL106" in codes(text)
    assert "CL106" not in codes(text.replace("fabrics: {}\n", fabric))


def test_roce_wants_room_for_a_message_of_4096_bytes() -> None:
    fabric = "fabrics:\n  compute: {link_layer: roce, gbit_per_s: 200, networks: [rail1]}\n"
    for mtu, said in ((4199, {"CL106"}), (4200, set())):
        text = networks(more=f"  rail1: {{subnet: 10.97.0.0/24, mtu: {mtu}}}\n")
        assert codes(text.replace("fabrics: {}\n", fabric)) == said


def test_a_vlan_on_ports_whose_mtu_is_not_written() -> None:
    more = "  storage: {subnet: 10.97.0.0/24, mtu: 9000, port_of: cluster, vlan: 7}\n"
    assert "which has none, so 1500" in one(networks(more=more), "CL108").what


def test_a_bmc_network_of_another_name() -> None:
    text = networks().replace("  bmc: {subnet: 10.98.0.0/24}", "  oob: {subnet: 10.98.0.0/24, purpose: bmc}")
    assert codes(text) == set()


def test_nothing_carries_a_network_only_where_switches_are_written() -> None:
    assert not found(networks())
    text = networks().replace(
        "switches: []", "switches:\n  - {name: m1, model: sn2201, function: management, networks: [bmc]}"
    )
    assert {finding.subject for finding in found(text)} == {"network cluster"}
    # What is beyond the site's door is not its switches' business.
    more = "  external: {subnet: 10.97.0.0/24}\n"
    text = (
        networks(more=more)
        .replace(
            "switches: []",
            "switches:\n  - {name: m1, model: sn2700, function: leaf, networks: [bmc, cluster]}",
        )
        .replace("    bmc:", "    addresses: {external: 10.97.0.9}\n    bmc:")
    )
    assert "CL113" not in {finding.code for finding in found(text)}


def plane(rails: int, gbit_per_s: float | None) -> Plane:
    return Plane(name="n", path=("networks", "n"), nodes=(), rails=rails, gbit_per_s=gbit_per_s)


@given(
    ports=st.lists(st.tuples(st.integers(1, 4), st.sampled_from([10.0, 100.0, 400.0])), max_size=4),
    wanted=st.lists(st.tuples(st.integers(1, 4), st.sampled_from([None, 10.0, 100.0, 400.0])), max_size=4),
)
def test_ports_lack_exactly_when_they_cannot_be_shared_out(
    ports: list[tuple[int, float]], wanted: list[tuple[int, float | None]]
) -> None:
    lack = lacking(
        [PortGroup(count=count, gbit_per_s=speed) for count, speed in ports],
        [Demand(plane(rails, speed), "ethernet") for rails, speed in wanted],
        {},
    )
    # The fastest demand takes the fastest port that is left.
    free = sorted(speed for count, speed in ports for _ in range(count))
    asked = sorted((speed or 0.0 for rails, speed in wanted for _ in range(rails)), reverse=True)
    fits = len(free) >= len(asked) and all(
        have >= want for have, want in zip(free[::-1], asked, strict=False)
    )
    assert (lack is None) == fits


def test_what_a_port_speaks_is_its_adapters_business() -> None:
    nodes = NODES.replace(
        "memory_gib: 512}",
        "memory_gib: 512, ports: [{count: 1, gbit_per_s: 400, nic: ADAPTER}, {count: 1, gbit_per_s: 400}]}",
    ).replace(
        "fabrics: {}\n",
        'fabrics: {c: {link_layer: infiniband, gbit_per_s: 400, rails: 2, nodes: "cpu[01-04]"}}\n',
    )
    text = "networks:\n  cluster: {subnet: 10.99.0.0/24}\n  bmc: {subnet: 10.98.0.0/24}\n" + nodes
    finding = one(text.replace("ADAPTER", "connectx-7-ocp3-osfp"), "CL115")
    assert (
        "3 ports are wanted (2 for the rails of `c`, 1 for `cluster`), and the machine has 2" in finding.what
    )
    assert "or `port_of` where networks share a port" in finding.advice


def test_nodes_of_a_range_are_looked_at_by_what_they_are_on() -> None:
    text = (
        networks(more="  storage: {subnet: 10.97.0.0/24, mtu: 9000}\n")
        .replace("memory_gib: 512}", "memory_gib: 512, ports: [{count: 1, gbit_per_s: 10}]}")
        .replace("    bmc:", "    overrides: {cpu02: {addresses: {storage: 10.97.0.2}}}\n    bmc:")
    )
    assert one(text, "CL115").hosts == "cpu02"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (networks(more="  storage: {subnet: 10.97.0.0/24, vlan: 5, port_of: clusterr}\n"), "CI219"),
        # A port is one network's; another that shares it shares that one's.
        (
            networks(
                more="  storage: {subnet: 10.97.0.0/24, vlan: 5, port_of: cluster}\n"
                "  external: {subnet: 10.96.0.0/24, vlan: 6, port_of: storage}\n"
            ),
            "CI223",
        ),
        (networks(more="  storage: {subnet: 10.97.0.0/24, vlan: 5, port_of: storage}\n"), "CI223"),
        (
            networks().replace(
                "switches: []",
                "switches:\n  - {name: m1, model: sn2201, function: management, networks: [cluster],"
                " plugs: [{cages: 1, to: head01, network: bmc}]}",
            ),
            "CI219",
        ),
    ],
)
def test_networks_that_name_no_network(text: str, code: str) -> None:
    with pytest.raises(InventoryError) as caught:
        found(text)
    assert [finding.code for finding in caught.value.findings] == [code]
