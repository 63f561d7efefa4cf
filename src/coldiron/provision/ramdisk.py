"""Builds the RAM environment that machines are deployed from: a kernel and one initramfs.

It holds no init system: udev, busybox, a few programs that write disks, and Python for the deploy program. What is in
it is data, in ``files/ramdisk.yml``. The site's CA and the public keys of its images are baked in; nothing secret is.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision import images
from coldiron.provision.ramdisk_tree import Tree, modules_for
from coldiron.rack.aptsource import AptSource, codename_of, read_host
from coldiron.rack.base import refuse_little_room
from coldiron.rack.host import Host

# The kernel's package by flavour: cloud knows virtual machines only, and starts sooner there.
KERNELS = {"generic": "linux-image-amd64", "cloud": "linux-image-cloud-amd64"}
_ROOM_MIB = 2500
_BUILD_SECONDS = 1800.0
# 16.1 MB in 1.5 CPU-s; level 19 makes it 14.2 MB in 31, and unpacking takes as long.
_LEVEL = 9
_PACKAGE_LINE = re.compile(r"(\S+) (\S+)")
# Programs that say their version without a device: started once in the finished tree.
_STARTED = ("/usr/bin/lsblk", "/usr/bin/openssl", "/usr/bin/systemd-repart", "/usr/bin/tar", "/usr/bin/udevadm",
            "/usr/bin/zstd", "/usr/sbin/mdadm", "/usr/sbin/mkswap", "/usr/sbin/kexec", "/usr/sbin/wipefs",
            "/usr/bin/efibootmgr")  # fmt: skip


@dataclass(frozen=True)
class Ramdisk:
    """A built RAM environment. ``kernel`` is its version, ``packages`` name to version of all that it was taken from.

    ``firmware_missing``: files that a driver in it asks for and Debian's free packages do not have.
    """

    vmlinuz: Path
    initrd: Path
    kernel: str
    packages: dict[str, str]
    firmware_missing: tuple[str, ...] = ()


def recipe() -> dict[str, Any]:
    """What the environment is made of, as ``files/ramdisk.yml`` says."""
    text = files("coldiron.provision").joinpath("files/ramdisk.yml").read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    assert isinstance(data, dict)
    return data


def build(
    work: Path, *, ca_certificate: str, image_keys: Sequence[str], distribution: str = "debian-13",
    kernel: str = "generic", say: Callable[[str], None] = print, host: Host | None = None,
    apt: AptSource | None = None, level: int = _LEVEL,
) -> Ramdisk:  # fmt: skip
    """Build the environment in ``work``, which is made; vmlinuz and initrd are left there.

    ``ca_certificate`` and ``image_keys`` are PEM. Raises ColdironError where they are none, where the archive does not
    answer, or where something that the environment needs is not in it.
    """
    _check(ca_certificate, image_keys, kernel)
    host = host or Host()
    data = recipe()
    work.mkdir(parents=True, exist_ok=True)
    refuse_little_room(work, _ROOM_MIB, "the RAM environment")
    root = work / "root"
    shutil.rmtree(root, ignore_errors=True)
    say(f"building the RAM environment ({distribution}, {kernel} kernel): a minute, some 150 MB of packages")
    _debootstrap(host, apt or _archive(host), work, root, distribution, data["packages"], KERNELS[kernel])
    version = _kernel_version(root)
    tree = Tree(root, root / "tree", host)
    tree.skeleton()
    tree.add_programs([*data["programs"], *data["libraries"]])
    tree.add(data["files"])
    tree.link_busybox(data["busybox"])
    modules = tree.add_modules(version, modules_for(data["modules"], kernel))
    missing = tree.add_firmware(modules, version)
    tree.add_python()
    _own_files(tree.path, ca_certificate, image_keys)
    tree.check(_STARTED)
    vmlinuz, initrd = work / "vmlinuz", work / "initrd"
    shutil.copy(root / "boot" / f"vmlinuz-{version}", vmlinuz)
    say("packing it")
    tree.pack(initrd, level)
    packages = dict(_PACKAGE_LINE.findall(_listed(host, root)))
    shutil.rmtree(root, ignore_errors=True)
    return Ramdisk(vmlinuz, initrd, version, packages, tuple(missing))


def _check(ca_certificate: str, image_keys: Sequence[str], kernel: str) -> None:
    if kernel not in KERNELS:
        raise ColdironError(f"the RAM environment's kernel is one of {', '.join(KERNELS)}, not {kernel}")
    if "-----BEGIN CERTIFICATE-----" not in ca_certificate or "PRIVATE" in ca_certificate:
        raise ColdironError("the site's CA certificate is no PEM; type: coldiron secrets init")
    if not image_keys:
        raise ColdironError("the RAM environment needs the public key of the site's images")
    for key in image_keys:
        images.key_id(key.encode())


def _debootstrap(
    host: Host,
    apt: AptSource,
    work: Path,
    root: Path,
    distribution: str,
    packages: Sequence[str],
    kernel: str,
) -> None:
    """A Debian root with the packages, and the kernel's files unpacked in it: its hooks would make an initramfs."""
    sources = work / "sources.list"
    sources.write_text(apt.sources(distribution))
    fetch = (
        'cd "$1/tmp"; export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"; '
        f"name=$(apt-cache depends {kernel} | sed -n 's/^ *Depends: \\(linux-image-[0-9].*\\)/\\1/p' | head -n 1); "
        'test -n "$name"; apt-get download -qq "$name"; dpkg-deb -x "$name"_*.deb "$1"; rm "$name"_*.deb; '
        'chroot "$1" depmod "${name#linux-image-}"'
    )
    command = [
        "unshare", "--mount", "--propagation", "private", "--",
        "mmdebstrap", "--mode=root", "--variant=apt", "--format=directory",
        f"--keyring={apt.keyring}", f"--include={','.join(packages)}",
        '--aptopt=APT::Install-Recommends "false"', '--aptopt=Acquire::Languages "none"',
        '--aptopt=Acquire::Retries "3"',
        *([f'--aptopt=Acquire::http::Proxy "{apt.proxy}"'] if apt.proxy else []),
        *(f'--aptopt={key} "{value}"' for key, value in sorted(apt.options.items())),
        "--dpkgopt=force-unsafe-io", "--skip=cleanup/apt/lists", f"--customize-hook=set -e; {fetch}",
        codename_of(distribution), str(root), str(sources),
    ]  # fmt: skip
    host.run(command, what="building the RAM environment's root", timeout_seconds=_BUILD_SECONDS)


def _archive(host: Host) -> AptSource:
    return read_host(Path("/etc/apt"), host.run(["apt-config", "dump"]).stdout)


def _kernel_version(root: Path) -> str:
    found = sorted(path.name.removeprefix("vmlinuz-") for path in (root / "boot").glob("vmlinuz-*"))
    if len(found) != 1:
        raise ColdironError(
            f"the RAM environment's root has {len(found)} kernels, not one", ExitCode.ENVIRONMENT
        )
    return found[0]


def _own_files(tree: Path, ca_certificate: str, image_keys: Sequence[str]) -> None:
    """What is ours: the start, the site's trust, and when it was built, which no clock may be before."""
    source = files("coldiron.provision").joinpath("files")
    for name, path in (("ramdisk-init.sh", "init"), ("ramdisk-udhcpc.sh", "usr/share/coldiron/udhcpc.sh")):
        (tree / path).write_text(source.joinpath(name).read_text(encoding="utf-8"))
        (tree / path).chmod(0o755)
    # A command line may still say rdinit=/sbin/init.
    (tree / "usr/sbin/init").symlink_to("/init")
    own = tree / "etc/coldiron"
    (own / "ca.crt").write_text(ca_certificate)
    (own / "built").write_text(f"{int(time.time())}\n")
    (own / "image-keys").mkdir()
    for number, key in enumerate(image_keys, 1):
        (own / "image-keys" / f"{number:02}.pem").write_text(key)


def _listed(host: Host, root: Path) -> str:
    return host.run(
        ["chroot", str(root), "dpkg-query", "--show", "--showformat=${Package} ${Version}\n"]
    ).stdout
