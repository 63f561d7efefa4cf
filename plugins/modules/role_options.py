#!/usr/bin/python
# Apache-2.0 (see LICENSE)
"""Documentation of the action plugin of the same name."""

DOCUMENTATION = r"""
module: role_options
short_description: Check the options of several roles on the controller
version_added: 0.1.0
description:
  - Validates a host's variables against the C(meta/argument_specs.yml) of each role named, all at once,
    without connecting to the host, so that a mistake in a late stage's options is found before the first
    stage touches a node.
  - Values of options marked C(no_log) are checked for presence and type and never shown.
options:
  roles:
    description: Names of roles of this collection, without its prefix.
    type: list
    elements: str
    required: true
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Validate | Check every option of every role
  coldiron.cluster.role_options:
    roles: [base, dns, time]
"""

RETURN = r"""
errors:
  description: One sentence for each option that is wrong; only when there are any.
  returned: failure
  type: list
  elements: str
"""
