#!/usr/bin/python
# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A SPANK plugin that was built elsewhere, in its place on a node that can load it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: spank_install
short_description: Puts a SPANK plugin in its place
version_added: 0.1.0
description:
  - Writes the plugin that M(coldiron.cluster.spank_build) has built on another host.
  - Refuses one that is built for another release of Slurm, or another kind of machine, than the node's. A plugin that
    cannot be loaded stops every job of the node.
options:
  path:
    description: Where the plugin is loaded from.
    type: path
    required: true
  plugin:
    description: What C(spank_build) returned.
    type: dict
    required: true
    suboptions:
      content:
        description: The file, in base64.
        type: str
        required: true
      sha256:
        description: Its SHA-256.
        type: str
        required: true
      slurm:
        description: The release that it is built for.
        type: str
        required: true
      machine:
        description: The kind of machine that it is built for.
        type: str
        required: true
attributes:
  check_mode:
    support: full
    description: Says whether the file would be another one.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Pyxis | Ensure the plugin is in its place
  coldiron.cluster.spank_install:
    path: /usr/local/lib/slurm/spank_pyxis.so
    plugin: "{{ __pyxis_built.plugin }}"
"""

RETURN = r"""
slurm:
  description: The release that the node runs.
  returned: always
  type: str
"""

import base64
import hashlib
import os
import platform
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.coldiron.cluster.plugins.module_utils.spank import misfit, release_said


def is_there(path: Path, sha256: str) -> bool:
    """Whether the plugin is in its place, readable for all and writable for nobody else."""
    try:
        content, about = path.read_bytes(), path.stat()
    except OSError:
        return False
    return hashlib.sha256(content).hexdigest() == sha256 and (about.st_uid, about.st_mode & 0o777) == (
        0,
        0o644,
    )


def write(path: Path, content: bytes) -> None:
    """Swap the file whole: a step that has the old one open goes on with it."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(content)
    os.chown(fresh, 0, 0)
    fresh.chmod(0o644)
    fresh.rename(path)


def main() -> None:
    """Entry point."""
    texts = ("content", "sha256", "slurm", "machine")
    suboptions = {key: {"type": "str", "required": True} for key in texts}
    options: dict[str, Any] = {
        "path": {"type": "path", "required": True},
        "plugin": {"type": "dict", "required": True, "options": suboptions},
    }
    module = AnsibleModule(options, supports_check_mode=True)
    plugin, path = module.params["plugin"], Path(module.params["path"])
    code, out, _ = (
        module.run_command(["sinfo", "--version"], handle_exceptions=False) if which() else (1, "", "")
    )
    slurm = release_said(out) if code == 0 else ""
    due = not is_there(path, plugin["sha256"])
    if due and module.check_mode:
        module.exit_json(changed=True, slurm=slurm)
    if why := misfit(plugin["slurm"], plugin["machine"], slurm, platform.machine()):
        module.fail_json(msg=why)
    if due:
        write(path, base64.b64decode(plugin["content"]))
    module.exit_json(changed=due, slurm=slurm)


def which() -> bool:
    """Whether Slurm's commands are installed."""
    return any(os.access(Path(folder, "sinfo"), os.X_OK) for folder in ("/usr/bin", "/usr/local/bin"))


if __name__ == "__main__":
    main()
