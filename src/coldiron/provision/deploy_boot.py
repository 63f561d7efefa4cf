"""The boot loader on every half of the system disk, and the way into the installed system."""

from __future__ import annotations

import re

from coldiron.provision.deploy_disks import Disks
from coldiron.provision.deploy_system import Kernel, boot_files, command_line, write
from coldiron.provision.deploy_tools import CommandFailed, Tools
from coldiron.provision.order import Order

_GRUB_SECONDS = 600
_EFIVARS = "/sys/firmware/efi/efivars"
_LOADER = r"\EFI\BOOT\BOOTX64.EFI"
_ENTRY = re.compile(r"Boot([0-9A-F]{4})\*? +coldiron [12]\b")


def install_loader(tools: Tools, order: Order, disks: Disks, kernel: Kernel) -> list[str]:
    """Make the chosen disks bootable; notes on what could not be done and is no reason to stop.

    Raises CommandFailed where a half of the system disk would not boot.
    """
    for path, (text, mode) in boot_files(order, disks, kernel).items():
        write(tools.places.target, path, text, mode)
    if order.firmware == "bios":
        for disk in disks.layout.boot_disks:
            tools.chroot("grub-install", "--target=i386-pc", disk.path, timeout=_GRUB_SECONDS)
        return []
    words = ("--target=x86_64-efi", "--efi-directory=/boot/efi", "--removable", "--no-nvram")
    tools.chroot("grub-install", *words, timeout=_GRUB_SECONDS)
    target = tools.places.target
    if disks.choice.mirrored:
        tools.run("cp", "-r", f"{target}/boot/efi/.", f"{target}/boot/efi2/", timeout=120)
    return _entries(tools, disks)


def _entries(tools: Tools, disks: Disks) -> list[str]:
    """Boot entries by name, where the firmware takes them: without one it still finds the removable path."""
    if not tools.places.at(_EFIVARS).is_dir():
        return []
    tools.try_run("mount", "-t", "efivarfs", "efivarfs", _EFIVARS)
    try:
        listed = tools.run("efibootmgr").decode("utf-8", "replace")
    except CommandFailed as error:
        return [f"no boot entry was made: {error.message}"]
    notes = [
        tools.try_run("efibootmgr", "--quiet", "--bootnum", number, "--delete-bootnum")
        for number in _ENTRY.findall(listed)
    ]
    # The last one made is the first one tried.
    for number, disk in reversed(list(enumerate(disks.layout.boot_disks, 1))):
        notes.append(
            tools.try_run(
                "efibootmgr", "--quiet", "--create", "--disk", disk.path, "--part", "1",
                "--loader", _LOADER, "--label", f"coldiron {number}",
            )
        )  # fmt: skip
    return [note for note in notes if note]


def load_kexec(tools: Tools, order: Order, disks: Disks, kernel: Kernel) -> str:
    """Make the installed kernel the next one, by the file call that Secure Boot allows too; why not, or ""."""
    target = tools.places.target
    return tools.try_run(
        "kexec", "--load", "--kexec-syscall-auto", f"--initrd={target}{kernel.initrd}",
        f"--command-line={command_line(order, disks)}", f"{target}{kernel.image}", timeout=120,
    )  # fmt: skip


def leave(tools: Tools, *, by_kexec: bool) -> None:
    """Start the installed system. Raises CommandFailed where the machine is still here."""
    if by_kexec:
        tools.try_run("kexec", "--exec", timeout=60)
    tools.run("busybox", "reboot", "-f", timeout=60)
