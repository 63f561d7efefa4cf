"""What a machine says of its disks: the tree that ``lsblk --json`` prints, as typed disks.

The tree is taken as it comes from a machine that nobody trusts yet: whatever is odd is refused in one line, and what
is not said (a missing serial, a missing size) is never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown

COLUMNS = "NAME,TYPE,SIZE,MODEL,SERIAL,WWN,TRAN,RM,RO,HOTPLUG,FSTYPE,PTTYPE,MOUNTPOINTS"
COMMAND = ("lsblk", "--json", "--bytes", "--output", COLUMNS)
# A disk with more than this below it is nothing that a person can judge on a terminal either.
_DEEPEST = 32
_LONGEST_TEXT = 16 * 1024 * 1024
# They are no place for a system, and lsblk lists them beside the disks.
_NOT_DISKS = ("loop", "rom", "zram")


@dataclass(frozen=True)
class Found:
    """One whole disk of a machine. ``size`` in bytes; ``serial``, ``wwn``, ``model`` are "" where it says none.

    ``content`` is what lies on it (partition tables, partitions, signatures of file systems, RAID, LVM), and
    ``in_use`` is who uses it now (mount points, swap, RAID and device-mapper devices above it): a word each.
    """

    name: str
    size: int
    serial: str = ""
    wwn: str = ""
    model: str = ""
    transport: str = ""
    removable: bool = False
    read_only: bool = False
    content: tuple[str, ...] = ()
    in_use: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Its device file until the next boot; nothing that is kept may name a disk by it."""
        return f"/dev/{self.name}"

    @property
    def label(self) -> str:
        """The disk as a person knows it: by serial, by WWN where it has none."""
        if self.serial:
            return f"serial {shown(self.serial)}"
        return f"WWN {shown(self.wwn)}" if self.wwn else f"{shown(self.name)} (no serial)"


def parse_lsblk(text: str) -> tuple[Found, ...]:
    """The disks in what ``COMMAND`` printed, in the order of their names.

    Raises ColdironError (ENVIRONMENT), one line, where it is anything but such a tree.
    """
    if len(text) > _LONGEST_TEXT:
        _refuse(f"it is {len(text)} characters long")
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        _refuse("it is not JSON")
    devices = tree.get("blockdevices") if isinstance(tree, dict) else None
    if not isinstance(devices, list):
        _refuse("it has no list `blockdevices`")
    disks = [_disk(device) for device in devices if _kind(device) == "disk"]
    names = [disk.name for disk in disks]
    for disk in disks:
        if names.count(disk.name) > 1:
            _refuse(f"it names {shown(disk.name)} twice")
    return tuple(sorted(disks, key=lambda disk: disk.name))


def _kind(device: Any) -> str:
    if not isinstance(device, dict):
        _refuse("`blockdevices` holds something that is no device")
    kind, name = _text(device, "type"), _text(device, "name")
    # lsblk calls zram and network block devices disks; a size of 0 is a slot without a medium.
    if kind != "disk" or name.startswith(_NOT_DISKS) or _whole(device, "size") == 0:
        return "other"
    return "disk"


def _disk(device: Mapping[str, Any]) -> Found:
    name = _text(device, "name")
    if not name or "/" in name or not name.isprintable():
        _refuse(f"{shown(name)!r} is no name of a disk")
    below = list(_below(device, _DEEPEST))
    content = [word for part in (device, *below) for word in _content(part)]
    in_use = [word for part in (device, *below) for word in _use(part)]
    return Found(
        name=name,
        size=_whole(device, "size"),
        serial=_text(device, "serial"),
        wwn=_text(device, "wwn").lower(),
        model=_text(device, "model"),
        transport=_text(device, "tran").lower(),
        removable=_flag(device, "rm") or _flag(device, "hotplug", absent=False),
        read_only=_flag(device, "ro"),
        content=tuple(dict.fromkeys(content)),
        in_use=tuple(dict.fromkeys(in_use)),
    )


def _below(device: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    children = device.get("children", [])
    if not isinstance(children, list) or (children and depth == 0):
        _refuse(f"what is below {shown(_text(device, 'name'))} is no tree of devices")
    for child in children:
        if not isinstance(child, dict):
            _refuse(f"what is below {shown(_text(device, 'name'))} is no device")
        yield child
        yield from _below(child, depth - 1)


def _content(part: Mapping[str, Any]) -> Iterator[str]:
    name = shown(_text(part, "name"))
    if table := _text(part, "pttype"):
        # Each partition repeats its disk's table.
        yield f"{shown(table)} partition table"
    if signature := _text(part, "fstype"):
        yield f"{shown(signature)} on {name}"
    elif _text(part, "type") == "part":
        yield f"partition {name}"


def _use(part: Mapping[str, Any]) -> Iterator[str]:
    mounts = part.get("mountpoints", [part.get("mountpoint")])
    if not isinstance(mounts, list):
        _refuse(f"the mount points of {shown(_text(part, 'name'))} are no list")
    for mount in mounts:
        if mount is not None and not isinstance(mount, str):
            _refuse(f"a mount point of {shown(_text(part, 'name'))} is no text")
        if mount:
            yield "swap" if mount == "[SWAP]" else f"mounted at {shown(mount)}"
    kind = _text(part, "type")
    if kind not in ("disk", "part"):
        yield f"{shown(kind or 'a device')} {shown(_text(part, 'name'))}"


def _text(device: Mapping[str, Any], key: str) -> str:
    value = device.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        _refuse(f"`{key}` is no text")
    return " ".join(value.split())


def _whole(device: Mapping[str, Any], key: str) -> int:
    """Bytes: a number, or digits as older lsblk print them."""
    value = device.get(key)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 24:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        _refuse(f"`{key}` of {shown(_text(device, 'name'))} is no number of bytes")
    return value


def _flag(device: Mapping[str, Any], key: str, absent: bool = True) -> bool:
    """A yes or no; what is not said is ``absent``: the answer that lets fewer disks through."""
    value = device.get(key)
    if value is None:
        return absent
    if value not in (True, False, "1", "0"):
        _refuse(f"`{key}` of {shown(_text(device, 'name'))} is neither true nor false")
    return value in (True, "1")


def _refuse(why: str) -> NoReturn:
    raise ColdironError(f"the machine's list of disks cannot be read: {why}", ExitCode.ENVIRONMENT)
