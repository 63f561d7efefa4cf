"""A rack on this machine: its state, its nodes' start, and what can be said of it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.base import baked_for
from coldiron.rack.cgroup import Cgroup, unified_root
from coldiron.rack.host import Host
from coldiron.rack.layers import copy
from coldiron.rack.layout import Layout
from coldiron.rack.machine import MachineKeeper
from coldiron.rack.metal.keeper import MachinesKeeper
from coldiron.rack.metal.spec import MachineSpec
from coldiron.rack.network import Network
from coldiron.rack.node import NodeKeeper, wait_for_ssh
from coldiron.rack.report import Report
from coldiron.rack.snapshot import listing
from coldiron.rack.state import NodeState, RackState

Item = TypeVar("Item")
# Starting and stopping a node is mostly waiting for the kernel.
_AT_ONCE = 8
_BOOT_SECONDS = 90.0
_BOOT_SECONDS_A_NODE = 3.0


class Rack:
    """One rack. ``layout`` says where it is and what its things are called; the state, what it is."""

    def __init__(self, layout: Layout, host: Host | None = None, report: Report | None = None) -> None:
        self.layout = layout
        self.machine = layout.machine
        self.host = host or Host()
        self.report = report or Report()
        self.network = Network(self.host)
        self.cgroup_root = unified_root((self.machine.proc / "self/mountinfo").read_text())
        self.keeper = MachineKeeper(self.host, self.machine, self.cgroup_root)

    def state(self) -> RackState | None:
        """What was written down of it, None where it is not up."""
        return RackState.load(self.layout.state)

    def standing(self) -> RackState:
        """The state of a rack that is up. Raises ColdironError where it is not."""
        state = self.state()
        if state is None:
            where = self.layout.inventory
            raise ColdironError(f"{where}: its rack is not up; type: coldiron rack up -i {where}")
        return state

    def nodes(self, state: RackState) -> NodeKeeper:
        return NodeKeeper(self.host, self.layout, state, self.cgroup_root)

    def machines(self, state: RackState) -> MachinesKeeper:
        return MachinesKeeper(self.host, self.layout, state, self.cgroup_root)

    def group(self, name: str = "") -> Cgroup:
        """The rack's control group, or one in it: a node's, or a helper's, whose name begins with ``_``."""
        return Cgroup(self.cgroup_root, f"{self.layout.cgroup}/{name}" if name else self.layout.cgroup)

    def save(self, state: RackState) -> None:
        """Write the state down."""
        state.save(self.layout.state)
        self.hand_over()

    def hand_over(self) -> None:
        """Give the rack's files beside the inventory to its owner, who then needs no root for ssh."""
        owner = self.layout.inventory.stat()
        for path in (self.layout.own, *self.layout.own.rglob("*"), self.layout.sockets):
            with contextlib.suppress(FileNotFoundError):
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)

    def pick(self, state: RackState, names: Sequence[str]) -> list[NodeState]:
        """The containers called ``names``, all where none is named. Raises ColdironError for one it lacks."""
        for name in names:
            if name in state.machines:
                raise ColdironError(f"{name} is a machine: only containers can be frozen and put back")
            if name not in state.nodes:
                there = ", ".join(state.nodes)
                raise ColdironError(f"the rack {state.name} has no node {name}; it has {there}")
        return [state.nodes[name] for name in names] if names else list(state.nodes.values())

    def reachable(self, state: RackState, names: Sequence[str]) -> list[NodeState | MachineSpec]:
        """Nodes of either kind for ssh; all containers where none is named. Raises ColdironError."""
        containers = [name for name in names if name not in state.machines]
        picked = {
            node.name: node for node in (self.pick(state, containers) if containers or not names else [])
        }
        return [state.machines.get(name) or picked[name] for name in names or picked]

    def pick_machines(self, state: RackState, names: Sequence[str]) -> list[MachineSpec]:
        """The machines called ``names``, all where none is named. Raises ColdironError for one it lacks."""
        for name in names:
            if name not in state.machines:
                there = ", ".join(state.machines) or "none"
                raise ColdironError(f"the rack {state.name} has no machine {name}; its machines: {there}")
        return [state.machines[name] for name in names] if names else list(state.machines.values())

    def start(self, state: RackState, nodes: Sequence[NodeState]) -> None:
        """Boot nodes side by side, wait for their ssh. Raises ColdironError naming those that stay away."""
        keeper = self.nodes(state)

        def start(node: NodeState) -> None:
            keeper.start(node)
            node.renew = False
            node.stopping = False

        if not nodes:
            return
        self.report.count("nodes up", len(nodes))
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                started = {node.name: pool.submit(start, node) for node in nodes}
                self.wait(state, [node.name for node in nodes], started, self.report.ready)
        finally:
            self.save(state)
            keeper.empty_trash()

    def wait(
        self,
        state: RackState,
        names: Sequence[str],
        started: dict[str, Future[None]],
        on_ready: Callable[[str], None],
    ) -> None:
        """Wait for the ssh of nodes that run or, where they stand in ``started``, are being started."""
        keeper = self.nodes(state)
        faults = wait_for_ssh(
            {name: state.nodes[name].address for name in names},
            keeper.running,
            on_ready,
            _BOOT_SECONDS + _BOOT_SECONDS_A_NODE * len(names),
            lambda name: name not in started or started[name].done(),
        )
        for name, future in started.items():
            if error := future.exception():
                if not isinstance(error, ColdironError):
                    raise error
                faults[name] = error.message
        if faults:
            name, fault = next(iter(faults.items()))
            others = ", ".join(list(faults)[1:])
            raise ColdironError(
                f"{name}: {fault}; its console: {keeper.log(name)}"
                + (f" (the same with: {others})" if others else ""),
                ExitCode.HOSTS_FAILED,
            )

    def each(self, action: Callable[[Item], object], items: Sequence[Item]) -> None:
        """Do something with several things side by side; the first error comes out."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(action, items))

    def settle_home(self, state: RackState) -> None:
        """Replace the shared home as the state says, unless a node runs: it was done before that."""
        keeper = self.nodes(state)
        if state.home_from is None:
            return
        if not any(keeper.running(name) for name in state.nodes):
            self.layout.trash.mkdir(exist_ok=True)
            if self.layout.home.exists():
                os.rename(self.layout.home, self.layout.trash / f"home.{time.time_ns()}")
            if state.home_from:
                copy(self.host, Path(state.home_from), self.layout.home)
            else:
                self.layout.home.mkdir()
        state.home_from = None
        self.save(state)

    def status(self) -> dict[str, Any]:
        """What stands, as plain data."""
        state = self.state()
        inventory = str(self.layout.inventory)
        if state is None:
            return {
                "rack": self.layout.name, "inventory": inventory, "up": False, "nodes": [], "machines": [],
            }  # fmt: skip
        keeper = self.nodes(state)
        running = {name for name in state.nodes if keeper.running(name)}
        addresses = {name: state.nodes[name].address for name in running}
        mute = wait_for_ssh(addresses, keeper.running, lambda _: None, 10.0)
        nodes = [
            {
                **{
                    key: value
                    for key, value in asdict(node).items()
                    if key not in {"layers", "renew", "stopping"}
                },
                "state": "stopped" if name not in running else ("booting" if name in mute else "up"),
                "base": baked_for(node.base),
                "snapshot": Path(node.snapshot).name if node.snapshot else None,
                "gpus": "simulated" if node.gpu_count else None,
            }
            for name, node in state.nodes.items()
        ]
        machines = self.machines(state).status()
        return {
            "rack": state.name,
            "inventory": inventory,
            "up": bool(nodes or machines)
            and all(node["state"] == "up" for node in nodes)
            and all(one["state"] != "gone" and one["bmc_state"] == "running" for one in machines),
            "simulated": True,
            "subnet": state.subnet,
            "gateway": state.gateway,
            "mtu": state.mtu,
            "home_backend": state.home_backend,
            "home": "one directory of this machine, bound at /home on every node (provided)"
            if state.home_backend == "provided"
            else "each node's own, until a role mounts the site's; on the NFS server a directory of this machine",
            "apt_mirror": state.apt_mirror,
            "apt_proxy": state.apt_proxy,
            "package_cache": "running" if self.keeper.cache.running() else "stopped",
            "nodes": nodes,
            "machines": machines,
            "snapshots": [one.name for one in listing(self.layout.snapshots)],
            "kept_snapshots": [one.name for one in listing(self.machine.kept)],
        }
