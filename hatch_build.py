"""Put the collection coldiron.cluster into the wheel, where Ansible looks for collections.

The files are those that galaxy.yml's ``manifest`` allows, beside the MANIFEST.json and FILES.json that
``ansible-galaxy collection build`` would write: the wheel and the Galaxy tarball carry the same collection.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml
from distlib.manifest import Manifest
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The version of both files' format; Galaxy knows no other.
FORMAT = 1
# collection_info's keys and what stands for one that galaxy.yml does not have.
INFO: dict[str, Any] = {
    "namespace": None,
    "name": None,
    "version": None,
    "authors": [],
    "readme": None,
    "tags": [],
    "description": None,
    "license": [],
    "license_file": None,
    "dependencies": {},
    "repository": None,
    "documentation": None,
    "homepage": None,
    "issues": None,
}


def real_files(root: Path) -> list[str]:
    """Every file under ``root`` that may be considered: no hidden ones, and no link is followed or taken.

    In a checkout ``.venv`` leads back into the checkout; following it would have no end.
    """
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        paths = (os.path.join(folder, name) for name in names if not name.startswith("."))
        found += [path for path in paths if not os.path.islink(path)]
    return found


def selected(root: Path, directives: list[str]) -> list[str]:
    """The files and folders that ``directives`` allow, relative to ``root``, in ansible-galaxy's order."""
    manifest = Manifest(str(root))
    manifest.allfiles = real_files(root)
    for directive in directives:
        manifest.process_directive(directive)
    return [os.path.relpath(path, root) for path in manifest.sorted(wantdirs=True)]


def files_document(root: Path, names: list[str]) -> dict[str, Any]:
    """What FILES.json says: each folder, and each file with its sha256."""
    entries: list[dict[str, Any]] = []
    # The root comes twice, as ansible-galaxy has it.
    for name in [".", *names]:
        path = root / name
        entry = {"name": name, "ftype": "dir", "chksum_type": None, "chksum_sha256": None, "format": FORMAT}
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            entry |= {"ftype": "file", "chksum_type": "sha256", "chksum_sha256": digest}
        entries.append(entry)
    return {"files": entries, "format": FORMAT}


def manifest_document(galaxy: dict[str, Any], files: bytes) -> dict[str, Any]:
    """What MANIFEST.json says: the collection's own words, and the sha256 of FILES.json."""
    return {
        "collection_info": {key: galaxy.get(key, default) for key, default in INFO.items()},
        "file_manifest_file": {
            "name": "FILES.json",
            "ftype": "file",
            "chksum_type": "sha256",
            "chksum_sha256": hashlib.sha256(files).hexdigest(),
            "format": FORMAT,
        },
        "format": FORMAT,
    }


class CollectionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the collection to a standard wheel; the editable one is the checkout's own, and set-up links it."""

    PLUGIN_NAME = "custom"
    _generated: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name every file of the collection and its place in the wheel."""
        if version == "editable":
            return
        root = Path(self.root)
        galaxy = yaml.safe_load((root / "galaxy.yml").read_text(encoding="utf-8"))
        target = f"ansible_collections/{galaxy['namespace']}/{galaxy['name']}"
        names = selected(root, galaxy["manifest"]["directives"])
        files = json.dumps(files_document(root, names), indent=True).encode()
        manifest = json.dumps(manifest_document(galaxy, files), indent=True).encode()
        self._generated = Path(tempfile.mkdtemp(prefix="coldiron-build-"))
        for name, content in (("MANIFEST.json", manifest), ("FILES.json", files)):
            path = self._generated / name
            path.write_bytes(content)
            path.chmod(0o644)
            build_data["force_include"][str(path)] = f"{target}/{name}"
        for name in names:
            if (root / name).is_file():
                build_data["force_include"][str(root / name)] = f"{target}/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was written for the build."""
        if self._generated is not None:
            shutil.rmtree(self._generated)
