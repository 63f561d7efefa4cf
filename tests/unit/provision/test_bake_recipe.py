"""What an image is made of: the options' words, what changes the digest of the inputs and what does not."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision import bake_recipe
from coldiron.provision.images import inputs_digest
from coldiron.rack.aptsource import AptSource
from coldiron.rack.host import CommandError
from tests.unit.provision.bake_samples import ARCHIVE, OPTIONS, RECIPE

VALUES = {
    "image_kernel": "generic",
    "image_packages": ["tcpdump"],
    "image_firmware": ["intel-microcode"],
    "image_firmware_missing": "warn",
    "image_modules": ["nvme"],
    "image_initramfs": "list",
    "image_initramfs_modules": ["nvme"],
    "image_apt_sources": ["deb http://archive.example.org/debian trixie main"],
}
SYSTEM = {
    "packages": ["openssh-server"],
    "kernels": {"generic": "linux-image-amd64", "cloud": "linux-image-cloud-amd64"},
    "component": "non-free-firmware",
    "quiet_units": ["munge.service"],
}
APT = AptSource(
    (
        ("", "https://mirror.example.org/debian", ("main", "non-free-firmware")),
        ("-security", "http://mirror.example.org/security", ("main",)),
    ),
    proxy="http://proxy.example.org:3128",
    options={"Acquire::Check-Date": "false"},
)


def digest(recipe):
    return inputs_digest(bake_recipe.plain_inputs(recipe.inputs()))


class Archive:
    """Stands in for the host whose apt fetches Release files."""

    def __init__(self, text: str = "Suite: stable\nDate: Sat, 12 Sep 2026 07:55:41 UTC\n") -> None:
        self.text = text
        self.asked: list[str] = []

    def run(self, argv, **_):
        self.asked.append(argv[2])
        if not self.text:
            raise CommandError("asking", "Could not connect to mirror")
        Path(argv[3]).write_text(self.text)
        return subprocess.CompletedProcess(argv, 0, "", "")


def test_the_options_become_packages():
    options = bake_recipe.options_from(VALUES, SYSTEM)
    assert options.packages == ("openssh-server", "tcpdump")
    assert options.kernel == "linux-image-amd64"
    assert bake_recipe.options_from(VALUES | {"image_kernel": "cloud"}, SYSTEM).kernel.startswith(
        "linux-image-cloud"
    )


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("image_kernel", "realtime", "none of generic, cloud"),
        ("image_firmware_missing", "ignore", "none of warn, refuse"),
        ("image_initramfs", "dep", "none of list, most"),
        ("image_modules", "nvme", "no list of texts"),
        ("image_packages", [""], "no list of texts"),
        ("image_initramfs_modules", ["nvme; reboot"], "no name of a kernel module"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(name, value, why):
    with pytest.raises(ColdironError, match=f"{name}.*{why}"):
        bake_recipe.options_from(VALUES | {name: value}, SYSTEM)


def test_the_archive_is_asked_for_its_state_suite_by_suite():
    host = Archive()
    found = bake_recipe.archive("debian-13", APT, host, None)
    assert host.asked == [
        "https://mirror.example.org/debian/dists/trixie/InRelease",
        "http://mirror.example.org/security/dists/trixie-security/InRelease",
    ]
    assert set(found.dates) == {"trixie", "trixie-security"}
    assert found.components == ("main", "non-free-firmware")
    assert 'Acquire::http::Proxy "http://proxy.example.org:3128"' in found.apt_options
    assert "deb https://mirror.example.org/debian trixie main non-free-firmware\n" in found.sources


def test_nodes_install_from_what_the_site_declares_else_from_what_this_machine_does():
    found = bake_recipe.archive("debian-13", APT, Archive(), 3143)
    assert replace(RECIPE, archive=found).apt_sources == OPTIONS.apt_sources
    undeclared = replace(RECIPE, archive=found, options=replace(OPTIONS, apt_sources=()))
    assert undeclared.apt_sources == (
        "deb https://mirror.example.org/debian trixie main non-free-firmware",
        "deb http://mirror.example.org/security trixie-security main",
    )
    assert digest(undeclared) != digest(replace(undeclared, archive=replace(found, direct=())))


def test_a_package_cache_stands_between_where_one_runs():
    found = bake_recipe.archive("debian-13", APT, Archive(), 3143)
    assert "deb http://HTTPS///mirror.example.org/debian trixie" in found.sources
    assert 'Acquire::http::Proxy "http://127.0.0.1:3143"' in found.apt_options


@pytest.mark.parametrize(
    ("text", "why"), [("", "is there a network"), ("<html>log in</html>", "has no date")]
)
def test_an_archive_that_does_not_answer_ends_the_bake(text, why):
    with pytest.raises(ColdironError, match=why) as caught:
        bake_recipe.archive("debian-13", APT, Archive(text), None)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT


def test_nothing_in_an_image_is_younger_than_its_archive():
    assert ARCHIVE.epoch == 1795140660


@pytest.mark.parametrize(
    "other",
    [
        replace(RECIPE, distribution="debian-12"),
        replace(RECIPE, options=replace(OPTIONS, kernel="linux-image-cloud-amd64")),
        replace(RECIPE, options=replace(OPTIONS, initramfs_modules=("nvme",))),
        replace(RECIPE, options=replace(OPTIONS, apt_sources=())),
        replace(RECIPE, archive=replace(ARCHIVE, dates={"trixie": "Sun, 13 Sep 2026 07:55:41 UTC"})),
        replace(RECIPE, archive=replace(ARCHIVE, components=("main", "non-free-firmware"))),
    ],
)
def test_what_makes_another_image_has_another_digest(other):
    assert digest(other) != digest(RECIPE)


@pytest.mark.parametrize(
    "other",
    [
        replace(
            RECIPE, archive=replace(ARCHIVE, sources="deb http://another.example.org/debian trixie main\n")
        ),
        replace(RECIPE, archive=replace(ARCHIVE, apt_options=())),
        replace(RECIPE, options=replace(OPTIONS, firmware=("another",))),
    ],
)
def test_where_the_archive_is_and_firmware_that_cannot_be_had_make_no_other_image(other):
    assert digest(other) == digest(RECIPE)


def test_firmware_is_installed_where_the_archive_has_it():
    there = replace(RECIPE, archive=replace(ARCHIVE, components=("main", "non-free-firmware")))
    assert "intel-microcode" in there.packages
    assert there.firmware_missing == ""
    assert "intel-microcode" not in RECIPE.packages
    assert "lack the component non-free-firmware" in RECIPE.firmware_missing
    assert "firmware-bnx2" in RECIPE.firmware_missing
    assert replace(RECIPE, options=replace(OPTIONS, firmware=())).firmware_missing == ""


def test_the_command_installs_all_of_it_and_has_the_files_there_first(tmp_path):
    command = RECIPE.mmdebstrap(tmp_path / "root", tmp_path / "sources.list")
    assert "--include=openssh-server,grub-pc-bin,linux-image-amd64" in command
    assert command[-3:] == ["trixie", str(tmp_path / "root"), str(tmp_path / "sources.list")]
    assert command[:4] == ["unshare", "--mount", "--propagation", "private"]


def test_the_files_say_what_the_initramfs_holds_and_start_nothing(tmp_path):
    bake_recipe.write_files(RECIPE.files(), tmp_path)
    hook = tmp_path / "etc/initramfs-tools/hooks/coldiron"
    assert 'modules="nvme virtio_blk"\n' in hook.read_text()
    assert hook.stat().st_mode & 0o777 == 0o755
    assert subprocess.run(["sh", "-n", str(hook)]).returncode == 0
    assert subprocess.run([str(tmp_path / "usr/sbin/policy-rc.d"), "munge", "start"]).returncode == 101
    assert "MODULES=list\n" in (tmp_path / "etc/initramfs-tools/conf.d/coldiron").read_text()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_dir()} == {0o755}


def test_only_the_list_s_levels_of_mirrors_are_loaded_at_each_boot(tmp_path):
    """The hook as mkinitramfs calls it, after mdadm's."""
    chosen = replace(RECIPE, options=replace(OPTIONS, initramfs_modules=("nvme", "raid1")))
    bake_recipe.write_files(chosen.files(), tmp_path)
    functions = tmp_path / "hook-functions"
    functions.write_text("manual_add_modules() { :; }\n")
    hook = tmp_path / "etc/initramfs-tools/hooks/coldiron"
    text = hook.read_text().replace("/usr/share/initramfs-tools/hook-functions", str(functions))
    loaded = tmp_path / "conf/modules"
    environment = {"PATH": os.environ["PATH"], "DESTDIR": str(tmp_path)}
    subprocess.run(["sh", "-ec", text], env=environment, check=True)
    assert not loaded.exists()
    loaded.parent.mkdir()
    loaded.write_text("loop\nlinear\nraid0\nraid1\nraid456\nraid10\nmy_raid5\n")
    subprocess.run(["sh", "-ec", text], env=environment, check=True)
    assert loaded.read_text().split() == ["loop", "raid1", "my_raid5"]


def test_the_addresses_of_the_builder_are_known():
    words = bake_recipe.words_of(
        [ARCHIVE.sources, *ARCHIVE.apt_options, "deb http://HTTPS///a.example.net/debian x"]
    )
    assert words == {"mirror.example.org", "127.0.0.1:3143", "a.example.net"}
