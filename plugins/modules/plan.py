#!/usr/bin/python
# Apache-2.0 (see LICENSE)
"""Documentation of the action plugin of the same name."""

DOCUMENTATION = r"""
module: plan
short_description: Look at the whole site offline, before any node is contacted
version_added: 0.1.0
description:
  - Says what C(coldiron plan) says of the C(cluster.yml) of this run's inventory - hardware, electricity and heat,
    racks, networks and versions - without contacting a node. A refused plan fails the task, with a line for each
    finding.
  - Runs on the controller alone, so once is enough (C(run_once)). Inventories without a C(cluster.yml) are skipped.
options: {}
attributes:
  check_mode:
    support: full
    description: Nothing is ever changed.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Plan | Look at the whole site
  coldiron.cluster.plan:
  run_once: true
  any_errors_fatal: true
"""

RETURN = r"""
msg:
  description: The verdict, a line for each C(cluster.yml).
  returned: always, unless skipped
  type: str
  sample: "sound: nothing to mend, 2 warnings"
hint:
  description: The command that shows everything.
  returned: failure
  type: str
"""
