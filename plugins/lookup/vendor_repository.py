# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A maker's package repository, for the current host's distribution, as M(coldiron.cluster.repository) takes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: vendor_repository
short_description: A maker's package repository for the current host's distribution
author: The coldiron maintainers
description:
  - Reads the maker's own address, key and fingerprint from C(vendor_repositories.yml) beside this file, puts what the
    site says over it, and returns a mapping for M(coldiron.cluster.repository).
  - A key that is a file of the controller (it begins with C(/)) is read here, so that nodes need no way to it.
options:
  _terms:
    description:
      - The repository's name, such as C(nvidia-cuda), and what the site says of it. A key that is given replaces the
        maker's; an address of one's own needs its own key and fingerprint only if somebody else signs it.
    type: list
    required: true
  pins:
    description: Packages that are kept at a version; see M(coldiron.cluster.repository).
    type: list
    elements: dict
  state:
    description: Whether the node shall have it.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- __docker_repositories: "{{ [lookup('coldiron.cluster.vendor_repository', 'docker', docker_repository)] }}"
"""

RETURN = r"""
_list:
  description: The repository.
  type: list
  elements: dict
"""

FILE = Path(__file__).with_name("vendor_repositories.yml")
KEYS = ("uris", "suites", "components", "key", "keyring", "fingerprints", "priority")
ARMOUR = "-----BEGIN PGP PUBLIC KEY BLOCK-----"


@cache
def known() -> dict[str, Any]:
    """What is known of the makers' repositories."""
    data: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["repositories"]
    return data


def vendor_data(name: str, distribution: str, major: str, family: str, machine: str) -> dict[str, Any]:
    """The maker's own data for a distribution; empty where it says nothing of it. Raises KeyError for a name."""
    of = known()[name]
    tree = {"x86_64": "x86_64", "aarch64": "sbsa"}.get(machine, machine)
    release = major if family != "Debian" or distribution == "Debian" else major.replace(".", "")
    candidates = (f"{distribution}-{release}".lower(), f"{family}-{major.split('.')[0]}".lower(), "any")
    found: dict[str, Any] = next((of[key] for key in candidates if key in of), {})
    return {
        key: [part.format(arch=tree) for part in value]
        if isinstance(value, list)
        else value.format(arch=tree)
        if isinstance(value, str)
        else value
        for key, value in found.items()
    }


def key_text(path: str) -> str:
    """The key file of the controller, armoured."""
    content = Path(path).read_bytes()
    if ARMOUR.encode() in content:
        return content.decode("ascii", "replace")
    from ansible_collections.coldiron.cluster.plugins.module_utils.repository_files import armoured

    return str(armoured(content))


class LookupModule(LookupBase):  # type: ignore[misc]
    """The maker's data with the site's over it."""

    def run(
        self, terms: list[Any], variables: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[dict[str, Any]]:
        self.set_options(var_options=variables, direct=kwargs)
        name = str(terms[0])
        if name not in known():
            raise AnsibleLookupError(f"there is no repository {name}; known are {', '.join(sorted(known()))}")
        if self.get_option("state") == "absent":
            return [{"name": name, "state": "absent"}]
        site = dict(terms[1] if len(terms) > 1 else {})
        strange = sorted(set(site) - set(KEYS))
        if strange:
            raise AnsibleLookupError(
                f"repository {name}: {strange[0]} is no key; there are {', '.join(KEYS)}"
            )
        facts = (variables or {}).get("ansible_facts") or {}
        data = vendor_data(
            name,
            str(facts.get("distribution", "")),
            str(facts.get("distribution_version" if facts.get("distribution") == "Ubuntu"
                          else "distribution_major_version", "")),
            str(facts.get("os_family", "")),
            str(facts.get("architecture", "x86_64")),
        )  # fmt: skip
        merged = {key: value for key, value in {**data, **site}.items() if value is not None and key in KEYS}
        if not merged.get("uris") and not merged.get("keyring"):
            raise AnsibleLookupError(
                f"repository {name}: the maker has none for {facts.get('distribution')} "
                f"{facts.get('distribution_major_version')}; write uris, suites, key and fingerprints of one that has"
            )
        key = str(merged.get("key", ""))
        if key.startswith("/"):
            try:
                merged["key"] = key_text(key)
            except OSError as error:
                raise AnsibleLookupError(
                    f"repository {name}: key: {key} cannot be read on the controller: {error.strerror}"
                ) from None
        pins = self.get_option("pins")
        return [{"name": name, **({} if pins is None else {"pins": list(pins)}), **merged}]
