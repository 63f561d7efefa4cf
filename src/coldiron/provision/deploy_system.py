"""What makes an unpacked image this node's system: fstab, identity, boot configuration, and the record of it all.

Everything is written below the target; a path that would lead out of it by a link is refused.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coldiron.inventory.findings import shown
from coldiron.provision.deploy_disks import Disks
from coldiron.provision.deploy_tools import DeployFailed, Tools
from coldiron.provision.images import Manifest
from coldiron.provision.order import Identity, Order

RECORD = "/etc/coldiron/deployed.json"
_SYNC = "/usr/local/sbin/coldiron-esp-sync"
_SERIAL = re.compile(r"console=ttyS(\d+)(?:,(\d+))?.*")


@dataclass(frozen=True)
class Kernel:
    """The kernel of the installed system. ``version`` as uname says it."""

    version: str

    @property
    def image(self) -> str:
        return f"/boot/vmlinuz-{self.version}"

    @property
    def initrd(self) -> str:
        return f"/boot/initrd.img-{self.version}"


def find_kernel(target: Path, wanted: str) -> Kernel:
    """The kernel that the manifest names. Raises DeployFailed where the image cannot boot it."""
    kernel = Kernel(wanted)
    for path in (kernel.image, kernel.initrd):
        if not (target / path.lstrip("/")).is_file():
            raise DeployFailed(f"the image has no {path}; bake it with a kernel and its initramfs")
    return kernel


def check_mirror(target: Path) -> None:
    """Refuse an image that cannot assemble a mirrored root. Raises DeployFailed."""
    for path in ("usr/sbin/mdadm", "usr/share/initramfs-tools/hooks/mdadm"):
        if not (target / path).exists():
            raise DeployFailed(
                "the system disk is mirrored and the image has no mdadm; bake it with that package"
            )


def fstab(disks: Disks) -> str:
    """The file systems by UUID: what a disk is called changes, what it holds does not."""
    lines = ["# Written when this node was deployed."]
    for volume in disks.volumes:
        device = f"UUID={volume.uuid}"
        if volume.content == "swap":
            lines.append(f"{device} none swap sw,nofail 0 0")
        elif volume.content == "fat":
            # Nothing but an update of the boot loader needs an ESP.
            lines.append(f"{device} {volume.where} vfat umask=0077,nofail,x-systemd.device-timeout=10s 0 2")
        elif volume.where == "/":
            lines.append(f"{device} / ext4 errors=remount-ro 0 1")
        elif volume.where:
            lines.append(f"{device} {volume.where} ext4 nofail 0 2")
    return "\n".join(lines) + "\n"


def write_identity(tools: Tools, identity: Identity) -> None:
    """Host name, machine id, host keys, root's keys, network and files."""
    target = tools.places.target
    write(target, "/etc/hostname", identity.hostname + "\n")
    if identity.hosts:
        write(target, "/etc/hosts", identity.hosts)
    write(target, "/etc/machine-id", uuid.uuid4().hex + "\n", 0o444)
    for old in (target / "etc/ssh").glob("ssh_host_*"):
        old.unlink()
    for kind, key in identity.host_keys.items():
        path = f"/etc/ssh/ssh_host_{kind}_key"
        write(target, path, key, 0o600)
        public = tools.chroot("ssh-keygen", "-y", "-f", path, timeout=60)
        write(target, f"{path}.pub", public.decode("ascii", "replace"))
    if identity.authorized_keys:
        write(
            target,
            "/root/.ssh/authorized_keys",
            "".join(f"{line}\n" for line in identity.authorized_keys),
            0o600,
        )
        os.chmod(target / "root/.ssh", 0o700)
    for path, text in identity.network.items():
        write(target, path, text)
    if identity.network:
        tools.chroot("systemctl", "enable", "systemd-networkd.service", timeout=60)
    for path, file in identity.files.items():
        write(target, path, file.text, int(file.mode, 8))


def boot_files(order: Order, disks: Disks, kernel: Kernel) -> dict[str, tuple[str, int]]:
    """The boot loader's configuration: one that is ready, and what ``update-grub`` makes the next one from."""
    arguments = " ".join(order.kernel_arguments)
    files = {
        "/boot/grub/grub.cfg": (grub_cfg(order, disks, kernel), 0o600),
        "/etc/default/grub.d/coldiron.cfg": (
            "# Written when this node was deployed; update-grub reads it.\n"
            f'GRUB_TIMEOUT=1\nGRUB_CMDLINE_LINUX_DEFAULT=""\nGRUB_CMDLINE_LINUX="{arguments}"\n'
            + _serial_defaults(order.kernel_arguments),
            0o644,
        ),
    }
    if order.firmware == "uefi" and disks.choice.mirrored:
        files[_SYNC] = (_ESP_SYNC, 0o755)
        files["/etc/apt/apt.conf.d/90coldiron-esp"] = (
            f'// The mirror\'s second half boots by an ESP of its own.\nDPkg::Post-Invoke {{ "{_SYNC}"; }};\n',
            0o644,
        )
    return files


_ESP_SYNC = """#!/bin/sh
# Keeps the second ESP of a mirrored system disk like the first.
set -eu
mountpoint -q /boot/efi && mountpoint -q /boot/efi2 || exit 0
cp -r --update /boot/efi/. /boot/efi2/
"""


def grub_cfg(order: Order, disks: Disks, kernel: Kernel) -> str:
    """A grub.cfg that boots this kernel; the next ``update-grub`` replaces it."""
    uuid_ = disks.root.uuid
    modules = ["part_gpt", "ext2", *(["mdraid1x"] if disks.choice.mirrored else [])]
    return "\n".join(
        [
            "# Written when this node was deployed; update-grub writes its own.",
            *_serial_lines(order.kernel_arguments),
            "set default=0",
            "set timeout=1",
            *(f"insmod {name}" for name in modules),
            f"search --no-floppy --fs-uuid --set=root {uuid_}",
            f"menuentry 'Linux {kernel.version}' {{",
            f"  linux {kernel.image} {command_line(order, disks)}",
            f"  initrd {kernel.initrd}",
            "}",
            "",
        ]
    )


def command_line(order: Order, disks: Disks) -> str:
    """The installed kernel's command line; it holds no secret."""
    return " ".join((f"root=UUID={disks.root.uuid}", "ro", *order.kernel_arguments))


def record(order: Order, disks: Disks, manifest: Manifest, now: float) -> dict[str, object]:
    """What was done to this machine; no secret. Times are UTC."""
    return {
        "format": 1,
        "node": order.node,
        "deployed": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "firmware": order.firmware,
        "image": {"sha256": manifest.sha256, "class": manifest.node_class, "kernel": manifest.kernel},
        "disks": disks.told(),
    }


def write_record(target: Path, fields: Mapping[str, object]) -> None:
    """Leave the record in the installed system."""
    write(target, RECORD, json.dumps(fields, indent=1) + "\n")


def write(target: Path, path: str, text: str, mode: int = 0o644) -> None:
    """Write a file of the installed system, replacing what was there, a link too.

    It has its mode before it has its content. Raises DeployFailed where the path leads out of the system.
    """
    file = target / path.lstrip("/")
    # An absolute link in the image means a place of the RAM environment here.
    real = Path(os.path.realpath(file.parent))
    if not real.is_relative_to(os.path.realpath(target)):
        raise DeployFailed(f"{shown(path)} leads out of the system by a link; nothing is written there")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    descriptor = os.open(
        file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode & 0o700
    )
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        handle.write(text)
        os.fchmod(handle.fileno(), mode)


def _serial(arguments: Sequence[str]) -> tuple[str, str] | None:
    """The unit and speed of the serial console that the kernel is told of last."""
    found = [match for word in arguments if (match := _SERIAL.fullmatch(word))]
    return (found[-1][1], found[-1][2] or "115200") if found else None


def _serial_lines(arguments: Sequence[str]) -> list[str]:
    serial = _serial(arguments)
    if serial is None:
        return []
    return [
        f"serial --unit={serial[0]} --speed={serial[1]}",
        "terminal_input console serial",
        "terminal_output console serial",
    ]


def _serial_defaults(arguments: Sequence[str]) -> str:
    serial = _serial(arguments)
    if serial is None:
        return ""
    return f'GRUB_TERMINAL="console serial"\nGRUB_SERIAL_COMMAND="serial --unit={serial[0]} --speed={serial[1]}"\n'
