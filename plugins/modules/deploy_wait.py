#!/usr/bin/python
# Apache-2.0 (see LICENSE)
"""Wait on the provisioner until a step of a machine's deployment is over."""

from __future__ import annotations

DOCUMENTATION = r"""
module: deploy_wait
short_description: Wait until a step of a machine's deployment is over
version_added: 0.1.0
description:
  - Asks the provisioner, on which it runs, how a machine stands, until a step is behind it, it says itself that it
    failed, or the time is over. The failure names the machine, its last step and the end of its console.
options:
  node:
    description: The machine's name.
    type: str
    required: true
  step:
    description: The step whose end is waited for.
    type: str
    required: true
    choices: [up, redeem, disks, partition, stream, system, identity, boot, done]
  seconds:
    description: How long it may take.
    type: float
    required: true
  command:
    description: The provisioner's command.
    type: str
    default: coldiron-deployd
  console:
    description: The file on the controller that the machine's serial console is written to, if there is one.
    type: str
    default: ""
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Deploy | Wait for the partitions
  coldiron.cluster.deploy_wait:
    node: gpu02
    step: partition
    seconds: 300
  delegate_to: head01
"""

RETURN = r"""
step:
  description: The machine's last step.
  returned: always
  type: str
text:
  description: What it said there.
  returned: success
  type: str
refused:
  description: Whether the machine itself said that it goes no further; it is vain to try again then.
  returned: failure
  type: bool
"""

import json
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.coldiron.cluster.plugins.module_utils.deploy_steps import (
    STEPS,
    Stopped,
    hanging,
    line_of,
    reached,
)

# Seconds for which the provisioner is asked for news at a time.
LOOK = 60.0
# Between two questions that brought nothing new.
EVERY = 1.0


def main() -> None:
    """Wait for one step of one machine."""
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "step": {"type": "str", "required": True, "choices": list(STEPS)},
            "seconds": {"type": "float", "required": True},
            "command": {"type": "str", "default": "coldiron-deployd"},
            "console": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    node, step, seconds = (module.params[name] for name in ("node", "step", "seconds"))
    if module.check_mode:
        module.exit_json(changed=False, step=step, text="")
    end = time.monotonic() + seconds
    seen = 0
    while True:
        left = max(0.0, end - time.monotonic())
        line = line_of(_news(module, node, seen, min(LOOK, left)), node)
        try:
            if reached(line, node, step):
                break
        except Stopped as stopped:
            module.fail_json(msg=str(stopped), refused=stopped.refused, step=(line or {}).get("step"))
        if time.monotonic() > end:
            module.fail_json(
                msg=hanging(line, node, step, seconds), refused=False, step=(line or {}).get("step")
            )
        known = len((line or {}).get("events") or [])
        if known == seen:
            # Its order was closed, and is not what is waited for.
            time.sleep(EVERY)
        seen = known
    found = line or {}
    module.exit_json(changed=False, step=found.get("step"), text=found.get("text", ""))


def _news(module: AnsibleModule, node: str, seen: int, seconds: float) -> Any:
    """How ``node`` stands once more than ``seen`` of its events are known, or after ``seconds``."""
    words = ["wait", node, "--seen", str(seen), "--seconds", f"{seconds:.1f}"]
    code, out, err = module.run_command([module.params["command"], *words])
    try:
        return json.loads(out) if code == 0 else _unreadable(module, code, err)
    except ValueError:
        return _unreadable(module, code, out[:200])


def _unreadable(module: AnsibleModule, code: int, text: str) -> Any:
    module.fail_json(
        msg=f"{module.params['command']} does not say how it stands (rc {code}): {' '.join(text.split())}",
        refused=False,
        step=None,
    )


if __name__ == "__main__":
    main()
