#!/usr/bin/python
"""Keep MariaDB's databases, users and grants as declared."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mariadb_access
short_description: Keep MariaDB's databases, users and grants as declared
description:
  - Reads the server over its socket as root, and changes only what differs.
  - root@localhost gets the password and keeps its password-free way through the socket; any other root, users
    without a name and the database C(test) are removed.
  - Passwords are sent to the server as hashes only, and on standard input.
options:
  root_password:
    description: The password of root@localhost.
    type: str
    required: true
  databases:
    description: Databases. Others are left alone.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The database's name.
        type: str
        required: true
      state:
        description: Whether it must be there. Removing one removes what is in it.
        type: str
        choices: [present, absent]
        default: present
  users:
    description: Users and all that they may do. Others are left alone.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The user's name.
        type: str
        required: true
      host:
        description: Where the user may come from.
        type: str
        default: localhost
      password:
        description: The user's password.
        type: str
      privileges:
        description: What the user may do, like C(slurm_acct_db.*:ALL); several with C(/) between.
        type: str
        default: ""
      state:
        description: Whether the user must be there.
        type: str
        choices: [present, absent]
        default: present
  socket:
    description: The server's socket.
    type: path
    default: /run/mysqld/mysqld.sock
  wait_seconds:
    description: How long to wait for a server that is not heard yet, as while it recovers after a power cut.
    type: int
    default: 300
attributes:
  check_mode:
    support: full
    description: Without a server that answers, everything declared would be added.
  diff_mode:
    support: full
    description: What changes in words, without secrets.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: MariaDB | Ensure slurmdbd has its database
  coldiron.cluster.mariadb_access:
    root_password: "{{ mariadb_root_password }}"
    databases:
      - name: slurm_acct_db
    users:
      - name: slurm
        password: "{{ slurm_dbd_database_password }}"
        privileges: slurm_acct_db.*:ALL
"""

RETURN = r"""
changes:
  description: What was changed, or would be in check mode, in order.
  returned: always
  type: list
  elements: str
  sample: ["database slurm_acct_db: added"]
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.coldiron.cluster.plugins.module_utils import mariadb_access as access

STATE: dict[str, Any] = {"type": "str", "choices": ["present", "absent"], "default": "present"}
# The client's own error where nobody listens on the socket.
NOT_HEARD = "ERROR 2002"
NAME: dict[str, Any] = {"type": "str", "required": True}


def argument_spec() -> dict[str, Any]:
    """Return the module's arguments."""
    return {
        "root_password": {"type": "str", "required": True, "no_log": True},
        "databases": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {"name": NAME, "state": STATE},
        },
        "users": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "name": NAME,
                "host": {"type": "str", "default": "localhost"},
                "password": {"type": "str", "no_log": True},
                "privileges": {"type": "str", "default": ""},
                "state": STATE,
            },
        },
        "socket": {"type": "path", "default": "/run/mysqld/mysqld.sock"},
        "wait_seconds": {"type": "int", "default": 300},
    }


class Server:
    """Speaks SQL to the server through its client, on standard input."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.program = module.get_bin_path("mariadb") or module.get_bin_path("mysql")

    def run(self, sql: str) -> Any:
        """Run statements and return (exit status, output, errors)."""
        words = ["--no-defaults", "--socket=" + self.module.params["socket"], "--user=root", "--batch"]
        words += ["--skip-column-names", "--raw", "--default-character-set=utf8mb4"]
        return self.module.run_command([self.program, *words], data=sql + ";\n")

    def answers(self) -> bool:
        """Say whether the server can be spoken to; fail where it must be."""
        if self.program is None:
            problem = "the client mariadb is not installed here"
        else:
            code, output, error = self.heard()
            if code == 0:
                return True
            problem = "the server does not let root in through {}: {}".format(
                self.module.params["socket"],
                " ".join((error or output).split()),
            )
        if not self.module.check_mode:
            self.module.fail_json(msg=problem)
        return False

    def heard(self) -> Any:
        """Ask until the server is heard, at most ``wait_seconds``; in check mode once."""
        last = time.monotonic() + (0 if self.module.check_mode else self.module.params["wait_seconds"])
        while True:
            code, output, error = self.run("SELECT 1")
            # Whatever else it says is an answer.
            if code == 0 or NOT_HEARD not in error or time.monotonic() >= last:
                return code, output, error
            time.sleep(1)

    def ask(self, sql: str) -> list[str]:
        """Return the lines that a query answers."""
        code, output, error = self.run(sql)
        if code != 0:
            self.module.fail_json(msg="{}: {}".format(sql, " ".join((error or output).split())))
        return str(output).splitlines()

    def facts(self) -> dict[str, Any]:
        """Read databases, users and grants."""
        users = access.parse_users(self.ask("SELECT User, Host, Priv FROM mysql.global_priv"))
        declared = {(item["name"], item["host"]) for item in self.module.params["users"]}
        return {
            "databases": self.ask("SHOW DATABASES"),
            "users": users,
            "grants": {
                user: self.ask(f"SHOW GRANTS FOR {access.quote(user[0])}@{access.quote(user[1])}")
                for user in declared & set(users)
            },
        }


def main() -> None:
    """Read, plan, apply."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    server = Server(module)
    facts = server.facts() if server.answers() else {"databases": [], "users": {}, "grants": {}}
    try:
        steps = access.plan(facts, module.params)
    except access.AccessError as error:
        module.fail_json(msg=str(error))
    if not module.check_mode:
        for step in steps:
            code, output, error_text = server.run(step.sql)
            if code != 0:
                module.fail_json(
                    msg="{}: the server refused: {}".format(
                        step.words, " ".join((error_text or output).split())
                    )
                )
    result: dict[str, Any] = {"changed": bool(steps), "changes": [step.words for step in steps]}
    if steps:
        result["diff"] = {"before": "", "after": "\n".join(result["changes"]) + "\n"}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
