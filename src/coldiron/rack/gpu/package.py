"""The simulated driver as a Debian package: built by this machine's compiler, kept by what it is made of."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from coldiron.rack.host import Host
from coldiron.rack.layout import Machine

PACKAGE = "coldiron-simulated-gpu"
# Debian's nvidia-smi depends on the library in exactly its own version.
DRIVER = "550.163.01"
PINNED = "550.163.01-2"
_SOURCES = files("coldiron.rack.gpu").joinpath("files")
_FLAGS = ("-shared", "-fPIC", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")
_LIBRARY = "usr/lib/simulated-gpu"
_CUDA = "cuda.c"
UNIT = "simulated-gpu.service"

_UNIT_TEXT = """\
[Unit]
Description=SIMULATED GPUs: device files and /proc/driver/nvidia
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target
ConditionPathExists=/etc/coldiron/simulated-gpu.ini
# A real module may be loaded as often as somebody likes; tests do within seconds.
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/simulated-gpu load
ExecStop=/usr/sbin/simulated-gpu unload

[Install]
WantedBy=sysinit.target
"""
# The libraries are the new version's at once; a module that is loaded stays what it is, until it is loaded anew.
_POSTINST = f"""\
#!/bin/sh
set -e
/usr/sbin/simulated-gpu install
systemctl enable --quiet {UNIT}
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl start {UNIT}
fi
"""
_PRERM = f"""\
#!/bin/sh
set -e
if [ "$1" = remove ]; then
    [ ! -d /run/systemd/system ] || systemctl disable --quiet --now {UNIT} || true
    /usr/sbin/simulated-gpu unload || true
    /usr/sbin/simulated-gpu remove
fi
"""


def sources() -> dict[str, str]:
    """The files that the package is made from, by name."""
    found = [entry for entry in _SOURCES.iterdir() if not entry.name.startswith(("_", "."))]
    return {entry.name: entry.read_text(encoding="utf-8") for entry in found}


def digest(texts: dict[str, str]) -> str:
    """What tells one build from another: what goes in, and how it is put together."""
    recipe = files("coldiron.rack.gpu").joinpath("package.py").read_text(encoding="utf-8")
    parts = [f"{name}\0{text}\0" for name, text in sorted({**texts, "": recipe}.items())]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:12]


def compile_command(target: Path, names: Iterable[Path], soname: str) -> list[str]:
    """The command that makes a library."""
    return ["gcc", *_FLAGS, f"-Wl,-soname,{soname}", "-o", str(target), *(str(name) for name in names)]


def control(architecture: str, version: str) -> str:
    """The package's control file."""
    names = ("libnvidia-ml1", "libcuda1", "nvidia-alternative", "libnvidia-cfg1")
    return (
        f"Package: {PACKAGE}\n"
        f"Version: {version}\n"
        f"Architecture: {architecture}\n"
        "Maintainer: coldiron\n"
        "Section: misc\n"
        "Priority: optional\n"
        "Depends: libc6, python3\n"
        f"Provides: {', '.join(f'{name} (= {PINNED})' for name in names)}\n"
        f"Conflicts: {', '.join(names)}\n"
        f"Replaces: {', '.join(names)}\n"
        "Description: SIMULATED NVIDIA driver libraries, no accelerator is behind them\n"
        " For the nodes of coldiron's virtual rack, and for nothing else.\n"
    )


def write_libraries(host: Host, target: Path, texts: dict[str, str]) -> None:
    """Compile the libraries into ``target``. Raises CommandError with the compiler's words."""
    source = target / "source"
    source.mkdir(parents=True)
    for name, text in texts.items():
        (source / name).write_text(text)
    parts = sorted(path for path in source.glob("*.c") if path.name != _CUDA)
    for name, paths in (("libnvidia-ml", parts), ("libcuda", [source / _CUDA])):
        command = compile_command(target / f"{name}.so", paths, f"{name}.so.1")
        host.run(command, what=f"building the simulated {name}", timeout_seconds=300.0)


def write_tree(root: Path, libraries: Path, texts: dict[str, str], architecture: str, version: str) -> None:
    """Lay the package's tree out below ``root``."""
    library = root / _LIBRARY
    library.mkdir(parents=True)
    for name in ("libnvidia-ml.so", "libcuda.so"):
        shutil.copy(libraries / name, library / name)
    (library / "version").write_text(f"{version}\n")
    tool = root / "usr/sbin/simulated-gpu"
    tool.parent.mkdir(parents=True)
    tool.write_text(texts["simulated-gpu"])
    tool.chmod(0o755)
    # Debian's package has it beside the path, and leaves the link to alternatives that belong to its driver.
    link = root / "usr/bin/nvidia-smi"
    link.parent.mkdir(parents=True)
    link.symlink_to("../lib/nvidia/current/nvidia-smi")
    unit = root / "usr/lib/systemd/system" / UNIT
    unit.parent.mkdir(parents=True)
    unit.write_text(_UNIT_TEXT)
    debian = root / "DEBIAN"
    debian.mkdir()
    (debian / "control").write_text(control(architecture, version))
    # A driver's own package names the version: the libraries follow it.
    (debian / "triggers").write_text("interest-noawait /usr/lib/coldiron-fixtures\n")
    for name, text in (("postinst", _POSTINST), ("prerm", _PRERM)):
        (debian / name).write_text(text)
        (debian / name).chmod(0o755)


def build(host: Host, machine: Machine, versions: Sequence[str] = (DRIVER,)) -> list[Path]:
    """The package in each version, compiled once for all, and if this machine has none of these sources yet.

    A version is a driver's, as 580.95.05, and the package's. Raises CommandError.
    """
    texts = sources()
    architecture = host.run(["dpkg", "--print-architecture"]).stdout.strip()
    store = machine.cache / "simulated-gpu"
    made = store / digest(texts)
    packages = [made / f"{PACKAGE}_{version}_{architecture}.deb" for version in versions]
    with host.lock(machine.run / "simulated-gpu.lock"):
        if all(path.is_file() for path in packages):
            return packages
        for older in store.glob("*"):
            if older != made:
                shutil.rmtree(older, ignore_errors=True)
        libraries = made / "libraries"
        if not libraries.is_dir():
            partial = made / ".libraries"
            shutil.rmtree(partial, ignore_errors=True)
            write_libraries(host, partial, texts)
            os.rename(partial, libraries)
        for version, package in zip(versions, packages, strict=True):
            root = made / f".{version}"
            shutil.rmtree(root, ignore_errors=True)
            write_tree(root, libraries, texts, architecture, version)
            unfinished = made / f".{package.name}"
            host.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(unfinished)])
            os.rename(unfinished, package)
            shutil.rmtree(root)
    return packages
