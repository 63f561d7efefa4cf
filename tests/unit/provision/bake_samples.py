"""A root as mmdebstrap and the roles leave it, an archive, and options, for the tests of the bake."""

from __future__ import annotations

from pathlib import Path

from coldiron.provision.bake_recipe import Archive, Options, Recipe

KERNEL = "6.12.117+deb13-amd64"
ARCHIVE = Archive(
    sources="deb http://mirror.example.org/debian trixie main\n",
    keyring="/usr/share/keyrings/debian-archive-keyring.gpg",
    apt_options=('Acquire::Retries "3"', 'Acquire::http::Proxy "http://127.0.0.1:3143"'),
    dates={
        "trixie": "Sat, 12 Sep 2026 07:55:41 UTC",
        "trixie-security": "Fri, 20 Nov 2026 02:11:00 UTC",
    },
    components=("main",),
)
OPTIONS = Options(
    kernel="linux-image-amd64",
    packages=("openssh-server", "grub-pc-bin"),
    firmware=("intel-microcode", "firmware-bnx2"),
    firmware_missing="warn",
    component="non-free-firmware",
    modules=("mlx5_core", "xhci-pci", "virtio_pci"),
    initramfs="list",
    initramfs_modules=("nvme", "virtio_blk"),
    apt_sources=("deb http://archive.example.org/debian trixie main",),
    quiet_units=("munge.service", "slurmd.service"),
)
RECIPE = Recipe("debian-13", OPTIONS, ARCHIVE)


def write(root: Path, path: str, text: str = "") -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


def make_root(root: Path) -> Path:
    """A root with what a bake takes out of it, and what it leaves."""
    for path in (
        "etc/hostname", "etc/resolv.conf", "etc/ssh/ssh_host_ed25519_key", "etc/ssh/ssh_host_ed25519_key.pub",
        "etc/munge/munge.key", "etc/apt/apt.conf.d/99mmdebstrap", "etc/dpkg/dpkg.cfg.d/99mmdebstrap",
        "usr/sbin/policy-rc.d", "var/lib/dbus/machine-id", "var/lib/systemd/random-seed",
        "var/lib/apt/lists/mirror.example.org_debian_dists_trixie_InRelease", "var/cache/apt/pkgcache.bin",
        "var/log/dpkg.log", "var/log/apt/term.log", "root/.ansible/tmp/module.py", "tmp/left",
    ):  # fmt: skip
        write(root, path, "of the builder\n")
    write(root, "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    write(root, "etc/apt/sources.list.d/0000sources.list", ARCHIVE.sources)
    write(root, "etc/group", "root:x:0:\nutmp:x:43:\n")
    write(root, "etc/ssh/sshd_config", "PermitRootLogin prohibit-password\n")
    (root / "var/log/slurm").mkdir(parents=True)
    modules = f"usr/lib/modules/{KERNEL}"
    write(root, f"{modules}/modules.dep", (
        "kernel/drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko.xz: kernel/net/psample/psample.ko.xz\n"
        "kernel/drivers/usb/host/xhci-pci.ko.xz:\n"
    ))  # fmt: skip
    write(root, f"{modules}/modules.builtin", "kernel/drivers/virtio/virtio_pci.ko\n")
    write(root, f"{modules}/kernel/fs/ext4/ext4.ko.xz")
    for name in ("vmlinuz", "initrd.img"):
        write(root, f"boot/{name}-{KERNEL}")
    write(root, "usr/lib/systemd/system/munge.service")
    return root
