"""The deploy program: what a machine without a system does, from its address to the reboot into what was ordered.

It runs in the RAM environment as its one task. Steps are told to the provisioner, with the seconds since power came;
a failure is one line there and on the console, and the machine then waits for somebody.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown
from coldiron.provision import deploy_boot, deploy_disks, deploy_image, deploy_network, deploy_system
from coldiron.provision.deploy_cache import CacheAbsent
from coldiron.provision.deploy_http import Clock, Server
from coldiron.provision.deploy_tools import DeployFailed, Places, Tools
from coldiron.provision.images import Manifest
from coldiron.provision.order import Identity, Order, parse_identity, parse_order

AUTHORITY = "/etc/coldiron/ca.crt"
KEYS = "/etc/coldiron/image-keys"
BUILT = "/etc/coldiron/built"
STEPS = ("up", "redeem", "disks", "partition", "stream", "system", "identity", "boot", "done")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_NODE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}")


@dataclass(frozen=True)
class Called:
    """What the kernel's command line says of this machine."""

    node: str
    server: str
    mac: str
    token: str = field(repr=False)


def parse_command_line(text: str) -> Called:
    """The ``coldiron.…`` words. Raises DeployFailed, which quotes no token."""
    words = dict(word.removeprefix("coldiron.").split("=", 1) for word in text.split() if _ours(word))
    for key, pattern in (("node", _NODE), ("mac", _MAC), ("token", _TOKEN), ("server", None)):
        value = words.get(key, "")
        if not value or (pattern and not pattern.fullmatch(value)):
            raise DeployFailed(f"the kernel's command line has no usable coldiron.{key}")
    return Called(words["node"], words["server"], words["mac"], words["token"])


def _ours(word: str) -> bool:
    return word.startswith("coldiron.") and "=" in word


class Steps:
    """Tells people and the provisioner where the machine is. What cannot be told yet is kept until it can."""

    def __init__(self, console: TextIO, since_boot: Callable[[], float]) -> None:
        self.console = console
        self._since_boot = since_boot
        self._kept: list[dict[str, Any]] = []
        self._server: Server | None = None
        self.now = ""

    def say(self, text: str) -> None:
        """A line on the console."""
        self.console.write(f"coldiron: {text}\r\n")
        self.console.flush()

    def listen(self, server: Server) -> None:
        """From now on the provisioner hears of the steps, of the earlier ones too."""
        self._server = server
        kept, self._kept = self._kept, []
        for event in kept:
            self._send(event)

    def reach(self, step: str, text: str = "") -> None:
        """The step ``step`` begins, or is done where it is the last."""
        self.now = step
        seconds = round(self._since_boot(), 1)
        self.say(f"{seconds:7.1f} s  {step}{': ' if text else ''}{text}")
        self._send({"step": step, "seconds": seconds, "text": text})

    def fail(self, text: str) -> None:
        """The step that was reached has failed, in one line."""
        seconds = round(self._since_boot(), 1)
        self.say(f"{seconds:7.1f} s  {self.now or 'up'} failed: {text}")
        self._send({"step": self.now or "up", "seconds": seconds, "failed": text})

    def _send(self, event: dict[str, Any]) -> None:
        if self._server is None:
            self._kept.append(event)
            return
        try:
            self._server.event(event)
        except ColdironError as error:
            # Whoever watches has missed a line; the machine has not missed a step.
            self.say(f"step {event['step']} could not be told: {error.message}")


class Deployment:
    """One machine's deployment, from the command line to the moment before the reboot."""

    def __init__(self, tools: Tools, steps: Steps, clock: Clock) -> None:
        self.tools = tools
        self.steps = steps
        self.clock = clock
        self._disks: deploy_disks.Disks | None = None
        self._spoilt_if_failed = False

    def run(self) -> bool:
        """Do all steps; whether the way out is kexec. Raises ColdironError after what was written is spoilt."""
        try:
            return self._run()
        except BaseException:
            if self._spoilt_if_failed and self._disks is not None:
                for trouble in deploy_disks.spoil(self.tools, self._disks):
                    self.steps.say(trouble)
            raise

    def _run(self) -> bool:
        places, steps, tools = self.tools.places, self.steps, self.tools
        self.clock.at_least_built()
        called = parse_command_line(places.text("/proc/cmdline"))
        steps.now = "up"
        card = deploy_network.bring_up(tools, called.mac)
        steps.reach("up", f"{called.node} by {card}")
        server = Server(called.server, called.node, str(places.at(AUTHORITY)), self.clock, sleep=tools.sleep)
        steps.now = "redeem"
        order = parse_order(server.redeem(called.token))
        steps.listen(server)
        self._keep_clock()
        check_machine(places, called, order)
        steps.reach("redeem", f"image {order.image.node_class} {order.image.sha256[:12]}")
        steps.now = "disks"
        disks = deploy_disks.look(tools, order.disks, order.consent, order.firmware, order.sizes)
        manifest = deploy_image.fetch_manifest(server, order.image, self._keys(), tools)
        identity = parse_identity(server.identity())
        _check_identity(identity, order)
        steps.reach("disks", "; ".join(disks.choice.told()))
        steps.reach("partition", deploy_disks.serials(disks.choice.written))
        self._disks, self._spoilt_if_failed = disks, True
        deploy_disks.make(tools, disks)
        deploy_disks.mount(tools, disks)
        steps.reach("stream", f"{manifest.size_bytes / 1e6:.0f} MB")
        self._unpack(server, manifest, disks)
        steps.reach("system", f"kernel {manifest.kernel}")
        kernel = deploy_system.find_kernel(places.target, manifest.kernel)
        if disks.choice.mirrored:
            deploy_system.check_mirror(places.target)
        deploy_system.write(places.target, "/etc/fstab", deploy_system.fstab(disks))
        deploy_disks.show_devices(tools)
        steps.reach("identity", identity.hostname)
        deploy_system.write_identity(tools, identity)
        record = deploy_system.record(order, disks, manifest, self.clock.now())
        deploy_system.write_record(places.target, record)
        steps.reach("boot", order.firmware)
        for note in deploy_boot.install_loader(tools, order, disks, kernel):
            steps.say(note)
        why_not = deploy_boot.load_kexec(tools, order, disks, kernel) if order.boot == "kexec" else ""
        deploy_disks.unmount(tools)
        # It is whole and signed: should the last word not arrive, the disk is still good.
        self._spoilt_if_failed = False
        steps.reach("done", f"no kexec, a reboot instead: {why_not}" if why_not else "")
        server.done({"serials": [disk.serial or disk.wwn for disk in disks.choice.written]})
        server.close()
        return order.boot == "kexec" and not why_not

    def _unpack(self, server: Server, manifest: Manifest, disks: deploy_disks.Disks) -> None:
        """The image from a cache near by, else from the provisioner: onto empty file systems each time."""
        for cache in server.caches:
            try:
                deploy_image.unpack(cache, manifest, self.tools)
                return
            except CacheAbsent as error:
                self.steps.reach("stream", error.message)
            except ColdironError as error:
                self.steps.reach("stream", f"not from the cache {shown(cache.name)}: {error.message}")
                deploy_disks.spoil(self.tools, disks)
                disks.volumes.clear()
                deploy_disks.make(self.tools, disks)
                deploy_disks.mount(self.tools, disks)
        deploy_image.unpack(server, manifest, self.tools)

    def _keys(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted(self.tools.places.at(KEYS).glob("*.pem"))]

    def _keep_clock(self) -> None:
        """A hardware clock that is far off would make the installed system's first minutes strange."""
        if abs(self.clock.corrected) > 60:
            way = "behind" if self.clock.corrected > 0 else "ahead of"
            self.steps.say(
                f"the clock was {abs(self.clock.corrected):.0f} s {way} the provisioner's; it is set"
            )
            self.tools.try_run("busybox", "hwclock", "--utc", "--systohc")


def check_machine(places: Places, called: Called, order: Order) -> None:
    """Refuse an order that is for another machine, or for other firmware than started this one."""
    if order.node != called.node or order.mac != called.mac:
        raise DeployFailed(
            f"the order is for {order.node} ({order.mac}), this is {called.node} ({called.mac})",
            ExitCode.REFUSED,
        )
    serial = " ".join(places.text("/sys/class/dmi/id/product_serial").split())
    if order.serial and serial != order.serial:
        raise DeployFailed(
            f"the chassis has serial {shown(serial) or 'none'}, and {shown(order.serial)} was ordered; "
            "nothing is written",
            ExitCode.REFUSED,
        )
    firmware = "uefi" if places.at("/sys/firmware/efi").exists() else "bios"
    if order.firmware != firmware:
        raise DeployFailed(
            f"the machine was started by {firmware}, and {order.firmware} was ordered; nothing is written",
            ExitCode.REFUSED,
        )


def _check_identity(identity: Identity, order: Order) -> None:
    if identity.hostname != order.node:
        raise DeployFailed(
            f"the identity is of {shown(identity.hostname)}, the order of {order.node}", ExitCode.REFUSED
        )


def since_boot(places: Places) -> float:
    """Seconds since the kernel started."""
    words = places.text("/proc/uptime").split()
    return float(words[0]) if words else 0.0


def main(places: Places | None = None, sleep: Callable[[float], None] = time.sleep) -> int:
    """Deploy this machine and start what was installed; the exit code where that was not to be."""
    places = places or Places()
    tools = Tools(places, sleep)
    steps = Steps(sys.stdout, lambda: since_boot(places))
    built = places.text(BUILT)
    clock = Clock(float(built) if built.isdigit() else 0.0)
    try:
        by_kexec = Deployment(tools, steps, clock).run()
        deploy_boot.leave(tools, by_kexec=by_kexec)
    except ColdironError as error:
        steps.fail(" ".join(error.message.split()))
        return int(error.exit_code)
    except Exception as error:
        # Its text may quote what it stumbled over, an identity among others: the kind and the place are enough.
        steps.fail(f"a fault in the deploy program itself: {type(error).__name__} {_where(error)}")
        return int(ExitCode.ENVIRONMENT)
    return int(ExitCode.OK)


def _where(error: Exception) -> str:
    trace = error.__traceback__
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"at {code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
