# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The program coldiron-deployd, as files of a declaration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: deployd
short_description: The program coldiron-deployd, as files for M(coldiron.cluster.converge)
author: The coldiron maintainers
description:
  - Returns the modules of the program as a list of files, so that a provisioner needs nothing but Python of its own.
  - The same version of coldiron gives the same files.
options:
  _terms:
    description: The directory on the host that the program is to lie in.
    type: list
    elements: path
    required: true
"""

EXAMPLES = r"""
# roles/netboot/vars/main.yml
__netboot_program_files: "{{ lookup('coldiron.cluster.deployd', '/usr/lib/coldiron/deployd') }}"
"""

RETURN = r"""
_list:
  description: One list of files, each with C(dest) and C(content).
  type: list
  elements: list
"""


class LookupModule(LookupBase):  # type: ignore[misc]
    """A thin adapter."""

    def run(
        self, terms: list[str], variables: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[list[dict[str, str]]]:
        from coldiron.provision.deployd_files import files

        return [
            [{"dest": f"{directory}/{path}", "content": text} for path, text in files().items()]
            for directory in terms
        ]
