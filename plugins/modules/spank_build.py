#!/usr/bin/python
# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A SPANK plugin, built from its source for the Slurm that is installed here."""

from __future__ import annotations

DOCUMENTATION = r"""
module: spank_build
short_description: Builds a SPANK plugin for the installed Slurm
version_added: 0.1.0
description:
  - Fetches a source by its address and SHA-256, builds it with C(make) against the headers of libslurm that are
    installed, and keeps the plugin with a note of what it was built from and for.
  - Builds again when the source, Slurm's release or the kept file is another one, and else does nothing.
  - Hands the plugin out, for M(coldiron.cluster.spank_install) on the nodes that load it.
options:
  name:
    description: What the plugin is called; the directory where it is kept has this name.
    type: str
    required: true
  plugin:
    description: The file that C(make) makes.
    type: str
    required: true
  url:
    description: The source, a tar file - V(https://…), V(http://…) or V(file:///…) on this host.
    type: str
    required: true
  sha256:
    description: Its SHA-256, 64 hexadecimal digits.
    type: str
    required: true
  directory:
    description: Where plugins are kept.
    type: path
    default: /var/lib/coldiron/spank
  header:
    description: Which of libslurm's headers names the release.
    type: path
    default: /usr/include/slurm/slurm_version.h
attributes:
  check_mode:
    support: full
    description: Says whether it would build. The plugin that it would make is not there then.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Pyxis | Ensure the plugin is built
  coldiron.cluster.spank_build:
    name: pyxis
    plugin: spank_pyxis.so
    url: https://mirror.example.com/pyxis-0.20.0.tar.gz
    sha256: "{{ pyxis_sha256 }}"
"""

RETURN = r"""
plugin:
  description: What was built - C(content) in base64, C(sha256), C(slurm) and C(machine) that it is for.
  returned: always; content is empty where it would be built in check mode
  type: dict
"""

import base64
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.coldiron.cluster.plugins.module_utils.spank import release_of

FETCH_SECONDS = 60
# A build that has not ended by then never will.
BUILD_SECONDS = 600


def note_of(sha256: str, slurm: str, machine: str, plugin: str) -> dict[str, str]:
    """What is written down of a build; it is the same as long as nothing has to be built."""
    return {"source": sha256.lower(), "slurm": slurm, "machine": machine, "plugin": plugin}


def kept(folder: Path, plugin: str) -> tuple[dict[str, str], bytes]:
    """The note and the plugin that are kept; empty where one of them is not, or is not what the note says."""
    try:
        note = json.loads((folder / "built.json").read_text(encoding="utf-8"))
        content = (folder / plugin).read_bytes()
    except (OSError, ValueError):
        return {}, b""
    if not isinstance(note, dict) or note.get("plugin") != hashlib.sha256(content).hexdigest():
        return {}, b""
    return note, content


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a source; returns the one directory that is in it. Raises ValueError for one that leads outside."""
    with tarfile.open(archive) as source:
        for member in source.getmembers():
            parts = Path(member.name).parts
            if member.name.startswith("/") or ".." in parts or not (member.isfile() or member.isdir()):
                raise ValueError(f"{member.name} is neither a file nor a directory of its own")
        # Where Python knows it, its own filter looks at the names too.
        if hasattr(tarfile, "data_filter"):
            source.extractall(folder, filter="data")
        else:
            source.extractall(folder)
    tops = [path for path in folder.iterdir() if path.is_dir()]
    if len(tops) != 1:
        raise ValueError(f"it holds {len(tops)} directories, and a source holds one")
    return tops[0]


def fetch(module: AnsibleModule, path: Path) -> None:
    """Bring the source to ``path``; what is not the declared one ends the module."""
    url = module.params["url"]
    try:
        with open_url(url, timeout=FETCH_SECONDS) as stream, path.open("wb") as file:
            shutil.copyfileobj(stream, file)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{url} cannot be fetched: {error}")
    found = module.sha256(str(path))
    if found != module.params["sha256"].lower():
        module.fail_json(
            msg=f"{url} has the SHA-256 {found}, and not the declared one. If it is another version, write its "
            "SHA-256; nothing was built."
        )


def build(module: AnsibleModule, work: Path) -> bytes:
    """The plugin, built in ``work``."""
    fetch(module, work / "source.tar")
    tree = work / "tree"
    tree.mkdir()
    try:
        top = unpack(work / "source.tar", tree)
    except (ValueError, tarfile.TarError, OSError) as error:
        module.fail_json(msg=f"{module.params['url']}: {error}")
    command = ["timeout", str(BUILD_SECONDS), "make", "-C", str(top), module.params["plugin"]]
    code, out, err = module.run_command(command, environ_update={"LC_ALL": "C.UTF-8"})
    if code != 0 or not (top / module.params["plugin"]).is_file():
        said = (err or out).strip()[-800:] or f"{module.params['plugin']} was not made"
        module.fail_json(msg=f"{module.params['name']} could not be built here: {said}")
    built: bytes = (top / module.params["plugin"]).read_bytes()
    return built


def place(folder: Path, name: str, content: bytes) -> None:
    """Put a file in its place whole."""
    fresh = folder / f".{name}.new"
    fresh.write_bytes(content)
    fresh.chmod(0o644)
    fresh.rename(folder / name)


def told(note: dict[str, str], content: bytes) -> dict[str, Any]:
    """The plugin as the nodes are given it."""
    return {
        "content": base64.b64encode(content).decode(),
        "sha256": note["plugin"],
        "slurm": note["slurm"],
        "machine": note["machine"],
    }


def main() -> None:
    """Entry point."""
    texts = ("name", "plugin", "url", "sha256")
    options: dict[str, Any] = {key: {"type": "str", "required": True} for key in texts}
    options["directory"] = {"type": "path", "default": "/var/lib/coldiron/spank"}
    options["header"] = {"type": "path", "default": "/usr/include/slurm/slurm_version.h"}
    module = AnsibleModule(options, supports_check_mode=True)
    wanted = module.params
    if not re.fullmatch(r"[0-9a-fA-F]{64}", wanted["sha256"]):
        module.fail_json(msg="sha256 wants 64 hexadecimal digits; `sha256sum FILE` prints them.")
    header = Path(wanted["header"])
    slurm = release_of(header.read_text(encoding="utf-8", errors="replace")) if header.is_file() else ""
    folder, machine = Path(wanted["directory"], wanted["name"]), platform.machine()
    note, content = kept(folder, wanted["plugin"])
    due = note != note_of(wanted["sha256"], slurm, machine, note.get("plugin", ""))
    if due and module.check_mode:
        note = note_of(wanted["sha256"], slurm, machine, "")
        module.exit_json(changed=True, plugin=told(note, b""))
    if not slurm:
        module.fail_json(
            msg=f"{wanted['header']} names no release of Slurm: libslurm's headers are not here."
        )
    if not due:
        module.exit_json(changed=False, plugin=told(note, content))
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock, tempfile.TemporaryDirectory(prefix="coldiron-spank-") as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = build(module, Path(work))
        note = note_of(wanted["sha256"], slurm, machine, hashlib.sha256(content).hexdigest())
        place(folder, wanted["plugin"], content)
        place(folder, "built.json", (json.dumps(note, indent=2) + "\n").encode())
        os.sync()
    module.exit_json(changed=True, plugin=told(note, content))


if __name__ == "__main__":
    main()
