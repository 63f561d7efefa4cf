#!/usr/bin/python
# Apache-2.0 (see LICENSE)
"""Documentation of the action plugin of the same name."""

DOCUMENTATION = r"""
module: repair_state
short_description: Keep the journal of a node's repair
version_added: 0.1.0
description:
  - Writes what begins and how it ends to the journal of a node's repair, on the controller, and says whether a state is
    due. docs/repair.md has the states. C(coldiron node repair), C(ansible-playbook) and C(ansible-runner) keep the same
    journal by it.
  - One repair works on a node at a time. The lock lasts as long as the C(coldiron) or C(ansible-playbook) that this
    task belongs to.
  - No node is spoken to.
options:
  do:
    description:
      - V(open) begins a repair, or takes up the one that has no end; V(begin) and V(end) are about a I(state); V(judge)
        keeps the evidence, judges it and ends the diagnosis; V(where) only looks.
    type: str
    choices: [open, begin, end, judge, where]
    default: begin
  node:
    description: The node; the host of the task where it is left out.
    type: str
  state:
    description: The state, for V(begin) and V(end).
    type: str
    choices: [drain, diagnose, power, deploy, converge, accept, resume]
  outcome:
    description: How the state ended.
    type: str
    choices: [ok, unclear, hardware, refused, failed]
    default: ok
  reason:
    description: Why, in a line. An outcome other than V(ok) needs one.
    type: str
  files:
    description: Evidence for V(judge), text by name; docs/repair.md says which names. Secrets are masked.
    type: dict
    default: {}
  kind:
    description: What is begun by V(open). A webhook drains and diagnoses only.
    type: str
    choices: [repair, reimage, webhook]
    default: repair
  consent:
    description: Serials of disks that may be wiped. V(open) refuses where one that would be is not among them.
    type: list
    elements: str
    default: []
  stop_when_unclear:
    description: End the repair where the evidence says nothing, instead of wiping disks.
    type: bool
    default: false
attributes:
  check_mode:
    support: none
    description: A repair has no check mode; C(coldiron node repair --dry-run) says what it would do.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Repair | Begin drain
  coldiron.cluster.repair_state:
    state: drain
  register: drain

- name: Repair | Note that drain failed
  coldiron.cluster.repair_state:
    do: end
    state: drain
    outcome: failed
    reason: job 12 is still there
  when: drain.due
"""

RETURN = r"""
due:
  description: Whether the state is due; then it has begun.
  returned: do is begin
  type: bool
next:
  description: What follows, a state or an end.
  returned: always but where nothing is under way
  type: str
  sample: diagnose
evidence:
  description: The folder that a diagnosis may write files of evidence to.
  returned: diagnose has begun
  type: str
bundle:
  description: The folder with the evidence and what was found in it.
  returned: do is judge
  type: str
msg:
  description: What happened, in a line.
  returned: always but where nothing happened
  type: str
  sample: "gpu02: drain ok; next: diagnose"
"""
