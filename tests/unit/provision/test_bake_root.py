"""The root of an image: nothing of the builder or of one node stays in it, and what it must have is looked for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision import bake_root
from tests.unit.provision.bake_samples import KERNEL, OPTIONS, make_root, write


class Recorder:
    """Stands in for the host: what is run is kept, what dpkg-query says is given."""

    def __init__(self, listing: str = "") -> None:
        self.listing = listing
        self.commands: list[list[str]] = []

    def run(self, argv, **_):
        self.commands.append([str(word) for word in argv])
        return subprocess.CompletedProcess(argv, 0, self.listing, "")


@pytest.fixture
def root(tmp_path):
    return make_root(tmp_path / "root")


def test_nothing_of_the_builder_or_of_one_node_stays(root):
    bake_root.clean(root, OPTIONS.apt_sources)
    left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert not {
        path for path in left if "ssh_host" in path or path.startswith(("var/lib/apt/lists/", "tmp/"))
    }
    gone = {
        "etc/hostname", "etc/resolv.conf", "etc/munge/munge.key", "usr/sbin/policy-rc.d", "var/log/dpkg.log",
        "var/lib/dbus/machine-id", "var/lib/systemd/random-seed", "root/.ansible/tmp/module.py",
        "etc/apt/apt.conf.d/99mmdebstrap", "etc/apt/sources.list.d/0000sources.list",
    }  # fmt: skip
    assert not left & gone
    assert bake_root.leftovers(root, ["of the builder", "mirror.example.org"]) == {}
    assert (root / "etc/ssh/sshd_config").exists()


def test_a_machine_id_is_made_at_boot_and_asks_nothing(root):
    bake_root.clean(root, OPTIONS.apt_sources)
    assert (root / "etc/machine-id").read_text() == ""


def test_the_image_installs_from_what_the_site_declares(root):
    bake_root.clean(root, OPTIONS.apt_sources)
    assert (
        root / "etc/apt/sources.list"
    ).read_text() == "deb http://archive.example.org/debian trixie main\n"


def test_daemons_find_their_directories_for_logs_empty(root):
    bake_root.clean(root, OPTIONS.apt_sources)
    assert (root / "var/log/slurm").is_dir()
    assert {path.name: path.stat().st_size for path in (root / "var/log").rglob("*") if path.is_file()} == {
        "btmp": 0,
        "lastlog": 0,
        "wtmp": 0,
    }


def test_cleaning_follows_no_link_out_of_the_root(root, tmp_path):
    outside = write(tmp_path, "outside/kept", "mine")
    (root / "var/log/link").symlink_to(outside.parent)
    (root / "tmp/link").symlink_to(outside.parent)
    bake_root.clean(root, OPTIONS.apt_sources)
    assert outside.read_text() == "mine"


def test_cleaning_twice_is_cleaning_once(root):
    bake_root.clean(root, OPTIONS.apt_sources)
    bake_root.clean(root, OPTIONS.apt_sources)


def test_the_one_kernel_is_found(root):
    assert bake_root.kernel_of(root) == KERNEL


def test_no_kernel_and_two_are_refused(root):
    other = root / "usr/lib/modules/6.12.118+deb13-amd64/kernel"
    other.mkdir(parents=True)
    with pytest.raises(ColdironError, match=r"2 kernels .*6\.12\.118") as caught:
        bake_root.kernel_of(root)
    assert caught.value.exit_code == ExitCode.REFUSED
    shutil.rmtree(root / "usr/lib/modules")
    with pytest.raises(ColdironError, match="0 kernels"):
        bake_root.kernel_of(root)


def test_a_kernel_without_its_initramfs_is_refused(root):
    (root / f"boot/initrd.img-{KERNEL}").unlink()
    with pytest.raises(ColdironError, match=r"no /boot/initrd\.img"):
        bake_root.kernel_of(root)


def test_drivers_are_found_as_modules_and_built_in_whatever_their_dashes(root):
    wanted = ["mlx5_core", "xhci_pci", "virtio-pci", "megaraid_sas", "psample", "core"]
    assert bake_root.missing_modules(root, KERNEL, wanted) == ["megaraid_sas", "psample", "core"]


def test_packages_are_those_that_are_installed(root):
    host = Recorder("ii \tchrony\t4.6.1-3\nhi \tslurmd\t24.11.5-4\nrc \tgone\t1\nun \tnever\t\n")
    assert bake_root.packages_of(root, host) == {"chrony": "4.6.1-3", "slurmd": "24.11.5-4"}
    assert f"--admindir={root}/var/lib/dpkg" in host.commands[0]


def test_a_package_that_is_half_installed_is_named(root):
    with pytest.raises(ColdironError, match="mdadm did not install to the end"):
        bake_root.packages_of(root, Recorder("ii \tchrony\t4.6.1-3\niF \tmdadm\t4.4\n"))


def test_only_units_that_are_there_are_kept_quiet(root):
    host = Recorder()
    bake_root.settle(root, Path("/chroot.sh"), OPTIONS.quiet_units, host)
    verbs = [command[2:] for command in host.commands]
    assert ["systemctl", "disable", "munge.service"] in verbs
    assert ["systemctl", "enable", "systemd-networkd.service"] in verbs
    assert all(command[:2] == ["/chroot.sh", str(root)] for command in host.commands)


def test_a_word_of_the_builder_is_found_in_any_file_and_never_quoted(root):
    bake_root.clean(root, OPTIONS.apt_sources)
    write(root, "etc/app.conf", "password = correct-horse-battery\n")
    write(root, "usr/share/doc/app/changelog", "correct-horse-battery")
    assert bake_root.leftovers(root, ["correct-horse-battery"]) == {"etc/app.conf": "correct-horse-battery"}
    with pytest.raises(ColdironError) as caught:
        bake_root.refuse_leftovers(root, {"correct-horse-battery": "a secret"})
    assert caught.value.exit_code == ExitCode.REFUSED
    assert "/etc/app.conf (a secret)" in caught.value.message
    assert "horse" not in caught.value.message


def test_words_are_no_patterns_and_links_are_not_read(root, tmp_path):
    write(root, "etc/app.conf", "mirrorXexample.org\n")
    outside = write(tmp_path, "outside", "mirror.example.net")
    (root / "etc/link").symlink_to(outside)
    assert bake_root.leftovers(root, ["mirror.example.net"]) == {}
    assert bake_root.leftovers(root, []) == {}
    bake_root.refuse_leftovers(root, {"mirror.example.net": "an address"})


def test_nothing_is_left_to_be_updated_at_the_first_boot(root):
    (root / "var").mkdir(exist_ok=True)
    bake_root.stamp(root)
    assert (root / "etc/.updated").exists()
    assert (root / "var/.updated").exists()
