"""A node's network: what is refused, what is rendered, and what the distributions' own parsers make of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision.network import (
    BACKENDS,
    OWNED,
    backend_of,
    connection_uuid,
    interfaces_of,
    mode_of,
    render,
    wanted_state,
)
from coldiron.provision.network_model import parse, problems
from tests.unit.provision.network_samples import FIRST, NETWORKS, SAMPLES, SECOND, bonded, plain

GOLDEN = Path(__file__).with_name("network_golden")


def card(**more: Any) -> dict[str, Any]:
    return {"name": "lan", "mac": FIRST, "addresses": ["10.1.0.2/24"], **more}


def spec(*interfaces: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"interfaces": list(interfaces), **more}


def shown(files: dict[str, str]) -> str:
    return "".join(f"==> {path}\n{text}\n" for path, text in sorted(files.items()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_the_files_are_these(sample: str, backend: str) -> None:
    """To write them anew: COLDIRON_GOLDEN=1, then read the difference."""
    path = GOLDEN / f"{sample}.{backend}.txt"
    found = shown(render(SAMPLES[sample], backend))
    if os.environ.get("COLDIRON_GOLDEN"):
        path.write_text(found)
    assert found == path.read_text()


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_file_is_known_as_ours(backend: str) -> None:
    for path in render(bonded(), backend):
        assert any(Path(path).match(pattern) for pattern in OWNED[backend])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (spec(), "interfaces: is empty"),
        ({"interfaces": "lan"}, "wants a list"),
        (spec(card(), colour="red"), "`colour` is no key"),
        (spec(card(speed=10)), "lan: `speed` is no key of kind ethernet"),
        (spec(card(members=["a"])), "lan: `members` is no key of kind ethernet"),
        (spec("lan"), "item 1 is no mapping"),  # type: ignore[arg-type]
        (spec(card(name="Lan Zero")), "`name` wants a letter"),
        (spec(card(kind="bridge")), "'bridge'; write one of ethernet, bond, vlan"),
        (spec({"name": "lan"}), "lan: has no `mac`, and a card is never guessed"),
        (spec(card(mac="52:54:00")), "'52:54:00' is no MAC"),
        (spec(card(), match="name"), "'name'; write one of permanent, current"),
        (spec(card(addresses=["10.1.0.2"])), "'10.1.0.2' is no address with its prefix"),
        (spec(card(addresses=["10.1.0.0/24"])), "10.1.0.0/24 is its subnet's own address"),
        (spec(card(addresses=["10.1.0.300/24"])), "is no address with its prefix"),
        (spec(card(gateway="ten")), "gateway: 'ten' is no address"),
        (spec(card(gateway="10.2.0.1")), "gateway: 10.2.0.1 is outside its subnet (10.1.0.0/24)"),
        (spec(card(gateway="10.1.0.2")), "10.1.0.2 is the node's own address"),
        (spec(card(addresses=[], gateway="10.1.0.1")), "outside its subnet (no address)"),
        (spec(card(mtu=100)), "mtu: 100 is not within 576 to 9216"),
        (spec(card(mtu="big")), "mtu: 'big' is no number"),
        (spec(card(metric=True)), "metric: True is no number"),
        (spec(card(routes=["10.9.0.0/16"])), "a route is a mapping"),
        (spec(card(routes=[{"to": "10.9.0.1/16", "via": "10.1.0.9"}])), "'10.9.0.1/16' is no network"),
        (spec(card(routes=[{"to": "10.9.0.0/16", "via": "10.8.0.9"}])), "10.8.0.9 is outside its subnet"),
        (spec(card(routes=[{"to": "10.9.0.0/16"}])), "routes: via: '' is no address"),
        (spec(card(routes=[{"to": "fd00::/8", "via": "10.1.0.9"}])), "of another IP version"),
        (spec(card(routes=[{"to": "0.0.0.0/0", "via": "10.1.0.9"}])), "write it as `gateway`"),
        (spec(card(routes=[{"to": "10.9.0.0/16", "via": "10.1.0.9", "dev": "x"}])), "`dev` is no key"),
        (spec(card(), resolvers=["dns"]), "resolvers: dns: 'dns' is no address"),
        (spec(card(), search=["a b"]), "search: 'a b' is no domain"),
        (spec(card(), card(mac=SECOND, addresses=[])), "lan: is there twice"),
        (spec(card(), card(name="x", addresses=[])), f"x: MAC {FIRST} is lan's already"),
        (spec(card(), card(name="x", mac=SECOND)), "x: address 10.1.0.2 is lan's already"),
        (
            spec(card(), card(name="x", mac=SECOND, addresses=["10.1.0.130/25"])),
            "x: 10.1.0.128/25 overlaps 10.1.0.0/24 of lan",
        ),
        (
            spec(card(gateway="10.1.0.1"), card(name="x", mac=SECOND, addresses=["10.2.0.2/24"], gateway="10.2.0.1")),
            "x: lan has a gateway already",
        ),
        (spec(card(), {"name": "b", "kind": "bond"}), "b: a bond without members"),
        (spec(card(), {"name": "b", "kind": "bond", "members": ["eth9"]}), "member eth9 is no interface here"),
        (spec(card(), {"name": "b", "kind": "bond", "members": ["lan"], "mode": "fast"}), "'fast'; write one of"),
        (spec(card(), {"name": "b", "kind": "bond", "members": ["lan"]}), "lan: is a member of b, which has the"),
        (
            spec(card(addresses=[], mtu=9000), {"name": "b", "kind": "bond", "members": ["lan"]}),
            "lan: MTU 9000, but b gives its members its own",
        ),
        (
            spec(card(addresses=[]), {"name": "b", "kind": "bond", "members": ["lan"]}, match="current"),
            "match must be `permanent`",
        ),
        (
            spec(
                card(addresses=[]),
                {"name": "b", "kind": "bond", "members": ["lan"]},
                {"name": "c", "kind": "bond", "members": ["lan"]},
            ),
            "c: bond member lan is b's already",
        ),
        (
            spec(
                card(addresses=[]),
                {"name": "b", "kind": "bond", "members": ["lan"]},
                {"name": "v", "kind": "vlan", "parent": "lan", "vlan": 5},
            ),
            "put VLAN v on b",
        ),
        (
            spec(card(), {"name": "v", "kind": "vlan", "parent": "lan", "vlan": 5},
                 {"name": "b", "kind": "bond", "members": ["v"]}),
            "member v is a vlan",
        ),
        (spec(card(), {"name": "v", "kind": "vlan", "parent": "x", "vlan": 5}), "there is no interface 'x'"),
        (spec(card(), {"name": "v", "kind": "vlan", "parent": "v", "vlan": 5}), "v is a VLAN itself"),
        (spec(card(), {"name": "v", "kind": "vlan", "parent": "lan"}), "v: has no `vlan`"),
        (spec(card(), {"name": "v", "kind": "vlan", "parent": "lan", "vlan": 4095}), "4095 is not within 1 to 4094"),
        (
            spec(card(), {"name": "v", "kind": "vlan", "parent": "lan", "vlan": 5, "mtu": 9000}),
            "v: MTU 9000 is more than its parent lan has (1500, as none is written)",
        ),
        (
            spec(card(mtu=4000), {"name": "v", "kind": "vlan", "parent": "lan", "vlan": 5, "mtu": 9000}),
            "more than its parent lan has (4000)",
        ),
        (
            spec(card(), {"name": "v", "kind": "vlan", "parent": "lan", "vlan": 5},
                 {"name": "w", "kind": "vlan", "parent": "lan", "vlan": 5}),
            "w: VLAN 5 is on lan already, as v",
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_in_one_line(data: dict[str, Any], said: str) -> None:
    with pytest.raises(ColdironError) as refused:
        render(data, "networkd")
    assert said in refused.value.message
    assert "\n" not in refused.value.message
    assert refused.value.exit_code == ExitCode.USAGE
    assert any(said in one for one in problems(data))


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert len(problems(spec(card(mtu=1, gateway="x", speed=1)))) == 3


def test_a_sound_spec_has_no_problems() -> None:
    for sample in SAMPLES.values():
        assert problems(sample) == []


def test_two_ways_out_want_a_metric_each() -> None:
    second = card(name="x", mac=SECOND, addresses=["10.2.0.2/24"], gateway="10.2.0.1", metric=200)
    assert problems(spec(card(gateway="10.1.0.1", metric=100), second)) == []


def test_a_mac_may_be_written_as_windows_and_labels_do() -> None:
    assert parse(spec(card(mac="52-54-00-AB-CD-EF"))).interfaces[0].mac == "52:54:00:ab:cd:ef"


def test_absent_keys_may_be_null() -> None:
    """What an argument spec with suboptions makes of them."""
    assert parse(spec(card(gateway=None, routes=None, mtu=None))) == parse(spec(card()))


def test_a_bond_s_members_are_looked_for_by_the_mac_that_stays() -> None:
    files = render(bonded(), "networkd")
    text = files["/etc/systemd/network/20-coldiron-cluster1.network"]
    assert f"PermanentMACAddress={SECOND}" in text
    # The first file that matches wins.
    assert min(files, key=str).endswith("/10-coldiron-bond0.netdev")


def test_a_card_without_a_burnt_in_mac_is_found_by_its_present_one() -> None:
    data = spec(card(), match="current")
    assert f"\nMACAddress={FIRST}" in render(data, "networkd")["/etc/systemd/network/20-coldiron-lan.network"]
    with pytest.raises(ColdironError, match="burnt-in MAC only"):
        render(data, "networkmanager")


def test_the_backend_is_the_distribution_s() -> None:
    assert [backend_of(name) for name in ("debian-13", "ubuntu-24.04", "rocky-9")] == list(BACKENDS)
    with pytest.raises(ColdironError, match="nothing is known of 'plan9-4'"):
        backend_of("plan9-4")
    with pytest.raises(ColdironError, match="backend 'ifupdown'"):
        render(plain(), "ifupdown")


def test_files_with_secrets_rules_are_root_s() -> None:
    assert [mode_of(name) for name in BACKENDS] == ["0644", "0600", "0600"]


def test_a_connection_keeps_its_uuid() -> None:
    """Another would be another connection, and the old one would stay beside it."""
    assert connection_uuid("bond0") == "1b1a32b2-598c-5f83-8bcc-d30434ee6890"


def test_an_inventory_s_one_card() -> None:
    assert interfaces_of("10.77.0.31", NETWORKS, mac=FIRST) == [
        {
            "name": "cluster",
            "mac": FIRST,
            "addresses": ["10.77.0.31/24"],
            "mtu": 9000,
            "gateway": "10.77.0.254",
        }
    ]


def test_an_inventory_s_bond_and_vlan() -> None:
    found = bonded()["interfaces"]
    assert [(one["name"], one.get("kind")) for one in found] == [
        ("cluster0", None), ("cluster1", None), ("bond0", "bond"), ("vlan120", "vlan"),
    ]  # fmt: skip
    assert found[3] == {
        "name": "vlan120", "kind": "vlan", "parent": "bond0", "vlan": 120, "addresses": ["10.79.0.31/24"], "mtu": 9000,
    }  # fmt: skip


def test_a_network_of_which_no_card_is_known_is_left_alone() -> None:
    networks = {"cluster": {"subnet": "10.77.0.0/24"}, "fast": {"subnet": "10.80.0.0/16"}}
    found = interfaces_of("10.77.0.31", networks, {"fast": "10.80.0.31"}, mac=FIRST)
    assert [one["name"] for one in found] == ["cluster"]
    cards = {"fast": [SECOND]}
    found = interfaces_of("10.77.0.31", networks, {"fast": "10.80.0.31"}, FIRST, cards)
    assert [(one["name"], one["addresses"]) for one in found] == [
        ("cluster", ["10.77.0.31/24"]), ("fast", ["10.80.0.31/16"]),
    ]  # fmt: skip
    assert interfaces_of("10.77.0.31", networks) == []


def test_a_node_that_is_the_gateway_has_none() -> None:
    assert "gateway" not in interfaces_of("10.77.0.254", NETWORKS, mac=FIRST)[0]


def test_what_the_kernel_shall_say() -> None:
    states = {one["name"]: one for one in wanted_state(bonded())}
    assert states["cluster0"]["bond"] == "bond0"
    assert states["cluster0"]["mtu"] == 9000
    assert states["bond0"]["members"] == ["cluster0", "cluster1"]
    assert states["bond0"]["gateway"] == "10.77.0.254"
    assert (states["vlan120"]["parent"], states["vlan120"]["vlan"]) == ("bond0", 120)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
            st.sampled_from(["interfaces", "name", "kind", "mac", "addresses", "routes", "members", "vlan", "mtu"]),
            inner, max_size=5,
        ),
        max_leaves=20,
    ).filter(lambda data: isinstance(data, dict))
)  # fmt: skip
def test_nonsense_is_refused_and_never_a_traceback(data: dict[str, Any]) -> None:
    with contextlib.suppress(ColdironError):
        render(data, "networkd")
    assert all("\n" not in sentence for sentence in problems(data))


def keyfiles() -> Iterator[str]:
    for sample in SAMPLES.values():
        yield from render(sample, "networkmanager").values()


# NetworkManager and netplan are other distributions'; where a machine has their packages, they are asked.
if shutil.which("nmcli"):

    def test_networkmanager_reads_the_keyfiles() -> None:
        for text in keyfiles():
            command = ["nmcli", "--offline", "connection", "modify", "connection.autoconnect", "yes"]
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            wanted = {line for line in text.splitlines() if "=" in line and line != "autoconnect=true"}
            spoken = done.stdout.replace("controller=", "master=").replace("port-type=", "slave-type=")
            assert {line for line in wanted if line.startswith(("address", "gateway", "id", "mtu"))} <= set(
                spoken.splitlines()
            )


if shutil.which("netplan"):

    @pytest.mark.parametrize("sample", SAMPLES)
    def test_netplan_makes_networkd_s_files_of_it(sample: str, tmp_path: Path) -> None:
        for path, text in render(SAMPLES[sample], "netplan").items():
            file = tmp_path / path[1:]
            file.parent.mkdir(parents=True)
            file.write_text(text)
            file.chmod(0o600)
        command = ["netplan", "generate", "--root-dir", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        made = {path.name for path in (tmp_path / "run/systemd/network").iterdir()}
        names = {one["name"] for one in SAMPLES[sample]["interfaces"]}
        assert {f"10-netplan-{name}.network" for name in names} <= made
