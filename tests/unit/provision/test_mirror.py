"""The program that looks after a mirrored system disk: how it stands, what it refuses, what it does to mend it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldiron.provision import mirror, prepare
from coldiron.provision.mirror import Node, Stopped

ESPS = {"vda": "1111-AAAA", "vdb": "2222-BBBB"}
TABLE = """\
label: gpt
label-id: 11111111-2222-3333-4444-555555555555
device: /dev/vda
unit: sectors
first-lba: 34
last-lba: 19531216
sector-size: 512

/dev/vda1 : start=2048, size=2097152, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, uuid=AAAAAAAA-0000-0000-0000-000000000001, name="esp"
/dev/vda2 : start=2099200, size=17430528, type=A19D880F-05FC-4D3B-A006-743F0F84911E, uuid=AAAAAAAA-0000-0000-0000-000000000002, name="root"
"""  # noqa: E501


class Toy:
    """A node whose kernel is files, and whose programs do what they would to what lsblk tells."""

    def __init__(self, root: Path, uefi: bool = True) -> None:
        self.root = root
        self.ran: list[str] = []
        self.given: list[str] = []
        self.broken: dict[str, str] = {}
        self.devices = {"vda": self.half("vda", "LEFT"), "vdb": self.half("vdb", "RIGHT")}
        (root / "etc/coldiron").mkdir(parents=True)
        disks = [{"serial": serial, "use": "system"} for serial in ("LEFT", "RIGHT")]
        (root / "etc/coldiron/deployed.json").write_text(json.dumps({"disks": disks}))
        lines = ["# Written when this node was deployed.", "UUID=root / ext4 errors=remount-ro 0 1"]
        if uefi:
            lines += [
                f"UUID={ESPS['vda']} /boot/efi vfat nofail 0 2",
                f"UUID={ESPS['vdb']} /boot/efi2 vfat nofail 0 2",
            ]
        (root / "etc/fstab").write_text("\n".join(lines))
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/mounts").write_text("/dev/vdb1 /boot/efi2 vfat rw 0 0\n")
        self.array({"vda2": "in_sync", "vdb2": "in_sync"})
        self.node = Node(root, self.run)

    def half(self, name: str, serial: str) -> dict[str, Any]:
        esp = {
            "name": f"{name}1",
            "path": f"/dev/{name}1",
            "type": "part",
            "fstype": "vfat",
            "uuid": ESPS.get(name),
        }
        raid = {
            "name": f"{name}2", "path": f"/dev/{name}2", "type": "part", "fstype": "linux_raid_member", "uuid": "array",
            "children": [{"name": "md127", "type": "raid1", "fstype": "ext4"}],
        }  # fmt: skip
        return self.blank(name, serial) | {"pttype": "gpt", "children": [esp, raid]}

    def blank(self, name: str, serial: str) -> dict[str, Any]:
        return {
            "name": name, "path": f"/dev/{name}", "serial": serial, "type": "disk", "fstype": None, "pttype": None,
            "mountpoints": [None], "ro": False,
        }  # fmt: skip

    def array(
        self, states: dict[str, str], action: str = "idle", done: str = "none", name: str = "md127"
    ) -> None:
        directory = self.root / f"sys/block/{name}/md"
        for old in directory.glob("dev-*/state"):
            old.unlink()
        for member, state in states.items():
            (directory / f"dev-{member}").mkdir(parents=True, exist_ok=True)
            (directory / f"dev-{member}" / "state").write_text(f"{state}\n")
        for old in directory.glob("dev-*"):
            if not (old / "state").exists():
                old.rmdir()
        words = {"level": "raid1", "degraded": str(sum("in_sync" not in state for state in states.values()) +
                 (2 - len(states))), "sync_action": action, "sync_completed": done, "array_state": "clean"}  # fmt: skip
        for key, word in words.items():
            (directory / key).write_text(f"{word}\n")

    def lose(self, name: str) -> None:
        """One half is gone."""
        del self.devices[name]
        other = "vdb2" if name == "vda" else "vda2"
        self.array({other: "in_sync"})

    def run(self, *command: str, given: str | None = None) -> str:
        line = " ".join(command)
        if command[0] == "lsblk":
            return json.dumps(
                {"blockdevices": [*self.devices.values(), self.blank("loop0", "") | {"type": "loop"}]}
            )
        self.ran.append(line)
        if given is not None:
            self.given.append(given)
        for word, why in self.broken.items():
            if word in line:
                raise Stopped(f"{command[0]} failed (exit 1): {why}", mirror.DEGRADED)
        if command[0] == "sfdisk" and command[-1] != "/dev/vdb" and "--dump" not in command:
            disk = command[-1].removeprefix("/dev/")
            made = self.half(disk, self.devices[disk]["serial"])
            for part in made["children"]:
                part |= {"fstype": None, "uuid": None, "children": []}
            self.devices[disk] = made
        if "--add" in command or "--re-add" in command:
            partition = command[-1].removeprefix("/dev/")
            other = "vdb2" if partition != "vdb2" else "vda2"
            self.array({other: "in_sync", partition: "spare"}, "recover", "50 / 200")
        return TABLE if "--dump" in command else ""


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


def said(toy: Toy, *words: str, code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert mirror.main(words, toy.node) == code
    out, err = capsys.readouterr()
    return out + err


def test_it_says_how_the_mirror_stands(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(toy, code=0, capsys=capsys) == "both halves are in sync: LEFT and RIGHT\n"
    toy.array({"vda2": "in_sync", "vdb2": "in_sync"}, "resync", "1 / 4")
    assert "one half is being written from the other, 25 % so far" in said(toy, code=1, capsys=capsys)
    toy.array({"vda2": "in_sync", "vdb2": "spare"}, "recover", "delayed")
    assert "RIGHT is being written from the other, 0 % so far" in said(toy, code=1, capsys=capsys)
    toy.lose("vda")
    assert "LEFT is missing, RIGHT is alone; put it back" in said(toy, code=1, capsys=capsys)
    (toy.root / "etc/coldiron/deployed.json").unlink()
    assert "a half is missing, RIGHT is alone" in said(toy, code=1, capsys=capsys)
    assert toy.ran == []


def test_a_node_without_a_mirror_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mirror.main([], Node(tmp_path)) == mirror.USAGE
    assert "the system disk of this node is not mirrored" in capsys.readouterr().err


def test_a_blank_disk_becomes_the_missing_half(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    toy.lose("vda")
    toy.devices["vdc"] = toy.blank("vdc", "LEFT")
    toy.broken["--re-add"] = "nothing to re-add"
    told = said(toy, "mend", code=0, capsys=capsys)
    assert "LEFT is being written from the other, 25 % so far" in told
    table = toy.given[0]
    assert 'start=2048, size=2097152, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name="esp"' in table
    assert not [word for word in ("label-id", "last-lba", "device:", "uuid=") if word in table]
    assert toy.ran == [
        "sfdisk --dump /dev/vdb",
        "sfdisk --quiet --wipe always --wipe-partitions always /dev/vdc",
        "udevadm settle --timeout=30",
        "mdadm --manage /dev/md127 --re-add /dev/vdc2",
        "mdadm --zero-superblock --force /dev/vdc2",
        "mdadm --manage /dev/md127 --add /dev/vdc2",
        "mkfs.vfat -F 32 -n ESP -i 1111AAAA /dev/vdc1",
        "udevadm settle --timeout=30",
        "mount /boot/efi",
        "cp -r /boot/efi2/. /boot/efi/",
        r"efibootmgr --quiet --create --disk /dev/vdc --part 1 --loader \EFI\BOOT\BOOTX64.EFI --label coldiron LEFT",
    ]


def test_a_half_that_is_back_keeps_its_table_and_its_esp(
    toy: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.array({"vdb2": "in_sync"})
    esp, raid = toy.devices["vda"]["children"]
    esp["mountpoints"], raid["children"] = ["/boot/efi"], []
    (toy.root / "proc/self/mounts").write_text(
        "/dev/vdb1 /boot/efi2 vfat rw 0 0\n/dev/vda1 /boot/efi vfat rw 0 0\n"
    )
    told = said(toy, "mend", code=0, capsys=capsys)
    assert "/dev/vda2 is back in /dev/md127" in told
    assert toy.ran == [
        "mdadm --manage /dev/md127 --re-add /dev/vda2",
        "cp -r /boot/efi2/. /boot/efi/",
    ]
    toy.array({"vdb2": "in_sync"})
    esp["mountpoints"] = ["/mnt"]
    assert "is in use; nothing is written" in said(toy, "mend", code=3, capsys=capsys)


def test_a_half_that_failed_while_it_was_used_is_let_go_first(
    toy: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.array({"vda2": "faulty", "vdb2": "in_sync"})
    said(toy, "mend", "LEFT", code=0, capsys=capsys)
    assert toy.ran[0] == "mdadm --manage /dev/md127 --fail /dev/vda2 --remove /dev/vda2"


def test_what_the_kernel_made_of_an_old_half_is_stopped(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    toy.array({"vdb2": "in_sync"})
    toy.devices["vda"]["children"][1]["children"] = [{"name": "md126", "type": "raid1"}]
    stale = toy.root / "sys/block/md126/md"
    stale.mkdir(parents=True)
    (stale / "array_state").write_text("inactive\n")
    said(toy, "mend", code=0, capsys=capsys)
    assert toy.ran[0] == "mdadm --stop /dev/md126"
    (stale / "array_state").write_text("clean\n")
    toy.array({"vdb2": "in_sync"})
    assert "is in use; nothing is written" in said(toy, "mend", code=3, capsys=capsys)


def test_a_bios_gets_its_boot_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toy = Toy(tmp_path, uefi=False)
    toy.lose("vda")
    toy.devices["vda"] = toy.blank("vda", "LEFT")
    said(toy, "mend", code=0, capsys=capsys)
    assert toy.ran[-1] == "grub-install --target=i386-pc /dev/vda"


@pytest.mark.parametrize(
    ("change", "words", "told"),
    [
        ({"pttype": "gpt"}, ("NEW",), "coldiron-mirror mend NEW --yes NEW"),
        ({"fstype": "xfs"}, ("NEW",), "bears something that is not this mirror's other half"),
        ({"ro": True}, ("NEW",), "can only be read"),
        ({"mountpoints": ["/mnt"]}, ("NEW",), "is in use; nothing is written"),
        ({}, (), "the missing half is not to be found; name the disk by serial"),
        ({}, ("OTHER",), "OTHER is not to be found"),
        ({}, ("RIGHT",), "RIGHT is not to be found"),
    ],
)
def test_a_disk_that_is_not_certain_to_be_free_is_not_written(
    toy: Toy, capsys: pytest.CaptureFixture[str], change: dict[str, Any], words: tuple[str, ...], told: str
) -> None:
    toy.lose("vda")
    toy.devices["vdc"] = toy.blank("vdc", "NEW") | change
    assert told in said(toy, "mend", *words, code=mirror.REFUSED, capsys=capsys)
    assert toy.ran == []


def test_content_goes_with_leave(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    toy.lose("vda")
    toy.devices["vdc"] = toy.blank("vdc", "NEW") | {"pttype": "gpt"}
    toy.broken["efibootmgr"] = "no variables"
    told = said(toy, "mend", "/dev/vdc", "--yes", "NEW", code=0, capsys=capsys)
    assert "no boot entry was made: efibootmgr failed (exit 1): no variables" in told


def test_there_is_nothing_to_mend(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    assert "both halves are in sync" in said(toy, "mend", code=0, capsys=capsys)
    toy.array({"vda2": "spare", "vdb2": "spare"})
    assert "is being written" in said(toy, "mend", code=0, capsys=capsys)
    toy.array({"vda2": "faulty", "vdb2": "faulty"})
    assert "no disk has all of the mirror" in said(toy, "mend", code=3, capsys=capsys)


def test_an_fstab_that_names_one_esp_is_told(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    toy.array({"vdb2": "in_sync"})
    (toy.root / "etc/fstab").write_text("UUID=2222-BBBB /boot/efi vfat nofail 0 2\n")
    assert "does not name an ESP on each half" in said(toy, "mend", code=1, capsys=capsys)


def test_a_node_with_a_mirror_gets_the_program() -> None:
    node = prepare.Node("gpu01", "x.internal", "10.0.0.1", "10.0.0.0/24", "02:00:00:00:00:01", "uefi", [])
    wishes = prepare.Wishes(authorized_keys=["ssh-ed25519 AAAA"])

    def files(*rules: dict[str, Any]) -> dict[str, Any]:
        identity = prepare.make_identity(replace(node, disks=rules), wishes, {"ed25519": "key"})
        return dict(identity.files)

    tool = files({"use": "system", "serial": ["A"]}, {"use": "system", "serial": ["B"]})[mirror.PLACE]
    assert (tool.mode, tool.text) == ("0755", Path(mirror.__file__).read_text())
    assert mirror.PLACE in files({"use": "system", "size_gb": 10, "count": 2})
    assert files({"use": "system", "serial": ["A"]}, {"use": "data", "serial": ["B"]}) == {}


def test_programs_that_fail_or_are_not_there_are_one_line() -> None:
    node = Node()
    assert node.run("cat", given="x") == "x"
    with pytest.raises(Stopped, match=r"sh failed \(exit 3\): it said nothing"):
        node.run("sh", "-c", "exit 3")
    with pytest.raises(Stopped, match="no-such-program does not run"):
        node.run("no-such-program")
