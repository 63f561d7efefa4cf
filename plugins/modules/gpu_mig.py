#!/usr/bin/python
# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Divide a node's GPUs as declared, while nobody uses them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_mig
short_description: Divide a node's GPUs as declared, while nobody uses them
version_added: 0.1.0
description:
  - Compares the GPUs' MIG modes and instances with a layout, and changes those GPUs that differ, by C(nvidia-smi).
  - Refuses while a job runs on the node, while Slurm could start one there, or while a process uses a GPU that differs.
options:
  layout:
    description: One list of profiles for each GPU, in the driver's order; an empty one for a whole GPU.
    type: list
    elements: list
    required: true
  node:
    description: The node's name in Slurm.
    type: str
    required: true
  services:
    description: Units that hold GPUs open. Those that run are stopped for a change, and started again.
    type: list
    elements: str
    default: []
  afterwards:
    description:
      - Programs that are run after a change, where they are there, before those units start.
      - One that fails is warned of.
    type: list
    elements: path
    default: []
attributes:
  check_mode:
    support: full
    description: Says what would change, and refuses as it would. Without a driver every divided GPU would change.
  diff_mode:
    support: none
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Gpu mig | Ensure the first GPU is two halves and the second whole
  coldiron.cluster.gpu_mig:
    layout: [[3g.40gb, 3g.40gb], []]
    node: gpu01
"""

RETURN = r"""
why:
  description: What differed, a GPU each, counted from 1.
  returned: always
  type: list
  elements: str
  sample: ["GPU 1: MIG enabled, was disabled; 3g.40gb, 3g.40gb, was no instances"]
"""

import os
from collections.abc import Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.coldiron.cluster.plugins.module_utils import gpu_mig as mig


def main() -> None:
    """Compare, and change what differs."""
    module = AnsibleModule(
        argument_spec={
            "layout": {"type": "list", "elements": "list", "required": True},
            "node": {"type": "str", "required": True},
            "services": {"type": "list", "elements": "str", "default": []},
            "afterwards": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    layout, node = module.params["layout"], module.params["node"]

    def ask(words: Sequence[str]) -> tuple[int, str, str]:
        program = module.get_bin_path(words[0])
        if program is None:
            raise FileNotFoundError(words[0])
        code, out, error = module.run_command([program, *words[1:]])
        return int(code), str(out), str(error)

    try:
        changes = mig.bring(layout, node, ask, act=False)
        if changes and not module.check_mode:
            held = [
                unit
                for unit in module.params["services"]
                if ask(("systemctl", "--quiet", "is-active", unit))[0] == 0
            ]
            for unit in held:
                ask(("systemctl", "stop", unit))
            try:
                mig.bring(layout, node, ask, act=True)
            finally:
                # Who starts now already sees the new names.
                for program in filter(os.path.exists, module.params["afterwards"]):
                    code, out, error = ask((program,))
                    if code != 0:
                        module.warn(f"{program}: {(error or out).strip() or code}")
                for unit in held:
                    ask(("systemctl", "start", unit))
    except FileNotFoundError as error:
        if module.check_mode:
            module.exit_json(changed=any(layout), why=[])
        module.fail_json(msg=f"{error} is not there: role gpu_driver comes first")
    except mig.MigError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(changes), why=[change.why for change in changes])


if __name__ == "__main__":
    main()
