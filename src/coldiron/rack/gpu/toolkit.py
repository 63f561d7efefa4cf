"""NVIDIA's container toolkit, compiled from its source, as a package for nodes with simulated GPUs.

The makers' packages cannot be had everywhere; their source can, by the proxy of Go's modules. The package has the
maker's name, says in its description what it is, and holds the unmodified programs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from coldiron.rack.host import Host
from coldiron.rack.layout import Machine

VERSION = "1.20.1"
MODULE = "github.com/NVIDIA/nvidia-container-toolkit/cmd"
PROGRAMS = ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime")
NAME = "nvidia-container-toolkit-base"
_SECONDS = 1800.0


def control(architecture: str) -> str:
    """The package's control file."""
    return (
        f"Package: {NAME}\nVersion: {VERSION}-1\nArchitecture: {architecture}\n"
        "Maintainer: coldiron fixtures <fixtures@coldiron.invalid>\nDepends: libc6\n"
        "Description: FIXTURE: NVIDIA's container tools, compiled from their source\n"
    )


def build(host: Host, machine: Machine) -> Path | None:
    """The package, compiled if this machine has none of this version yet; None where there is no Go to do it.

    Raises CommandError where the compiler fails, or the modules cannot be had.
    """
    target = machine.cache / f"{NAME}_{VERSION}-1_amd64.deb"
    if target.exists():
        return target
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if go is None:
        return None
    machine.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=machine.cache, prefix="toolkit-") as name:
        work = Path(name)
        root, programs = work / "root", work / "root/usr/bin"
        programs.mkdir(parents=True)
        command = ["env", f"GOBIN={programs}", f"GOPATH={work / 'go'}", f"GOCACHE={work / 'cache'}",
                   "GOFLAGS=-modcacherw", "nice", go, "install",
                   *(f"{MODULE}/{program}@v{VERSION}" for program in PROGRAMS)]  # fmt: skip
        host.run(command, what="compiling the container toolkit", timeout_seconds=_SECONDS)
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN/control").write_text(control("amd64"), encoding="utf-8")
        for directory in (root, *root.rglob("*/")):
            directory.chmod(0o755)
        host.run(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(root), str(work / target.name)],
            what="packing the container toolkit",
        )
        os.replace(work / target.name, target)
    return target
