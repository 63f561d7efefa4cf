"""The deploy program against a provisioner on loopback: done in order, or refused in one line with nothing written."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coldiron.errors import ExitCode
from coldiron.provision import deploy_boot, deploy_cache, deploy_http, deploy_image, deploy_main, images
from coldiron.provision.deploy_http import Clock, Server, ServerRefused, ServerSilent
from coldiron.provision.deploy_main import STEPS, main
from coldiron.provision.deploy_program import START, write_program
from coldiron.provision.deploy_tools import CommandFailed, DeployFailed
from tests.unit.provision.cache_double import NearBy
from tests.unit.provision.deploy_double import KERNEL, MAC, SIZE, TOKEN, Machine, Provisioner, disk

WRITERS = ("systemd-repart", "mke2fs", "mkfs.vfat", "mkswap", "mdadm", "wipefs", "grub-install")


@pytest.fixture
def provisioner(tmp_path: Path) -> Iterator[Provisioner]:
    made = Provisioner(tmp_path / "provisioner")
    yield made
    made.close()


@pytest.fixture
def machine(tmp_path: Path, provisioner: Provisioner) -> Machine:
    return Machine(
        tmp_path / "machine", provisioner.address, provisioner.ca, [images.public_key(provisioner.key)]
    )


def run(machine: Machine) -> int:
    return main(machine.places, sleep=lambda _: None)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().out
    assert TOKEN not in text
    assert "canary" not in text
    return text.replace("\r\n", "\n")


def refused(machine: Machine, capsys: pytest.CaptureFixture[str]) -> str:
    """What the console says of a machine whose disks were not touched."""
    code = run(machine)
    assert code != 0
    text = said(capsys)
    assert text.count("failed: ") == 1
    assert not [line for line in machine.ran() if line.startswith(WRITERS)]
    assert (machine.root / "dev/vda").read_bytes().startswith(b"xxxx")
    return text.split("failed: ", 1)[1].strip()


def test_bios(machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(machine) == 0
    assert tuple(provisioner.steps()) == STEPS
    assert all(event["seconds"] == 12.5 for event in provisioner.events)
    ran = machine.ran()
    assert ran[-1] == "busybox reboot -f"
    assert any(
        line.startswith("chroot") and line.endswith("grub-install --target=i386-pc /dev/vda") for line in ran
    )
    target = machine.target
    root = next(line.split()[0] for line in (target / "etc/fstab").read_text().splitlines() if " / " in line)
    grub = (target / "boot/grub/grub.cfg").read_text()
    assert f"linux /boot/vmlinuz-{KERNEL} root={root} ro console=ttyS0,115200 quiet" in grub
    assert "serial --unit=0 --speed=115200" in grub
    assert (
        'GRUB_CMDLINE_LINUX="console=ttyS0,115200 quiet"'
        in (target / "etc/default/grub.d/coldiron.cfg").read_text()
    )
    assert (target / "etc/hostname").read_text() == "gpu01\n"
    assert len((target / "etc/machine-id").read_text().strip()) == 32
    key = target / "etc/ssh/ssh_host_ed25519_key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert not (target / "etc/ssh/ssh_host_rsa_key").exists()
    assert (target / "etc/ssh/ssh_host_ed25519_key.pub").read_text().startswith("ssh-ed25519")
    assert (target / "root/.ssh").stat().st_mode & 0o777 == 0o700
    assert (target / "etc/secret").stat().st_mode & 0o777 == 0o600
    record = json.loads((target / "etc/coldiron/deployed.json").read_text())
    assert record["image"]["sha256"] == provisioner.manifest.sha256
    assert record["disks"] == [{"serial": "S-1", "wwn": "", "use": "system"}]
    assert "canary" not in json.dumps(record)
    assert "canary" not in "\n".join(ran)
    said(capsys)


def test_uefi_mirror_by_kexec(machine: Machine, provisioner: Provisioner) -> None:
    provisioner.order |= {
        "firmware": "uefi",
        "boot": "kexec",
        "disks": [{"use": "system", "size_gb": 20, "count": 2}],
        "sizes": {"swap": 1024**3},
    }
    machine.disks(
        [disk("vda", "S-1"), disk("vdb", "S-2"), disk("vdc", "S-DATA", size=4 * SIZE, pttype="gpt")]
    )
    (machine.root / "sys/firmware/efi/efivars").mkdir(parents=True)
    kernel = machine.root / "sys/block/md127/md"
    kernel.mkdir(parents=True)
    (machine.root / "dev/md").mkdir(parents=True)
    (machine.root / "dev/md/root").symlink_to("../md127")
    assert run(machine) == 0
    ran = machine.ran()
    # The halves are made alike by the installed system: it would take the disks' time from the image here.
    assert (kernel / "sync_action").read_text() == "frozen\n"
    assert not [line for line in ran if "vdc" in line]
    assert [line for line in ran if line.startswith("mdadm --create /dev/md/root")]
    assert any(line.startswith("cp -r ") and line.endswith("/boot/efi2/") for line in ran)
    assert any("--delete-bootnum" in line for line in ran)
    assert [line.split("--label ")[1] for line in ran if "--label coldiron" in line] == [
        "coldiron 2",
        "coldiron 1",
    ]
    assert next(line for line in ran if line.startswith("kexec --load"))
    assert "kexec --exec" in ran
    fstab = (machine.target / "etc/fstab").read_text()
    assert " /boot/efi vfat" in fstab
    assert " /boot/efi2 vfat" in fstab
    assert " none swap " in fstab
    assert "mdraid1x" in (machine.target / "boot/grub/grub.cfg").read_text()
    assert (machine.target / "usr/local/sbin/coldiron-esp-sync").stat().st_mode & 0o111
    subprocess.run(["sh", "-n", machine.target / "usr/local/sbin/coldiron-esp-sync"], check=True)


def test_kexec_that_fails_is_a_reboot(machine: Machine, provisioner: Provisioner) -> None:
    provisioner.order["boot"] = "kexec"
    machine.stub("kexec", "echo no such call >&2; exit 1")
    assert run(machine) == 0
    assert "kexec --exec" not in machine.ran()
    assert machine.ran()[-1] == "busybox reboot -f"
    assert "no such call" in provisioner.events[-1]["text"]


# What is wrong before anything is written.
def test_wrong_token(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.write("/proc/cmdline", machine.command_line(token="another-token-that-is-wrong"))
    assert refused(machine, capsys).startswith("the provisioner refuses redeem (403): wrong token")


@pytest.mark.parametrize("key", ["node", "mac", "token", "server"])
def test_command_line(machine: Machine, capsys: pytest.CaptureFixture[str], key: str) -> None:
    machine.write("/proc/cmdline", machine.command_line(**{key: ""}))
    assert f"coldiron.{key}" in refused(machine, capsys)


def test_plain_http(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.write("/proc/cmdline", machine.command_line(server="http://127.0.0.1:1"))
    assert "is not https://; no secret goes there" in refused(machine, capsys)


def test_foreign_authority(
    machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.write("/etc/coldiron/ca.crt", images_ca())
    assert "is not to be trusted: its certificate is not good" in refused(machine, capsys)
    assert provisioner.asked == []


def images_ca() -> str:
    from coldiron.provision import pki

    return pki.make_ca_certificate(pki.make_ca_key())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"serial": "CH-2"}, "the chassis has serial CH-1, and CH-2 was ordered; nothing is written"),
        ({"firmware": "uefi"}, "started by bios, and uefi was ordered"),
        ({"node": "gpu02", "fqdn": "gpu02.lab"}, "the order is for gpu02"),
        ({"mac": "02:00:00:00:00:09"}, "the order is for gpu01 (02:00:00:00:00:09)"),
        ({"disks": [{"use": "system", "serial": "S-9"}]}, "serial S-9 was not found"),
        ({"disks": [{"use": "system", "size_gb": 20}]}, "wants 1 and fits 2: serial S-1, serial S-2"),
        ({"surprise": 1}, "a key that nobody knows: surprise"),
        ({"sizes": {"esp": 4096}}, "esp of 0 MiB is too small"),
    ],
)
def test_wrong_order(
    machine: Machine,
    provisioner: Provisioner,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    words: str,
) -> None:
    machine.disks([disk("vda", "S-1"), disk("vdb", "S-2")])
    if "sizes" in change:
        (machine.root / "sys/firmware/efi").mkdir(parents=True)
        change = {**change, "firmware": "uefi"}
    provisioner.order |= change
    assert words in refused(machine, capsys)


def test_serial_that_nobody_has_said(machine: Machine, provisioner: Provisioner) -> None:
    provisioner.order["serial"] = ""
    assert run(machine) == 0


def test_disk_with_data(
    machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.disks([disk("vda", "S-1", pttype="gpt")])
    assert "bears gpt partition table; allow it by name: S-1" in refused(machine, capsys)
    assert provisioner.events[-1]["step"] == "disks"
    assert "S-1" in provisioner.events[-1]["failed"]
    machine.journal.unlink()
    provisioner.order["consent"] = ["S-1"]
    assert run(machine) == 0


def test_altered_manifest(
    machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str]
) -> None:
    provisioner.manifest_bytes = provisioner.manifest_bytes.replace(b'"base": "1"', b'"base": "2"')
    assert "is not what key" in refused(machine, capsys)


def test_unknown_key(machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str]) -> None:
    provisioner.sign(images.make_key())
    assert "which this site does not trust" in refused(machine, capsys)


def test_no_key(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    (machine.root / "etc/coldiron/image-keys/0.pem").unlink()
    assert "trusts no image key" in refused(machine, capsys)


def test_older_image(machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str]) -> None:
    provisioner.order["image"]["oldest"] = int(time.time()) + 100
    assert "earlier than this site allows" in refused(machine, capsys)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sha256": "1" * 64}, "the manifest is of image 111111111111"),
        ({"node_class": "gpu"}, "is of class gpu"),
    ],
)
def test_another_image(
    machine: Machine,
    provisioner: Provisioner,
    capsys: pytest.CaptureFixture[str],
    values: dict[str, Any],
    words: str,
) -> None:
    provisioner.sign(**values)
    assert words in refused(machine, capsys)


@pytest.mark.parametrize("what", ["redeem", "identity", "manifest.json", "manifest.sig"])
def test_garbage(
    machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    provisioner.answers[what] = lambda handler: handler.answer(b"\xff<html>\0")
    refused(machine, capsys)


@pytest.mark.parametrize("what", ["redeem", "identity", "manifest.json"])
def test_server_error_is_asked_again(
    machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    provisioner.answers[what] = lambda handler: handler.answer(b"", 503)
    assert "in 5 attempts: it answers 503" in refused(machine, capsys)
    assert provisioner.asked.count(what) == 5


def test_no_lsblk(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.stub("lsblk", "echo not today >&2; exit 3")
    assert refused(machine, capsys) == "lsblk failed (exit 3): not today"
    machine.stub("lsblk", "echo '<html>'")
    assert "it is not JSON" in refused(machine, capsys)


@pytest.mark.parametrize("step", ["card", "link", "dhcp"])
def test_no_network(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(
        deploy_main.deploy_network.bring_up, "__kwdefaults__", {"card_seconds": 0.0, "link_seconds": 0.0}
    )
    if step == "card":
        machine.write("/sys/class/net/eth0/address", "02:00:00:00:00:07")
        words = f"no network card has the address {MAC}; found: eth0 02:00:00:00:00:07"
    elif step == "link":
        machine.write("/sys/class/net/eth0/carrier", "0")
        words = "has no link; look at its cable"
    else:
        machine.stub("udhcpc", "exit 1")
        words = "no address by DHCP"
    assert words in refused(machine, capsys)
    assert len([line for line in machine.ran() if line.startswith("udhcpc")]) == (3 if step == "dhcp" else 0)


# What goes wrong after the disk was begun: it must not boot.
def spoilt(machine: Machine, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(machine) != 0
    ends = (machine.root / "dev/vda").read_bytes()
    assert not any(ends[: 1024 * 1024])
    assert not any(ends[-1024 * 1024 :])
    assert "busybox reboot -f" not in machine.ran()
    assert "blockdev --rereadpt /dev/vda" in machine.ran()
    return said(capsys).split("failed: ", 1)[1].splitlines()[0]


def test_altered_image(
    machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str]
) -> None:
    # A flipped bit in zstd's own frame may end zstd first; what is appended is seen by the hash alone.
    provisioner.image = provisioner.image[:-1] + bytes([provisioner.image[-1] ^ 1])
    spoilt(machine, capsys)
    assert "done" not in provisioner.asked
    assert provisioner.events[-1]["step"] == "stream"


def test_other_image_of_the_same_size(
    machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str]
) -> None:
    provisioner.sign(size_bytes=provisioner.manifest.size_bytes + 16)
    # A frame that zstd skips.
    provisioner.image += b"\x50\x2a\x4d\x18\x08\x00\x00\x00" + bytes(8)
    assert spoilt(machine, capsys) == "the image's bytes are not those of its manifest"


@pytest.mark.parametrize("by", [-1, 1])
def test_image_of_another_size(
    machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str], by: int
) -> None:
    provisioner.sign(size_bytes=provisioner.manifest.size_bytes + by)
    assert "the image" in spoilt(machine, capsys)


@pytest.fixture
def cache(provisioner: Provisioner) -> Iterator[NearBy]:
    made = NearBy(provisioner)
    yield made
    made.close()


def from_cache(machine: Machine, capsys: pytest.CaptureFixture[str]) -> str:
    """What the console says of a machine that was deployed all the same."""
    assert run(machine) == 0
    assert (machine.target / f"boot/vmlinuz-{KERNEL}").read_text() == "kernel"
    return said(capsys)


def test_image_comes_from_the_cache(
    machine: Machine, provisioner: Provisioner, cache: NearBy, capsys: pytest.CaptureFixture[str]
) -> None:
    from_cache(machine, capsys)
    assert "image.tar.zst" not in provisioner.asked
    # It is told which image, and nothing else: no session, no token.
    ((path, headers),) = cache.asked
    assert path == f"/images/{provisioner.manifest.sha256}/image.tar.zst"
    assert not {"Authorization", "Cookie"} & set(headers)
    assert sum(line.startswith("systemd-repart") for line in machine.ran()) == 1


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("closed", "Connection refused"),
        ("silent", "no answer in time"),
        ("not-http", "garbage"),
        ("missing", "it answers 404"),
        ("redirect", "it answers 302"),
        ("shorter", "what it has is of another length"),
    ],
)
def test_cache_that_does_not_have_it(
    machine: Machine, provisioner: Provisioner, cache: NearBy, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, fault: str, says: str,
) -> None:  # fmt: skip
    impatient(monkeypatch, fault)
    cache.fault = fault
    if fault == "closed":
        cache.close()
    text = from_cache(machine, capsys)
    assert f"stream: the cache 127.0.0.1: {says}" in text
    assert "image.tar.zst" in provisioner.asked
    # Nothing had been written yet, and so nothing is done again.
    assert sum(line.startswith("systemd-repart") for line in machine.ran()) == 1


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("garbage", "the image's bytes are not those of its manifest"),
        ("altered", "the image's bytes are not those of its manifest"),
        ("half", "it broke off after"),
        ("hangs", "it broke off after 10 bytes: no answer in time"),
        ("trickles", "it is slow: 0.0 MB/s"),
    ],
)
def test_cache_that_lies_or_gives_up(
    machine: Machine, provisioner: Provisioner, cache: NearBy, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, fault: str, says: str,
) -> None:  # fmt: skip
    impatient(monkeypatch, fault)
    cache.fault = fault
    text = from_cache(machine, capsys)
    assert says in text
    assert "stream: not from the cache 127.0.0.1: " in text
    assert "image.tar.zst" in provisioner.asked
    # What it had written is gone: new tables, new file systems.
    assert sum(line.startswith("systemd-repart") for line in machine.ran()) == 2
    assert provisioner.steps()[-1] == "done"


def impatient(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Make a cache's limit short that the fault runs into; a machine that is slow runs into no other."""
    plain = deploy_cache.Cache.__init__
    limits = {"silent": {"timeout": 0.3}, "hangs": {"timeout": 0.3}, "trickles": {"patience": 0.5}}

    def short(self: deploy_cache.Cache, url: str, authority: str) -> None:
        plain(self, url, authority, **limits.get(fault, {}))

    monkeypatch.setattr(deploy_cache.Cache, "__init__", short)


@pytest.mark.parametrize(
    "answer",
    [None, "http://x", {}, [1, None], ["ftp://x/images", "http:///images", "http://x:y/images", "//x"]],
)
def test_no_cache_is_made_of_nonsense(answer: object) -> None:
    assert deploy_cache.caches(answer, "https://10.0.0.1:8443", "ca") == []


def test_the_provisioner_is_no_cache_of_itself() -> None:
    answer = [f"http://10.0.{rack}.9/images" for rack in range(9)]
    found = deploy_cache.caches(["https://10.0.0.1:8443/images", *answer], "https://10.0.0.1:8443", "ca")
    assert [one.name for one in found] == ["10.0.0.9", "10.0.1.9", "10.0.2.9", "10.0.3.9"]


@pytest.mark.parametrize("name", ["zstd", "tar"])
def test_unpacking_fails(machine: Machine, capsys: pytest.CaptureFixture[str], name: str) -> None:
    machine.stub(name, "echo no space >&2; exit 2")
    assert spoilt(machine, capsys).startswith(f"{name} failed on the image (exit 2): no space")
    (machine.bin / name).unlink()
    assert spoilt(machine, capsys).startswith(f"{name} cannot be started")


def test_unpacking_that_hangs(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy_image, "_END_SECONDS", 0.2)
    machine.stub("tar", "cat >/dev/null; sleep 60")
    assert "was not unpacked 0.2 s after its last byte" in spoilt(machine, capsys)


def test_partition_that_never_comes(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy_main.deploy_disks, "_DEVICE_SECONDS", 0.0)
    machine.stub("systemd-repart")
    assert spoilt(machine, capsys) == "/dev/vda1 did not appear after its disk was partitioned"


def test_image_without_its_kernel(
    machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str]
) -> None:
    provisioner.sign(kernel="5.0")
    assert spoilt(machine, capsys).startswith("the image has no /boot/vmlinuz-5.0")


def test_mirror_without_mdadm(
    machine: Machine,
    provisioner: Provisioner,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine.disks([disk("vda", "S-1"), disk("vdb", "S-2")])
    provisioner.order["disks"] = [{"use": "system", "size_gb": 20, "count": 2}]
    (machine.root / "dev/md").mkdir()
    (machine.root / "dev/md/root").touch()
    monkeypatch.setattr(
        deploy_main.deploy_system,
        "check_mirror",
        lambda _: deploy_main.deploy_system.find_kernel(Path("/x"), "0"),
    )
    assert "the image has no" in spoilt(machine, capsys)
    assert "mdadm --stop /dev/md/root" in machine.ran()


def test_mirror_is_checked(tmp_path: Path) -> None:
    with pytest.raises(DeployFailed, match="has no mdadm"):
        deploy_main.deploy_system.check_mirror(tmp_path)


def test_loader_fails(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.stub("chroot", 'case "$2" in grub-install) echo no embedding >&2; exit 1;; *) echo key;; esac')
    assert spoilt(machine, capsys) == "grub-install failed (exit 1): no embedding"


def test_link_out_of_the_system(machine: Machine, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    machine.stub("mount", f'[ -e "{machine.target}/etc" ] || ln -s /nowhere "{machine.target}/etc"')
    (machine.bin / "ln").symlink_to("/bin/ln")
    spoilt(machine, capsys)


def test_fault_of_its_own(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def boom(*_: object) -> None:
        raise ValueError("canary")

    monkeypatch.setattr(deploy_boot, "install_loader", boom)
    assert spoilt(machine, capsys).startswith(
        "a fault in the deploy program itself: ValueError at test_deploy.py:"
    )


def test_events_may_be_lost(
    machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str]
) -> None:
    provisioner.answers["events"] = lambda handler: handler.answer(b"{}", 500)
    assert run(machine) == 0
    assert "step boot could not be told" in said(capsys)


def test_firmware_that_takes_no_entries(
    machine: Machine, provisioner: Provisioner, capsys: pytest.CaptureFixture[str]
) -> None:
    provisioner.order["firmware"] = "uefi"
    (machine.root / "sys/firmware/efi/efivars").mkdir(parents=True)
    machine.stub("efibootmgr", "echo EFI variables are not supported >&2; exit 2")
    assert run(machine) == 0
    assert "no boot entry was made: efibootmgr failed" in said(capsys)


# The connection by itself.
def server(
    provisioner: Provisioner, tmp_path: Path, clock: Clock | None = None, timeout: float = 5
) -> Server:
    authority = tmp_path / "authority.pem"
    authority.write_text(provisioner.ca)
    clock = clock or Clock(1e9)
    return Server(provisioner.address, "gpu01", str(authority), clock, timeout=timeout, sleep=lambda _: None)


def test_silence(provisioner: Provisioner, tmp_path: Path) -> None:
    provisioner.answers["redeem"] = lambda handler: time.sleep(0.5)
    with pytest.raises(ServerSilent, match="did not answer redeem in 5 attempts: no answer in time"):
        server(provisioner, tmp_path, timeout=0.05).redeem(TOKEN)


def test_nobody_there(provisioner: Provisioner, tmp_path: Path) -> None:
    provisioner.close()
    with pytest.raises(ServerSilent, match="Connection refused"):
        server(provisioner, tmp_path).redeem(TOKEN)


def test_endless_answer(provisioner: Provisioner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy_http, "_LONGEST_ANSWER", 1000)
    provisioner.answers["redeem"] = lambda handler: handler.answer(b"x" * 100_000)
    with pytest.raises(ServerSilent, match="its answer is too long"):
        server(provisioner, tmp_path).redeem(TOKEN)


def test_answer_without_order(provisioner: Provisioner, tmp_path: Path) -> None:
    provisioner.answers["redeem"] = lambda handler: handler.answer(b'{"session": 1}')
    with pytest.raises(ServerSilent, match="holds no order and session"):
        server(provisioner, tmp_path).redeem(TOKEN)


def test_broken_stream_goes_on(provisioner: Provisioner, tmp_path: Path) -> None:
    image = provisioner.image

    def broken(handler: Any) -> None:
        start = int((handler.headers.get("Range") or "bytes=0-")[6:-1])
        handler.answer(image[start : start + 100], 206 if start else 200, len(image) - start)
        handler.close_connection = True

    provisioner.answers["image.tar.zst"] = broken
    assert b"".join(server(provisioner, tmp_path).stream("x/image.tar.zst")) == image
    assert provisioner.asked.count("image.tar.zst") > 1


def test_stream_that_stays_broken(provisioner: Provisioner, tmp_path: Path) -> None:
    def broken(handler: Any) -> None:
        handler.answer(b"", 206 if handler.headers.get("Range") else 200, 100)
        handler.close_connection = True

    provisioner.answers["image.tar.zst"] = broken
    with pytest.raises(ServerSilent, match="broke off after 0 bytes, 5 times"):
        list(server(provisioner, tmp_path).stream("x/image.tar.zst"))


def test_stream_that_is_not_there(provisioner: Provisioner, tmp_path: Path) -> None:
    provisioner.answers["image.tar.zst"] = lambda handler: handler.answer(b"no", 404)
    with pytest.raises(ServerRefused, match="answers 404"):
        list(server(provisioner, tmp_path).stream("x/image.tar.zst"))


# Clocks.
class Hands:
    """A clock that a test may turn."""

    def __init__(self, now: float) -> None:
        self.time = now
        self.clock = Clock(1_700_000_000.0, lambda: self.time, self._put)

    def _put(self, seconds: float) -> None:
        self.time = seconds


def test_clock_before_its_environment() -> None:
    hands = Hands(0)
    hands.clock.at_least_built()
    assert hands.time == 1_700_000_000


@pytest.mark.parametrize(
    ("date", "believed"),
    [
        ("Thu, 01 Jan 2026 00:00:00 GMT", True),
        ("Thu, 01 Jan 1970 00:00:00 GMT", False),
        ("Thu, 01 Jan 2099 00:00:00 GMT", False),
        ("yesterday", False),
        (None, False),
    ],
)
def test_dates(date: str | None, believed: bool) -> None:
    hands = Hands(1_700_000_100.0)
    hands.clock.believe(date)
    assert (hands.time == 1_767_225_600) is believed
    assert (hands.time == 1_700_000_100) is not believed


def test_clock_that_cannot_be_set() -> None:
    def put(_: float) -> None:
        raise PermissionError(1, "Operation not permitted")

    with pytest.raises(DeployFailed, match="the clock cannot be set"):
        Clock(2e9, lambda: 1e9, put).at_least_built()


def test_certificate_of_the_future(tmp_path: Path) -> None:
    provisioner = Provisioner(tmp_path / "p", start_days=300, end_days=600)
    provisioner.date = "Fri, 01 Jan 2027 00:00:00 GMT"
    hands = Hands(1_700_000_100.0)
    try:
        # OpenSSL has its own clock, which stays where it was: the date was believed, the certificate still is not.
        with pytest.raises(ServerRefused, match="not yet valid"):
            server(provisioner, tmp_path, hands.clock).redeem(TOKEN)
    finally:
        provisioner.close()
    assert hands.time > 1_790_000_000
    assert provisioner.asked == ["HEAD"]


def test_far_clock_is_kept_in_hardware(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    steps = deploy_main.Steps(sys.stdout, lambda: 1.0)
    clock = Clock(0.0, corrected=-4000.0)
    deploy_main.Deployment(machine.tools, steps, clock)._keep_clock()
    assert machine.ran() == ["busybox hwclock --utc --systohc"]
    assert "the clock was 4000 s ahead of the provisioner's; it is set" in said(capsys)
    deploy_main.Deployment(machine.tools, steps, Clock(0.0, corrected=4000.0))._keep_clock()
    assert "the clock was 4000 s behind the provisioner's; it is set" in said(capsys)


# Programs.
def test_program_that_hangs(machine: Machine) -> None:
    machine.stub("slow", "sleep 60 & sleep 60")
    begun = time.monotonic()
    with pytest.raises(CommandFailed, match=r"slow did not end within 0\.2 s"):
        machine.tools.run("slow", timeout=0.2)
    assert time.monotonic() - begun < 10


def test_program_is_tried_again(machine: Machine) -> None:
    machine.stub("flaky", f'[ -e "{machine.root}/again" ] || {{ touch "{machine.root}/again"; exit 1; }}')
    machine.tools.run("flaky", attempts=2)
    assert (
        machine.tools.try_run("nothing-of-that-name")
        == "nothing-of-that-name cannot be started: No such file or directory"
    )


def test_program_stands_alone(tmp_path: Path) -> None:
    """All that it imports is in it, or in Python."""
    write_program(tmp_path)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import coldiron.provision.deploy_main; print(len(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    compile((tmp_path / START).read_text(), START, "exec")


def test_exit_codes(machine: Machine, provisioner: Provisioner) -> None:
    provisioner.order["serial"] = "CH-2"
    assert run(machine) == ExitCode.REFUSED
