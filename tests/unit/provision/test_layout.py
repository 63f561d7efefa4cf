"""The partitions of a node's system: what is rendered, what fits, and what systemd-repart itself makes of it."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision.disks import Choice
from coldiron.provision.layout import GIB, MIB, DiskLayout, Firmware, Layout, Sizes, draw, partition_path
from coldiron.provision.lsblk import Found

A = Found("nvme0n1", 480 * 10**9, "S-A")
B = replace(A, name="nvme1n1", serial="S-B")
C = Found("sdc", 64 * 10**9, "S-C")
SINGLE = Choice((A,), (), (), ())
MIRROR = Choice((A, B), (), (), ())
ALL = Sizes(root=64 * GIB, swap=8 * GIB, scratch=True)


def names(layout: DiskLayout) -> list[str]:
    return [partition.name for partition in layout.partitions]


@pytest.mark.parametrize(("firmware", "boot"), [("bios", "bios"), ("uefi", "esp")])
def test_a_single_disk(firmware: Firmware, boot: str) -> None:
    (system,) = draw(SINGLE, firmware).disks
    assert names(system) == [boot, "root"]
    assert system.mdadm() == []
    (system,) = draw(SINGLE, firmware, ALL).disks
    assert names(system) == [boot, "swap", "root", "scratch"]


def test_the_files() -> None:
    (system,) = draw(SINGLE, "uefi", Sizes(swap=8 * GIB)).disks
    assert system.files() == {
        "01-esp.conf": "[Partition]\nType=esp\nLabel=esp\nSizeMinBytes=1073741824\nSizeMaxBytes=1073741824\n"
        "Weight=0\n",
        "02-swap.conf": "[Partition]\nType=swap\nLabel=swap\nSizeMinBytes=8589934592\n"
        "SizeMaxBytes=8589934592\nWeight=0\n",
        "03-root.conf": "[Partition]\nType=root-x86-64\nLabel=root\nSizeMinBytes=8589934592\n",
    }
    assert system.repart("/run/repart.d") == [
        (
            "systemd-repart",
            "--dry-run=no",
            "--empty=force",
            "--definitions=/run/repart.d",
            "/dev/nvme0n1",
        )
    ]


@pytest.mark.parametrize("firmware", ["bios", "uefi"])
def test_a_mirror_boots_from_either_half(firmware: Firmware) -> None:
    layout = draw(MIRROR, firmware, ALL)
    (system,) = layout.disks
    assert layout.boot_disks == (A, B)
    boot, *mirrored = system.partitions
    assert boot.content in ("boot code", "fat")
    assert {partition.type for partition in mirrored} == {"a19d880f-05fc-4d3b-a006-743f0f84911e"}
    assert [array.partition for array in system.arrays] == [partition.name for partition in mirrored]
    assert [command[-1] for command in system.repart("d")] == ["/dev/nvme0n1", "/dev/nvme1n1"]
    swap, root, _ = system.mdadm()
    assert swap[-2:] == ("/dev/nvme0n1p2", "/dev/nvme1n1p2")
    assert root == (
        "mdadm",
        "--create",
        "/dev/md/root",
        "--run",
        "--level=1",
        "--metadata=1.2",
        "--homehost=any",
        "--name=root",
        "--raid-devices=2",
        "/dev/nvme0n1p3",
        "/dev/nvme1n1p3",
    )


def test_halves_that_differ_get_the_same_table() -> None:
    larger = replace(B, size=B.size + 20 * 10**9)
    (system,) = draw(Choice((A, larger), (), (), ()), "uefi").disks
    root = system.partitions[-1]
    assert root.size is not None
    assert 0 < A.size - root.size - GIB < 4 * MIB


def test_disks_of_their_own_for_swap_and_scratch() -> None:
    layout = draw(Choice((A,), (C,), (B,), ()), "bios")
    assert [names(part) for part in layout.disks] == [["bios", "root"], ["swap"], ["scratch"]]
    assert [part.disks for part in layout.disks] == [(A,), (C,), (B,)]


def test_how_partitions_are_called() -> None:
    assert partition_path(A, 2) == "/dev/nvme0n1p2"
    assert partition_path(C, 2) == "/dev/sdc2"


@pytest.mark.parametrize(
    ("choice", "sizes", "words"),
    [
        (SINGLE, Sizes(root=1 * GIB), "root of 1.0 GiB is too small; write 8.0 GiB or more"),
        (SINGLE, Sizes(esp=64 * MIB), "esp of 64 MiB is too small"),
        (SINGLE, Sizes(swap=1), "swap of 0 MiB is too small"),
        (SINGLE, Sizes(swap=-GIB), "too small"),
        (SINGLE, Sizes(root=8 * GIB + 1), "no multiple of 4096"),
        (SINGLE, Sizes(scratch=True), "would both take all"),
        (Choice((A,), (C,), (), ()), Sizes(swap=GIB), "swap is a partition"),
        (Choice((A,), (), (C,), ()), Sizes(root=8 * GIB, scratch=True), "scratch is a partition"),
        (SINGLE, Sizes(root=480 * GIB), "serial S-A has 447.0 GiB, and bios, root need 480.0 GiB"),
        # The smaller half of a mirror decides.
        (Choice((A, C), (), (), ()), Sizes(root=100 * GIB), "serial S-C has 59.6 GiB"),
        (Choice((A,), (replace(C, size=MIB),), (), ()), Sizes(), "and swap need 66 MiB"),
    ],
)
def test_refused(choice: Choice, sizes: Sizes, words: str) -> None:
    with pytest.raises(ColdironError) as refused:
        draw(choice, "bios", sizes)
    assert words in refused.value.message
    assert refused.value.exit_code in (ExitCode.USAGE, ExitCode.REFUSED)


@given(
    st.integers(2, 600),
    st.none() | st.integers(1, 600),
    st.integers(0, 64),
    st.booleans(),
    st.sampled_from(["bios", "uefi"]),
    st.booleans(),
)
def test_what_is_drawn_fits(
    disk: int, root: int | None, swap: int, scratch: bool, firmware: Firmware, mirrored: bool
) -> None:
    system = (replace(A, size=disk * GIB), replace(B, size=(disk + 1) * GIB))[: 2 if mirrored else 1]
    sizes = Sizes(root=root * GIB if root else None, swap=swap * GIB, scratch=scratch)
    try:
        layout = draw(Choice(system, (C,), (), ()), firmware, sizes)
    except ColdironError:
        return
    for part in layout.disks:
        needed = sum(partition.size or partition.least for partition in part.partitions)
        assert needed < min(found.size for found in part.disks)
        assert sum(partition.size is None for partition in part.partitions) <= 1
        assert all("\n\n" not in text for text in part.files().values())


# A package of its own on Debian 13, which a machine for the unit tests may lack.
if shutil.which("systemd-repart"):

    @pytest.mark.parametrize("firmware", ["bios", "uefi"])
    @pytest.mark.parametrize("choice", [SINGLE, MIRROR])
    def test_systemd_repart_takes_it(firmware: Firmware, choice: Choice, tmp_path: Path) -> None:
        """A dry run on a sparse file of the disk's size: parsed, fitting, in order, nothing written."""
        layout: Layout = draw(choice, firmware, ALL)
        system = layout.disks[0]
        definitions = tmp_path / "repart.d"
        definitions.mkdir()
        for name, text in system.files().items():
            (definitions / name).write_text(text)
        image = tmp_path / "disk"
        with image.open("wb") as handle:
            handle.truncate(A.size)
        command = ["systemd-repart", "--dry-run=yes", "--empty=force", "--json=short"]
        done = subprocess.run(
            [*command, f"--definitions={definitions}", str(image)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert "Unknown" not in done.stderr
        made = json.loads(done.stdout)
        assert [part["label"] for part in made] == names(system)
        assert [part["node"] for part in made] == [f"{image}{number}" for number in (1, 2, 3, 4)]
        for part, wanted in zip(made, system.partitions, strict=True):
            assert wanted.size is None or part["raw_size"] == wanted.size
        assert sum(part["raw_size"] for part in made) > A.size - 5 * MIB
        assert image.stat().st_blocks == 0
