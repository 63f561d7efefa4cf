#!/usr/bin/python
"""Have a server of Elasticsearch run what is installed and configured, without the cluster missing it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: elasticsearch_node
short_description: Restart a server of Elasticsearch where that is due, and see it back in its cluster
description:
  - Waits until the server answers, and restarts it where it runs another version or other files than are there.
  - A server that others can stand in for is restarted only while the cluster is green and has all its servers; the
    cluster's shards stay where they are meanwhile. It is green again before this ends, so that with C(throttle) 1 the
    servers follow one another, and the first that does not come back stops the others.
  - Where nothing is due, a cluster that is not green is told of in O(ignore:complaint) only.
extends_documentation_fragment:
  - coldiron.cluster.elasticsearch
options:
  servers:
    description: How many servers the cluster has.
    type: int
    default: 1
  unit:
    description: The service.
    type: str
    default: elasticsearch.service
  files:
    description: Files and directories. What is newer than the running server has not been read by it.
    type: list
    elements: path
    default: []
  timeout_seconds:
    description: How long the server may take to answer, and how long the cluster to be green.
    type: int
    default: 300
attributes:
  check_mode:
    support: full
    description: It says whether a restart is due, and waits for nothing.
  diff_mode:
    support: none
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Elasticsearch | Ensure the server runs what is configured
  coldiron.cluster.elasticsearch_node:
    address: "{{ elasticsearch_address }}"
    ca: /etc/elasticsearch/certs/ca.crt
    user: coldiron-admin
    password: "{{ elasticsearch_admin_password }}"
    servers: 3
    files: [/etc/elasticsearch/elasticsearch.yml]
  throttle: 1
"""

RETURN = r"""
restarted:
  description: Whether the server was restarted, or would be.
  returned: always
  type: bool
complaint:
  description: What is wrong with the cluster, though nothing had to be done; empty where nothing is.
  returned: always
  type: str
"""

import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.coldiron.cluster.plugins.module_utils import elasticsearch as es

ALLOCATION = "cluster.routing.allocation.enable"


def argument_spec() -> dict[str, Any]:
    """Return the module's arguments."""
    return {
        **es.CONNECTION,
        "servers": {"type": "int", "default": 1},
        "unit": {"type": "str", "default": "elasticsearch.service"},
        "files": {"type": "list", "elements": "path", "default": []},
        "timeout_seconds": {"type": "int", "default": 300},
    }


def newest_change(paths: list[str]) -> float:
    """When the last of the files was changed, put there or given away; 0 where none is there."""
    return max((os.stat(path).st_ctime for path in paths if os.path.exists(path)), default=0.0)


def started(ticks: int, boot: float) -> float:
    """When a process was started, seconds since the epoch: from its ticks since the machine's start at ``boot``."""
    return boot + ticks / os.sysconf("SC_CLK_TCK")


class Roll:
    """One call."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.wanted = module, module.params
        self.server = es.server_of(module)

    def running_since(self) -> float:
        """When the server was started, seconds since the epoch; 0 where it does not run."""
        words = ["systemctl", "show", "--property=MainPID", "--value", self.wanted["unit"]]
        pid = self.module.run_command(words)[1].strip()
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
                ticks = int(stream.read().rpartition(")")[2].split()[19])
        except (OSError, ValueError, IndexError):
            return 0.0
        # A container's uptime is its own; the ticks are the machine's.
        boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return started(ticks, boot)

    def due(self) -> bool:
        """Whether something that the server reads at its start has changed since."""
        since = self.running_since()
        # The kernel counts a start in hundredths of a second, and the clock's two ways differ by less than that.
        return 0 < since < newest_change(self.wanted["files"]) - 0.05

    def complaint(self, servers: int) -> str:
        return es.health_complaint(self.server.ask("GET", "/_cluster/health"), servers)

    def answers(self) -> str:
        answer = self.server.ask("GET", "/_cluster/health")
        return (
            ""
            if answer.status == 200
            else f"the server does not answer as a member of a cluster ({answer.why})"
        )

    def fail_unless(self, complaint: str, what: str) -> None:
        if complaint:
            self.module.fail_json(
                msg=f"{what}: {complaint}. `journalctl -u {self.wanted['unit']}` on the node says more."
            )

    def allocate(self, what: Any) -> None:
        body = {"persistent": {ALLOCATION: what}}
        self.fail_unless(
            es.wait(lambda: self.said(self.server.ask("PUT", "/_cluster/settings", body)), 30),
            "the cluster does not take how shards are placed",
        )

    def held(self) -> bool:
        """Whether shards are still kept where they are, as a restart does it."""
        answer = self.server.ask("GET", "/_cluster/settings?flat_settings=true")
        return answer.status == 200 and answer.body["persistent"].get(ALLOCATION) == "primaries"

    @staticmethod
    def said(answer: es.Answer) -> str:
        return "" if answer.status == 200 else answer.why

    def restart(self) -> None:
        """Restart the server, in a cluster that can do without it for a while."""
        seconds, several = self.wanted["timeout_seconds"], self.wanted["servers"] > 1
        if several:
            # A run that was killed has left the shards held: the cluster would never be green.
            if self.held():
                self.allocate(None)
            self.fail_unless(
                es.wait(lambda: self.complaint(self.wanted["servers"]), seconds),
                "not restarted, for another server may be missing",
            )
            self.allocate("primaries")
        code, _, error = self.module.run_command(["systemctl", "restart", self.wanted["unit"]])
        self.fail_unless(error.strip() if code else "", "the service does not start")
        self.fail_unless(es.wait(self.answers, seconds), "restarted, and not back")
        if several:
            self.allocate(None)
            self.fail_unless(
                es.wait(lambda: self.complaint(self.wanted["servers"]), seconds), "restarted, and back, but"
            )


def main() -> None:
    """Wait, restart where due, wait."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    roll = Roll(module)
    due = roll.due()
    if module.check_mode:
        module.exit_json(changed=due, restarted=due, complaint="")
    # One that cannot answer because of what it runs with is restarted too.
    if not due or module.params["servers"] > 1:
        complaint = es.wait(roll.answers, 5 if due else module.params["timeout_seconds"])
        if complaint and due:
            code, _, error = module.run_command(["systemctl", "restart", module.params["unit"]])
            roll.fail_unless(error.strip() if code else "", "the service does not start")
            roll.fail_unless(
                es.wait(roll.answers, module.params["timeout_seconds"]), "restarted, and not back"
            )
            module.exit_json(changed=True, restarted=True, complaint="")
        roll.fail_unless(complaint, "the server is not there")
    if due:
        roll.restart()
    # A run that was killed has left the shards held.
    held = not due and roll.held()
    if held:
        roll.allocate(None)
    complaint = "" if due else roll.complaint(module.params["servers"])
    module.exit_json(changed=due or held, restarted=due, complaint=complaint)


if __name__ == "__main__":
    main()
