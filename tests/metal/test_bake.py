"""A real bake: one class of a small site, baked from this machine's archive, and looked at inside. Nothing is booted.

    pytest -m metal tests/metal/test_bake.py

Root is needed, some 3 GB of disk, and two to five minutes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coldiron.provision import images
from coldiron.provision.bake_recipe import words_of
from coldiron.provision.bake_root import leftovers
from coldiron.provision.store import Store
from coldiron.rack.aptsource import read_host

pytestmark = [pytest.mark.metal, pytest.mark.slow]

CLASS = "cpu-debian-13"
SECRET = "correct-horse-battery-staple"
CLUSTER = """\
plugin: coldiron.cluster.cluster
name: baking
domain: baking.internal
networks: {cluster: {subnet: 10.93.16.0/24}}
features: {scheduler: slurm, home_backend: nfs}
defaults: {platform: container, distribution: debian-13}
nodes:
  - {name: head01, kind: head, address: 10.93.16.1}
  - {name: storage01, kind: storage, address: 10.93.16.2}
  - name: cpu01
    kind: cpu
    address: 10.93.16.31
    hardware: {sockets: 1, cores_per_socket: 1, memory_gib: 2}
"""
KEY = images.make_key()


@pytest.fixture(scope="module")
def inventory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("baking")
    (folder / "cluster.yml").write_text(CLUSTER)
    variables = folder / "group_vars" / "all"
    variables.mkdir(parents=True)
    (variables / "site.yml").write_text(
        json.dumps(
            {
                "coldiron_image_key": KEY.decode(),
                "image_apt_sources": ["deb http://archive.example.org/debian trixie main"],
                "base_packages": ["tree"],
                "munge_key": "bXVuZ2U=",
                "mariadb_root_password": SECRET,
                "slurm_dbd_database_password": SECRET,
                "slurm_controller_jwt_key": "",
            }
        )
    )
    yield folder
    shutil.rmtree(folder)


def typed(inventory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "from coldiron.cli import main; main()",
        "image",
        *words,
        "-i",
        str(inventory),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800)


@pytest.fixture(scope="module")
def baked(inventory):
    done = typed(inventory, "bake", CLASS)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    return Store(inventory / ".images").current(CLASS)


@pytest.fixture(scope="module")
def root(baked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("root")
    subprocess.run(
        [
            "tar",
            "--extract",
            "--zstd",
            "--numeric-owner",
            "--xattrs",
            "--xattrs-include=*",
            "-f",
            baked.path,
            "-C",
            folder,
        ],
        check=True,
    )
    yield folder
    shutil.rmtree(folder)


def builders_words() -> set[str]:
    apt = read_host(Path("/etc/apt"), subprocess.check_output(["apt-config", "dump"], text=True))
    return words_of([*(uri for _, uri, _ in apt.parts), apt.proxy or ""]) | {SECRET, "127.0.0.1:3143"}


def faults(root: Path) -> set[str]:
    """What a node's image must not have, as far as this one has it."""
    found = {f"holds {word}" for word in leftovers(root, builders_words()).values()}
    found |= {"host key" for _ in root.glob("etc/ssh/ssh_host_*")}
    found |= {"munge key" for _ in root.glob("etc/munge/munge.key")}
    found |= {
        name for name in ("etc/hostname", "etc/resolv.conf", "usr/sbin/policy-rc.d") if (root / name).exists()
    }
    if (root / "etc/machine-id").read_text():
        found.add("machine-id")
    logs = root / "var/log"
    found |= {f"log {path.name}" for path in logs.rglob("*") if path.is_file() and path.stat().st_size}
    found |= {"package lists" for _ in root.glob("var/lib/apt/lists/*_*")}
    return found


def test_the_image_is_signed_whole_and_has_its_papers(baked):
    manifest = Store(baked.directory.parent).verified(baked, [images.public_key(KEY)])
    assert {"slurm_worker", "munge", "nfs", "time"} <= set(manifest.roles)
    assert {"slurmd", "munge", "chrony", "nfs-common", "linux-image-amd64", "grub-pc-bin", "grub-efi-amd64-bin",
            "mdadm", "openssh-server", "tree"} <= set(manifest.packages)  # fmt: skip
    assert "slurmctld" not in manifest.packages
    assert "mariadb-server" not in manifest.packages


def test_the_list_of_components_has_every_package_with_its_version(baked):
    bom = json.loads(baked.sbom_path.read_text())
    assert bom["bomFormat"] == "CycloneDX"
    listed = {(one["name"], one.get("version")) for one in bom["components"]}
    assert set(baked.manifest.packages.items()) <= listed


def test_nothing_of_the_builder_nor_of_one_node_is_inside(root):
    assert faults(root) == set()
    assert (
        root / "etc/apt/sources.list"
    ).read_text() == "deb http://archive.example.org/debian trixie main\n"


def test_what_would_be_wrong_is_seen(root):
    """The test above is not blind: each fault, put in by hand, is found."""
    spoilt = {
        "etc/ssh/ssh_host_rsa_key": ("x", "host key"),
        "etc/munge/munge.key": ("x", "munge key"),
        "etc/machine-id": ("0" * 32, "machine-id"),
        "etc/hostname": ("builder", "etc/hostname"),
        "var/log/dpkg.log": ("x", "log dpkg.log"),
        "root/notes": (SECRET, f"holds {SECRET}"),
    }
    for path, (text, fault) in spoilt.items():
        target = root / path
        before = target.read_bytes() if target.exists() else None
        target.write_text(text)
        try:
            assert fault in faults(root)
        finally:
            target.unlink() if before is None else target.write_bytes(before)
    assert faults(root) == set()


def test_packages_and_accounts_of_the_roles_are_there_and_their_daemons_wait(root):
    listed = subprocess.run(
        ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f=${db:Status-Abbrev}${Package}\n"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "hi slurmd\n" in listed
    assert not [line for line in listed.splitlines() if line[:2] not in ("ii", "hi")]
    assert (root / "etc/slurm").is_dir()
    assert (root / "var/log/munge").is_dir()
    started = {path.name for path in (root / "etc/systemd/system/multi-user.target.wants").iterdir()}
    assert {"ssh.service", "systemd-networkd.service"} <= started
    assert not started & {"munge.service", "slurmd.service", "chrony.service"}


def test_the_initramfs_finds_the_disks_of_servers(root, baked):
    initrd = root / f"boot/initrd.img-{baked.manifest.kernel}"
    listing = subprocess.run(
        ["chroot", root, "lsinitramfs", f"/boot/{initrd.name}"], capture_output=True, text=True
    )
    for module in ("nvme", "megaraid_sas", "mpt3sas", "virtio_blk", "ahci", "raid1", "ext4"):
        assert f"/{module}.ko" in listing.stdout, module
    assert "/mlx5_core.ko" not in listing.stdout
    assert initrd.stat().st_size < 25 * 1024 * 1024
    # What is loaded at each boot: no kind of array that measures the processor first.
    script = f"unmkinitramfs /boot/{initrd.name} /tmp/u && cat /tmp/u/conf/modules && rm -r /tmp/u"
    loaded = subprocess.run(["chroot", root, "sh", "-ec", script], capture_output=True, text=True, check=True)
    assert set(loaded.stdout.split()) == {"raid0", "raid1"}


def test_nothing_is_baked_again_while_nothing_has_changed(inventory, baked):
    begun = time.monotonic()
    done = typed(inventory, "bake", CLASS)
    assert "is current, nothing baked" in done.stdout
    assert time.monotonic() - begun < 60
    assert [image.sha256 for image in Store(inventory / ".images").images()] == [baked.sha256]
