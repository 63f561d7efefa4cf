"""One node: a systemd container with layers over a base image, a network namespace and a control group."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path

from coldiron.catalog.load import load as load_catalog
from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.cgroup import Cgroup
from coldiron.rack.elastic import MOUNTED as ELASTIC
from coldiron.rack.elastic import place as elastic
from coldiron.rack.gpu import cards
from coldiron.rack.gpu.repository import MOUNTED
from coldiron.rack.gpu.repository import place as fixtures
from coldiron.rack.host import Host, mount_points, wait_until
from coldiron.rack.layers import ENGINE_DIRECTORIES, freeze, restore_engines
from coldiron.rack.layout import Layout
from coldiron.rack.network import Cable, Network
from coldiron.rack.state import NodeState, RackState

# Everybody's on a machine whose udev has seen them: rootless containers and tunnels need them.
_OPTIONAL_DEVICES = ("/dev/fuse", "/dev/net/tun")
# The kernel's range for local use: these files can never reach a real GPU of the host.
_SIMULATED_MAJOR = 60
_SIMULATED_CONTROL_MINOR = 255
# mount(2) takes one page of options.
_MOUNT_OPTIONS_MAX = 4000
_STOP_SECONDS = 30.0
_SPAWN_SECONDS = 30.0


def nspawn_command(
    layout: Layout, node: NodeState, *, shared_home: bool, devices: Iterable[str]
) -> list[str]:
    """The command that boots a node."""
    own = layout.node(node.name)
    gpus = [own / "dev" / name for name in bound_devices(node)]
    return [
        "systemd-nspawn", "--quiet", "--register=no", "--keep-unit",
        f"--directory={own / 'root'}",
        f"--network-namespace-path={layout.machine.netns / layout.netns(node.name)}",
        "--console=passive", "--boot",
        f"--machine={layout.machine_name(node.name)}", f"--hostname={node.name}",
        "--capability=all", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
        "--system-call-filter=@known",
        *(f"--bind={own / 'dev' / Path(device).name}:{device}" for device in devices),
        *(f"--bind={path}:/dev/{path.name}" for path in gpus),
        *(f"--bind={own / name}:/var/lib/{name}" for name in ENGINE_DIRECTORIES),
        *([f"--bind={layout.home}:/home"] if shared_home else []),
        *([f"--bind-ro={fixtures(layout)}:{MOUNTED}"] if node.gpu_model else []),
        # Empty, unless a server of Elasticsearch is wanted: that may be later.
        f"--bind-ro={elastic(layout)}:{ELASTIC}",
        "--", "--show-status=error", "--log-color=no",
    ]  # fmt: skip


NSPAWN_ENVIRONMENT = {
    "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "yes",
    "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
    # A filter that lets every known call through costs a quarter of a boot's CPU time, and some of every call.
    "SYSTEMD_SECCOMP": "0",
}


def gpu_devices(count: int) -> dict[str, int]:
    """The device files of ``count`` simulated GPUs, with their minor numbers."""
    if count == 0:
        return {}
    return {**{f"nvidia{index}": index for index in range(count)}, "nvidiactl": _SIMULATED_CONTROL_MINOR}


def bound_devices(node: NodeState) -> dict[str, int]:
    """The device files that the rack makes for a node; one with a simulated driver makes its own."""
    return {} if node.gpu_model else gpu_devices(node.gpu_count)


def overlay_options(node: NodeState, own: Path) -> str:
    """Mount options of a node's root. ``volatile``: nothing in it is worth an fsync.

    Raises ColdironError where so many snapshots lie on each other that the kernel takes no more.
    """
    lower = ":".join([*node.layers, node.base])
    options = f"lowerdir={lower},upperdir={own / 'upper'},workdir={own / 'work'},volatile"
    if len(options) > _MOUNT_OPTIONS_MAX:
        raise ColdironError(
            f"{node.name}: {len(node.layers)} snapshots lie on each other, the kernel stacks no more; "
            "go back to an earlier one with `coldiron rack reset --to`",
            ExitCode.REFUSED,
        )
    return options


@dataclass(frozen=True)
class Seed:
    """A file that makes a node itself. ``bare``: only at the first start from the base image; roles own it then."""

    path: str
    text: str
    mode: int = 0o644
    bare: bool = False


def seeds(layout: Layout, rack: RackState, node: NodeState) -> list[Seed]:
    """The files that a node differs in from the base image."""
    key = layout.host_keys / node.name
    host_name = f"{node.name}.{rack.domain} {node.name}" if rack.domain else node.name
    return [
        Seed("etc/hostname", f"{node.name}\n"),
        Seed("etc/machine-id", f"{layout.machine_id(node.name)}\n", 0o444),
        Seed("etc/hosts", f"127.0.0.1 localhost\n{node.address} {host_name}\n", bare=True),
        Seed("etc/ssh/ssh_host_ed25519_key", key.read_text(), 0o600),
        Seed("etc/ssh/ssh_host_ed25519_key.pub", key.with_suffix(".pub").read_text()),
        Seed("etc/apt/apt.conf.d/91virtual-rack-cache", f'Acquire::http::Proxy "{rack.apt_proxy}";\n'),
        *card_seeds(layout, node),
    ]


def card_seeds(layout: Layout, node: NodeState) -> list[Seed]:
    """What a node with simulated cards is told of them: the hardware, before any driver. A mark says what they are."""
    if not node.gpu_model:
        return []
    model = load_catalog().gpus[node.gpu_model]
    own = f"{layout.inventory}/{node.name}"
    return [
        Seed(cards.MARKER, cards.marker(model, node.gpu_count)),
        Seed(cards.CARDS, cards.description(model, node.gpu_count, own)),
    ]


def plant(root: Path, seed: Seed) -> None:
    """Write a seed below ``root`` unless it is there; a link in its place is replaced, not followed."""
    path = root / seed.path
    with contextlib.suppress(OSError):
        if (
            not path.is_symlink()
            and path.read_text() == seed.text
            and stat.S_IMODE(path.stat().st_mode) == seed.mode
        ):
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.rack")
    partial.write_text(seed.text)
    partial.chmod(seed.mode)
    os.replace(partial, path)


def authorize(root: Path, public_key: str) -> None:
    """Let the rack's client key in as root, beside whatever keys a role has put there."""
    path = root / "root" / ".ssh" / "authorized_keys"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    present = path.read_text() if path.exists() else ""
    if public_key.strip() not in present:
        path.write_text(present + ("" if present.endswith("\n") or not present else "\n") + public_key)
        path.chmod(0o600)


class NodeKeeper:
    """Makes, starts, stops and removes the nodes of one rack."""

    def __init__(self, host: Host, layout: Layout, rack: RackState, cgroup_root: Path) -> None:
        self.host = host
        self.layout = layout
        self.rack = rack
        self.cgroup_root = cgroup_root
        self.network = Network(host)

    def cgroup(self, node: str) -> Cgroup:
        return Cgroup(self.cgroup_root, f"{self.layout.cgroup}/{node}")

    def running(self, node: str) -> bool:
        return self.cgroup(node).populated()

    def log(self, node: str) -> Path:
        """What the node's console said."""
        return self.layout.node(node) / "console.log"

    def mounts(self, below: Path) -> list[Path]:
        text = (self.layout.machine.proc / "self/mountinfo").read_text()
        return mount_points(text, below)

    def start(self, node: NodeState) -> None:
        """Boot a node from its layers. What an earlier, broken start left of it is cleared first."""
        self.clear(node.name)
        own = self.layout.node(node.name)
        if node.layers:
            # A snapshot that was cut off named the layer, but did not get to make it.
            freeze(self.host, own / "upper", Path(node.layers[0]))
        if node.renew:
            self.discard(node.name)
            if node.snapshot:
                restore_engines(self.host, Path(node.snapshot) / "engines" / node.name, own)
        for directory in ("upper", "work", "root", "dev", *ENGINE_DIRECTORIES):
            (own / directory).mkdir(parents=True, exist_ok=True)
        # The root's own mode shows through from the uppermost layer.
        (own / "upper").chmod(0o755)
        self.make_devices(node)
        prefix = self.rack.subnet.split("/")[1]
        cable = Cable(
            netns=self.layout.netns(node.name),
            veth=self.layout.veth(node.name),
            mac=self.layout.mac(node.name),
            address=IPv4Interface(f"{node.address}/{prefix}"),
            # Heads switch and read machines by their BMCs, which are out of everybody else's reach.
            beyond=tuple(machine.bmc_address for machine in self.rack.machines.values())
            if node.kind == "head"
            else (),
        )
        self.network.connect(self.rack.bridge, cable, self.rack.mtu)
        elastic(self.layout).mkdir(exist_ok=True)
        # An overlay that was not unmounted leaves this mark, and would refuse to be mounted again.
        shutil.rmtree(own / "work" / "work" / "incompat", ignore_errors=True)
        options = overlay_options(node, own)
        self.host.run(
            ["mount", "-t", "overlay", "-o", options, "coldiron", str(own / "root")],
            what=f"root of {node.name}",
        )
        for seed in seeds(self.layout, self.rack, node):
            if not seed.bare or (not node.layers and not (own / "upper" / seed.path).exists()):
                plant(own / "root", seed)
        authorize(own / "root", self.layout.client_key.with_suffix(".pub").read_text())
        group = self.cgroup(node.name)
        group.make()
        # A server in user space exports a plain directory, and not a layer of the node's own.
        shared_home = self.rack.home_backend == "provided" or node.serves_home
        devices = [device for device in _OPTIONAL_DEVICES if os.path.exists(device)]
        self.log(node.name).write_bytes(b"")
        process = self.host.spawn(
            nspawn_command(self.layout, node, shared_home=shared_home, devices=devices),
            cgroup=group.path,
            log=self.log(node.name),
            env=NSPAWN_ENVIRONMENT,
        )
        # From then on whoever looks for the node's processes finds them.
        wait_until(lambda: group.populated() or process.poll() is not None, _SPAWN_SECONDS)

    def make_devices(self, node: NodeState) -> None:
        """Make the device files of the node: this machine's own, open to all, and its simulated GPUs'."""
        directory = self.layout.node(node.name) / "dev"
        for device in filter(os.path.exists, _OPTIONAL_DEVICES):
            path = directory / Path(device).name
            if not path.exists():
                os.mknod(path, 0o666 | stat.S_IFCHR, os.stat(device).st_rdev)
                path.chmod(0o666)
        for name, minor in bound_devices(node).items():
            path = directory / name
            if not path.exists():
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(_SIMULATED_MAJOR, minor))
                path.chmod(0o666)

    def stop(self, node: str) -> None:
        """Shut a node down as its power button would; one that takes too long is killed."""
        group = self.cgroup(node)
        if init := self.init_pid(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(init, signal.SIGRTMIN + 4)
            wait_until(lambda: not group.populated(), _STOP_SECONDS)
        self.clear(node)

    def init_pid(self, node: str) -> int | None:
        """The node's PID 1, as the host sees it."""
        proc = self.layout.machine.proc
        for supervisor in Cgroup(self.cgroup_root, f"{self.layout.cgroup}/{node}/supervisor").pids():
            with contextlib.suppress(OSError):
                children = (proc / f"{supervisor}/task/{supervisor}/children").read_text().split()
                if children:
                    return int(children[0])
        return None

    def clear(self, node: str) -> None:
        """Take a node's processes, mounts, cable and namespace away; its files stay."""
        group = self.cgroup(node)
        group.kill()
        group.remove()
        self.close_connections(node)
        self.remove_lock(self.layout.node(node) / "root")
        self.unmount(self.layout.node(node))
        if (self.layout.machine.netns / self.layout.netns(node)).exists():
            # The cable's other end goes with it; by name, because a namespace ends in its own time.
            self.network.remove_link(self.layout.veth(node))
            self.network.remove_netns(self.layout.netns(node))
        with contextlib.suppress(OSError):
            (self.layout.machine.nspawn / "propagate" / self.layout.machine_name(node)).rmdir()

    def remove_lock(self, root: Path) -> None:
        """Remove the lock that a killed systemd-nspawn leaves: called by its root's device and inode."""
        with contextlib.suppress(OSError):
            found = root.stat()
            (self.layout.machine.nspawn / "locks" / f"inode-{found.st_dev}:{found.st_ino}").unlink()

    def unmount(self, below: Path) -> None:
        """Unmount everything at or below a directory. Raises ColdironError where something holds on."""
        for point in self.mounts(below):
            # A process outside the rack may stand in there: then it goes out of sight now, and for good when
            # that process leaves.
            if self.host.run(["umount", str(point)], check=False).returncode != 0:
                self.host.run(["umount", "--lazy", str(point)], check=False)
        if left := self.mounts(below):
            raise ColdironError(
                f"{left[0]}: cannot be unmounted; `fuser -vm {left[0]}` shows by whom it is held",
                ExitCode.ENVIRONMENT,
            )

    def close_connections(self, node: str) -> None:
        """End the shared ssh connections to a node: after a restart they would hang."""
        if known := self.rack.nodes.get(node):
            for control in Path(self.rack.sockets).glob(f"{known.address}-*"):
                self.host.run(
                    ["ssh", "-O", "exit", "-o", f"ControlPath={control}", "rack"],
                    check=False,
                    timeout_seconds=10,
                )
                control.unlink(missing_ok=True)

    def discard(self, node: str) -> None:
        """Throw away what a stopped node has written: out of the way now, removed by ``empty_trash``."""
        own = self.layout.node(node)
        trash = self.layout.trash / f"{node}.{time.time_ns()}"
        trash.mkdir(parents=True)
        for directory in ("upper", "work", *ENGINE_DIRECTORIES):
            if (own / directory).exists():
                os.rename(own / directory, trash / directory)

    def empty_trash(self) -> None:
        """Remove discarded files in the background, as part of the rack."""
        if self.layout.trash.is_dir() and any(self.layout.trash.iterdir()):
            group = self.cgroup("_trash")
            group.make()
            targets = [str(path) for path in self.layout.trash.iterdir()]
            command = ["rm", "-rf", "--one-file-system", "--", *targets]
            self.host.spawn(command, cgroup=group.path, log=Path(os.devnull))


async def _answers(address: str) -> bool:
    """Whether an ssh server greets at ``address``."""
    writer = None
    try:
        async with asyncio.timeout(3.0):
            reader, writer = await asyncio.open_connection(address, 22)
            return (await reader.readline()).startswith(b"SSH-")
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.close()


def wait_for_ssh(
    addresses: Mapping[str, str],
    alive: Callable[[str], bool],
    on_ready: Callable[[str], None],
    seconds: float,
    started: Callable[[str], bool] = lambda _: True,
) -> dict[str, str]:
    """Wait until every node's ssh server greets. Returns what is wrong with the others, by node.

    ``alive`` says whether a node's processes still run; a node that has ended is not waited for. ``started``
    says whether it was started at all yet.
    """

    async def wait(node: str) -> str | None:
        while time.monotonic() < deadline:
            if started(node):
                if await _answers(addresses[node]):
                    on_ready(node)
                    return None
                if not alive(node):
                    return "ended while booting"
            await asyncio.sleep(0.1 if len(addresses) <= 8 else 0.25)
        return f"no ssh after {seconds:.0f} s"

    async def wait_for_all() -> list[str | None]:
        return await asyncio.gather(*(wait(node) for node in addresses))

    deadline = time.monotonic() + seconds
    outcomes = asyncio.run(wait_for_all())
    return {node: fault for node, fault in zip(addresses, outcomes, strict=True) if fault}
