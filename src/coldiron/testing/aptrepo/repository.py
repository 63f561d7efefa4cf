"""The repository itself: a flat folder with Packages, and an InRelease that a key signs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from coldiron.testing.aptrepo.key import SigningKey
from coldiron.testing.aptrepo.package import Deb, Package, control_of


def build(root: Path, packages: Iterable[Package | Deb], key: SigningKey) -> list[Path]:
    """Make ``root`` a flat repository of exactly ``packages``, signed by ``key``; return their files.

    ``root`` is readable for all, as apt's own user wants it. ``key.asc`` beside Packages is the public key.
    """
    root.mkdir(mode=0o755, parents=True, exist_ok=True)
    for old in root.glob("*.deb"):
        old.unlink()
    files = [package.built(root) for package in packages]
    index = "\n".join(_stanza(path) for path in sorted(files))
    (root / "Packages").write_text(index, encoding="utf-8")
    sign(root, key)
    return files


def sign(root: Path, key: SigningKey) -> None:
    """Sign the repository in ``root`` (anew), with the date of now."""
    index = (root / "Packages").read_bytes()
    release = "\n".join([
        "Origin: coldiron fixtures",
        "Label: FIXTURE",
        f"Date: {format_datetime(datetime.now(UTC), usegmt=True)}",
        "Architectures: all amd64 arm64",
        "Description: FIXTURE packages: a maker's names and versions, nothing of the maker's",
        "SHA256:",
        f" {hashlib.sha256(index).hexdigest()} {len(index)} Packages",
        "",
    ])  # fmt: skip
    (root / "InRelease").write_text(key.clearsigned(release), encoding="utf-8")
    (root / "key.asc").write_text(key.public, encoding="utf-8")
    for path in root.iterdir():
        if path.is_file():
            path.chmod(0o644)


def _stanza(deb: Path) -> str:
    content = deb.read_bytes()
    return (
        f"{control_of(deb)}Filename: ./{deb.name}\nSize: {len(content)}\n"
        f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
    )
