# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The images of the controller's store that nodes may be given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: images
short_description: The current and previous images of classes of nodes, verified
author: The coldiron maintainers
description:
  - Looks into the store that C(coldiron image bake) fills. Each image returned is signed by a trusted key, every byte
    of it is what was signed, and it has its list of components (SBOM). One that is not so ends the run.
  - A class that was never baked has no image and is left out.
options:
  _terms:
    description: Classes of nodes, and C(deploy) for what machines boot to be installed.
    type: list
    elements: str
    required: true
  store:
    description: The store's directory on the controller.
    type: path
    required: true
  trusted:
    description: Public keys in PEM.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Say which image new CPU nodes get
  ansible.builtin.debug:
    msg: "{{ query('coldiron.cluster.images', 'cpu-debian-13', store=image_store, trusted=image_trusted_keys) }}"
"""

RETURN = r"""
_list:
  description:
    - One mapping an image - C(class), C(sha256), C(current) (else it is the previous one) and C(directory) on the
      controller.
  type: list
  elements: dict
"""


class LookupModule(LookupBase):  # type: ignore[misc]
    """A thin adapter."""

    def run(
        self, terms: list[str], variables: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[dict[str, Any]]:
        from coldiron.errors import ColdironError
        from coldiron.provision.store import Store

        self.set_options(var_options=variables, direct=kwargs)
        store = Store(Path(self.get_option("store")))
        trusted = [key.encode() for key in self.get_option("trusted")]
        try:
            return [
                {
                    "class": image.node_class,
                    "sha256": image.sha256,
                    "current": current,
                    "directory": str(image.directory),
                }
                for image, current in store.given(list(map(str, terms)), trusted)
            ]
        except ColdironError as error:
            raise AnsibleLookupError(error.message) from None
