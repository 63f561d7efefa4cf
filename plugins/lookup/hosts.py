# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What the nodes of a cluster.yml are to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: hosts
short_description: The variables that a cluster.yml gives to each of its nodes
author: The coldiron maintainers
description:
  - Returns one mapping of all nodes, by name, to the variables that the inventory plugin
    P(coldiron.cluster.cluster#inventory) gives them, so that no node asks Ansible for those of every other.
  - The mapping is kept once in the process. As a variable of the inventory, Ansible would list it with each host, and
    C(ansible-inventory --list) would grow with the square of the nodes.
  - It is empty where the inventory did not come from a cluster.yml.
options:
  _terms:
    description: Paths of the files, as the variable C(coldiron_files) holds them.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
# The variable coldiron_hosts, which the inventory plugin sets:
coldiron_hosts: "{{ lookup('coldiron.cluster.hosts', *coldiron_files) }}"
"""

RETURN = r"""
_list:
  description: One mapping.
  type: list
  elements: dict
"""


class LookupModule(LookupBase):  # type: ignore[misc]
    """A thin adapter."""

    def run(
        self, terms: list[str], variables: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[Mapping[str, Mapping[str, Any]]]:
        from coldiron.inventory.known import hosts

        return [hosts(map(str, terms))]
