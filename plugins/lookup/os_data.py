# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a role says about the current host's operating system."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: os_data
short_description: A role's data for the operating system of the current host
author: The coldiron maintainers
description:
  - Merges C(vars/<Family>.yml), C(vars/<Distribution>.yml) and C(vars/<Distribution>_<major>.yml) of a role,
    the later over the earlier, by the facts of the current host (see M(coldiron.cluster.os_facts)), and returns
    one mapping.
  - Every key there begins with C(__<role>_); it is given back without that.
  - So a role needs no M(ansible.builtin.include_vars) task, and no ladder of C(when).
options:
  _terms:
    description: Names of roles of this collection, or of the role that asks.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
# roles/time/vars/Debian.yml
# __time_packages: [chrony]
# __time_service: chrony.service

# roles/time/vars/main.yml
- __time_os: "{{ lookup('coldiron.cluster.os_data', 'time') }}"

# roles/time/tasks/install.yml
- name: Time | Ensure the clock daemon is installed
  coldiron.cluster.converge:
    packages: "{{ __time_os.packages }}"
"""

RETURN = r"""
_list:
  description: One mapping for each role named.
  type: list
  elements: dict
"""

COLLECTION_ROLES = Path(__file__).parents[2] / "roles"


class LookupModule(LookupBase):  # type: ignore[misc]
    """Files named after the host's operating system, merged."""

    def run(
        self, terms: list[str], variables: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[dict[str, Any]]:
        variables = variables or {}
        facts = variables.get("ansible_facts") or {}
        missing = [
            name
            for name in ("os_family", "distribution", "distribution_major_version")
            if not facts.get(name)
        ]
        if missing:
            raise AnsibleLookupError(
                f"os_data needs the fact {missing[0]} of {variables.get('inventory_hostname', 'this host')}: "
                "run the module coldiron.cluster.os_facts first (site.yml does)"
            )
        found = [self._data(str(term), facts, variables) for term in terms]
        return found if self._templar is None else list(self._templar.template(found))

    def _data(self, role: str, facts: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        folder = COLLECTION_ROLES / role / "vars"
        own = variables.get("role_path")
        if own and Path(str(own)).name == role:
            folder = Path(str(own)) / "vars"
        distribution = str(facts["distribution"]).replace(" ", "_")
        major = facts["distribution_major_version"]
        prefix = f"__{role}_"
        merged: dict[str, Any] = {}
        found = False
        for stem in dict.fromkeys((str(facts["os_family"]), distribution, f"{distribution}_{major}")):
            path = folder / f"{stem}.yml"
            if not path.is_file():
                continue
            found = True
            data = self._loader.load_from_file(str(path), trusted_as_template=True) or {}
            if not isinstance(data, Mapping):
                raise AnsibleLookupError(f"{path}: wants a mapping of {prefix}… keys")
            for key, value in data.items():
                if not str(key).startswith(prefix):
                    raise AnsibleLookupError(f"{path}: {key}: the keys here begin with {prefix}")
                merged[str(key).removeprefix(prefix)] = value
        if not found:
            known = sorted(path.stem for path in folder.glob("*.yml") if path.stem != "main")
            raise AnsibleLookupError(
                f"role {role} does not know {distribution} {major}: {folder} speaks of "
                f"{', '.join(known) or 'no operating system'}; add {facts['os_family']}.yml or {distribution}.yml there"
            )
        return merged
