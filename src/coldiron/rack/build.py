"""``up``: from a cluster.yml to nodes that answer. What stands already is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack import aptsource, elastic, keys
from coldiron.rack.base import Bakery, Recipe, newest, recipe, refuse_little_room
from coldiron.rack.cache import PORT
from coldiron.rack.gpu.repository import make as make_fixtures
from coldiron.rack.imaged import Imaged, Images
from coldiron.rack.machine import refuse_not_root
from coldiron.rack.metal.places import Places
from coldiron.rack.rack import Rack
from coldiron.rack.requirements import refuse_missing
from coldiron.rack.snapshot import Snapshot, references
from coldiron.rack.spec import NodeSpec, RackSpec
from coldiron.rack.state import NodeState, RackState
from coldiron.rack.teardown import remove_nodes

APT = Path("/etc/apt")
_ROOM_MIB = 200
_NODE_ROOM_MIB = 48


@dataclass
class Wishes:
    """How to bring a rack up. ``image``: a snapshot that new nodes start from. ``images``: their classes' own."""

    only: Sequence[str] = ()
    prune: bool = False
    rebuild_base: bool = False
    image: Snapshot | None = None
    images: Images | None = None


class Builder:
    """Brings one rack up."""

    def __init__(self, rack: Rack, spec: RackSpec, wishes: Wishes | None = None) -> None:
        self.rack = rack
        self.layout = rack.layout
        self.machine = rack.machine
        self.host = rack.host
        self.say = rack.report.say
        self.spec = spec
        self.wishes = wishes or Wishes()
        self.bakery = Bakery(self.host, self.machine)
        self.baked: set[str] = set()
        images = self.wishes.images
        self.imaged = Imaged(self.host, self.machine, images, self.layout.name, self.say) if images else None

    def up(self) -> RackState:
        """Bring up what is missing and return the state.

        Raises ColdironError where something is in the way or lacking, or a node stays away.
        """
        refuse_not_root()
        refuse_missing(
            self.host, self.spec.machines, gpus=self.spec.simulates_gpus, elastic=self.spec.elastic
        )
        try:
            return self._up()
        finally:
            self.rack.keeper.leave()

    def _up(self, *, again: bool = False) -> RackState:
        gone: list[str] = []
        only = self.wishes.only
        wanted = [self.spec.node(name) for name in only if not self.spec.machine(name)]
        machines = [one for one in self.spec.machines if one.name in only]
        if not only:
            wanted, machines = list(self.spec.nodes), list(self.spec.machines)
        with self.host.lock(self.layout.lock, self.say):
            state = self.take_up()
            self.tell_differences(state)
            keeper = self.rack.nodes(state)
            running = {
                name for name, node in state.nodes.items() if keeper.running(name) and not node.stopping
            }
            missing = [node for node in wanted if node.name not in running]
            needed = _ROOM_MIB + _NODE_ROOM_MIB * len(missing)
            refuse_little_room(self.machine.lib, needed, f"a rack of {len(missing)} more nodes")
            apt = self.apt()
            port = self.rack.keeper.register(self.layout, apt.proxy)
            self.make_places(state)
            self.make_bridge(state, in_use=bool(running) or self.rack.machines(state).stand())
            door, log = self.rack.group("_packages"), self.layout.data / "packages.log"
            self.rack.keeper.cache.open_door(door, state.gateway, port, log)
            self.clear_unfinished_bake()
            self.plan(state, missing, running, apt, port)
            for machine in machines:
                state.machines.setdefault(machine.name, machine)
            self.rack.save(state)
            self.make_keys(state)
            self.rack.settle_home(state)
            if any(node.gpu_model for node in missing):
                make_fixtures(self.host, self.layout, apt, f"http://127.0.0.1:{port}", self.say)
            if any(node.elastic for node in self.spec.nodes):
                elastic.make(self.host, self.layout, self.say)
            self.rack.start(state, [state.nodes[node.name] for node in missing])
            stood = [node.name for node in wanted if node.name in running]
            try:
                self.rack.wait(state, stood, {}, lambda _: None)
            except ColdironError:
                gone = [name for name in stood if not keeper.running(name)]
                if again or not gone:
                    raise
            if not gone:
                self.rack.machines(state).up([state.machines[one.name] for one in machines], self.say)
                self.rack.hand_over()
                self.bakery.clear_unused(references(self.machine, self.rack.keeper.registry())[0])
        if gone:
            # They were going down by themselves when they were looked at.
            self.say(f"{', '.join(gone)} went down meanwhile: started again")
            return self._up(again=True)
        return state

    def apt(self) -> aptsource.AptSource:
        """Where this machine's packages come from."""
        return aptsource.read_host(APT, self.host.run(["apt-config", "dump"]).stdout)

    def take_up(self) -> RackState:
        """The state to go on from: the one on the disk, or a new one, written before anything is made."""
        name, again = self.layout.name, f"coldiron rack down -i {self.layout.inventory}"
        self.rack.keeper.refuse_other_owner(self.layout)
        state = self.rack.state()
        if state is None:
            if name in self.rack.keeper.registry().racks:
                raise ColdironError(
                    f"{self.layout.state}: rack {name} is up, but its state is gone from here; type: {again}",
                    ExitCode.REFUSED,
                )
            self.refuse_foreign()
            state = self.new_state()
            self.rack.save(state)
            return state
        if state.name != self.spec.name:
            raise ColdironError(
                f"{self.spec.file}: the rack that is up is called {state.name}, the file says "
                f"{self.spec.name}; type: {again}",
                ExitCode.REFUSED,
            )
        network = (str(self.spec.subnet), self.spec.gateway)
        if (state.subnet, state.gateway) != network:
            raise ColdironError(
                f"{self.spec.file}: networks.cluster says {' with gateway '.join(network)}, the rack that is "
                f"up has {state.subnet} with {state.gateway}; type: {again}",
                ExitCode.REFUSED,
            )
        return state

    def new_state(self) -> RackState:
        return RackState(
            name=self.spec.name,
            inventory=str(self.layout.inventory),
            domain=self.spec.domain,
            subnet=str(self.spec.subnet),
            gateway=self.spec.gateway,
            mtu=self.spec.mtu or self.rack.network.mtu(),
            bridge=self.layout.bridge,
            home_backend=self.spec.home_backend,
            sockets=str(self.layout.sockets),
            apt_proxy=f"http://{self.spec.gateway}:{PORT}",
            apt_mirror=aptsource.through_cache(self.apt().mirror),
        )

    def refuse_foreign(self) -> None:
        """Raise ColdironError where a thing of a name that the rack would use exists: it is not ours."""
        links = self.rack.network.links()
        veths = [self.layout.veth(node.name) for node in self.spec.nodes]
        places = Places(self.layout)
        for machine in self.spec.machines:
            veths += [places.bridge, places.tap(machine.name), places.second_tap(machine.name)]
        spaces = sorted(path.name for path in self.machine.netns.glob(f"{self.layout.netns_prefix}*"))
        taken = [
            *(f"an interface {name}" for name in (self.layout.bridge, *veths) if name in links),
            *(f"a network namespace {name}" for name in spaces),
            *([f"a directory {self.layout.data}"] if self.layout.data.exists() else []),
            *([f"a control group {self.layout.cgroup}"] if self.rack.group().exists() else []),
        ]
        if taken:
            raise ColdironError(
                f"{self.spec.file}: there is {taken[0]} on this machine that no rack of ours is known to "
                "have made; remove it, or write another name",
                ExitCode.REFUSED,
            )
        self.rack.network.refuse_overlap(self.spec.subnet, self.layout.bridge, str(self.spec.file))
        for machine in self.spec.machines:
            address = IPv4Network(f"{machine.bmc_address}/32")
            self.rack.network.refuse_overlap(address, self.layout.bridge, str(self.spec.file))

    def make_places(self, state: RackState) -> None:
        for directory in (self.layout.data, self.layout.home, self.layout.host_keys):
            directory.mkdir(parents=True, exist_ok=True)
        # What nodes have written is read through ssh, not by other users of this machine.
        self.layout.data.chmod(0o711)
        sockets = Path(state.sockets)
        sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        sockets.parent.chmod(0o711)
        self.rack.group().make()

    def make_bridge(self, state: RackState, *, in_use: bool) -> None:
        """Make the bridge, unless nodes are plugged into it."""
        present = state.bridge in self.rack.network.links()
        if present and in_use:
            return
        # The forwarder waits on the address of a bridge that is gone, or about to be.
        self.rack.group("_packages").kill()
        if present:
            # Perhaps only half made.
            self.rack.network.remove_link(state.bridge)
        self.rack.network.refuse_overlap(self.spec.subnet, state.bridge, str(self.spec.file))
        alias = f"coldiron-rack-{state.name}"
        self.rack.network.make_bridge(state.bridge, alias, self.spec.bridge_address, state.mtu)

    def clear_unfinished_bake(self) -> None:
        self.rack.group("_bake").kill()
        self.bakery.clear_unfinished(self.layout.name)

    def plan(
        self,
        state: RackState,
        missing: Sequence[NodeSpec],
        running: set[str],
        apt: aptsource.AptSource,
        port: int,
    ) -> None:
        """Enter the missing nodes into the state. One that is there stays what it was, if it is whole."""
        image = self.wishes.image
        if image and image.home and not state.nodes and state.home_backend == "provided":
            state.home_from = str(image.home_copy)
        for name in running:
            # What was to be renewed, was: before it was started.
            state.nodes[name].renew = False
        for node in missing:
            known = state.nodes.get(node.name)
            if known is None or not self.whole(known):
                state.nodes[node.name] = self.new_node(node, apt, port)
        self.rack.save(state)

    def whole(self, node: NodeState) -> bool:
        """Whether what a node stands on is there; its topmost layer may be about to be made."""
        upper = self.layout.node(node.name) / "upper"
        return Path(node.base).is_dir() and all(
            Path(layer).is_dir() or (index == 0 and upper.is_dir()) for index, layer in enumerate(node.layers)
        )

    def new_node(self, node: NodeSpec, apt: aptsource.AptSource, port: int) -> NodeState:
        """A node on the image that it fits, else on the newest base of its distribution."""
        planned = NodeState(
            name=node.name,
            address=node.address,
            distribution=node.distribution,
            kind=node.kind,
            base="",
            gpu_count=node.gpu_count,
            gpu_type=node.gpu_type,
            renew=True,
            serves_home=node.serves_home,
            gpu_model=node.gpu_model,
        )
        image = self.wishes.image
        if image and self.fits(image, node):
            planned.base = image.nodes[node.name].base
            planned.layers = list(image.nodes[node.name].layers)
            planned.snapshot = str(image.path)
        else:
            planned.base = str(self.own_image(node, apt) or self.base(node.distribution, apt, port))
        return planned

    def own_image(self, node: NodeSpec, apt: aptsource.AptSource) -> Path | None:
        """A base with the image of the node's class, where that is wished and there is one."""
        if self.imaged is None:
            return None
        return self.imaged.base(f"{node.kind}-{node.distribution}", self.recipe(node.distribution, apt))

    def fits(self, image: Snapshot, node: NodeSpec) -> bool:
        """Whether a new node can start from ``image``; says so if not."""
        if node.name not in image.nodes:
            self.say(f"{node.name}: not in snapshot {image.name}, starts from the base image")
        elif image.nodes[node.name].distribution != node.distribution or not image.whole(node.name):
            self.say(
                f"{node.name}: what snapshot {image.name} has of it does not fit, starts from the base image"
            )
        else:
            return True
        return False

    def base(self, distribution: str, apt: aptsource.AptSource, port: int) -> Path:
        """The root of the base image, baked if there is none of this recipe yet, or if it is wanted anew."""
        wanted = self.recipe(distribution, apt)
        rebuild = self.wishes.rebuild_base and distribution not in self.baked
        with self.host.lock(self.machine.run / f"base-{distribution}.lock", self.say):
            if not rebuild and (found := newest(self.machine.bases, wanted.name)):
                return found
            self.baked.add(distribution)
            return self.bakery.bake(
                wanted,
                rack=self.layout.name,
                cgroup=self.rack.group("_bake"),
                proxy=f"http://127.0.0.1:{port}",
                say=self.say,
            )

    def recipe(self, distribution: str, apt: aptsource.AptSource) -> Recipe:
        """What the bare base of a distribution is made of on this machine."""
        architecture = self.host.run(["dpkg", "--print-architecture"]).stdout.strip()
        return recipe(distribution, apt, architecture)

    def make_keys(self, state: RackState) -> None:
        """Make the keys that are missing, and write down by which keys the nodes are known."""
        keys.make_key(self.host, self.layout.client_key, f"coldiron-rack-{state.name}")
        host_keys = self.layout.host_keys
        self.rack.each(lambda name: keys.make_key(self.host, host_keys / name, name), list(state.nodes))
        keys.write_known_hosts(self.layout, state)
        self.rack.hand_over()

    def tell_differences(self, state: RackState) -> None:
        """Say where what is up differs from the file; remove what has left the file, if that is wished."""
        wanted = {node.name: node for node in self.spec.nodes}
        metal = {machine.name: machine for machine in self.spec.machines}
        gone = [name for name in state.nodes if name not in wanted]
        gone += [name for name in state.machines if name not in metal]
        if gone and self.wishes.prune:
            remove_nodes(self.rack, state, gone)
            self.say(f"removed: {', '.join(gone)}")
        elif gone:
            self.say(
                f"no longer in {self.spec.file.name}, and left as they are: {', '.join(gone)} "
                "(`coldiron rack up --prune` removes them)"
            )
        for name, node in state.nodes.items():
            if name in wanted and differs(node, wanted[name]):
                self.tell_difference(name)
        for name, machine in state.machines.items():
            if name in metal and machine != metal[name]:
                self.tell_difference(name)

    def tell_difference(self, name: str) -> None:
        """Say that a node that is up is not what the file says now."""
        self.say(
            f"{name}: {self.spec.file.name} says something else than the node that is up; "
            f"`coldiron rack down {name}`, then `coldiron rack up`, makes it anew"
        )


def differs(state: NodeState, spec: NodeSpec) -> bool:
    """Whether a node that is up is not what the file says now."""
    now = (spec.address, spec.distribution, spec.gpu_count, spec.gpu_type, spec.gpu_model)
    return (state.address, state.distribution, state.gpu_count, state.gpu_type, state.gpu_model) != now
