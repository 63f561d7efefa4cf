"""What the RAM environment is made of, and that a build misses nothing silently."""

from __future__ import annotations

import lzma
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from coldiron.errors import ColdironError
from coldiron.provision import images, pki, ramdisk
from coldiron.provision.ramdisk_tree import Tree, modules_for
from coldiron.rack.aptsource import AptSource
from coldiron.rack.host import Host

VERSION = "6.12.1+deb13-amd64"
CA = pki.make_ca_certificate(pki.make_ca_key())
KEY = images.public_key(images.make_key()).decode()
APT = AptSource((("", "http://archive.invalid/debian", ("main",)),), options={"Acquire::Check-Date": "false"})


class Recorder(Host):
    """Answers as the tools would, and makes the root that mmdebstrap would."""

    def __init__(self, root: Path, data: dict[str, object]) -> None:
        super().__init__()
        self.root = root
        self.data = data
        self.ran: list[list[str]] = []
        self.modprobe = (0, f"insmod /lib/modules/{VERSION}/kernel/ext4.ko.xz\nbuiltin nvme\n", "")
        self.ldd = (
            "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n"
        )

    def run(  # type: ignore[override]
        self, argv: Sequence[str], *, check: bool = True, what: str = "", timeout_seconds: float = 120.0,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        words = list(argv)
        self.ran.append(words)
        code, out, err = 0, "", ""
        if "mmdebstrap" in words:
            self._root()
        elif "ldd" in words:
            out = self.ldd
        elif "modprobe" in words:
            code, out, err = self.modprobe
        elif "modinfo" in words:
            out = "there.bin\nmissing.bin\n"
        elif "-c" in words and "/usr/bin/python3" in words and str(self.root) in words:
            out = "/usr/lib/python3.13/os.py\n/usr/lib/coldiron/coldiron/errors.py\n"
        elif "dpkg-query" in words:
            out = "busybox 1.37\nzstd 1.5\n"
        elif "packing the RAM environment" in what:
            (self.root / "tree.initrd").write_bytes(b"initrd")
        return subprocess.CompletedProcess(words, code, out, err)

    def _root(self) -> None:
        data = self.data
        names = [*data["programs"], *data["libraries"], *data["files"]]  # type: ignore[misc]
        names += [
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/usr/lib/python3.13/os.py",
            "/usr/lib/firmware/there.bin",
        ]
        names += [
            f"/usr/lib/modules/{VERSION}/{name}"
            for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order")
        ]
        names += [f"/boot/vmlinuz-{VERSION}"]
        for name in names:
            path = self.root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        module = self.root / f"usr/lib/modules/{VERSION}/kernel/ext4.ko.xz"
        module.parent.mkdir()
        module.write_bytes(lzma.compress(b"module"))
        for name in ("bin", "lib"):
            (self.root / name).symlink_to(f"usr/{name}")


@pytest.fixture
def host(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "work/root", ramdisk.recipe())


def build(tmp_path: Path, host: Recorder, kernel: str = "generic") -> ramdisk.Ramdisk:
    return ramdisk.build(
        tmp_path / "work",
        ca_certificate=CA,
        image_keys=[KEY],
        kernel=kernel,
        say=lambda _: None,
        host=host,
        apt=APT,
    )


def test_build(tmp_path: Path, host: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, str] = {}
    pack = Tree.pack

    def look(tree: Tree, initrd: Path, level: int) -> None:
        for path in tree.path.rglob("*"):
            if path.is_file() and not path.is_symlink():
                kept[str(path.relative_to(tree.path))] = path.read_text()
        pack(tree, initrd, level)

    monkeypatch.setattr(Tree, "pack", look)
    built = build(tmp_path, host)
    assert built.kernel == VERSION
    assert built.packages == {"busybox": "1.37", "zstd": "1.5"}
    assert built.firmware_missing == ("missing.bin",)
    assert built.initrd.read_bytes() == b"initrd"
    assert not host.root.exists()
    assert kept["etc/coldiron/ca.crt"] == CA
    assert kept["etc/coldiron/image-keys/01.pem"] == KEY
    assert kept["etc/coldiron/built"].strip().isdigit()
    assert kept[f"usr/lib/modules/{VERSION}/kernel/ext4.ko"] == "module"
    assert "usr/lib/firmware/there.bin" in kept
    assert not [path for path in kept if path.endswith(".py") and not path.endswith("start.py")]
    mmdebstrap = next(words for words in host.ran if "mmdebstrap" in words)
    assert "linux-image-amd64" in mmdebstrap[-4]
    assert '--aptopt=Acquire::Check-Date "false"' in mmdebstrap


def test_cloud_kernel_is_asked_for_less(tmp_path: Path, host: Recorder) -> None:
    build(tmp_path, host, "cloud")
    asked = next(words for words in host.ran if "modprobe" in words)
    assert "virtio_net" in asked
    assert "mlx5_core" not in asked


def test_metal_has_the_drivers_of_real_servers() -> None:
    names = modules_for(ramdisk.recipe()["modules"], "generic")
    assert {"mlx5_core", "ice", "bnxt_en", "i40e", "ixgbe", "megaraid_sas", "mpt3sas", "nvme", "ahci"} <= set(
        names
    )
    assert len(names) == len(set(names))


def test_missing_module(tmp_path: Path, host: Recorder) -> None:
    host.modprobe = (1, "", "modprobe: WARNING: Module mlx5_core not found\n")
    with pytest.raises(ColdironError, match=r"lacks a module of the RAM environment: .*mlx5_core"):
        build(tmp_path, host)


def test_missing_library(tmp_path: Path, host: Recorder) -> None:
    host.ldd = "\tlibold.so => not found\n"
    with pytest.raises(ColdironError, match="lacks a library: libold"):
        build(tmp_path, host)


def test_missing_file(tmp_path: Path, host: Recorder) -> None:
    host.data["files"] = [*ramdisk.recipe()["files"]]
    host.data["programs"] = []
    with pytest.raises(ColdironError, match="has no /usr/bin/busybox; was a package renamed"):
        build(tmp_path, host)


@pytest.mark.parametrize(
    ("ca", "keys", "kernel", "words"),
    [
        ("nonsense", [KEY], "generic", "is no PEM"),
        (CA + "-----BEGIN PRIVATE KEY-----", [KEY], "generic", "is no PEM"),
        (CA, [], "generic", "needs the public key"),
        (CA, ["nonsense"], "generic", "no Ed25519 public key"),
        (CA, [KEY], "rt", "is one of generic, cloud, not rt"),
    ],
)
def test_refused(tmp_path: Path, ca: str, keys: list[str], kernel: str, words: str) -> None:
    with pytest.raises(ColdironError, match=words):
        ramdisk.build(tmp_path, ca_certificate=ca, image_keys=keys, kernel=kernel, say=lambda _: None)


@pytest.mark.parametrize("name", ["ramdisk-init.sh", "ramdisk-udhcpc.sh"])
def test_scripts(name: str) -> None:
    path = Path(ramdisk.__file__).parent / "files" / name
    subprocess.run(["sh", "-n", path], check=True)
