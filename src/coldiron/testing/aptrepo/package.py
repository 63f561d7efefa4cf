"""Fixture packages: built by dpkg-deb from data, or ready-made files."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode

RELATIONS = ("depends", "recommends", "conflicts", "replaces", "provides")
MAINTAINER = "coldiron fixtures <fixtures@coldiron.invalid>"


@dataclass(frozen=True)
class Package:
    """What a fixture package says of itself and carries. ``scripts``: postinst and its like, by name."""

    name: str
    version: str
    architecture: str = "all"
    depends: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    about: str = "nothing of the maker's is in it"

    @property
    def control(self) -> str:
        """The control file."""
        lines = [f"Package: {self.name}", f"Version: {self.version}", f"Architecture: {self.architecture}"]
        lines += [f"Maintainer: {MAINTAINER}"]
        lines += [
            f"{relation.capitalize()}: {', '.join(names)}"
            for relation in RELATIONS
            if (names := getattr(self, relation))
        ]
        return "\n".join([*lines, f"Description: FIXTURE: {self.about}", ""])

    def built(self, folder: Path) -> Path:
        """The .deb, made in ``folder``. Raises ColdironError where dpkg-deb refuses or is not there."""
        version = self.version.split(":", 1)[-1]
        target = folder / f"{self.name}_{version}_{self.architecture}.deb"
        with tempfile.TemporaryDirectory(prefix="coldiron-fixture-") as name:
            root = Path(name) / "root"
            (root / "DEBIAN").mkdir(parents=True)
            root.chmod(0o755)
            (root / "DEBIAN").chmod(0o755)
            (root / "DEBIAN/control").write_text(self.control, encoding="utf-8")
            for script, text in self.scripts.items():
                _write(root / "DEBIAN" / script, text, 0o755)
            for path, text in self.files.items():
                _write(root / path.lstrip("/"), text, self.modes.get(path, 0o644))
            _dpkg_deb("--root-owner-group", "-Zgzip", "-z1", "--build", str(root), str(target))
        return target


@dataclass(frozen=True)
class Deb:
    """A package that is made already."""

    path: Path

    def built(self, folder: Path) -> Path:
        """A copy of it in ``folder``."""
        target = folder / self.path.name
        target.write_bytes(self.path.read_bytes())
        return target


def control_of(deb: Path) -> str:
    """The control fields of a .deb."""
    return _dpkg_deb("--field", str(deb)).strip() + "\n"


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _dpkg_deb(*words: str) -> str:
    try:
        done = subprocess.run(["dpkg-deb", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ColdironError(
            "dpkg-deb is not installed: fixture packages are built on Debian or Ubuntu", ExitCode.ENVIRONMENT
        ) from None
    if done.returncode:
        raise ColdironError(f"dpkg-deb: {done.stderr.strip()}", ExitCode.ENVIRONMENT)
    return done.stdout
