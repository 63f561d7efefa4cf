"""The node's interfaces as the kernel has them, gateways and name servers that answer, and a way back that is ready."""

from __future__ import annotations

import ipaddress
import json

import pytest

BORROWERS = ("bond", "vlan", "bridge", "macvlan", "macvtap", "ipvlan", "team")
ROLLBACK = "coldiron-network-rollback.service"


def asked(host, command):
    return [item for item in json.loads(host.check_output(command) or "[]") if item]


def links(host):
    return asked(host, "ip -json -details address show")


def routes(host):
    return asked(host, "ip -4 -json route show") + asked(host, "ip -6 -json route show")


def link_of(host, one, match):
    """The kernel's link of a described interface; a card by its MAC."""
    for link in links(host):
        kind = (link.get("linkinfo") or {}).get("info_kind", "")
        if one.get("kind", "ethernet") != "ethernet":
            if link["ifname"] == one["name"]:
                return link
        elif kind not in BORROWERS and link["link_type"] == "ether":
            mac = link["address"] if match == "current" else link.get("permaddr") or link["address"]
            if mac == one["mac"].lower():
                return link
    pytest.fail(f"{one['name']} is not there")
    return None


def described(opts, kind):
    return [one for one in opts["network_interfaces"] if one.get("kind", "ethernet") == kind]


def members(opts):
    return {name: one["name"] for one in described(opts, "bond") for name in one["members"]}


def test_every_interface_is_up(host, opts):
    for one in opts["network_interfaces"]:
        assert "UP" in link_of(host, one, opts["network_match"])["flags"], one["name"]


def test_the_addresses_are_the_described_ones(host, opts):
    for one in opts["network_interfaces"]:
        link = link_of(host, one, opts["network_match"])
        had = {f"{at['local']}/{at['prefixlen']}" for at in link["addr_info"]}
        assert set(one.get("addresses") or ()) <= had, one["name"]


def test_packets_are_as_long_as_described(host, opts):
    bonds = {one["name"]: one.get("mtu") for one in described(opts, "bond")}
    for one in opts["network_interfaces"]:
        wanted = bonds.get(members(opts).get(one["name"], ""), one.get("mtu"))
        if wanted:
            assert link_of(host, one, opts["network_match"])["mtu"] == wanted, one["name"]


def test_the_routes_lead_where_they_should(host, opts):
    there = {(way["dst"], way.get("gateway"), way["dev"]) for way in routes(host)}
    for one in opts["network_interfaces"]:
        name = link_of(host, one, opts["network_match"])["ifname"]
        if one.get("gateway"):
            assert ("default", one["gateway"], name) in there
        for way in one.get("routes") or ():
            assert (way["to"], way["via"], name) in there


def test_the_gateways_answer(host, opts):
    ways = [one["gateway"] for one in opts["network_interfaces"] if one.get("gateway")]
    for address in [*ways, *opts["network_probes"]]:
        if host.run(f"ping -n -q -c 1 -W 2 {address}").rc != 0:
            # A router may be silent; then it tells at least its MAC.
            known = asked(host, f"ip -json neighbour show to {address}")
            assert any(one.get("lladdr") for one in known), f"{address} does not answer"


def test_a_bond_has_its_cards_and_its_mode(host, opts):
    for one in described(opts, "bond"):
        data = link_of(host, one, opts["network_match"])["linkinfo"]["info_data"]
        assert data["mode"] == one.get("mode", "active-backup")
    for name, bond in members(opts).items():
        one = next(one for one in opts["network_interfaces"] if one["name"] == name)
        assert link_of(host, one, opts["network_match"]).get("master") == bond, name


def test_a_vlan_is_on_what_carries_it(host, opts):
    for one in described(opts, "vlan"):
        link = link_of(host, one, opts["network_match"])
        parent = next(other for other in opts["network_interfaces"] if other["name"] == one["parent"])
        assert link["linkinfo"]["info_data"]["id"] == one["vlan"]
        assert link["link"] == link_of(host, parent, opts["network_match"])["ifname"]


def test_the_daemon_knows_the_name_servers(host, opts):
    wanted = opts["network_resolvers"]
    if not (wanted and opts["network_interfaces"]):
        return
    if host.run("systemctl --quiet is-active systemd-networkd").rc != 0:
        assert set(wanted) <= set(
            host.check_output("nmcli -g IP4.DNS device show").replace(" | ", "\n").splitlines()
        )
        return
    # What networkd tells whoever resolves names for the node.
    told = host.run("sed -n 's/^DNS=//p' /run/systemd/netif/state /run/systemd/netif/links/*").stdout.split()
    assert {ipaddress.ip_address(one) for one in wanted} <= {ipaddress.ip_address(one) for one in told}


def test_the_daemon_understood_every_line(host, opts):
    if host.run("systemctl --quiet is-active systemd-networkd").rc == 0:
        said = host.run(
            "journalctl -b -u systemd-networkd -o cat --no-pager --grep 'Unknown|Failed to parse|Invalid'"
        )
        assert "-coldiron-" not in said.stdout


def test_the_network_comes_back_at_a_boot(host, opts):
    if opts["network_interfaces"]:
        daemons = ("systemd-networkd", "NetworkManager")
        # Ubuntu's networkd is started by what netplan generates.
        assert host.file("/etc/netplan").exists or any(
            host.run(f"systemctl --quiet is-enabled {name}").rc == 0 for name in daemons
        )


def test_the_way_back_is_ready_and_nothing_waits_for_it(host, opts):
    if opts["network_interfaces"]:
        assert host.service(ROLLBACK).is_enabled
        assert host.run("test -x /usr/local/sbin/coldiron-network-rollback").rc == 0
    for name in ("pending", "undoing"):
        assert not host.file(f"/var/lib/coldiron/network/{name}").exists
