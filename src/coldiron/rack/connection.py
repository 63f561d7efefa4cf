"""What Ansible needs to reach a rack's nodes. Standard library only: the inventory plugin imports this."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from coldiron.rack.layout import Layout


def _state(inventory_dir: Path) -> dict[str, Any] | None:
    try:
        state = json.loads((inventory_dir / ".rack" / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and "nodes" in state else None


def _fixtures(inventory_dir: Path) -> dict[str, Any]:
    """How nodes with simulated GPUs reach the repository of fixture packages; empty where the rack has none."""
    try:
        found = json.loads((inventory_dir / ".rack" / "fixtures.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {"fixtures": found["repository"]}


def _elastic(inventory_dir: Path) -> dict[str, Any]:
    """How servers of Elasticsearch reach the repository of its package; empty where the rack has none."""
    try:
        found = json.loads((inventory_dir / ".rack" / "elastic.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {"elastic": found["repository"]}


def ssh_options(inventory_dir: Path, sockets: str) -> list[str]:
    """ssh's options for a rack's nodes: its known hosts and control sockets, nobody's own configuration."""
    return [
        "-F", "/dev/null",
        "-o", "IdentitiesOnly=yes",
        # The machines' keys are made by who installs them, and written beside the inventory.
        "-o", f'UserKnownHostsFile="{inventory_dir / ".rack" / "known_hosts"}" "{inventory_dir / ".known_hosts"}"',
        "-o", "GlobalKnownHostsFile=/dev/null",
        "-o", "StrictHostKeyChecking=yes",
        # Short, for a socket's path may have 108 bytes; by address, for the rack closes it when a node stops.
        "-o", f"ControlPath={sockets}/%h-%p-%r",
        "-o", "ConnectTimeout=10",
        "-o", "ServerAliveInterval=10",
        "-o", "ServerAliveCountMax=6",
    ]  # fmt: skip


def rack_nodes(inventory_dir: Path) -> frozenset[str]:
    """The names of the nodes that the inventory's rack has; empty where there is no rack."""
    state = _state(inventory_dir)
    return frozenset(state["nodes"]) if state else frozenset()


def connection_vars(inventory_dir: Path) -> dict[str, Any] | None:
    """Ansible variables of the nodes of an inventory's rack, None where it has none.

    They are the same for every node in ``rack_nodes``; ``ansible_host`` is the inventory's own.
    """
    inventory_dir = inventory_dir.resolve()
    state = _state(inventory_dir)
    if state is None:
        return None
    return {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(inventory_dir / ".rack" / "id_ed25519"),
        "ansible_ssh_common_args": shlex.join(ssh_options(inventory_dir, state["sockets"])),
        "coldiron_rack": {
            "name": state["name"],
            "simulated": True,
            "home_backend": state["home_backend"],
            "apt_mirror": state["apt_mirror"],
            "apt_proxy": state["apt_proxy"],
            **_fixtures(inventory_dir),
            **_elastic(inventory_dir),
        },
    }


def machine_vars(inventory_dir: Path) -> dict[str, dict[str, Any]]:
    """Ansible variables of the machines of an inventory's rack, by their names; empty where it has none.

    They are reached with the key of the rack's containers, and their BMCs with the user and password that the rack
    made: under the name that cluster.yml says, so that no vault has to hold them.
    """
    inventory_dir = inventory_dir.resolve()
    state = _state(inventory_dir)
    shared = connection_vars(inventory_dir)
    if state is None or shared is None:
        return {}
    try:
        pair = json.loads((inventory_dir / ".rack" / "bmc-credentials.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        pair = None
    found = {}
    for name, machine in state.get("machines", {}).items():
        found[name] = {
            **shared,
            "coldiron_console": str(Layout(state["name"], inventory_dir).node(name) / "console.log"),
            "coldiron_bmc_ca": str(inventory_dir / ".rack" / "bmc-ca.crt"),
            "coldiron_bmc_credentials": machine["credentials"],
            **({machine["credentials"]: pair} if pair else {}),
        }
    return found
