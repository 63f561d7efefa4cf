"""The package cache: apt-cacher-ng with a configuration of our own, one a machine, and a door to it a rack.

The cache listens on the loopback only. Each rack's bridge carries a forwarder to it: nothing outside a rack
can use the cache, racks come and go without restarting it, and a package crosses the network once for all.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.cgroup import Cgroup
from coldiron.rack.host import Host, wait_until

# Not apt-cacher-ng's own 3142: the host's service, if it runs one, listens there on every address.
PORT = 3143
CGROUP = "coldiron/_cache"
USER = "apt-cacher-ng"
_START_SECONDS = 15.0


def configuration(store: Path, port: int, proxy: str | None) -> str:
    """apt-cacher-ng's configuration. It remaps no archive: the packaged one does and answers 503 for some."""
    lines = [
        f"CacheDir: {store / 'store'}",
        f"LogDir: {store / 'log'}",
        "SupportDir: /usr/lib/apt-cacher-ng",
        "BindAddress: 127.0.0.1",
        f"Port: {port}",
        "ForeGround: 1",
        "VerboseLog: 0",
        "ReportPage:",
        # Archives on any port, and over TLS: who can reach the cache at all is the racks' business.
        "AllowUserPorts: 0",
        "PassThroughPattern: .*",
        # Packages that an archive no longer lists leave the store after this many days.
        "ExThreshold: 30",
    ]
    if proxy:
        lines.append(f"Proxy: {proxy}")
    return "\n".join(lines) + "\n"


def cache_command(config: Path) -> list[str]:
    return [
        "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--",
        "apt-cacher-ng", "-c", str(config),
    ]  # fmt: skip


def forwarder_command(address: str, port: int) -> list[str]:
    """The rack's door: waits on the bridge's address and hands connections to the cache."""
    return [
        "systemd-socket-activate", f"--listen={address}:{PORT}",
        "/lib/systemd/systemd-socket-proxyd", f"127.0.0.1:{port}",
    ]  # fmt: skip


def listening(address: str, port: int) -> bool:
    """Whether something accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1.0):
        return True
    return False


def free_port(preferred: int) -> int:
    """``preferred`` if nobody listens there on the loopback, else one that the kernel picks."""
    for port in (preferred, 0):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
            return int(probe.getsockname()[1])
    raise ColdironError("no free port on the loopback for the package cache", ExitCode.ENVIRONMENT)


class PackageCache:
    """The machine's cache, found by its control group."""

    def __init__(self, host: Host, root: Path, store: Path) -> None:
        self.host = host
        self.group = Cgroup(root, CGROUP)
        self.root = root
        self.store = store

    def running(self) -> bool:
        return self.group.populated()

    def start(self, port: int, proxy: str | None) -> None:
        """Start it on the loopback's ``port``. Raises ColdironError where it does not come up."""
        for name in ("store", "log", "config"):
            directory = self.store / name
            directory.mkdir(parents=True, exist_ok=True)
            shutil.chown(directory, USER, USER)
        (self.store / "config" / "acng.conf").write_text(configuration(self.store, port, proxy))
        self.group.make()
        log = self.store / "log" / "start.log"
        log.write_text("")
        self.host.spawn(cache_command(self.store / "config"), cgroup=self.group.path, log=log)
        if not wait_until(lambda: self.running() and listening("127.0.0.1", port), _START_SECONDS):
            said = " ".join(log.read_text(errors="replace").split())[:300]
            raise ColdironError(f"{log}: the package cache does not start: {said}", ExitCode.ENVIRONMENT)

    def stop(self) -> None:
        self.group.kill()
        self.group.remove()

    def open_door(self, group: Cgroup, address: str, port: int, log: Path) -> None:
        """Start a rack's forwarder on its bridge's ``address``, unless it runs."""
        if group.populated():
            return
        group.make()
        self.host.spawn(forwarder_command(address, port), cgroup=group.path, log=log)
        if not wait_until(lambda: group.populated() and listening(address, PORT), _START_SECONDS):
            said = " ".join(log.read_text(errors="replace").split())[-300:]
            raise ColdironError(
                f"{address}:{PORT}: the rack's package forwarder does not start: {said}", ExitCode.ENVIRONMENT
            )
