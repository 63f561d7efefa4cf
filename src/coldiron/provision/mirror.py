#!/usr/bin/python3
"""A node's mirrored system disk: how it stands, and a disk taken in as the half that is missing.

It runs on the node itself, alone, as ``coldiron-mirror``: standard library only, and the tools that every image has.
Nothing is written on a disk that bears anything else than this very mirror's other half, unless its serial is given.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLACE = "/usr/local/sbin/coldiron-mirror"
_RECORD = "etc/coldiron/deployed.json"
_COLUMNS = "NAME,PATH,SERIAL,TYPE,FSTYPE,PTTYPE,UUID,MOUNTPOINTS,RO"
# sfdisk's words that are one disk's alone.
_OWN_LINES = re.compile(r"(?m)^(?:label-id|device|last-lba): .*\n")
_OWN_WORDS = re.compile(r", uuid=[0-9A-Fa-f-]+")
_SECONDS = 300
FINE, DEGRADED, USAGE, REFUSED, ENVIRONMENT = 0, 1, 2, 3, 5


class Stopped(Exception):
    """One line of why nothing more is done, and the exit code."""

    def __init__(self, text: str, code: int = REFUSED) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Part:
    """A partition. ``number`` as in the table; ``mounts`` is where it is mounted, ``above`` are devices on it."""

    name: str
    path: str
    number: int
    content: str
    uuid: str
    mounts: tuple[str, ...]
    above: tuple[str, ...]


@dataclass(frozen=True)
class Disk:
    """A whole disk. ``bears``: whether anything at all lies on it; ``used``: whether it is in use beside partitions."""

    name: str
    path: str
    serial: str
    bears: bool
    read_only: bool
    used: bool
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Array:
    """A mirror. ``states`` are the kernel's words for each member, by the partition's name; ``percent`` while one
    half is written from the other.
    """

    name: str
    states: dict[str, frozenset[str]]
    degraded: bool
    percent: int | None = None


@dataclass
class Standing:
    """The halves: in sync, being written, and the serials of those that are not there."""

    good: list[Disk] = field(default_factory=list)
    written: list[Disk] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    degraded: bool = False
    percent: int | None = None

    def told(self) -> str:
        """One line for a person."""
        names = " and ".join(disk.serial or disk.path for disk in self.good)
        if self.written or (self.percent is not None and not self.degraded):
            half = ", ".join(disk.serial or disk.path for disk in self.written) or "one half"
            return f"{half} is being written from the other, {self.percent or 0} % so far"
        if self.degraded:
            gone = ", ".join(self.missing) or "a half"
            return (
                f"{gone} is missing, {names or 'the other half'} is alone; put it back, or a blank disk in, and type: "
                "coldiron-mirror mend"
            )
        return f"both halves are in sync: {names}"


class Node:
    """This node. ``root`` is where its files are, ``run`` runs a program and returns what it printed."""

    def __init__(self, root: Path = Path("/"), run: Callable[..., str] | None = None) -> None:
        self.root = root
        self.run = run or _run

    def arrays(self) -> list[Array]:
        """The mirrors that are up, as the kernel tells of them."""
        found = []
        for directory in sorted((self.root / "sys/block").glob("md*/md")):
            if _word(directory / "level") == "raid1":
                states = {
                    member.name.removeprefix("dev-"): frozenset(_word(member / "state").split(","))
                    for member in directory.glob("dev-*")
                }
                degraded = _word(directory / "degraded") not in ("", "0")
                found.append(Array(directory.parent.name, states, degraded, _percent(directory)))
        return found

    def disks(self) -> list[Disk]:
        """All disks of the node, with what is on them."""
        told = json.loads(self.run("lsblk", "--json", "--output", _COLUMNS))
        return [_disk(entry) for entry in told["blockdevices"] if entry["type"] == "disk"]

    def declared(self) -> list[str]:
        """The serials of the halves that this node was deployed to."""
        try:
            record = json.loads((self.root / _RECORD).read_text())
        except (OSError, ValueError):
            return []
        return [disk["serial"] for disk in record.get("disks", []) if disk.get("use") == "system"]

    def standing(self) -> Standing:
        """How the mirror stands. Raises Stopped on a node that has none."""
        arrays = self.arrays()
        if not arrays:
            raise Stopped("the system disk of this node is not mirrored", USAGE)
        found = Standing(degraded=any(array.degraded for array in arrays))
        found.percent = min((array.percent for array in arrays if array.percent is not None), default=None)
        for disk in self.disks():
            names = {part.name for part in disk.parts}
            states = [state for array in arrays for name, state in array.states.items() if name in names]
            if states and all("in_sync" in state for state in states) and len(states) == len(arrays):
                found.good.append(disk)
            elif any("spare" in state for state in states):
                found.written.append(disk)
        present = {disk.serial for disk in (*found.good, *found.written)}
        found.missing = [serial for serial in self.declared() if serial not in present]
        return found

    def mend(self, wanted: str, yes: Sequence[str], say: Callable[[str], None]) -> None:
        """Take a disk in as the missing half; ``wanted`` is its path or serial, "" for the only one that it can be.

        Raises Stopped where nothing is to be mended, or where the disk is not certain to be free.
        """
        now = self.standing()
        if not now.degraded or now.written:
            raise Stopped(now.told(), FINE)
        if len(now.good) != 1:
            raise Stopped("no disk has all of the mirror; nothing is written, look at /proc/mdstat")
        good, disk = now.good[0], self._candidate(now, wanted)
        self._refuse_foreign(good, disk, yes)
        self._free(disk)
        if not _same_table(good, disk):
            self._partition(good, disk)
            disk = next(one for one in self.disks() if one.name == disk.name)
        for array in self.arrays():
            self._join(array, good, disk, say)
        self._boot(good, disk, say)
        say(self.standing().told())

    def _candidate(self, now: Standing, wanted: str) -> Disk:
        others = [disk for disk in self.disks() if disk.name not in (now.good[0].name,)]
        if wanted:
            path = os.path.realpath(wanted)
            found = [disk for disk in others if wanted == disk.serial or path == disk.path]
        else:
            found = [disk for disk in others if disk.serial in now.missing]
        if len(found) != 1:
            known = ", ".join(f"{disk.serial or 'no serial'} ({disk.path})" for disk in others) or "none"
            raise Stopped(
                f"{wanted or 'the missing half'} is not to be found; name the disk by serial: coldiron-mirror mend "
                f"SERIAL; other disks here: {known}"
            )
        return found[0]

    def _refuse_foreign(self, good: Disk, disk: Disk, yes: Sequence[str]) -> None:
        """Refuse a disk that bears anything but this mirror's other half, or that is in use."""
        if disk.read_only:
            raise Stopped(f"{disk.path} ({disk.serial}) can only be read; another disk is needed")
        ours = {array.name for array in self.arrays()}
        # A half that is back has had its ESP mounted again.
        own_mounts = set(self._esps().values()) if _same_table(good, disk) else set()
        above = {name for part in disk.parts for name in part.above} - ours
        mounts = {where for part in disk.parts for where in part.mounts} - own_mounts
        states = {_word(self.root / "sys/block" / name / "md/array_state") for name in above}
        if disk.used or mounts or states - {"inactive"}:
            raise Stopped(f"{disk.path} ({disk.serial}) is in use; nothing is written")
        other_half = {part.uuid for part in good.parts if part.content == "linux_raid_member"}
        known = any(part.uuid in other_half for part in disk.parts if part.uuid)
        if disk.bears and not known and disk.serial not in yes:
            raise Stopped(
                f"{disk.path} bears something that is not this mirror's other half; to lose it, type: "
                f"coldiron-mirror mend {disk.serial} --yes {disk.serial}"
            )

    def _free(self, disk: Disk) -> None:
        """Let go of what the kernel still holds of a half that was there before."""
        ours = {array.name: array for array in self.arrays()}
        for part in disk.parts:
            for name in part.above:
                if name not in ours:
                    self.run("mdadm", "--stop", f"/dev/{name}")
            for array in ours.values():
                if part.name in array.states:
                    self.run(
                        "mdadm", "--manage", f"/dev/{array.name}", "--fail", part.path, "--remove", part.path
                    )

    def _partition(self, good: Disk, disk: Disk) -> None:
        """Give the disk the other half's table, and names of its own."""
        dump = self.run("sfdisk", "--dump", good.path)
        text = _OWN_WORDS.sub("", _OWN_LINES.sub("", dump))
        words = ("sfdisk", "--quiet", "--wipe", "always", "--wipe-partitions", "always", disk.path)
        self.run(*words, given=text)
        self.run("udevadm", "settle", "--timeout=30")

    def _join(self, array: Array, good: Disk, disk: Disk, say: Callable[[str], None]) -> None:
        """Add the disk's partition to one mirror: what it has missed alone where the mirror knows, else all of it."""
        number = next(part.number for part in good.parts if part.name in array.states)
        path = next(part.path for part in disk.parts if part.number == number)
        device = f"/dev/{array.name}"
        with contextlib.suppress(Stopped):
            self.run("mdadm", "--manage", device, "--re-add", path)
            say(f"{path} is back in {device}")
            return
        self.run("mdadm", "--zero-superblock", "--force", path)
        self.run("mdadm", "--manage", device, "--add", path)
        say(f"{path} is taken into {device}")

    def _boot(self, good: Disk, disk: Disk, say: Callable[[str], None]) -> None:
        """Let the node start from this disk alone, too."""
        partitions = self._esps()
        if not partitions:
            self.run("grub-install", "--target=i386-pc", disk.path)
            say(f"boot code is on {disk.path}")
            return
        there = {part.uuid: part for part in good.parts}
        first = next((uuid for uuid in partitions if uuid in there), None)
        second = next((uuid for uuid in partitions if uuid not in there), None)
        if first is None or second is None:
            raise Stopped("the mirror is mended, but /etc/fstab does not name an ESP on each half", DEGRADED)
        number = there[first].number
        part = next(part for part in disk.parts if part.number == number)
        if part.uuid != second:
            self.run("mkfs.vfat", "-F", "32", "-n", "ESP", "-i", second.replace("-", ""), part.path)
            self.run("udevadm", "settle", "--timeout=30")
        for uuid in (first, second):
            if not (self.root / "proc/self/mounts").read_text().count(f" {partitions[uuid]} vfat "):
                self.run("mount", partitions[uuid])
        self.run("cp", "-r", f"{partitions[first]}/.", f"{partitions[second]}/")
        if part.uuid != second:
            self._entry(disk, number, say)
        say(f"the ESP is on {part.path}")

    def _entry(self, disk: Disk, number: int, say: Callable[[str], None]) -> None:
        """A boot entry by name; without one the firmware still finds the removable path."""
        try:
            self.run(
                "efibootmgr", "--quiet", "--create", "--disk", disk.path, "--part", str(number),
                "--loader", r"\EFI\BOOT\BOOTX64.EFI", "--label", f"coldiron {disk.serial}",
            )  # fmt: skip
        except Stopped as error:
            say(f"no boot entry was made: {error}")

    def _esps(self) -> dict[str, str]:
        """Where /etc/fstab mounts ESPs, by their UUIDs."""
        lines = [line.split() for line in (self.root / "etc/fstab").read_text().splitlines()]
        return {
            words[0].removeprefix("UUID="): words[1]
            for words in lines
            if len(words) > 2 and words[2] == "vfat" and words[0].startswith("UUID=")
        }


def _same_table(good: Disk, disk: Disk) -> bool:
    return [part.number for part in good.parts] == [part.number for part in disk.parts] and all(
        one.content == other.content or not one.content
        for one, other in zip(good.parts, disk.parts, strict=True)
    )


def _disk(entry: dict[str, Any]) -> Disk:
    parts = tuple(_part(child) for child in entry.get("children") or [] if child["type"] == "part")
    bears = bool(entry.get("pttype") or entry.get("fstype") or entry.get("children"))
    used = any(child["type"] != "part" for child in entry.get("children") or []) or bool(_mounts(entry))
    return Disk(
        entry["name"], entry["path"], (entry.get("serial") or "").strip(), bears, bool(entry.get("ro")), used, parts
    )  # fmt: skip


def _part(entry: dict[str, Any]) -> Part:
    number = re.search(r"(\d+)$", entry["name"])
    assert number
    return Part(
        entry["name"], entry["path"], int(number[1]), entry.get("fstype") or "", entry.get("uuid") or "",
        _mounts(entry), tuple(child["name"] for child in entry.get("children") or []),
    )  # fmt: skip


def _mounts(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(where for where in entry.get("mountpoints") or [] if where)


def _percent(directory: Path) -> int | None:
    """How far the kernel is with writing one half from the other; None where it does not."""
    if _word(directory / "sync_action") not in ("resync", "recover"):
        return None
    done = re.fullmatch(r"(\d+) / (\d+)", _word(directory / "sync_completed"))
    return int(done[1]) * 100 // max(1, int(done[2])) if done else 0


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _run(*command: str, given: str | None = None) -> str:
    """What a program printed. Raises Stopped, one line, where it fails."""
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=_SECONDS, check=False,
            stdin=subprocess.DEVNULL if given is None else None,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Stopped(f"{command[0]} does not run: {error}", ENVIRONMENT) from None
    if done.returncode:
        last = ((done.stderr or done.stdout).strip().splitlines() or ["it said nothing"])[-1]
        raise Stopped(f"{command[0]} failed (exit {done.returncode}): {last}", DEGRADED)
    return done.stdout


def main(arguments: Sequence[str] | None = None, node: Node | None = None) -> int:
    """Say how the mirror stands, or mend it: 0 where both halves are in sync (or one was taken in), 1 where not."""
    parser = argparse.ArgumentParser(
        prog="coldiron-mirror",
        description="The mirrored system disk of this node: how it stands, and mending it.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="mend")
    mend = verbs.add_parser("mend", help="take a disk in as the half that is missing")
    mend.add_argument(
        "disk", nargs="?", default="", help="its serial or path; needed where it is another disk"
    )
    mend.add_argument(
        "--yes", action="append", default=[], metavar="SERIAL", help="what is on that disk may be lost"
    )
    asked = parser.parse_args(arguments)
    node = node or Node()
    try:
        if asked.verb == "mend":
            node.mend(asked.disk, asked.yes, print)
            return FINE
        now = node.standing()
        print(now.told())
        return DEGRADED if now.degraded or now.percent is not None else FINE
    except Stopped as stopped:
        print(
            stopped if stopped.code == FINE else f"coldiron-mirror: {stopped}",
            file=sys.stderr if stopped.code else sys.stdout,
        )
        return stopped.code


if __name__ == "__main__":
    sys.exit(main())
