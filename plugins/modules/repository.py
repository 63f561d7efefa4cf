#!/usr/bin/python
# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Package repositories of a node, trusted by the fingerprint of their keys."""

from __future__ import annotations

DOCUMENTATION = r"""
module: repository
short_description: Package repositories, trusted by the fingerprint of their keys
version_added: 0.1.0
description:
  - Puts the key, the source and the pins of outside package repositories on a node, for apt (deb822, the key itself in
    C(Signed-By), which apt reads from 2.3.10) or for dnf.
  - Several roles may have one address, a mirror that holds several makers' packages. apt takes one key of an address,
    so they all name the same fingerprints; a new key for one of them is put into the others' sources with it.
  - A key is trusted by its fingerprint only. A key file that holds another key, or one more, is refused. A key on the
    node that is the right one is not fetched again.
  - When something has changed, the package lists of that repository are read at once. If that fails (another signature,
    nobody there) the node is left as it was.
  - When nothing has changed nothing is fetched, so a repository that is gone hurts only whoever needs a package of it.
options:
  repositories:
    description: The repositories.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: A name of your own; files are called C(coldiron-NAME).
        type: str
        required: true
      state:
        description: Whether the node shall have it. Packages from it stay when it goes.
        type: str
        choices: [present, absent]
        default: present
      uris:
        description:
          - Its addresses, C(https://), C(http://) or C(file:). A mirror is written here. Empty with a keyring is the
            address from which the node has its first suite.
        type: list
        elements: str
        default: []
      suites:
        description: Its suites; one that ends in C(/) is a path, as flat repositories have it. For apt only.
        type: list
        elements: str
        default: ["/"]
      components:
        description: The suites' components. For apt only.
        type: list
        elements: str
        default: []
      key:
        description: The key's address, or the key itself, armoured.
        type: str
        default: ""
        no_log: false
      keyring:
        description:
          - A keyring that the distribution has put on the node, in place of O(repositories[].key) and
            O(repositories[].fingerprints).
        type: path
      fingerprints:
        description: The fingerprints of all primary keys in the key file; spaces do not count.
        type: list
        elements: str
        default: []
      priority:
        description: The priority of everything in it, as apt_preferences(5) or dnf.conf(5) count it.
        type: int
      pins:
        description:
          - Packages that are kept at a version; left as they are when not given. For apt only; for dnf a version is
            locked when installed.
        type: list
        elements: dict
        suboptions:
          packages:
            description: Names, C(*) allowed.
            type: list
            elements: str
            required: true
          version:
            description: The version, C(*) allowed.
            type: str
            required: true
          priority:
            description: Over 1000 also moves a package down to the version.
            type: int
            default: 1001
      signed_metadata:
        description: Whether dnf asks for a signature of the lists too; apt always does.
        type: bool
        default: false
attributes:
  check_mode:
    support: full
    description: Says what would change; a key that would be fetched is not looked at.
  diff_mode:
    support: full
    description: One diff a file.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Docker | Ensure the maker's repository is known by its key
  coldiron.cluster.repository:
    repositories:
      - name: docker
        uris: [https://mirror.example/docker/linux/debian]
        suites: [trixie]
        components: [stable]
        key: https://mirror.example/docker/linux/debian/gpg
        fingerprints: [9DC8 5822 9FC7 DD38 854A E2D8 8D81 803C 0EBF CD88]
"""

RETURN = r"""
repositories:
  description: The names of those that changed.
  returned: always
  type: list
  elements: str
"""

import glob
import os
import re
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.coldiron.cluster.plugins.module_utils import repository_files as texts
from ansible_collections.coldiron.cluster.plugins.module_utils import text_file

LOCK_SECONDS = 300
FETCH_SECONDS = 30
ENGLISH = {"LC_ALL": "C.UTF-8"}
# apt has the key in the source: two sources of one address agree where their keys do. A file of its own would not.
APT = {
    "key": "/etc/apt/keyrings/coldiron-{}.asc",
    "source": "/etc/apt/sources.list.d/coldiron-{}.sources",
    "priority": "/etc/apt/preferences.d/coldiron-{}",
    "pins": "/etc/apt/preferences.d/coldiron-{}-versions",
}
DNF = {"key": "/etc/pki/rpm-gpg/coldiron-{}.asc", "source": "/etc/yum.repos.d/coldiron-{}.repo"}


def read(path: str) -> bytes:
    """A file's content, empty where there is none."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return b""


def put(path: str, content: bytes) -> None:
    """A file replaced whole, or taken away where the content is empty."""
    if not content:
        if os.path.lexists(path):
            os.unlink(path)
        return
    text_file.replace(path, content, 0o644)


class Repository:
    """One repository on this node."""

    def __init__(self, module: AnsibleModule, given: dict[str, Any], apt: bool) -> None:
        self.module, self.given, self.apt = module, given, apt
        self.paths = {kind: path.format(given["name"]) for kind, path in (APT if apt else DNF).items()}
        if apt:
            own = self.paths["source"]
            self.paths |= {path: path for path in glob.glob(APT["source"].format("*")) if path != own}
        self.look()

    def look(self) -> None:
        """Every file as it is now."""
        self.before = {kind: read(path) for kind, path in self.paths.items()}

    def fail(self, why: str) -> None:
        self.module.fail_json(msg=f"repository {self.given['name']}: {why}")

    def key(self) -> bytes:
        """The key file: as it is where it is right, else from where it comes."""
        given, wanted = self.given["key"], self.given["fingerprints"]
        inline = texts.BEGIN in given
        if not inline:
            try:
                here = self.before["key"] or texts.key_in(self.before["source"].decode())
                return bytes(texts.trusted_key(here, wanted).encode())
            except texts.BadKey:
                if self.module.check_mode:
                    return b"to be fetched\n"
        content = given.encode() if inline else self.fetched(given)
        try:
            return bytes(texts.trusted_key(content, wanted).encode())
        except texts.BadKey as error:
            where = "the key in `key`" if inline else f"the key at {given}"
            self.fail(f"{where} is not trusted: {error}. Nothing was changed")
        return b""

    def fetched(self, address: str) -> bytes:
        if not re.match(r"(https?|file):", address):
            self.fail(f"key: {address[:80]!r} is neither an address nor an armoured key")
        try:
            with open_url(address, timeout=FETCH_SECONDS) as answer:
                return bytes(answer.read(1 << 20))
        except Exception as error:
            self.fail(f"the key cannot be fetched from {address}: {error}. Nothing was changed")
        return b""

    def wanted(self) -> dict[str, bytes]:
        """Every file of the repository; an empty one shall not be there."""
        own = [kind for kind in self.paths if not kind.startswith("/")]
        if self.given["state"] == "absent":
            return dict.fromkeys(own, b"")
        keyring, key = self.given["keyring"], b""
        if not self.given["uris"]:
            self.given["uris"] = [self.archive()]
        if not keyring:
            key = self.key()
        elif not self.module.check_mode and not os.path.exists(keyring):
            self.fail(f"keyring: {keyring} is not on this node; install the package that brings it")
        if not self.apt:
            return {"key": key, "source": texts.repo_text(self.given, keyring or self.paths["key"]).encode()}
        source = texts.sources_text(self.given, keyring or texts.signed_by(key.decode()))
        return {
            "key": b"",
            "source": source.encode(),
            "priority": texts.priority_text(self.given).encode(),
            # Of several roles that use one repository, the one that names pins has them.
            **({} if self.given["pins"] is None else {"pins": texts.pins_text(self.given).encode()}),
            **{
                path: texts.agreeing(self.before[path].decode(), source).encode()
                for path in self.paths
                if path not in own
            },
        }

    def archive(self) -> str:
        """Where this node has its distribution from."""
        paths = ["/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*"))]
        others = [path for path in paths if "/coldiron-" not in path]
        suite = self.given["suites"][0]
        found = str(texts.archive_of([read(path).decode(errors="replace") for path in others], suite))
        if not found:
            self.fail(f"no source of this node has {suite}; write uris")
        return found

    def bring(self, wanted: dict[str, bytes]) -> None:
        """Write what differs; look whether the package manager takes it, or put everything back."""
        self.look()
        for kind, content in wanted.items():
            if content != self.before[kind]:
                put(self.paths[kind], content)
        if self.given["state"] == "absent" or (
            wanted["key"] == self.before["key"] and wanted["source"] == self.before["source"]
        ):
            return
        said = self.refreshed()
        if said:
            for kind, content in self.before.items():
                put(self.paths[kind], content)
            self.fail(f"{' '.join(self.given['uris'])} cannot be used: {said}. The node is as it was")

    def refreshed(self) -> str:
        """Read this repository's package lists; why not, if they cannot be read."""
        if self.apt:
            argv = ["apt-get", "-q", "-o", f"Dir::Etc::sourcelist={self.paths['source']}"]
            argv += ["-o", "Dir::Etc::sourceparts=-", "-o", "APT::Get::List-Cleanup=0"]
            # A list that cannot be had is an error here, not a warning.
            argv += ["-o", "Acquire::Retries=2", "-o", "APT::Update::Error-Mode=any", "update"]
            # Another source of this address, of somebody else, with another key: apt would read no source at all.
            code, _, error = self.module.run_command(
                ["apt-get", "-q", "indextargets"], environ_update=ENGLISH
            )
            if code:
                return texts.complaints(error) or f"exit status {code}"
        else:
            name = f"coldiron-{self.given['name']}"
            argv = ["dnf", "-y", "-q", "--disablerepo=*", f"--enablerepo={name}", "makecache"]
        end = time.monotonic() + LOCK_SECONDS
        while True:
            code, out, error = self.module.run_command(argv, environ_update=ENGLISH)
            if code == 0 or "Could not get lock" not in error or time.monotonic() > end:
                break
            time.sleep(2)
        return texts.complaints(out + error) or f"exit status {code}" if code else ""

    def diff(self, wanted: dict[str, bytes]) -> list[dict[str, str]]:
        return [
            {
                "before_header": self.paths[kind],
                "after_header": self.paths[kind],
                "before": self.before[kind].decode(errors="replace"),
                "after": content.decode(errors="replace"),
            }
            for kind, content in wanted.items()
            if content != self.before[kind]
        ]


def main() -> None:
    """Bring every repository about."""
    pin = {
        "packages": {"type": "list", "elements": "str", "required": True},
        "version": {"type": "str", "required": True},
        "priority": {"type": "int", "default": 1001},
    }
    options = {
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "uris": {"type": "list", "elements": "str", "default": []},
        "suites": {"type": "list", "elements": "str", "default": ["/"]},
        "components": {"type": "list", "elements": "str", "default": []},
        "key": {"type": "str", "default": "", "no_log": False},
        "keyring": {"type": "path"},
        "fingerprints": {"type": "list", "elements": "str", "default": []},
        "priority": {"type": "int"},
        "pins": {"type": "list", "elements": "dict", "options": pin},
        "signed_metadata": {"type": "bool", "default": False},
    }
    module = AnsibleModule(
        argument_spec={
            "repositories": {"type": "list", "elements": "dict", "required": True, "options": options}
        },
        supports_check_mode=True,
    )
    given = module.params["repositories"]
    wrong = [sentence for one in given for sentence in texts.problems(one)]
    if wrong:
        module.fail_json(msg="; ".join(wrong))
    apt = os.path.exists("/usr/bin/apt-get")
    if not apt and not os.path.isdir("/etc/yum.repos.d"):
        module.fail_json(msg="this node has neither apt nor dnf: repositories cannot be managed here")
    found = [Repository(module, one, apt) for one in given]
    plans = [(one, wanted, diff) for one in found if (diff := one.diff(wanted := one.wanted()))]
    if not module.check_mode:
        for one, wanted, _ in plans:
            one.bring(wanted)
    module.exit_json(
        changed=bool(plans),
        repositories=[one.given["name"] for one, _, _ in plans],
        diff=[entry for _, _, diff in plans for entry in diff],
    )


if __name__ == "__main__":
    main()
