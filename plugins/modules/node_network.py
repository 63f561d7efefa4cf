#!/usr/bin/python
# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A node's network, changed so that a mistake takes itself back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_network
short_description: Change a node's network, and take the change back unless it proves itself
version_added: 0.1.0
description:
  - Renders one description of cards, bonds and VLANs for the daemon that the node has, compares files and kernel with
    it, and touches only the interfaces that differ.
  - A change is made by the node itself, after a timer has been set that puts the old files back. The controller then
    comes over a new connection, has the node look at its interfaces, routes and gateways, and only then keeps the
    change. Whatever is cut off in between (the controller, the connection, the node's power) ends with the old network.
  - Wants the unit C(coldiron-network-rollback.service), which the role network installs.
options:
  interfaces:
    description: The interfaces; see the role network.
    type: list
    elements: dict
    required: true
  resolvers:
    description: Name servers.
    type: list
    elements: str
    default: []
  search:
    description: Domains in which names are looked for.
    type: list
    elements: str
    default: []
  match:
    description: Whether cards are found by the MAC that is burnt in, or by the one they have at the moment.
    type: str
    choices: [permanent, current]
    default: permanent
  backend:
    description: The daemon whose files are written.
    type: str
    choices: [networkd, netplan, networkmanager]
    required: true
  confirm_seconds:
    description: How long a change waits for its proof before the node takes it back.
    type: int
    default: 45
  probes:
    description: Addresses that have to answer the node beside its gateways.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Says what would change.
  diff_mode:
    support: full
    description: One diff a file.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Network | Ensure the node has one card on the cluster's network
  coldiron.cluster.node_network:
    backend: networkd
    interfaces:
      - {name: lan, mac: "52:54:00:12:34:56", addresses: [10.77.0.31/24], gateway: 10.77.0.254}
"""

RETURN = r"""
why:
  description: What differed, a few words each.
  returned: always
  type: list
  elements: str
  sample: ["lan lacks 10.77.0.31/24"]
"""

import contextlib
import glob
import json
import os
import shutil
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.coldiron.cluster.plugins.module_utils import network_plan as net
from ansible_collections.coldiron.cluster.plugins.module_utils.text_file import read, replace

PENDING = f"{net.STATE}/pending"
UNDONE = f"{net.STATE}/undone"
MADE = f"{net.STATE}/made.json"
ROLLBACK = "coldiron-network-rollback.service"
DEADLINE = "coldiron-network-deadline"
SWITCH = "coldiron-network-switch"


def write(path: str, text: str, mode: int) -> None:
    """A text put in place whole."""
    replace(path, text.encode(), mode)


class Node:
    """The node under the module: what it says, and what it is told."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.given = module.params

    def ask(self, words: list[str]) -> list[dict[str, Any]]:
        """What a command of ip says, as data."""
        code, output, error = self.module.run_command(words)
        if code != 0:
            self.module.fail_json(msg=f"{' '.join(words)}: {error.strip()}")
        return [item for item in json.loads(output or "[]") if item]

    def facts(self) -> net.Facts:
        """What is there at this moment."""
        owned = [path for pattern in self.given["owned"] for path in sorted(glob.glob(pattern))]
        links = self.ask(["ip", "-json", "-details", "address", "show"])
        routes = self.ask(["ip", "-4", "-json", "route", "show"]) + self.ask(
            ["ip", "-6", "-json", "route", "show"]
        )
        return net.Facts({path: read(path) for path in owned}, links, routes)

    def made(self) -> list[str]:
        """Virtual interfaces of an earlier run."""
        with contextlib.suppress(ValueError):
            return [str(name) for name in json.loads(read(MADE) or "[]")]
        return []

    def refuse(self, facts: net.Facts) -> None:
        """End where the node cannot have what is wanted; nothing has been touched."""
        wanted = self.given["wanted"]
        wrong = net.missing_cards(wanted, facts.links) + net.narrow_cards(wanted, facts.links)
        if self.given["backend"] != "networkmanager":
            names = net.names_of(wanted, facts.links).values()
            files = ["/etc/network/interfaces", *sorted(glob.glob("/etc/network/interfaces.d/*"))]
            wrong += net.rivals({path: read(path) for path in files}, names)
        if wrong:
            self.module.fail_json(msg="; ".join(wrong))

    def wait_for_another(self) -> None:
        """An earlier change that nobody has kept goes by itself; wait for that."""
        end = time.monotonic() + self.given["confirm_seconds"] + 15
        while os.path.isdir(PENDING) or os.path.isdir(f"{net.STATE}/undoing"):
            code, _out, _error = self.module.run_command(
                ["systemctl", "--quiet", "is-active", f"{DEADLINE}.timer", f"{SWITCH}.timer", ROLLBACK]
            )
            if code != 0 or time.monotonic() > end:
                self.module.run_command(["systemctl", "start", ROLLBACK])
                return
            time.sleep(0.5)

    def change(self) -> None:
        """Compare; where something differs, stage the way back, set the timer, and let the node switch."""
        facts = self.facts()
        self.refuse(facts)
        if not self.module.check_mode:
            self.wait_for_another()
            facts = self.facts()
        files: dict[str, str] = self.given["files"]
        todo = net.plan(files, self.given["wanted"], facts, self.made())
        diff = [
            {"before_header": path, "after_header": path, "before": facts.files.get(path, ""),
             "after": files.get(path, "")}
            for path in (*todo.write, *todo.remove)
        ]  # fmt: skip
        found = {"changed": bool(todo.why), "why": list(todo.why), "diff": diff}
        if not todo.why or self.module.check_mode:
            self.module.exit_json(**found)
        self.stage(todo, facts)
        mode = int(self.given["mode"], 8)
        for path in todo.remove:
            os.unlink(path)
        for path in todo.write:
            write(path, files[path], mode)
        self.run(["systemd-run", "--quiet", "--collect", f"--unit={SWITCH}", "--on-active=1s",
                  "--timer-property=AccuracySec=100ms", "/bin/sh", f"{PENDING}/switch"])  # fmt: skip
        self.module.exit_json(pending=True, **found)

    def stage(self, todo: net.Plan, facts: net.Facts) -> None:
        """Everything that the way back needs is on the disk before anything is touched."""
        staged = f"{net.STATE}/staged"
        for old in (staged, UNDONE):
            shutil.rmtree(old, ignore_errors=True)
        kept = [path for path in (*todo.write, *todo.remove) if path in facts.files]
        os.makedirs(staged, mode=0o700)
        for path in kept:
            os.makedirs(os.path.dirname(f"{staged}/old{path}"), exist_ok=True)
            shutil.copy2(path, f"{staged}/old{path}")
        backend = self.given["backend"]
        back = net.touched(todo, self.given["wanted"], facts)
        undo = net.switch_commands(backend, todo.made, back)
        new = [path for path in todo.write if path not in facts.files]
        saved = f"{net.STATE}/undoing/old"
        kernel = net.kernel_commands(facts, [*back, *todo.delete])
        write(f"{staged}/restore", net.restore_commands(saved, kept, new, undo, kernel), 0o600)
        write(f"{staged}/switch", net.switch_commands(backend, todo.delete, todo.reconfigure), 0o600)
        write(f"{staged}/why", "\n".join(todo.why) + "\n", 0o600)
        os.sync()
        os.rename(staged, PENDING)
        self.run(["systemd-run", "--quiet", "--collect", f"--unit={DEADLINE}",
                  f"--on-active={self.given['confirm_seconds']}s", "--timer-property=AccuracySec=100ms",
                  "systemctl", "start", ROLLBACK])  # fmt: skip

    def run(self, words: list[str]) -> None:
        """Run a command that has to succeed; else the old network comes back at once."""
        code, output, error = self.module.run_command(words)
        if code != 0:
            self.module.run_command(["systemctl", "start", "--no-block", ROLLBACK])
            self.module.fail_json(msg=f"{' '.join(words[:4])} …: {(error or output).strip()}")

    def lacking(self) -> list[str]:
        """What is not yet as it shall be, gateways and probes included."""
        wanted = self.given["wanted"]
        facts = self.facts()
        wrong = [
            f"{one['name']} {', '.join(found)}"
            for one in wanted
            if (found := net.deviations(one, wanted, facts))
        ]
        return wrong or [
            f"{address} does not answer" for address in net.probes_of(wanted, self.given["probes"])
            if not self.answers(address)
        ]  # fmt: skip

    def answers(self, address: str) -> bool:
        """Whether an address answers a ping or, as a neighbour, at least tells its MAC."""
        code, _out, _error = self.module.run_command(["ping", "-n", "-q", "-c", "1", "-W", "1", address])
        if code == 0:
            return True
        if not net.is_near(address, self.given["wanted"]):
            return False
        known = self.ask(["ip", "-json", "neighbour", "show", "to", address])
        return any(one.get("lladdr") and "FAILED" not in (one.get("state") or ()) for one in known)

    def confirm(self) -> None:
        """Keep the change if the node is as it shall be; else have it taken back now."""
        end = time.monotonic() + self.given["settle_seconds"]
        while (lacking := self.lacking()) and time.monotonic() < end and os.path.isdir(PENDING):
            time.sleep(0.5)
        if lacking:
            self.module.run_command(["systemctl", "start", "--no-block", ROLLBACK])
            self.module.exit_json(kept=False, lacking=lacking)
        try:
            # The rollback begins with the same rename: one of the two wins.
            os.rename(PENDING, f"{net.STATE}/kept")
        except OSError:
            self.module.exit_json(kept=False, lacking=["the time was up"])
        self.module.run_command(["systemctl", "stop", f"{DEADLINE}.timer"])
        shutil.rmtree(f"{net.STATE}/kept", ignore_errors=True)
        virtual = [one["name"] for one in self.given["wanted"] if one["kind"] != "ethernet"]
        write(MADE, json.dumps(virtual) + "\n", 0o600)
        self.module.exit_json(kept=True)

    def undone(self) -> None:
        """Tell whether the old network is back."""
        end = time.monotonic() + self.given["settle_seconds"]
        while time.monotonic() < end and (os.path.isdir(PENDING) or os.path.isdir(f"{net.STATE}/undoing")):
            time.sleep(0.5)
        self.module.exit_json(undone=os.path.isdir(UNDONE) and not os.path.isdir(PENDING))


def main() -> None:
    """Do one step; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "choices": ["change", "confirm", "undone"], "required": True},
            "backend": {"type": "str", "required": True},
            "files": {"type": "dict", "required": True},
            "mode": {"type": "str", "required": True},
            "owned": {"type": "list", "elements": "str", "required": True},
            "wanted": {"type": "list", "elements": "dict", "required": True},
            "probes": {"type": "list", "elements": "str", "default": []},
            "confirm_seconds": {"type": "int", "default": 45},
            "settle_seconds": {"type": "int", "default": 15},
        },
        supports_check_mode=True,
    )
    getattr(Node(module), module.params["step"])()


if __name__ == "__main__":
    main()
