#!/usr/bin/python
# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Ask PAM whether accounts get in by a service, and fail where one does not."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pam_account
short_description: Ask PAM whether accounts get in by a service
version_added: 0.1.0
description:
  - Runs the account stack of a service in C(/etc/pam.d) for each account, as a daemon does for somebody whose key or
    password was right. Fails, and names them, where some are not let in.
  - Who the connection came in as is asked for too, when that account became another one on the node.
  - Writes nothing. The stack's modules act as they do in a login; the stack should let these accounts in early.
options:
  service:
    description: The service.
    type: str
    required: true
  users:
    description: The accounts.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    support: full
    description: The same, except that a service that is not there yet lets everybody in.
  diff_mode:
    support: none
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Slurm pam | Refuse to go on unless administrators get in
  coldiron.cluster.pam_account:
    service: coldiron-slurm
    users: [root, ops]
"""

RETURN = r"""
asked:
  description: The accounts that were asked for.
  returned: always
  type: list
  elements: str
  sample: [root, ops]
"""

import ctypes
import os
from collections.abc import Callable, Sequence

from ansible.module_utils.basic import AnsibleModule

SUCCESS = 0
CONVERSATION_FAILED = 19
TALK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Conversation(ctypes.Structure):
    """struct pam_conv."""

    _fields_ = (("talk", TALK), ("data", ctypes.c_void_p))


def silent(_count: int, _messages: int, _answers: int, _data: int) -> int:
    """Answer no question of a module."""
    return CONVERSATION_FAILED


def ask(service: str, user: str) -> str:
    """Return why ``user`` is not let in by ``service``; nothing where PAM lets in."""
    # For all to see: some modules, Slurm's among them, are not linked with the library that loads them.
    pam = ctypes.CDLL("libpam.so.0", mode=ctypes.RTLD_GLOBAL)
    pam.pam_strerror.restype = ctypes.c_char_p
    handle = ctypes.c_void_p()
    conversation = Conversation(TALK(silent), None)
    status = pam.pam_start(service.encode(), user.encode(), ctypes.byref(conversation), ctypes.byref(handle))
    if status != SUCCESS:
        return f"PAM does not start (status {status})"
    status = pam.pam_acct_mgmt(handle, 0)
    why = "" if status == SUCCESS else pam.pam_strerror(handle, status).decode()
    pam.pam_end(handle, status)
    return why


def refused(users: Sequence[str], question: Callable[[str], str]) -> list[str]:
    """Return those of ``users`` whom ``question`` gives a reason against, each with it."""
    answers = {user: question(user) for user in users}
    return [f"{user} ({why})" for user, why in answers.items() if why]


def main() -> None:
    """Ask for all, then fail for those who are not let in."""
    module = AnsibleModule(
        argument_spec={
            "service": {"type": "str", "required": True},
            "users": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    service = module.params["service"]
    came_as = os.environ.get("SUDO_USER")
    users = list(dict.fromkeys([*module.params["users"], *([came_as] if came_as else [])]))
    if module.check_mode and not os.path.exists(f"/etc/pam.d/{service}"):
        module.exit_json(changed=False, asked=users)
    out = refused(users, lambda user: ask(service, user))
    if out:
        module.fail_json(
            msg=f"{', '.join(out)} would be locked out by /etc/pam.d/{service}, so sshd does not ask it: name them"
            " where it says who gets in without a job (slurm_pam_admins)",
            asked=users,
        )
    module.exit_json(changed=False, asked=users)


if __name__ == "__main__":
    main()
