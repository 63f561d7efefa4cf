"""From a node's variables to its order and identity."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from coldiron.errors import ColdironError
from coldiron.provision.order import ImageWanted, parse_identity, parse_order
from coldiron.provision.prepare import (
    KnownHosts,
    Node,
    Wishes,
    consent_of,
    hosts_file,
    make_identity,
    make_order,
    network_files,
    public_key,
    single_rules,
)

IMAGE = ImageWanted("a" * 64, "cpu-debian-13", 0)
NODE = Node(
    name="cpu01",
    domain="metal.internal",
    address="10.77.8.31",
    subnet="10.77.8.0/24",
    mac="02:CD:08:00:00:31",
    firmware="bios",
    disks=(
        {"use": "system", "serial": ["SYS1"], "size_gb": 10.0, "count": 1},
        {"use": "data", "serial": ["DATA1"]},
    ),
    gateway="10.77.8.254",
    serial="CHASSIS1",
)
KEY = "ssh-ed25519 AAAAC3Nza one@example"
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n-----END OPENSSH PRIVATE KEY-----\n"


def test_an_order_is_one_that_machines_read() -> None:
    order = make_order(NODE, Wishes(consent=["SYS1"], kernel_arguments=["console=ttyS0"]), IMAGE)
    assert parse_order(order.as_dict()) == order
    assert order.mac == "02:cd:08:00:00:31"
    assert order.disks[0] == {"use": "system", "serial": "SYS1", "size_gb": 10.0}


def test_an_order_wants_a_mac_and_a_system_disk() -> None:
    with pytest.raises(ColdironError, match=r"cpu01 has no `mac` in cluster\.yml"):
        make_order(replace(NODE, mac=""), Wishes(), IMAGE)
    with pytest.raises(ColdironError, match="no disk for its system"):
        make_order(replace(NODE, disks=[{"use": "data", "serial": ["D"]}]), Wishes(), IMAGE)


def test_a_rule_of_many_disks_becomes_a_rule_each() -> None:
    rule = {"use": "system", "serial": ["A", "B"], "wwn": None, "count": 2, "model": "X"}
    assert list(single_rules(rule)) == [
        {"use": "system", "serial": "A", "model": "X"},
        {"use": "system", "serial": "B", "model": "X"},
    ]
    both = {"serial": ["A"], "wwn": ["0x5"]}
    assert list(single_rules(both)) == [{"use": "system", "serial": "A", "wwn": "0x5"}]
    described = {"use": "scratch", "size_gb": 960.0, "count": 4}
    assert list(single_rules(described)) == [described]


def test_a_consent_is_of_the_node_that_names_the_serial() -> None:
    other = replace(NODE, name="cpu02", disks=[{"use": "system", "serial": ["SYS2"]}])
    assert consent_of(NODE, ["SYS1", "SYS2"], [NODE, other]) == ["SYS1"]
    # A serial that nobody names may be that of a disk which a rule describes.
    described = replace(NODE, disks=[{"use": "system", "size_gb": 10}])
    assert consent_of(described, ["SYS2", "S9"], [described, other]) == ["S9"]
    assert consent_of(NODE, ["S9"], [NODE]) == []


def test_an_identity_is_one_that_machines_read_and_needs_a_key_to_log_in_with() -> None:
    wishes = Wishes(
        authorized_keys=[KEY],
        files={"/etc/motd": {"text": "hello\n"}},
        hosts={"head01": "10.77.8.1", "cpu01": "x"},
    )
    identity = make_identity(NODE, wishes, {"ed25519": PRIVATE})
    assert parse_identity(identity.as_dict()) == identity
    assert identity.files["/etc/motd"].mode == "0644"
    assert "10.77.8.1 head01.metal.internal head01\n" in identity.hosts
    with pytest.raises(ColdironError, match="nobody could log in to cpu01"):
        make_identity(NODE, Wishes(), {"ed25519": PRIVATE})


def test_the_boot_nic_has_its_address_until_role_network_says_more() -> None:
    text = network_files(replace(NODE, name_servers=["10.77.8.1"]))[
        "/etc/systemd/network/10-coldiron.network"
    ]
    assert text.splitlines() == [
        "[Match]",
        "MACAddress=02:cd:08:00:00:31",
        "",
        "[Network]",
        "Address=10.77.8.31/24",
        "Gateway=10.77.8.254",
        "DNS=10.77.8.1",
        "LinkLocalAddressing=no",
        "IPv6AcceptRA=no",
    ]
    own = make_identity(
        NODE, Wishes(authorized_keys=[KEY], network={"/etc/systemd/network/x.network": "x"}), {}
    )
    assert list(own.network) == ["/etc/systemd/network/x.network"]
    assert hosts_file(NODE, {}).startswith("127.0.0.1 localhost\n")


def test_the_public_half_of_a_key_is_read_or_made(tmp_path: Path) -> None:
    key = tmp_path / "id"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", key], check=True, timeout=20
    )
    beside = public_key(key)
    (tmp_path / "id.pub").unlink()
    assert public_key(key).split()[:2] == beside.split()[:2]
    with pytest.raises(ColdironError, match="its public half cannot be told"):
        public_key(tmp_path / "none")
    locked = tmp_path / "locked"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "word word", "-f", locked], check=True, timeout=20
    )
    (tmp_path / "locked.pub").unlink()
    with pytest.raises(ColdironError, match=r"write deploy_authorized_keys, or put locked\.pub beside it"):
        public_key(locked)


def _learn(path: str, number: int) -> bool:
    return KnownHosts(Path(path)).learn([f"n{number}", f"10.0.0.{number}"], f"ssh-ed25519 KEY{number} c")


def test_many_machines_are_learnt_at_once_and_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    with ProcessPoolExecutor(4) as pool:
        assert all(pool.map(_learn, [str(path)] * 16, range(16)))
    assert len(path.read_text().splitlines()) == 17
    assert not _learn(str(path), 3)
    # Another key, and an address that was another's before, take the place of what stood there.
    assert KnownHosts(path).learn(["n3", "10.0.0.4"], "ssh-ed25519 NEW")
    lines = [line for line in path.read_text().splitlines() if line.startswith(("n3", "n4"))]
    assert lines == ["n3,10.0.0.4 ssh-ed25519 NEW"]
    assert os.stat(path).st_mode & 0o777 == 0o644
