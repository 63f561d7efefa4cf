"""Fixture sources: tar files that are the same to the byte wherever they are made, so that a checksum can be named."""

from __future__ import annotations

import io
import tarfile
from importlib import resources

import yaml


def pyxis() -> tuple[str, bytes]:
    """The name and the content of the fixture source of Pyxis."""
    folder = resources.files("coldiron.testing.aptrepo")
    data = yaml.safe_load(folder.joinpath("pyxis.yml").read_text(encoding="utf-8"))
    top = f"pyxis-{data['version']}"
    return f"{top}.tar", tar({f"{top}/{name}": text for name, text in data["files"].items()})


def tar(files: dict[str, str]) -> bytes:
    """A tar file without times, owners or compression."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            content = text.encode()
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()
