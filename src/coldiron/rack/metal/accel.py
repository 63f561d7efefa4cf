"""Whether the host's KVM serves: found out by starting something with it, since a device file promises nothing."""

from __future__ import annotations

import os
from pathlib import Path

from coldiron.rack.host import CommandError, Host
from coldiron.rack.metal.domain import EMULATOR

_TRY_SECONDS = 15.0
# What QEMU exits with when a guest writes 0x10 to isa-debug-exit.
_GOOD = 0x10 << 1 | 1
# A BIOS starts nothing from a disk smaller than a cylinder.
_DISK_BYTES = 1 << 20
_DEVICE = Path("/dev/kvm")


def boot_sector() -> bytes:
    """A disk whose boot sector tells isa-debug-exit that the firmware came as far as starting it."""
    code = bytes.fromhex(
        "fa"  # cli
        "b010"  # al = 0x10
        "e6f4"  # out 0xf4, al
        "f4"  # hlt
    )
    return (code.ljust(510, b"\0") + b"\x55\xaa").ljust(_DISK_BYTES, b"\0")


def kvm_serves(host: Host, cache: Path, device: Path = _DEVICE) -> bool:
    """Whether a guest starts under KVM here. Tried once a boot of the host; the answer is kept in ``cache``."""
    if not os.access(device, os.R_OK | os.W_OK):
        return False
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    known = cache / "kvm"
    if known.exists():
        answer = known.read_text().split()
        if answer[:1] == [boot_id]:
            return answer[1:] == ["yes"]
    good = _try(host, cache)
    known.write_text(f"{boot_id} {'yes' if good else 'no'}\n")
    return good


def _try(host: Host, cache: Path) -> bool:
    cache.mkdir(parents=True, exist_ok=True)
    image = cache / f"kvm-{os.getpid()}.img"
    image.write_bytes(boot_sector())
    command = [
        EMULATOR, "-accel", "kvm", "-machine", "q35", "-cpu", "host", "-m", "64", "-nodefaults", "-display", "none",
        "-drive", f"file={image},format=raw,if=none,id=disk", "-device", "virtio-blk-pci,drive=disk,bootindex=0",
        "-device", "isa-debug-exit,iobase=0xf4,iosize=0x04",
        "-no-reboot",
    ]  # fmt: skip
    try:
        return host.run(command, check=False, timeout_seconds=_TRY_SECONDS).returncode == _GOOD
    except CommandError:
        return False
    finally:
        image.unlink(missing_ok=True)
