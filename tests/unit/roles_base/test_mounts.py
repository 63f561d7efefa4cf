"""Exports and mounts as data: what servers and systemd are told."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from ansible_collections.coldiron.cluster.plugins.filter.mounts import (
    export_directories,
    export_options,
    fstab_options,
    ganesha_exports,
    mount_units,
    unit_name,
)

HOME = {"path": "/home", "server": "storage01", "export": "/home"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home", "home.mount"),
        ("/", "-.mount"),
        ("/srv//data/", "srv-data.mount"),
        ("/srv/soft-ware", r"srv-soft\x2dware.mount"),
        ("/.hidden/a b", r"\x2ehidden-a\x20b.mount"),
        ("/srv/größe", r"srv-gr\xc3\xb6\xc3\x9fe.mount"),
    ],
)
def test_units_are_named_as_systemd_names_them(path: str, name: str) -> None:
    assert unit_name(path, "mount") == name
    if shutil.which("systemd-escape"):
        words = ["systemd-escape", "--path", "--suffix=mount", path]
        assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == name


def test_an_automount_is_two_units_of_which_one_is_enabled() -> None:
    found = mount_units([HOME], start=True)
    assert found["units"] == [{"name": "home.automount", "state": "started"}]
    texts = {file["dest"].rpartition("/")[2]: file["content"] for file in found["files"]}
    assert list(texts) == ["home.mount", "home.automount"]
    assert (
        "What=storage01:/home\nWhere=/home\nType=nfs\nOptions=hard,noatime,nodev,nosuid\n"
        in texts["home.mount"]
    )
    assert "[Install]" not in texts["home.mount"]
    assert "Where=/home\n" in texts["home.automount"]
    assert "WantedBy=remote-fs.target" in texts["home.automount"]


def test_a_plain_mount_is_one_unit_and_can_wait_for_the_boot() -> None:
    found = mount_units([{**HOME, "automount": False, "options": "ro,hard"}], start=False)
    assert found["units"] == [{"name": "home.mount", "state": "none"}]
    [file] = found["files"]
    assert "Options=ro,hard\n" in file["content"]
    assert "WantedBy=remote-fs.target" in file["content"]


def test_no_mount_is_restarted_under_anybody() -> None:
    assert all("restart_on" not in unit for unit in mount_units([HOME], start=True)["units"])


@pytest.mark.parametrize(
    ("mount", "options"),
    [
        (HOME, "hard,noatime,nodev,nosuid,_netdev,noauto,x-systemd.automount"),
        ({**HOME, "automount": False, "options": ["ro"]}, "ro,_netdev"),
    ],
)
def test_fstab_is_told_that_the_network_is_needed(mount: dict[str, object], options: str) -> None:
    assert fstab_options(mount) == options


def test_exports_have_safe_defaults() -> None:
    export = {"path": "/home", "clients": ["10.0.0.0/16"]}
    assert export_options(export) == "rw,sync,no_subtree_check,root_squash"
    assert export_directories([export, {**export, "path": "/srv", "mode": "1777"}]) == [
        {"path": "/home", "mode": "0755"},
        {"path": "/srv", "mode": "1777"},
    ]


@pytest.mark.parametrize(
    ("options", "access", "squash"),
    [
        (["rw", "sync", "root_squash"], "RW", "Root_Squash"),
        (["sync"], "RO", "Root_Squash"),
        (["ro", "all_squash"], "RO", "All_Squash"),
        ("rw,no_root_squash", "RW", "No_Root_Squash"),
    ],
)
def test_ganesha_is_told_what_exports_say(options: object, access: str, squash: str) -> None:
    [found] = ganesha_exports([{"path": "/home", "clients": [], "options": options}])
    assert (found["access"], found["squash"]) == (access, squash)


def test_an_export_keeps_its_id_wherever_it_stands() -> None:
    home, data = {"path": "/home", "clients": []}, {"path": "/data", "clients": []}
    ids = {export["path"]: export["id"] for export in ganesha_exports([home, data])}
    assert ids == {export["path"]: export["id"] for export in ganesha_exports([data, home])}
    assert all(0 < number <= 65535 for number in ids.values())
