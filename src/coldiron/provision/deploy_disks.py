"""The deploy program's disks: read them all, write the chosen ones, and leave nothing half-written that could boot.

Only the paths of ``Layout`` are ever handed to a program that writes.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldiron.provision import lsblk
from coldiron.provision.deploy_tools import DeployFailed, Tools, waited
from coldiron.provision.disks import Choice, choose, plain_rule
from coldiron.provision.layout import DiskLayout, Layout, Sizes, draw, partition_path
from coldiron.provision.lsblk import Found

# Longer than both tables of a GPT and the boot code after them, on disks with sectors of 4 KiB too.
_TABLE_BYTES = 2 * 1024 * 1024
_REPART_SECONDS = 300
_FORMAT_SECONDS = 900
_DEVICE_SECONDS = 30.0


@dataclass(frozen=True)
class Volume:
    """A file system or swap that was made. ``where`` is its mount point in the system, "" for swap."""

    device: str
    content: str
    uuid: str
    where: str
    # The second half of a mirror has an ESP too, and its absence is no reason not to boot.
    optional: bool = False


@dataclass
class Disks:
    """What was chosen, drawn and made, as far as it came."""

    choice: Choice
    layout: Layout
    volumes: list[Volume] = field(default_factory=list)

    @property
    def root(self) -> Volume:
        return next(volume for volume in self.volumes if volume.where == "/")

    def told(self) -> list[dict[str, str]]:
        """The written disks for the deploy record."""
        uses = (("system", self.choice.system), ("swap", self.choice.swap), ("scratch", self.choice.scratch))
        return [{"serial": disk.serial, "wwn": disk.wwn, "use": use} for use, disks in uses for disk in disks]


def look(
    tools: Tools, rules: Sequence[Mapping[str, Any]], consent: Collection[str], firmware: str,
    sizes: Mapping[str, Any],
) -> Disks:  # fmt: skip
    """Choose the disks and draw their layout; nothing is written. Raises ColdironError, one line."""
    tools.run("udevadm", "settle", "--timeout=60", timeout=70)
    text = tools.run(*lsblk.COMMAND, timeout=60, attempts=3).decode("utf-8", "replace")
    choice = choose(lsblk.parse_lsblk(text), [plain_rule(rule) for rule in rules], consent)
    asked = {key: value for key, value in sizes.items() if value is not None}
    return Disks(choice, draw(choice, "uefi" if firmware == "uefi" else "bios", Sizes(**asked)))


def make(tools: Tools, disks: Disks) -> None:
    """Partition, mirror and format the chosen disks. What was on them is lost."""
    for number, part in enumerate(disks.layout.disks):
        definitions = tools.places.at(f"/run/coldiron/repart.{number}")
        definitions.mkdir(parents=True, exist_ok=True)
        for name, text in part.files().items():
            (definitions / name).write_text(text, encoding="ascii")
        for command in part.repart(str(definitions)):
            tools.run(*command, timeout=_REPART_SECONDS)
        tools.try_run("udevadm", "settle", "--timeout=30", timeout=40)
        paths = [partition_path(disk, at) for disk in part.disks for at in range(1, len(part.partitions) + 1)]
        for path in paths:
            if not waited(tools.places.at(path).exists, _DEVICE_SECONDS, tools.sleep):
                raise DeployFailed(f"{path} did not appear after its disk was partitioned")
        if part.arrays:
            # A member of the mirror that was here before would be taken up again.
            for path in paths:
                tools.run("wipefs", "--all", "--quiet", path)
        for command in part.mdadm():
            tools.run(*command, timeout=120)
        for array in part.arrays:
            _hold_back(tools, array.device)
        disks.volumes += _formatted(tools, part)


def _hold_back(tools: Tools, device: str) -> None:
    """Leave the writing of one half from the other to the installed system: here it would slow the image down."""
    action = tools.places.at(
        f"/sys/block/{os.path.basename(os.path.realpath(tools.places.at(device)))}/md/sync_action"
    )
    with contextlib.suppress(OSError):
        action.write_text("frozen\n", encoding="ascii")


def _formatted(tools: Tools, part: DiskLayout) -> list[Volume]:
    arrays = {array.partition: array.device for array in part.arrays}
    volumes = []
    for number, partition in enumerate(part.partitions, 1):
        if partition.content == "boot code":
            continue
        mirrored = partition.name in arrays
        devices = (
            [arrays[partition.name]] if mirrored else [partition_path(disk, number) for disk in part.disks]
        )
        for half, device in enumerate(devices):
            name = _format(tools, device, partition.content, partition.name)
            where = {"esp": "/boot/efi", "root": "/", "scratch": "/scratch"}.get(partition.name, "")
            volumes.append(
                Volume(device, partition.content, name, where + str(half + 1) * bool(half), optional=half > 0)
            )
    return volumes


def _format(tools: Tools, device: str, content: str, label: str) -> str:
    """Make the file system; its UUID is ours, so that nobody has to read it back."""
    name = str(uuid.uuid4())
    if content == "fat":
        name = f"{name[:4]}-{name[4:8]}".upper()
        tools.run(
            "mkfs.vfat",
            "-F",
            "32",
            "-n",
            label.upper(),
            "-i",
            name.replace("-", ""),
            device,
            timeout=_FORMAT_SECONDS,
        )
    elif content == "swap":
        tools.run("mkswap", "--uuid", name, "--label", label, device, timeout=_FORMAT_SECONDS)
    else:
        # Inode tables are cleared by the running system; systemd-repart has discarded the blocks.
        options = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
        tools.run(
            "mke2fs", "-t", "ext4", "-q", "-F", "-U", name, "-L", label, "-E", options, device, timeout=_FORMAT_SECONDS
        )  # fmt: skip
    return name


def mount(tools: Tools, disks: Disks) -> None:
    """Mount root and the ESPs where the system is unpacked."""
    target = tools.places.target
    target.mkdir(parents=True, exist_ok=True)
    tools.run("mount", "-t", "ext4", "-o", "noatime,nodiratime", disks.root.device, str(target))
    for volume in disks.volumes:
        if volume.content == "fat":
            where = target / volume.where.lstrip("/")
            where.mkdir(parents=True, exist_ok=True)
            tools.run("mount", "-t", "vfat", "-o", "umask=0077", volume.device, str(where))


def show_devices(tools: Tools) -> None:
    """Let programs of the unpacked system see this machine; ``unmount`` ends it."""
    for name in ("dev", "proc", "sys", "run"):
        where = tools.places.target / name
        where.mkdir(exist_ok=True)
        tools.run("mount", "--bind", str(tools.places.at(f"/{name}")), str(where))


def unmount(tools: Tools) -> None:
    """Let go of the system. Raises CommandFailed where something still holds it."""
    tools.run("sync", timeout=_FORMAT_SECONDS)
    for where in reversed(mounted_below(tools, tools.places.target)):
        tools.run("umount", where, timeout=120, attempts=4)


def mounted_below(tools: Tools, target: Path) -> list[str]:
    """What is mounted at or below ``target``, in the order in which it was mounted."""
    lines = [line.split(" ") for line in tools.places.text("/proc/self/mounts").splitlines()]
    points = [words[1] for words in lines if len(words) > 1]
    return [point for point in points if point == str(target) or point.startswith(f"{target}/")]


def spoil(tools: Tools, disks: Disks) -> list[str]:
    """Take tables and boot code off half-written disks, so that nothing boots from them; what could not be done."""
    troubles = []
    for where in reversed(mounted_below(tools, tools.places.target)):
        troubles.append(tools.try_run("umount", "-l", where))
    for part in disks.layout.disks:
        for array in part.arrays:
            if tools.places.at(array.device).exists():
                troubles.append(tools.try_run("mdadm", "--stop", array.device))
    for disk in disks.choice.written:
        try:
            _clear_ends(tools.places.at(disk.path))
            tools.try_run("blockdev", "--rereadpt", disk.path)
        except OSError as error:
            troubles.append(f"{disk.label} may hold half a system: {error.strerror}")
    return [trouble for trouble in troubles if trouble]


def _clear_ends(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "wb", buffering=0) as handle:
        size = handle.seek(0, os.SEEK_END)
        length = min(_TABLE_BYTES, size)
        for start in dict.fromkeys((0, size - length)):
            handle.seek(start)
            handle.write(bytes(length))
        with contextlib.suppress(OSError):
            os.fsync(handle.fileno())


def serials(disks: Sequence[Found]) -> str:
    """The disks as a person reads them."""
    return ", ".join(disk.label for disk in disks)
