"""The partitions of a node's system, as data, and what systemd-repart and mdadm have to be told to make them.

A layout is drawn for disks that were chosen before (``disks.choose``); data disks do not come here at all. The
partition table of a mirrored disk is the same on both, so that either boots without the other.

Sources: Discoverable Partitions Specification for the types, repart.d(5) for the words, md(4) for what is mirrored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision.disks import Choice
from coldiron.provision.lsblk import Found

Firmware = Literal["bios", "uefi"]
Content = Literal["boot code", "fat", "ext4", "swap"]

MIB = 1024 * 1024
GIB = 1024 * MIB
# systemd-repart leaves 1 MiB before the first partition, and rounds to 4 KiB; the second table is at the end.
_OVERHEAD = 2 * MIB
_GRAIN = 4096
_BIOS_BOOT = 1 * MIB
# FAT32 on disks with sectors of 4 KiB needs 260 MiB; two kernels with their initramfs want more.
_ESP_LEAST = 260 * MIB
_ROOT_LEAST = 8 * GIB
_SWAP_LEAST = 64 * MIB
_SCRATCH_LEAST = 1 * GIB

# Type of a partition in repart.d's words, or its GUID where older ones have no word for it.
_TYPES = {
    "bios": "21686148-6449-6e6f-744e-656564454649",
    "esp": "esp",
    "root": "root-x86-64",
    "swap": "swap",
    "scratch": "linux-generic",
    "raid": "a19d880f-05fc-4d3b-a006-743f0f84911e",
}


@dataclass(frozen=True)
class Sizes:
    """What a layout is asked for, in bytes. ``root`` None takes all that is left, and then there is no scratch.

    ``swap`` 0 is no swap partition; ``scratch`` True gives all that root leaves to scratch.
    """

    esp: int = 1 * GIB
    root: int | None = None
    swap: int = 0
    scratch: bool = False


@dataclass(frozen=True)
class Partition:
    """One partition. ``size`` in bytes, None for all that is left; ``type`` as repart.d wants it."""

    name: str
    type: str
    size: int | None
    least: int
    content: Content

    def text(self) -> str:
        """The repart.d file. Nothing is formatted here: mirrored halves have no file system of their own."""
        most = f"SizeMaxBytes={self.size}\n" if self.size is not None else ""
        weight = "" if self.size is None else "Weight=0\n"
        return (
            f"[Partition]\nType={self.type}\nLabel={self.name}\n"
            f"SizeMinBytes={self.size or self.least}\n{most}{weight}"
        )


@dataclass(frozen=True)
class Array:
    """A mirror of the partition ``partition`` on every disk. ``device`` is /dev/md/NAME."""

    name: str
    partition: str
    content: Content

    @property
    def device(self) -> str:
        return f"/dev/md/{self.name}"


@dataclass(frozen=True)
class DiskLayout:
    """The partitions of disks that are alike: one disk, or the two halves of a mirror."""

    disks: tuple[Found, ...]
    partitions: tuple[Partition, ...]
    arrays: tuple[Array, ...] = ()

    def files(self) -> dict[str, str]:
        """The repart.d files by name, in the order of the partitions on the disk."""
        return {f"{number:02}-{p.name}.conf": p.text() for number, p in enumerate(self.partitions, 1)}

    def repart(self, directory: str) -> list[tuple[str, ...]]:
        """The commands, one a disk. What was there is lost: ``force`` is right for chosen disks only."""
        words = ("systemd-repart", "--dry-run=no", "--empty=force", f"--definitions={directory}")
        return [(*words, disk.path) for disk in self.disks]

    def mdadm(self) -> list[tuple[str, ...]]:
        """The commands that make the mirrors. ``--homehost=any``: the name stays right in another machine."""
        numbers = {partition.name: number for number, partition in enumerate(self.partitions, 1)}
        return [
            (
                "mdadm",
                "--create",
                array.device,
                "--run",
                "--level=1",
                "--metadata=1.2",
                "--homehost=any",
                f"--name={array.name}",
                f"--raid-devices={len(self.disks)}",
                *(partition_path(disk, numbers[array.partition]) for disk in self.disks),
            )
            for array in self.arrays
        ]


@dataclass(frozen=True)
class Layout:
    """All that is written on a node: the system's disks first."""

    firmware: Firmware
    disks: tuple[DiskLayout, ...]

    @property
    def boot_disks(self) -> tuple[Found, ...]:
        """Where boot code, or an ESP of their own, goes: every half of a mirror."""
        return self.disks[0].disks


def partition_path(disk: Found, number: int) -> str:
    """The device file of a disk's partition: nvme0n1p2, but sda2."""
    return f"{disk.path}{'p' if disk.name[-1].isdigit() else ''}{number}"


def draw(choice: Choice, firmware: Firmware, sizes: Sizes | None = None) -> Layout:
    """The layout of the chosen disks. Raises ColdironError where the sizes do not fit or make no sense."""
    sizes = sizes or Sizes()
    _check(sizes, choice)
    system = _system(choice, firmware, sizes)
    others = [
        *(DiskLayout((disk,), (_rest("swap", "swap", _SWAP_LEAST),)) for disk in choice.swap),
        *(DiskLayout((disk,), (_rest("scratch", "ext4", _SCRATCH_LEAST),)) for disk in choice.scratch),
    ]
    layout = Layout(firmware, (system, *others))
    for part in layout.disks:
        _check_fit(part)
    return layout


def _system(choice: Choice, firmware: Firmware, sizes: Sizes) -> DiskLayout:
    boot = [Partition("bios", _TYPES["bios"], _BIOS_BOOT, _BIOS_BOOT, "boot code")]
    if firmware == "uefi":
        # Firmware reads no mirror: each half has an ESP of its own.
        boot = [Partition("esp", _TYPES["esp"], sizes.esp, _ESP_LEAST, "fat")]
    contents: list[tuple[str, Content, int | None, int]] = []
    if sizes.swap:
        contents.append(("swap", "swap", sizes.swap, _SWAP_LEAST))
    contents.append(("root", "ext4", sizes.root, _ROOT_LEAST))
    if sizes.scratch:
        contents.append(("scratch", "ext4", None, _SCRATCH_LEAST))
    kept = [
        Partition(name, _TYPES["raid" if choice.mirrored else name], size, least, content)
        for name, content, size, least in contents
    ]
    if choice.mirrored:
        kept = _alike_on_all(choice.system, boot, kept)
    arrays = tuple(Array(name, name, content) for name, content, _, _ in contents) if choice.mirrored else ()
    return DiskLayout(choice.system, (*boot, *kept), arrays)


def _alike_on_all(disks: tuple[Found, ...], boot: list[Partition], kept: list[Partition]) -> list[Partition]:
    """``kept`` with the size of what is left written out: halves that differ by a little get the same table."""
    others = sum(partition.size or 0 for partition in (*boot, *kept))
    left = (min(disk.size for disk in disks) - _OVERHEAD - others) // MIB * MIB
    return [
        replace(partition, size=left) if partition.size is None and left >= partition.least else partition
        for partition in kept
    ]


def _rest(name: str, content: Content, least: int) -> Partition:
    return Partition(name, _TYPES[name], None, least, content)


def _check(sizes: Sizes, choice: Choice) -> None:
    for name, size, least in (
        ("esp", sizes.esp, _ESP_LEAST),
        ("root", sizes.root, _ROOT_LEAST),
        ("swap", sizes.swap or None, _SWAP_LEAST),
    ):
        if size is None:
            continue
        if size < least:
            raise ColdironError(f"{name} of {_told(size)} is too small; write {_told(least)} or more")
        if size % _GRAIN:
            raise ColdironError(f"{name} of {size} bytes is no multiple of {_GRAIN}; round it")
    if sizes.scratch and sizes.root is None:
        raise ColdironError("root and scratch would both take all that is left; write a size for root")
    if sizes.swap and choice.swap:
        raise ColdironError("swap is a partition of the system disk and a disk of its own; keep one of them")
    if sizes.scratch and choice.scratch:
        raise ColdironError(
            "scratch is a partition of the system disk and a disk of its own; keep one of them"
        )


def _check_fit(layout: DiskLayout) -> None:
    needed = _OVERHEAD + sum(partition.size or partition.least for partition in layout.partitions)
    smallest = min(layout.disks, key=lambda disk: disk.size)
    if smallest.size < needed:
        names = ", ".join(partition.name for partition in layout.partitions)
        raise ColdironError(
            f"{smallest.label} has {_told(smallest.size)}, and {names} need {_told(needed)}", ExitCode.REFUSED
        )


def _told(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"
