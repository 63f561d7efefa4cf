"""What a machine says of its disks, read without trust."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision.lsblk import COMMAND, parse_lsblk

SYSTEM: dict[str, Any] = {
    "name": "nvme0n1",
    "type": "disk",
    "size": 960197124096,
    "model": "SAMSUNG  MZ1L2960",
    "serial": " S6XNNE0T100001 ",
    "wwn": "EUI.36344630",
    "tran": "NVMe",
    "rm": False,
    "ro": False,
    "hotplug": False,
    "fstype": None,
    "pttype": "gpt",
    "mountpoints": [None],
    "children": [
        {
            "name": "nvme0n1p1",
            "type": "part",
            "size": 1,
            "fstype": "vfat",
            "pttype": "gpt",
            "mountpoints": ["/boot/efi"],
        },
        {"name": "nvme0n1p2", "type": "part", "size": 1, "fstype": None, "mountpoints": ["[SWAP]"]},
        {
            "name": "nvme0n1p3",
            "type": "part",
            "size": 1,
            "fstype": "linux_raid_member",
            "mountpoints": [None],
            "children": [{"name": "md0", "type": "raid1", "size": 1, "fstype": "ext4", "mountpoints": ["/"]}],
        },
    ],
}


def tree(*devices: object) -> str:
    return json.dumps({"blockdevices": devices})


def changed(**values: object) -> dict[str, Any]:
    return {**SYSTEM, **values}


def test_a_disk_and_all_that_lies_on_it() -> None:
    (disk,) = parse_lsblk(tree(SYSTEM))
    assert (disk.name, disk.size, disk.serial, disk.wwn) == (
        "nvme0n1",
        960197124096,
        "S6XNNE0T100001",
        "eui.36344630",
    )
    assert (disk.model, disk.transport, disk.path) == ("SAMSUNG MZ1L2960", "nvme", "/dev/nvme0n1")
    assert disk.content == (
        "gpt partition table",
        "vfat on nvme0n1p1",
        "partition nvme0n1p2",
        "linux_raid_member on nvme0n1p3",
        "ext4 on md0",
    )
    assert disk.in_use == ("mounted at /boot/efi", "swap", "mounted at /", "raid1 md0")
    assert not disk.removable
    assert not disk.read_only


def test_what_is_no_disk_is_left_out() -> None:
    others = [
        changed(name="loop0", type="loop"),
        changed(name="zram0"),
        changed(name="sr0", type="rom"),
        changed(name="sdz", size=0),
    ]
    assert [disk.name for disk in parse_lsblk(tree(*others, SYSTEM))] == ["nvme0n1"]


def test_older_words() -> None:
    (disk,) = parse_lsblk(tree({"name": "sda", "type": "disk", "size": "1000", "rm": "1", "ro": "0"}))
    assert (disk.size, disk.removable, disk.read_only) == (1000, True, False)
    (disk,) = parse_lsblk(
        tree({"name": "sda", "type": "disk", "size": 1, "rm": "0", "ro": "0", "mountpoint": "/mnt"})
    )
    assert disk.in_use == ("mounted at /mnt",)


def test_what_is_not_said_lets_nothing_through() -> None:
    (disk,) = parse_lsblk(tree({"name": "sda", "type": "disk", "size": 1}))
    assert disk.removable
    assert disk.read_only
    assert disk.label == "sda (no serial)"
    (disk,) = parse_lsblk(tree(changed(serial=None)))
    assert disk.label == "WWN eui.36344630"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"blockdevices": 1}',
        tree("sda"),
        tree(changed(size=None)),
        tree(changed(size=-1)),
        tree(changed(size=True)),
        tree(changed(size="9" * 30)),
        tree(changed(name="")),
        tree(changed(name="a/b")),
        tree(changed(serial=7)),
        tree(changed(rm="maybe")),
        tree(changed(rm=[])),
        tree(changed(children=3)),
        tree(changed(children=[3])),
        tree(changed(mountpoints="/")),
        tree(changed(mountpoints=[3])),
        tree(SYSTEM, SYSTEM),
        "[" * 100_000,
        " " * (16 * 1024 * 1024 + 1),
    ],
)
def test_garbage_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ColdironError, match="the machine's list of disks cannot be read") as refused:
        parse_lsblk(text)
    assert "\n" not in refused.value.message
    assert refused.value.exit_code == ExitCode.ENVIRONMENT


def test_a_tree_without_end_is_refused() -> None:
    device: dict[str, Any] = {"name": "x", "type": "part"}
    for _ in range(40):
        device = {"name": "x", "type": "part", "children": [device]}
    with pytest.raises(ColdironError, match="no tree"):
        parse_lsblk(tree(changed(children=[device])))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "type", "size", "rm", "ro", "children", "mountpoints"]), inner
        )
    ),
    max_leaves=12,
)


@given(st.text() | JSON.map(lambda tree: json.dumps({"blockdevices": [tree]})))
def test_nothing_but_disks_or_one_line(text: str) -> None:
    message = ""
    try:
        parse_lsblk(text)
    except ColdironError as refused:
        message = refused.message
    assert not message or message.isprintable()


def test_the_command_asks_for_bytes() -> None:
    assert COMMAND[:3] == ("lsblk", "--json", "--bytes")
