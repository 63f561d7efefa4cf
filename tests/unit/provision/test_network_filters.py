"""The role network's filters: what topology.yml makes interfaces of, and what the role says of a mistake."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.coldiron.cluster.plugins.filter import network, topology

from tests.unit.provision.network_samples import FIRST, NETWORKS, SECOND, bonded

LAN = {"name": "lan", "mac": FIRST, "addresses": ["10.1.0.2/24"]}


def test_a_node_of_which_no_card_is_known_is_left_alone() -> None:
    assert network.network_interfaces("10.77.0.31", NETWORKS, {}, "", {}, "active-backup") == []
    # Half a network would cut it off.
    cards = {"storage": [SECOND]}
    assert network.network_interfaces("10.77.0.31", NETWORKS, {}, "", cards, "active-backup") == []


def test_cards_of_one_network_are_a_bond() -> None:
    cards = {"cluster": [FIRST, SECOND]}
    others = {"storage": "10.79.0.31"}
    found = network.network_interfaces("10.77.0.31", NETWORKS, others, "", cards, "active-backup")
    assert found == bonded()["interfaces"]


def test_a_network_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(AnsibleFilterError, match="no network 'fast'; there are cluster, storage"):
        network.network_interfaces("10.77.0.31", NETWORKS, {}, FIRST, {"fast": [SECOND]}, "active-backup")


def test_a_mistake_names_the_option() -> None:
    assert network.network_problems({"interfaces": [{**LAN, "gateway": "10.2.0.1"}]}, 45) == [
        "network_interfaces: lan: gateway: 10.2.0.1 is outside its subnet (10.1.0.0/24)."
    ]
    assert network.network_problems({"interfaces": []}, 45) == []
    assert "write at least 20" in network.network_problems({"interfaces": [LAN]}, 5)[0]


def test_the_role_runs_where_a_bmc_is_and_where_a_site_says_so() -> None:
    shape = topology.shape({"cluster": ["a", "b", "c"], "bare_metal": ["a"], "network_managed": ["b"]})
    assert [("network" in topology.roles_of(shape, host)) for host in "abc"] == [True, True, False]


def test_the_filters_have_their_names() -> None:
    assert set(network.FilterModule().filters()) == {"network_interfaces", "network_problems"}
