"""The deploy program with its real tools, on loop devices: all but the firmware, in the RAM environment's own root.

It needs root, the image that the proof on machines has baked, and some minutes for the RAM environment. Mirrors need a
kernel with md, which few containers have: they are proven on machines.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldiron.provision import images, ramdisk
from coldiron.provision.store import Store
from tests.metal.site import CLASSES, INVENTORY
from tests.unit.provision.deploy_double import Provisioner, disk

SIZE = 10 * 1000**3

pytestmark = [pytest.mark.metal, pytest.mark.slow]

# Runs in the RAM environment's root; the network is there already, and lsblk calls a loop device what it is.
DRIVER = """
import sys
sys.path.insert(0, "/usr/lib/coldiron")
from coldiron.provision import deploy_main, deploy_network
from coldiron.provision.deploy_http import Clock
from coldiron.provision.deploy_tools import Places, Tools
deploy_network.bring_up = lambda *_: "lo"
steps = deploy_main.Steps(sys.stdout, lambda: 0.0)
places = Places(environment={"PATH": "/stubs:/usr/sbin:/usr/bin", "LC_ALL": "C.UTF-8"})
try:
    deploy_main.Deployment(Tools(places), steps, Clock(0.0)).run()
except Exception as error:
    print("failed:", error)
    sys.exit(1)
"""


@pytest.fixture
def provisioner(tmp_path: Path) -> Iterator[Provisioner]:
    image = Store(INVENTORY / ".images").current(CLASSES[-1])
    made = Provisioner(tmp_path / "provisioner")
    made.image = image.path.read_bytes()
    made.manifest = images.parse_manifest(image.manifest_path.read_bytes())
    made.sign()
    yield made
    made.close()


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[str]:
    backing = tmp_path / "disk"
    with backing.open("wb") as handle:
        handle.truncate(SIZE)
    device = sh("losetup", "--find", "--show", "--partscan", str(backing)).strip()
    yield device
    sh("losetup", "--detach", device)


def sh(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def unpack(initrd: Path, root: Path) -> None:
    """An initramfs as a directory (newc, see the kernel's early-userspace/buffer-format)."""
    data = subprocess.run(["zstd", "-dc", initrd], capture_output=True, check=True).stdout
    at = 0
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        mode, size, length = fields[1], fields[6], fields[11]
        name = data[at + 110 : at + 110 + length - 1].decode()
        start = (at + 110 + length + 3) // 4 * 4
        body = data[start : start + size]
        at = (start + size + 3) // 4 * 4
        if name == "TRAILER!!!":
            return
        path = root / name
        if mode & 0o170000 == 0o040000:
            path.mkdir(parents=True, exist_ok=True)
        elif mode & 0o170000 == 0o120000:
            path.symlink_to(body.decode())
        else:
            path.write_bytes(body)
            path.chmod(mode & 0o7777)


def test_one_disk(provisioner: Provisioner, loop: str, tmp_path: Path) -> None:
    built = ramdisk.build(
        tmp_path / "ramdisk", ca_certificate=provisioner.ca, kernel="cloud", level=1,
        image_keys=[images.public_key(provisioner.key).decode()], say=lambda _: None,
    )  # fmt: skip
    root = tmp_path / "root"
    root.mkdir()
    unpack(built.initrd, root)
    name = loop.removeprefix("/dev/")
    stubs = root / "stubs"
    stubs.mkdir()
    tree = json.dumps({"blockdevices": [disk(name, "S-1", size=SIZE)]})
    (stubs / "lsblk").write_text(f"#!/bin/sh\ncat <<'EOF'\n{tree}\nEOF\n")
    (stubs / "udevadm").write_text("#!/bin/sh\n")
    # Not every host's kernel reads a GPT by itself.
    shutil.copy("/usr/bin/partx", stubs / "partx")
    (stubs / "systemd-repart").write_text(
        '#!/bin/sh\n/usr/bin/systemd-repart "$@" || exit 1\nfor disk; do :; done\npartx --update "$disk"\n'
    )
    for stub in stubs.iterdir():
        stub.chmod(0o755)
    # The parser takes loop devices for none that a system goes on: here they are all there is.
    lsblk = root / "usr/lib/coldiron/coldiron/provision/lsblk.py"
    source = (Path(images.__file__).parent / "lsblk.py").read_text()
    lsblk.with_suffix(".pyc").unlink()
    lsblk.write_text(source.replace('("loop", "rom", "zram")', '("rom", "zram")'))
    (root / "driver.py").write_text(DRIVER)
    words = {"node": "gpu01", "server": provisioner.address, "mac": "02:00:00:00:00:01",
             "token": "canary-token-that-nobody-may-see"}  # fmt: skip
    (root / "cmdline").write_text(" ".join(f"coldiron.{key}={value}" for key, value in words.items()))
    provisioner.order |= {"serial": "", "image": {**provisioner.order["image"], "sha256": provisioner.manifest.sha256,
                                                  "class": provisioner.manifest.node_class}}  # fmt: skip
    key = tmp_path / "host-key"
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    provisioner.identity["host_keys"] = {"ed25519": key.read_text()}
    script = (
        f"set -e; cd {root}; mount -t proc proc proc; mount --bind cmdline proc/cmdline; mount --rbind /sys sys; "
        "mount --rbind /dev dev; mount -t tmpfs tmpfs run; chroot . python3 -I -S /driver.py"
    )
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "canary" not in done.stdout
    assert provisioner.steps()[-1] == "done"
    sector = (tmp_path / "disk").open("rb").read(512)
    assert b"GRUB" in sector
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    sh("mount", "-o", "ro", f"{loop}p2", str(mounted))
    try:
        assert (mounted / "boot/grub/i386-pc/core.img").stat().st_size > 20_000
        assert (mounted / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[1] == (
            key.with_suffix(".pub").read_text().split()[1]
        )
        fstab = (mounted / "etc/fstab").read_text()
        assert sh("blkid", "-s", "UUID", "-o", "value", f"{loop}p2").strip() in fstab
        assert shutil.disk_usage(mounted).total > 0.9 * SIZE
    finally:
        sh("umount", str(mounted))
