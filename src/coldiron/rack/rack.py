"""A rack from nothing to nodes that answer, and back to nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack import aptsource, base, keys
from coldiron.rack.cache import PORT
from coldiron.rack.cgroup import Cgroup, unified_root
from coldiron.rack.host import Host, wait_until
from coldiron.rack.layers import copy, freeze, save_engines
from coldiron.rack.layout import Layout, Machine
from coldiron.rack.machine import MachineKeeper, refuse_not_root
from coldiron.rack.network import Network
from coldiron.rack.node import NodeKeeper, wait_for_ssh
from coldiron.rack.report import Report
from coldiron.rack.requirements import refuse_missing
from coldiron.rack.snapshot import (
    NodeImage,
    Snapshot,
    collect,
    listing,
    new_layer,
    publish,
    references,
    refuse_taken,
)
from coldiron.rack.snapshot import find as find_snapshot
from coldiron.rack.spec import NodeSpec, RackSpec
from coldiron.rack.state import NodeState, RackState, Registry

_NODE_ROOM_MIB = 48
# Starting a node is mostly waiting for the kernel.
_AT_ONCE = 8
_BOOT_SECONDS = 90.0
_BOOT_SECONDS_A_NODE = 3.0


class Rack:
    """One rack on this machine. ``layout`` says where it is; what it is stands in its state file."""

    def __init__(self, layout: Layout, host: Host | None = None, report: Report | None = None) -> None:
        self.layout = layout
        self.machine: Machine = layout.machine
        self.host = host or Host()
        self.report = report or Report()
        self.network = Network(self.host)
        self.cgroup_root = unified_root((self.machine.proc / "self/mountinfo").read_text())
        self.keeper = MachineKeeper(self.host, self.machine, self.cgroup_root)
        self.bakery = base.Bakery(self.host, self.machine)

    # --- the state ---

    def state(self) -> RackState | None:
        return RackState.load(self.layout.state)

    def standing(self) -> RackState:
        """The state of a rack that is up. Raises ColdironError where there is none."""
        state = self.state()
        if state is None:
            raise ColdironError(
                f"{self.layout.inventory}: its rack is not up; type: coldiron rack up -i {self.layout.inventory}"
            )
        return state

    def nodes(self, state: RackState) -> NodeKeeper:
        return NodeKeeper(self.host, self.layout, state, self.cgroup_root)

    def save(self, state: RackState) -> None:
        """Write the state down; the inventory's owner may read it, and the keys, without being root."""
        state.save(self.layout.state)
        self.hand_over()

    def hand_over(self) -> None:
        """Give the rack's files beside the inventory to the inventory's owner."""
        owner = self.layout.inventory.stat()
        for path in (self.layout.own, *self.layout.own.rglob("*"), self.layout.sockets):
            with contextlib.suppress(FileNotFoundError):
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)

    # --- up ---

    def up(
        self,
        spec: RackSpec,
        only: Sequence[str] = (),
        *,
        prune: bool = False,
        rebuild_base: bool = False,
        image: Snapshot | None = None,
    ) -> RackState:
        """Bring up what is missing of ``spec`` (of its nodes ``only``, if given) and leave the rest alone.

        A node that is new starts as it was in ``image``, where that has it. Raises ColdironError where something foreign is in the way or a node does not come up.
        """
        refuse_not_root()
        refuse_missing(self.host)
        wanted = [spec.node(name) for name in only] if only else list(spec.nodes)
        with self.host.lock(self.layout.lock, self.report.say):
            state = self._take_up(spec)
            if prune:
                self._prune(state, spec)
            keeper = self.nodes(state)
            self._tell_differences(state, spec)
            missing = [
                node for node in wanted if not (node.name in state.nodes and keeper.running(node.name))
            ]
            base.refuse_little_room(
                self.machine.lib, 200 + _NODE_ROOM_MIB * len(missing), f"a rack of {len(missing)} more nodes"
            )
            apt = self._apt()
            port = self.keeper.register(self.layout, apt.proxy)
            self._make_places(state)
            self._make_bridge(spec, state, keeper)
            self.keeper.cache.open_door(
                Cgroup(self.cgroup_root, f"{self.layout.cgroup}/_packages"),
                state.gateway, port, self.layout.data / "packages.log",
            )  # fmt: skip
            self._clear_unfinished_bake()
            if image and image.home and not state.nodes and state.home_backend == "provided":
                state.home_from = str(image.home_copy)
            for node in missing:
                self._plan_node(state, node, apt, port, image=image, rebuild_base=rebuild_base)
                rebuild_base = False
            for name, known in state.nodes.items():
                # What runs was renewed before it was started.
                known.renew = known.renew and not keeper.running(name)
            self.save(state)
            self._make_keys(state)
            self._settle_home(state)
            self.start(state, [state.nodes[node.name] for node in missing])
            waiting = [node.name for node in wanted if node not in missing]
            self._await(state, waiting, {})
            self.bakery.clear_unused(references(self.machine, self.keeper.registry())[0])
        return state

    def _apt(self) -> aptsource.AptSource:
        return aptsource.read_host(Path("/etc/apt"), self.host.run(["apt-config", "dump"]).stdout)

    def _take_up(self, spec: RackSpec) -> RackState:
        """The state to go on from: the one on the disk, or a new one, written before anything is made."""
        where = str(spec.file)
        self.keeper.refuse_other_owner(self.layout)
        state = self.state()
        if state is None:
            if self.layout.name in self.keeper.registry().racks:
                raise ColdironError(
                    f"{self.layout.own}: the state of the rack {self.layout.name}, which is up, is gone from here; "
                    f"type: coldiron rack down -i {self.layout.inventory}",
                    ExitCode.REFUSED,
                )
            self._refuse_foreign(spec, where)
            state = self._new_state(spec)
            self.save(state)
            return state
        if state.name != spec.name:
            raise ColdironError(
                f"{where}: the rack that is up is called {state.name}, this file says {spec.name}; "
                f"type: coldiron rack down -i {spec.directory}",
                ExitCode.REFUSED,
            )
        if (state.subnet, state.gateway) != (str(spec.subnet), spec.gateway):
            raise ColdironError(
                f"{where}: networks.cluster says {spec.subnet} with gateway {spec.gateway}, the rack that is up has "
                f"{state.subnet} with {state.gateway}; take it down first: coldiron rack down -i {spec.directory}",
                ExitCode.REFUSED,
            )
        return state

    def _new_state(self, spec: RackSpec) -> RackState:
        return RackState(
            name=spec.name,
            inventory=str(self.layout.inventory),
            domain=spec.domain,
            subnet=str(spec.subnet),
            gateway=spec.gateway,
            mtu=spec.mtu or self.network.mtu(),
            bridge=self.layout.bridge,
            home_backend=spec.home_backend,
            sockets=str(self.layout.sockets),
            apt_proxy=f"http://{spec.gateway}:{PORT}",
            apt_mirror=aptsource.through_cache(self._apt().mirror),
        )

    def _refuse_foreign(self, spec: RackSpec, where: str) -> None:
        """Raise ColdironError where a thing of a name that the rack would use exists: it is not ours."""
        links = self.network.links()
        taken = [
            *([f"an interface {self.layout.bridge}"] if self.layout.bridge in links else []),
            *(
                f"an interface {name}"
                for name in (self.layout.veth(node.name) for node in spec.nodes)
                if name in links
            ),
            *(
                f"a network namespace {path.name}"
                for path in self.machine.netns.glob(f"{self.layout.netns_prefix}*")
            ),
            *([f"a directory {self.layout.data}"] if self.layout.data.exists() else []),
            *([f"a control group {self.layout.cgroup}"] if self._group().exists() else []),
        ]
        if taken:
            raise ColdironError(
                f"{where}: there is {taken[0]} on this machine that no rack of ours is known to have made; "
                "remove it, or write another name",
                ExitCode.REFUSED,
            )
        self.network.refuse_overlap(spec.subnet, self.layout.bridge, where)

    def _group(self) -> Cgroup:
        return Cgroup(self.cgroup_root, self.layout.cgroup)

    def _make_places(self, state: RackState) -> None:
        for directory in (self.layout.data, self.layout.home, self.layout.host_keys):
            directory.mkdir(parents=True, exist_ok=True)
        # A node's root is anybody's business only from inside the node.
        self.layout.data.chmod(0o711)
        sockets = Path(state.sockets)
        sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        sockets.parent.chmod(0o711)
        self._group().make()

    def _make_bridge(self, spec: RackSpec, state: RackState, keeper: NodeKeeper) -> None:
        present = state.bridge in self.network.links()
        if present and any(keeper.running(name) for name in state.nodes):
            return
        if present:
            # Perhaps half made; nobody is plugged in yet.
            self.network.remove_link(state.bridge)
        self.network.refuse_overlap(spec.subnet, state.bridge, f"{spec.file}")
        self.network.make_bridge(state.bridge, f"coldiron-rack-{state.name}", spec.bridge_address, state.mtu)
        # A door that waits on the old bridge's address is closed with it.
        Cgroup(self.cgroup_root, f"{self.layout.cgroup}/_packages").kill()

    def _clear_unfinished_bake(self) -> None:
        Cgroup(self.cgroup_root, f"{self.layout.cgroup}/_bake").kill()
        self.bakery.clear_unfinished(self.layout.name)

    def _plan_node(
        self,
        state: RackState,
        node: NodeSpec,
        apt: aptsource.AptSource,
        port: int,
        *,
        image: Snapshot | None,
        rebuild_base: bool,
    ) -> None:
        """Enter a node into the state. One that is there stays what it was, if that is still there."""
        known = state.nodes.get(node.name)
        if known and self._whole(known):
            return
        planned = NodeState(
            name=node.name,
            address=node.address,
            distribution=node.distribution,
            kind=node.kind,
            base="",
            gpu_count=node.gpu_count,
            gpu_type=node.gpu_type,
            renew=True,
        )
        if image and self._fits(image, node):
            planned.base = image.nodes[node.name].base
            planned.layers = list(image.nodes[node.name].layers)
            planned.snapshot = str(image.path)
        else:
            planned.base = str(self._base(node.distribution, apt, port, rebuild=rebuild_base))
        state.nodes[node.name] = planned

    def _whole(self, node: NodeState) -> bool:
        """Whether what a node stands on is there; its topmost layer may be about to be made."""
        upper = self.layout.node(node.name) / "upper"
        return Path(node.base).is_dir() and all(
            Path(layer).is_dir() or (index == 0 and upper.is_dir()) for index, layer in enumerate(node.layers)
        )

    def _fits(self, image: Snapshot, node: NodeSpec) -> bool:
        """Whether a new node can start from ``image``; says so if not."""
        if node.name not in image.nodes:
            self.report.say(f"{node.name}: not in snapshot {image.name}, starts from the base image")
        elif image.nodes[node.name].distribution != node.distribution or not image.whole(node.name):
            self.report.say(
                f"{node.name}: what snapshot {image.name} has does not fit, starts from the base image"
            )
        else:
            return True
        return False

    def _base(self, distribution: str, apt: aptsource.AptSource, port: int, *, rebuild: bool) -> Path:
        """The root of the base image, baked if there is none of this recipe yet."""
        architecture = self.host.run(["dpkg", "--print-architecture"]).stdout.strip()
        recipe = base.recipe(distribution, apt, architecture)
        with self.host.lock(self.machine.run / f"base-{distribution}.lock", self.report.say):
            if not rebuild and (found := base.newest(self.machine.bases, recipe.name)):
                return found
            return self.bakery.bake(
                recipe,
                rack=self.layout.name,
                cgroup=Cgroup(self.cgroup_root, f"{self.layout.cgroup}/_bake"),
                proxy=f"http://127.0.0.1:{port}",
                say=self.report.say,
            )

    def _make_keys(self, state: RackState) -> None:
        """Make the keys that are missing and write down by which keys the nodes are known."""
        keys.make_key(self.host, self.layout.client_key, f"coldiron-rack-{state.name}")
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(
                    lambda name: keys.make_key(self.host, self.layout.host_keys / name, name), state.nodes
                )
            )
        keys.write_known_hosts(self.layout, state)
        self.hand_over()

    def _tell_differences(self, state: RackState, spec: RackSpec) -> None:
        """Say where nodes that are up differ from the file."""
        wanted = {node.name: node for node in spec.nodes}
        gone = [name for name in state.nodes if name not in wanted]
        if gone:
            self.report.say(
                f"no longer in cluster.yml and left as they are: {', '.join(gone)} "
                "(`coldiron rack up --prune` removes them)"
            )
        for name, node in state.nodes.items():
            if name in wanted and _differs(node, wanted[name]):
                self.report.say(
                    f"{name}: cluster.yml says something else than the node that is up; "
                    f"`coldiron rack down {name}`, then `up`, makes it anew"
                )

    def _prune(self, state: RackState, spec: RackSpec) -> None:
        wanted = {node.name for node in spec.nodes}
        if gone := [name for name in state.nodes if name not in wanted]:
            self._remove_nodes(state, gone)
            self.report.say(f"removed: {', '.join(gone)}")

    # --- nodes ---

    def start(self, state: RackState, nodes: Sequence[NodeState]) -> None:
        """Boot nodes side by side and wait for their ssh. Raises ColdironError naming those that do not come up."""
        if not nodes:
            return
        keeper = self.nodes(state)

        def start(node: NodeState) -> None:
            keeper.start(node)
            node.renew = False

        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                started = {node.name: pool.submit(start, node) for node in nodes}
                self._await(state, [node.name for node in nodes], started)
        finally:
            self.save(state)
            keeper.empty_trash()

    def _settle_home(self, state: RackState) -> None:
        """Replace the shared home as the state says, unless a node runs: then that was done before it booted."""
        keeper = self.nodes(state)
        if state.home_from is None:
            return
        if not any(keeper.running(name) for name in state.nodes):
            self.layout.trash.mkdir(exist_ok=True)
            os.rename(self.layout.home, self.layout.trash / f"home.{time.time_ns()}")
            if state.home_from:
                copy(self.host, Path(state.home_from), self.layout.home)
            else:
                self.layout.home.mkdir()
        state.home_from = None
        self.save(state)

    # --- snapshots ---

    def snapshot(
        self, name: str, only: Sequence[str] = (), *, keep: bool = False, replace: bool = False
    ) -> Snapshot:
        """Freeze nodes as they are. They are shut down for it, so that what they hold is on the disk, and started.

        ``keep``: the snapshot outlives the rack. Raises ColdironError for a name that is taken.
        """
        refuse_not_root()
        with self.host.lock(self.layout.lock, self.report.say):
            state = self.standing()
            nodes = self.pick(state, only)
            refuse_taken(self.layout, name, keep=keep, replace=replace)
            keeper = self.nodes(state)
            store = self.machine.kept if keep else self.layout.snapshots
            work, final = store / f".{name}.{state.name}", store / name
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            self.report.say(f"stopping {len(nodes)} nodes for snapshot {name}")
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(lambda node: keeper.stop(node.name), nodes))
            try:
                for node in nodes:
                    node.layers.insert(0, str(new_layer(self.machine, state.name, node.name)))
                    node.snapshot = str(final)
                self.save(state)
                for node in nodes:
                    own = self.layout.node(node.name)
                    freeze(self.host, own / "upper", Path(node.layers[0]))
                    save_engines(self.host, own, work / "engines" / node.name)
                images = {n.name: NodeImage(n.distribution, n.base, list(n.layers)) for n in nodes}
                home = state.home_backend == "provided" and len(nodes) == len(state.nodes)
                if home:
                    copy(self.host, self.layout.home, work / "home")
                taken = Snapshot(name, state.name, int(time.time()), images, home, path=final)
                taken.save(work)
                publish(work, final)
            finally:
                self.start(state, nodes)
                shutil.rmtree(work, ignore_errors=True)
            collect(self.machine, self.keeper.registry())
            return taken

    def forget(self, name: str) -> None:
        """Remove a snapshot; nodes that stand on its layers keep them."""
        refuse_not_root()
        with self.host.lock(self.layout.lock, self.report.say):
            shutil.rmtree(find_snapshot(self.layout, name).path)
            collect(self.machine, self.keeper.registry())

    def reset(self, only: Sequence[str] = (), to: str = "") -> RackState:
        """Throw away what nodes have written since snapshot ``to``, or since they were made.

        The shared home goes back with the whole rack only. Raises ColdironError where the snapshot lacks a node.
        """
        refuse_not_root()
        with self.host.lock(self.layout.lock, self.report.say):
            state = self.standing()
            nodes = self.pick(state, only)
            image = find_snapshot(self.layout, to) if to else None
            for node in nodes:
                if image and not (node.name in image.nodes and image.whole(node.name)):
                    raise ColdironError(
                        f"snapshot {to} has no {node.name}; reset the nodes that it has: "
                        f"{', '.join(image.nodes)}"
                    )
            for node in nodes:
                node.renew = True
                node.base = image.nodes[node.name].base if image else node.base
                node.layers = list(image.nodes[node.name].layers) if image else []
                node.snapshot = str(image.path) if image else None
            if state.home_backend == "provided":
                if len(nodes) < len(state.nodes):
                    self.report.say("/home is shared with nodes that are not reset: left as it is")
                elif image is None or image.home:
                    state.home_from = str(image.home_copy) if image else ""
            self.save(state)
            if state.home_from is not None:
                keeper = self.nodes(state)
                with ThreadPoolExecutor(_AT_ONCE) as pool:
                    list(pool.map(lambda node: keeper.clear(node.name), nodes))
                self._settle_home(state)
            self.start(state, nodes)
        return state

    def _await(self, state: RackState, names: Sequence[str], started: dict[str, Future[None]]) -> None:
        keeper = self.nodes(state)
        if not names:
            return
        if started:
            self.report.count("nodes up", len(names))
        faults = wait_for_ssh(
            {name: state.nodes[name].address for name in names},
            keeper.running,
            self.report.ready if started else lambda _: None,
            _BOOT_SECONDS + _BOOT_SECONDS_A_NODE * len(names),
            lambda name: name not in started or started[name].done(),
        )
        for name, future in started.items():
            if future.done() and (error := future.exception()):
                faults[name] = error.message if isinstance(error, ColdironError) else repr(error)
        if faults:
            name, fault = next(iter(faults.items()))
            others = (
                f" (and {len(faults) - 1} more: {', '.join(list(faults)[1:])})" if len(faults) > 1 else ""
            )
            raise ColdironError(
                f"{name}: {fault}; its console: {keeper.log(name)}{others}", ExitCode.HOSTS_FAILED
            )

    # --- down ---

    def down(self, only: Sequence[str] = ()) -> bool:
        """Take the rack, or the nodes ``only``, away. Returns False where there was nothing to take."""
        refuse_not_root()
        try:
            with self.host.lock(self.layout.lock, self.report.say):
                state = self.state()
                registered = self.keeper.registry().racks.get(self.layout.name) == str(self.layout.inventory)
                if state is None and not registered:
                    return False
                if only:
                    state = self.standing()
                    self._remove_nodes(state, [node.name for node in self.pick(state, only)])
                    keys.write_known_hosts(self.layout, state)
                    self.hand_over()
                    collect(self.machine, self.keeper.registry())
                    return True
                self.keeper.refuse_other_owner(self.layout)
                self._tear_down(state)
                return True
        finally:
            self.keeper.leave()

    def pick(self, state: RackState, names: Sequence[str]) -> list[NodeState]:
        """The nodes called ``names``, all where none is named. Raises ColdironError for one that the rack lacks."""
        for name in names:
            if name not in state.nodes:
                raise ColdironError(
                    f"the rack {state.name} has no node {name}; it has {', '.join(state.nodes)}"
                )
        return [state.nodes[name] for name in names] if names else list(state.nodes.values())

    def _remove_nodes(self, state: RackState, names: Iterable[str]) -> None:
        keeper = self.nodes(state)
        for name in names:
            keeper.clear(name)
            shutil.rmtree(self.layout.node(name), ignore_errors=True)
            for key in (self.layout.host_keys / name, self.layout.host_keys / f"{name}.pub"):
                key.unlink(missing_ok=True)
            del state.nodes[name]
            self.save(state)

    def _tear_down(self, state: RackState | None) -> None:
        """Remove all that a rack can have left, whatever of it exists, the state last."""
        group = self._group()
        group.kill()
        group.remove()
        self._close_connections()
        keeper = self.nodes(state or self._nameless_state())
        for root in self.layout.data.glob("nodes/*/root"):
            keeper.remove_lock(root)
        keeper.unmount(self.layout.data)
        self._remove_network(state)
        for directory in self.machine.nspawn.glob(f"propagate/{self.layout.machine_name('*')}"):
            with contextlib.suppress(OSError):
                directory.rmdir()
        self.bakery.clear_unfinished(self.layout.name)
        if self.layout.data.exists():
            shutil.rmtree(self.layout.data)
        registry = self.keeper.registry()
        registry.racks.pop(self.layout.name, None)
        collect(self.machine, registry)
        self.keeper.unregister(self.layout.name)
        for path in sorted(self.layout.own.glob("*"), key=lambda path: path == self.layout.state):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.layout.own.rmdir()

    def _nameless_state(self) -> RackState:
        """A stand-in where the state file is lost: all that tear-down needs goes by name."""
        return RackState(
            self.layout.name, str(self.layout.inventory), "", "0.0.0.0/0", "", 0, self.layout.bridge, "",
            str(self.layout.sockets), "", "",
        )  # fmt: skip

    def _close_connections(self) -> None:
        for control in self.layout.sockets.glob("*"):
            self.host.run(
                ["ssh", "-O", "exit", "-o", f"ControlPath={control}", "rack"], check=False, timeout_seconds=10
            )
        shutil.rmtree(self.layout.sockets, ignore_errors=True)

    def _remove_network(self, state: RackState | None) -> None:
        links = self.network.links()
        cables = {name for name, link in links.items() if link.get("master") == self.layout.bridge}
        cables |= {self.layout.veth(node) for node in (state.nodes if state else ())} & set(links)
        spaces = [path.name for path in self.machine.netns.glob(f"{self.layout.netns_prefix}*")]
        bridges = {self.layout.bridge} & set(links)
        commands = [
            *(f"link delete dev {name}" for name in sorted(cables)),
            *(f"netns delete {n}" for n in spaces),
        ]
        commands += [f"link delete dev {name}" for name in bridges]
        if not commands:
            return
        # A cable may go by itself when its namespace does: the batch goes on, and what counts is looked at after.
        batch = "".join(f"{command}\n" for command in commands)
        self.host.run(["ip", "-force", "-batch", "-"], stdin=batch, check=False)
        if not wait_until(lambda: not (cables | bridges) & set(self.network.links()), 10.0):
            raise ColdironError(
                f"{self.layout.bridge}: the bridge or a cable of it does not go away", ExitCode.ENVIRONMENT
            )

    # --- status ---

    def status(self) -> dict[str, Any]:
        """What stands, as plain data."""
        state = self.state()
        registry: Registry = self.keeper.registry()
        if state is None:
            return {
                "rack": self.layout.name,
                "inventory": str(self.layout.inventory),
                "up": False,
                "nodes": [],
            }
        keeper = self.nodes(state)
        running = {name: keeper.running(name) for name in state.nodes}
        answering = {name for name in running if running[name]}
        faults = wait_for_ssh(
            {name: state.nodes[name].address for name in answering}, keeper.running, lambda _: None, 3.0
        )
        nodes = []
        for name, node in state.nodes.items():
            condition = "stopped" if not running[name] else ("booting" if name in faults else "up")
            origin = Path(node.snapshot).name if node.snapshot else None
            nodes.append(
                {**asdict(node), "state": condition, "base": base.baked_for(node.base), "snapshot": origin}
            )
        return {
            "rack": state.name,
            "inventory": state.inventory,
            "up": bool(nodes) and all(node["state"] == "up" for node in nodes),
            "simulated": True,
            "subnet": state.subnet,
            "gateway": state.gateway,
            "mtu": state.mtu,
            "home": "one directory of this machine, bound at /home on every node"
            if state.home_backend == "provided"
            else "each node's own until a role mounts the site's",
            "home_backend": state.home_backend,
            "apt_mirror": state.apt_mirror,
            "apt_proxy": state.apt_proxy,
            "package_cache": "running" if registry.cache_port and self.keeper.cache.running() else "stopped",
            "nodes": nodes,
            "snapshots": [one.name for one in listing(self.layout.snapshots)],
            "kept_snapshots": [one.name for one in listing(self.machine.kept)],
        }


def _differs(state: NodeState, spec: NodeSpec) -> bool:
    return (state.address, state.distribution, state.gpu_count) != (
        spec.address,
        spec.distribution,
        spec.gpu_count,
    )


def elapsed(since: float) -> float:
    """Seconds since ``time.monotonic()`` said ``since``, to a tenth."""
    return round(time.monotonic() - since, 1)
