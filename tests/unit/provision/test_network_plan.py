"""What a node's network lacks, by what ip says of it, and what is done about it and about its undoing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import network_plan as net

from coldiron.provision.network import render, wanted_state
from tests.unit.provision.network_samples import FIRST, SECOND, bonded, plain

DIRECTORY = "/etc/systemd/network"


def link(name: str, mac: str, *addresses: str, **more: Any) -> dict[str, Any]:
    """A link as ``ip -json -details address`` shows it."""
    shown = [at.partition("/") for at in addresses]
    return {
        "ifname": name,
        "link_type": "ether",
        "address": mac,
        "mtu": 1500,
        "flags": ["BROADCAST", "UP"],
        "addr_info": [{"local": at, "prefixlen": int(size), "scope": "global"} for at, _, size in shown],
        **more,
    }


LOOPBACK = {
    "ifname": "lo",
    "link_type": "loopback",
    "address": "00:00:00:00:00:00",
    "flags": ["UP"],
    "mtu": 65536,
}
BARE = [LOOPBACK, link("eno1", FIRST), link("eno2", SECOND)]


def bond_there() -> list[dict[str, Any]]:
    """A machine on which all of ``bonded()`` stands: the second card has the first one's MAC."""
    data = {"info_kind": "bond", "info_data": {"mode": "active-backup"}}
    vlan = {"info_kind": "vlan", "info_data": {"id": 120}}
    return [
        LOOPBACK,
        link("eno1", FIRST, master="bond0", mtu=9000),
        link("eno2", FIRST, permaddr=SECOND, master="bond0", mtu=9000),
        link("bond0", FIRST, "10.77.0.31/24", linkinfo=data, mtu=9000),
        link("vlan120", FIRST, "10.79.0.31/24", linkinfo=vlan, link="bond0", mtu=9000),
    ]


ROUTES = [
    {"dst": "default", "gateway": "10.77.0.254", "dev": "bond0", "protocol": "static"},
    {"dst": "10.77.0.0/24", "dev": "bond0", "protocol": "kernel"},
]
FILES = render(bonded(), "networkd")
WANTED = wanted_state(bonded())


def facts(
    files: dict[str, str] | None = None,
    links: list[dict[str, Any]] | None = None,
    routes: list[dict[str, Any]] | None = None,
) -> net.Facts:
    return net.Facts(
        FILES if files is None else files,
        bond_there() if links is None else links,
        ROUTES if routes is None else routes,
    )


def changed(at: str, **more: Any) -> net.Facts:
    """All is as it shall be but one link, of which ``more`` differs."""
    links = copy.deepcopy(bond_there())
    next(one for one in links if one["ifname"] == at).update(more)
    return facts(links=links)


def test_what_is_right_is_left_alone() -> None:
    assert net.plan(FILES, WANTED, facts(), ["bond0", "vlan120"]) == net.Plan()


def test_a_bare_machine_gets_all() -> None:
    todo = net.plan(FILES, WANTED, facts({}, BARE, []))
    assert set(todo.write) == set(FILES)
    assert todo.remove == todo.delete == ()
    assert todo.made == ("bond0", "vlan120")
    assert {"eno1", "eno2"} <= set(todo.reconfigure)
    assert "bond0 is not there" in todo.why


def test_a_card_is_found_by_the_mac_that_is_burnt_in() -> None:
    names = net.names_of(WANTED, bond_there())
    assert names == {"cluster0": "eno1", "cluster1": "eno2", "bond0": "bond0", "vlan120": "vlan120"}


def test_a_card_without_one_is_found_by_its_present_mac_and_no_bond_is_taken_for_it() -> None:
    one = {**wanted_state(plain())[0], "match": "current"}
    found = net.find(one, [link("vlan5", FIRST, linkinfo={"info_kind": "vlan"}), link("veth0", FIRST)])
    assert found is not None
    assert found["ifname"] == "veth0"


def test_a_card_that_is_not_there_is_said_with_those_that_are() -> None:
    wanted = wanted_state({"interfaces": [{"name": "lan", "mac": "52:54:00:00:00:09"}]})
    assert net.missing_cards(wanted, BARE) == [
        f"lan: no card has the MAC 52:54:00:00:00:09; there are eno1 {FIRST}, eno2 {SECOND}"
    ]
    assert net.missing_cards(wanted, [LOOPBACK])[0].endswith("there are none")
    assert net.missing_cards(WANTED, bond_there()) == []


def test_a_card_that_cannot_have_its_bond_s_mtu_is_said_before_it_is_left_out() -> None:
    narrow = [link("eno1", FIRST, max_mtu=1400), link("eno2", SECOND, max_mtu=9216)]
    assert net.narrow_cards(WANTED, narrow) == [
        "cluster0: its card takes packets of at most 1400 bytes, not 9000; "
        "write `mtu: 1400` for the network, or for bond0"
    ]
    unsaid = [{**one, "mtu": None} for one in WANTED]
    assert net.narrow_cards(unsaid, narrow) == [
        "cluster0: its card takes packets of at most 1400 bytes, and bond0, for which no MTU is written, has 1500; "
        "write `mtu: 1400` for the network, or for bond0"
    ]
    # A card by itself stays as it is; a bond that stands has what it has; 0 is no limit.
    assert net.narrow_cards([{**one, "bond": ""} for one in unsaid], narrow) == []
    assert net.narrow_cards(unsaid, [*narrow, link("bond0", FIRST, mtu=1400)]) == []
    assert net.narrow_cards(WANTED, [link("eno1", FIRST, max_mtu=0), link("eno2", SECOND)]) == []


@pytest.mark.parametrize(
    ("there", "said", "again"),
    [
        (changed("bond0", addr_info=[]), "bond0 lacks 10.77.0.31/24", "bond0"),
        (changed("bond0", flags=[]), "bond0 is down", "bond0"),
        (changed("vlan120", mtu=1500), "vlan120 has MTU 1500, not 9000", "vlan120"),
        (changed("eno2", master=None), "cluster1 is not in bond0", "eno2"),
        (facts(routes=[]), "bond0 has no route to default by 10.77.0.254", "bond0"),
    ],
)
def test_only_what_differs_is_configured_again(there: net.Facts, said: str, again: str) -> None:
    todo = net.plan(FILES, WANTED, there)
    assert todo.why == (said,)
    assert todo.reconfigure == (again,)
    assert todo.write == todo.remove == todo.delete == todo.made == ()


def test_a_bond_of_another_mode_is_made_anew_with_its_cards_and_vlans() -> None:
    data = {"info_kind": "bond", "info_data": {"mode": "balance-rr"}}
    todo = net.plan(FILES, WANTED, changed("bond0", linkinfo=data))
    assert todo.delete == todo.made == ("bond0",)
    assert {"eno1", "eno2"} <= set(todo.reconfigure)


def test_a_vlan_of_another_number_is_made_anew_by_what_carries_it() -> None:
    vlan = {"info_kind": "vlan", "info_data": {"id": 7}}
    todo = net.plan(FILES, WANTED, changed("vlan120", linkinfo=vlan))
    assert todo.why == ("vlan120 is VLAN 7 on bond0, not 120 on bond0",)
    assert todo.delete == ("vlan120",)
    assert todo.reconfigure == ("bond0",)


def test_a_vlan_that_somebody_removed_is_made_by_what_carries_it() -> None:
    todo = net.plan(FILES, WANTED, facts(links=bond_there()[:-1]))
    assert todo.reconfigure == ("bond0",)
    assert todo.made == ("vlan120",)


def test_a_netdev_file_that_changed_wants_the_interface_made_anew() -> None:
    before = {**FILES, f"{DIRECTORY}/10-coldiron-bond0.netdev": "[NetDev]\nName=bond0\nKind=bond\n"}
    todo = net.plan(FILES, WANTED, facts(before))
    assert todo.delete == ("bond0",)


def test_what_is_no_longer_described_goes_and_nothing_else() -> None:
    files, wanted = render(plain(), "networkd"), wanted_state(plain())
    todo = net.plan(files, wanted, facts())
    assert set(todo.delete) == {"bond0", "vlan120"}
    assert f"{DIRECTORY}/10-coldiron-bond0.netdev" in todo.remove
    # netplan's files do not say what they make: what an earlier run has kept does.
    files = render(plain(), "netplan")
    todo = net.plan(files, wanted, facts({}), ["bond0", "gone0"])
    assert todo.delete == ("bond0",)


def test_networkd_reloads_and_is_never_restarted() -> None:
    text = net.switch_commands("networkd", ["bond0"], ["eno1", "eno2"])
    assert text.splitlines()[0] == "ip link delete dev bond0"
    assert "  networkctl reload\n  networkctl reconfigure eno1 eno2\n" in text
    # What udev has not finished, networkd would wait for.
    asked, taken = (
        text.index("for name in eno1 eno2; do"),
        text.index("udevadm trigger --settle --action=add"),
    )
    assert asked < taken < text.index("networkctl reload")
    assert "restart" not in text
    assert "reconfigure" not in net.switch_commands("networkd", [], [])


def test_netplan_generates_first() -> None:
    assert net.switch_commands("netplan", [], []).startswith("netplan generate\n")


def test_networkmanager_takes_the_keyfiles_and_reapplies_devices() -> None:
    text = net.switch_commands("networkmanager", [], ["eno1"])
    assert text.startswith("nmcli connection reload\nnmcli device reapply eno1")
    assert 'nmcli connection up filename "$file"' in text


def test_names_are_quoted_for_the_shell() -> None:
    assert "dev 'a;b'" in net.switch_commands("networkd", ["a;b"], [])


def test_the_way_back_has_the_old_files_and_what_the_kernel_had() -> None:
    links = [link("eno1", FIRST, "10.77.0.31/24", mtu=1400)]
    routes = [
        {"dst": "default", "gateway": "10.77.0.254", "dev": "eno1", "metric": 100},
        {"dst": "fd01::/48", "gateway": "fd00::1", "dev": "eno1"},
        {"dst": "10.77.0.0/24", "dev": "eno1"},
        {"dst": "default", "gateway": "10.1.0.1", "dev": "eno9"},
    ]
    kernel = net.kernel_commands(net.Facts({}, [*links, link("eno2", SECOND)], routes), ["eno1"])
    assert kernel.splitlines() == [
        "ip link set dev eno1 mtu 1400",
        "ip link set dev eno1 up",
        "ip address replace 10.77.0.31/24 dev eno1",
        "ip -4 route replace default via 10.77.0.254 dev eno1 metric 100 proto static",
        "ip -6 route replace fd01::/48 via fd00::1 dev eno1 proto static",
    ]
    text = net.restore_commands("/saved", ["/etc/a b"], ["/etc/new"], "switch\n", kernel)
    assert text.splitlines()[:4] == [
        "rm -f -- /etc/new",
        "cp -a -- '/saved/etc/a b' '/etc/a b'",
        "switch",
        "sleep 2",
    ]
    assert net.restore_commands("/saved", [], [], "switch\n", "") == "switch\n"


def test_the_way_back_concerns_only_what_the_change_does() -> None:
    todo = net.plan(FILES, WANTED, changed("vlan120", mtu=1500))
    assert net.touched(todo, WANTED, facts()) == ["vlan120"]
    todo = net.plan(FILES, WANTED, facts({}, BARE, []))
    assert net.touched(todo, WANTED, facts({}, BARE, [])) == ["eno1", "eno2"]
    todo = net.Plan(write=(f"{DIRECTORY}/10-coldiron-vlan120.network",))
    assert net.touched(todo, WANTED, facts()) == ["vlan120"]
    assert len(net.touched(net.Plan(write=("/etc/netplan/90-coldiron.yaml",)), WANTED, facts())) == 4


def test_gateways_have_to_answer_and_what_a_site_names() -> None:
    assert net.probes_of(wanted_state(plain()), ["10.1.0.9", "10.5.5.5"]) == [
        "10.1.0.1", "10.1.0.9", "fd00::1", "10.5.5.5",
    ]  # fmt: skip
    assert net.is_near("10.77.0.9", WANTED)
    assert not net.is_near("10.5.5.5", WANTED)


def test_ifupdown_s_cards_are_not_configured_twice() -> None:
    texts = {"/etc/network/interfaces": "auto lo\niface lo inet loopback\n  iface eno1 inet dhcp\n"}
    assert net.rivals(texts, ["eno1"]) == [
        "/etc/network/interfaces configures eno1 as well: take its lines out (its addresses stay until the next boot)"
    ]
    assert net.rivals(texts, ["eno", "eno2"]) == []
