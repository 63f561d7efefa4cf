#!/usr/bin/python
# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Packages that are in no repository: files with an address and a checksum."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_file
short_description: Packages that are in no repository, by address and checksum
version_added: 0.1.0
description:
  - Installs .deb files with apt, or .rpm files with dnf, all in one transaction; what they depend on comes from the
    node's repositories.
  - A file is fetched only when the node has another version of the package, or none, and is installed only when its
    SHA-256 is the one that was declared. Nothing is kept of it.
  - A package of a higher version is moved down to the declared one.
options:
  packages:
    description: The packages.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: The package's name.
        type: str
        required: true
      version:
        description: Its version, as C(dpkg-query) or C(rpm) shows it, such as V(1.4.5-2).
        type: str
        required: true
      url:
        description:
          - Where the file is - V(https://…), V(http://…), V(file:///…) on the node, or V(mirror:pool/…) in the Debian
            archive that the node's own sources name. With apt it is fetched as packages are, through its proxy too.
        type: str
        required: true
      sha256:
        description: The file's SHA-256, 64 hexadecimal digits.
        type: str
        required: true
attributes:
  check_mode:
    support: full
    description: Says which packages would be installed; nothing is fetched.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Apptainer | Ensure the package is installed
  coldiron.cluster.package_file:
    packages:
      - name: apptainer
        version: 1.4.5-2
        url: https://mirror.example.com/apptainer_1.4.5-2_amd64.deb
        sha256: 26cf96e08fccb0e50ea0f285a5a19f940ee873d167a0680584fe6eba7d197d65
"""

RETURN = r"""
packages:
  description: The packages that were installed, name=version each.
  returned: always
  type: list
  elements: str
"""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

FETCH_SECONDS = 60
APT_HELPER = "/usr/lib/apt/apt-helper"
# A daemon that a package brings is started by whoever has configured it.
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}


def problems(packages: list[Mapping[str, str]]) -> list[str]:
    """What is wrong with the declaration, one sentence each."""
    found = []
    for item in packages:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", item["sha256"]):
            found.append(f"{item['name']}: sha256 wants 64 hexadecimal digits; `sha256sum FILE` prints them.")
        if not re.match(r"(https?|file)://|mirror:", item["url"]):
            found.append(
                f"{item['name']}: url {item['url']!r}: write https://…, http://…, file:///… or mirror:…."
            )
    return found


def installed(module: AnsibleModule, name: str, with_apt: bool) -> str:
    """The version of an installed package, empty where it is not there."""
    query = (
        ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", name]
        if with_apt
        else ["rpm", "--query", "--queryformat=installed %{VERSION}-%{RELEASE}", name]
    )
    code, out, _ = module.run_command(query)
    state, _, version = out.partition(" ")
    return version if code == 0 and state == "installed" else ""


def mirror(module: AnsibleModule) -> str:
    """The address of the Debian archive that the node's own sources name, empty where they name none."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    code, out, _ = module.run_command(command)
    found = [line for line in out.splitlines() if line.startswith("http")] if code == 0 else []
    return found[0].rstrip("/") + "/" if found else ""


def download(module: AnsibleModule, url: str, path: str, with_apt: bool) -> str:
    """Bring a file to ``path``; returns why not, or nothing. apt's own helper goes through apt's proxy."""
    if url.startswith("mirror:"):
        if not (archive := mirror(module) if with_apt else ""):
            return "the node's sources name no Debian archive; write the file's whole address"
        url = archive + url.removeprefix("mirror:").lstrip("/")
    if with_apt and not url.startswith("file:"):
        code, out, err = module.run_command([APT_HELPER, "download-file", url, path])
        lines = [line[3:] for line in (out + err).splitlines() if line.startswith("E: ")]
        return "" if code == 0 else " ".join(lines) or f"{APT_HELPER} ended with {code}"
    try:
        with open_url(url, timeout=FETCH_SECONDS) as stream, open(path, "wb") as file:
            shutil.copyfileobj(stream, file)
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def fetch(module: AnsibleModule, item: Mapping[str, str], folder: str, with_apt: bool) -> str:
    """Fetch one package into ``folder`` and return its path; what is not the declared file ends the module."""
    path = os.path.join(folder, f"{item['name']}.{'deb' if with_apt else 'rpm'}")
    if why := download(module, item["url"], path, with_apt):
        module.fail_json(msg=f"{item['name']}: {item['url']} cannot be fetched: {why}")
    found = module.sha256(path)
    if found != item["sha256"].lower():
        module.fail_json(
            msg=f"{item['name']}: {item['url']} has the SHA-256 {found}, and not the declared one. If it is another "
            "version's file, write that version and its SHA-256; nothing was installed."
        )
    return path


def main() -> None:
    """Entry point."""
    options = {key: {"type": "str", "required": True} for key in ("name", "version", "url", "sha256")}
    packages = {"type": "list", "elements": "dict", "required": True, "options": options}
    module = AnsibleModule({"packages": packages}, supports_check_mode=True)
    if wrong := problems(module.params["packages"]):
        module.fail_json(msg=" ".join(wrong))
    with_apt = shutil.which("apt-get") is not None
    missing = [
        item
        for item in module.params["packages"]
        if installed(module, item["name"], with_apt) != item["version"]
    ]
    names = [f"{item['name']}={item['version']}" for item in missing]
    if not missing or module.check_mode:
        module.exit_json(changed=bool(missing), packages=names)
    # Readable for apt's own user, which the files are handed to.
    folder = tempfile.mkdtemp(prefix="coldiron-packages-")
    try:
        os.chmod(folder, 0o755)
        files = [fetch(module, item, folder, with_apt) for item in missing]
        command = (
            ["apt-get", "--yes", "--quiet", "--no-install-recommends", "--allow-downgrades",
             "--option=Dpkg::Options::=--force-confold", "install", *files]
            if with_apt
            else ["dnf", "--assumeyes", "--setopt=install_weak_deps=False", "install", *files]
        )  # fmt: skip
        code, out, err = module.run_command(command, environ_update=ENVIRONMENT)
        if code != 0:
            module.fail_json(msg=f"{', '.join(names)}: {(err or out).strip()[-600:]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for item in missing:
        if (version := installed(module, item["name"], with_apt)) != item["version"]:
            module.fail_json(
                msg=f"{item['url']} is {item['name']} {version or 'of no known version'}, and not {item['version']}: "
                "write the version that the package has."
            )
    module.exit_json(changed=True, packages=names)


if __name__ == "__main__":
    main()
