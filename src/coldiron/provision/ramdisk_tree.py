"""From a Debian root to the few files that the RAM environment holds: programs with their libraries, kernel modules
with theirs, Python with just the modules that the deploy program imports.

Everything is copied by name from the root; a name that is not there ends the build, so that nothing is missed on a
machine far away.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision.deploy_program import START, write_program
from coldiron.rack.host import Host

PROGRAM = "usr/lib/coldiron"
_PYTHON = ("/usr/bin/python3", "-I", "-S")
# What is imported only when it is called: found by calling it.
_WARM_UP = """
import sys, codecs, datetime
sys.path.insert(0, "/{program}")
import coldiron.provision.deploy_main
datetime.datetime.strptime("2020", "%Y")
for name in ("ascii", "idna", "iso-8859-1", "latin-1", "utf-8"):
    codecs.lookup(name)
"provisioner.example".encode("idna")
print("\\n".join(sorted(str(m.__file__) for m in sys.modules.values() if getattr(m, "__file__", None))))
"""
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)")
_USR_MERGED = ("bin", "sbin", "lib", "lib64")


class Tree:
    """The environment's files below ``path``, taken from the Debian root ``root``."""

    def __init__(self, root: Path, path: Path, host: Host) -> None:
        self.root = root
        self.path = path
        self._host = host

    def skeleton(self) -> None:
        """The directories, and the links that Debian has in its place of /bin and /lib."""
        for name in ("dev", "etc/coldiron", "proc", "run", "sys", "target", "tmp", "root", "usr/bin", "usr/sbin",
                     "usr/lib", "usr/lib64", "usr/share/coldiron", "var"):  # fmt: skip
            (self.path / name).mkdir(parents=True, exist_ok=True)
        for name in _USR_MERGED:
            (self.path / name).symlink_to(f"usr/{name}")
        (self.path / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (self.path / "etc/group").write_text("root:x:0:\ndisk:x:6:\n")
        (self.path / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")

    def add(self, paths: Iterable[str]) -> None:
        """Copy files, following links. Raises ColdironError for one that the root lacks."""
        for path in paths:
            self._copy(path)

    def add_programs(self, paths: Iterable[str]) -> None:
        """Copy programs and libraries, with what they are linked with."""
        wanted = list(paths)
        self.add(wanted)
        listed = self._host.run(
            ["chroot", str(self.root), "ldd", *wanted], check=False, what="asking for libraries"
        ).stdout
        if "not found" in listed:
            missing = next(line.strip() for line in listed.splitlines() if "not found" in line)
            raise ColdironError(f"the RAM environment lacks a library: {missing}", ExitCode.ENVIRONMENT)
        self.add(dict.fromkeys(_LIBRARY.findall(listed)))

    def link_busybox(self, names: Iterable[str]) -> None:
        """The names by which busybox is called."""
        for name in names:
            (self.path / "usr/bin" / name).symlink_to("busybox")

    def add_modules(self, version: str, names: Iterable[str]) -> list[str]:
        """Copy kernel modules and what they depend on, unpacked; the file names of all.

        Unpacked they are smaller in the end, for the whole environment is compressed once more, and are loaded sooner.
        Raises ColdironError for a module that this kernel does not have.
        """
        done = self._host.run(
            ["chroot", str(self.root), "modprobe", "--set-version", version, "--show-depends", "--all", *names],
            check=False, what="asking for kernel modules",
        )  # fmt: skip
        if done.returncode:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise ColdironError(
                f"kernel {version} lacks a module of the RAM environment: {lines[-1] if lines else 'no reason given'}",
                ExitCode.ENVIRONMENT,
            )
        words = [line.split() for line in done.stdout.splitlines()]
        paths = dict.fromkeys(line[1] for line in words if len(line) > 1 and line[0] == "insmod")
        for path in paths:
            target = self._place(path.removesuffix(".xz"))
            data = self._found(path).read_bytes()
            target.write_bytes(lzma.decompress(data) if path.endswith(".xz") else data)
        base = self.path / "usr/lib/modules" / version
        for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
            shutil.copy(self.root / "usr/lib/modules" / version / name, base / name)
        self.run("usr/sbin/depmod", version, of_root=True)
        return [PurePosixPath(path).name.split(".ko")[0] for path in paths]

    def add_firmware(self, modules: Iterable[str], version: str) -> list[str]:
        """Copy the firmware that those modules ask for, as far as the root has it; the names of what it has not."""
        asked = self._host.run(
            ["chroot", str(self.root), "modinfo", "--set-version", version, "--field", "firmware", *modules],
            check=False, what="asking for firmware",
        )  # fmt: skip
        missing = []
        for name in dict.fromkeys(asked.stdout.split()):
            for path in (f"/usr/lib/firmware/{name}", f"/usr/lib/firmware/{name}.xz"):
                if (self.root / path.lstrip("/")).exists():
                    self._copy(path)
                    break
            else:
                missing.append(name)
        return missing

    def add_python(self, zone: str = "usr/lib/python3") -> None:
        """Copy Python's modules that the deploy program imports, and the program, as byte code only."""
        write_program(self.root / PROGRAM)
        listed = self._host.run(
            ["chroot", str(self.root), *_PYTHON, "-c", _WARM_UP.format(program=PROGRAM)],
            what="starting the deploy program in the RAM environment's root",
        ).stdout.split()
        sources = [path for path in listed if path.startswith((f"/{zone}", f"/{PROGRAM}"))]
        shared = [path for path in sources if path.endswith(".so")]
        self.add_programs(shared)
        self.add(path for path in sources if path not in shared)
        # Python looks for the directory to know where it is, whatever is in it.
        version = next(path.split("/")[3] for path in sources if path.startswith(f"/{zone}"))
        (self.path / "usr/lib" / version / "lib-dynload").mkdir(exist_ok=True)
        self.run("usr/bin/python3", "-I", "-S", "-m", "compileall", "-q", "-b", "--invalidation-mode",
                 "unchecked-hash", f"/{self._inside()}/usr/lib", of_root=True, whole=True)  # fmt: skip
        for source in (self.path / "usr/lib").rglob("*.py"):
            source.unlink()
        shutil.copy(self.root / PROGRAM / START, self.path / PROGRAM / START)

    def run(self, program: str, *words: str, of_root: bool = False, whole: bool = False) -> str:
        """Run a program of the tree, or of the root over the tree; what it printed."""
        if not of_root:
            command = ["chroot", str(self.path), f"/{program}", *words]
        elif whole:
            command = ["chroot", str(self.root), f"/{program}", *words]
        else:
            command = ["chroot", str(self.root), f"/{program}", "--basedir", f"/{self._inside()}/usr", *words]
        return self._host.run(command, what=f"running {program}", timeout_seconds=600).stdout

    def check(self, programs: Iterable[str]) -> None:
        """Start what needs no device, so that a library that is missing is missed here. Raises CommandError."""
        for program in programs:
            self.run(program.lstrip("/"), "--version" if not program.endswith("openssl") else "version")
        imports = (
            f"import sys; sys.path.insert(0, '/{PROGRAM}'); import coldiron.provision.deploy_main, _strptime"
        )
        self.run("usr/bin/python3", "-I", "-S", "-c", imports)

    def pack(self, initrd: Path, level: int) -> None:
        """Write the tree as one cpio archive, compressed by zstd."""
        inside = f"{self._inside()}"
        script = (
            f"cd /{inside} && find . -print0 | sort -z | busybox cpio -0 -o -H newc 2>/dev/null "
            f"| zstd -q -T0 -{level} -f -o /{inside}.initrd"
        )
        self._host.run(
            ["chroot", str(self.root), "sh", "-ec", script],
            what="packing the RAM environment",
            timeout_seconds=1800,
        )
        os.replace(self.root / f"{inside}.initrd", initrd)

    def _inside(self) -> PurePosixPath:
        return PurePosixPath(self.path.relative_to(self.root))

    def _copy(self, path: str) -> None:
        source = self._found(path)
        target = self._place(path)
        if not target.exists():
            shutil.copy2(source, target)

    def _place(self, path: str) -> Path:
        """Where ``path`` goes, under /usr where Debian has merged it."""
        parts = PurePosixPath(path.lstrip("/")).parts
        inner = Path("usr", *parts) if parts[0] in _USR_MERGED else Path(*parts)
        target = self.path / inner
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _found(self, path: str) -> Path:
        """The file in the root behind all links, absolute ones taken as the root's own."""
        current = path
        for _ in range(16):
            inside = self.root / current.lstrip("/")
            if not inside.is_symlink():
                if not inside.is_file():
                    break
                return inside
            link = os.readlink(inside)
            current = link if link.startswith("/") else os.path.normpath(f"{os.path.dirname(current)}/{link}")
        raise ColdironError(
            f"the RAM environment's root has no {path}; was a package renamed?", ExitCode.ENVIRONMENT
        )


def modules_for(data: Mapping[str, Any], kernel: str) -> list[str]:
    """The modules of the list that a kernel of that flavour is asked for."""
    groups = ("always", "virtual") if kernel in data["slim"] else ("always", "virtual", "metal")
    return [name for group in groups for name in data[group]]
