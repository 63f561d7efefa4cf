"""What racks change on the host as a whole, and how the last of them puts it back."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.cache import PORT, PackageCache, free_port
from coldiron.rack.cgroup import Cgroup
from coldiron.rack.host import Host, mount_points
from coldiron.rack.layout import Layout, Machine
from coldiron.rack.state import Registry

# Raised while racks exist: every systemd takes a handful of inotify instances, and the neighbour table is one
# for all of the host's network namespaces.
RAISED = {
    "fs.inotify.max_user_instances": 16384,
    "net.ipv4.neigh.default.gc_thresh2": 8192,
    "net.ipv4.neigh.default.gc_thresh3": 16384,
}
# Changed by the systemd of every node as it boots.
CHANGED_BY_NODES = ("fs.file-max", "fs.nr_open")


def sysctl_path(proc: Path, name: str) -> Path:
    return proc / "sys" / name.replace(".", "/")


class MachineKeeper:
    """Registers racks on this machine and takes them off again. The caller holds the rack's lock."""

    def __init__(self, host: Host, machine: Machine, cgroup_root: Path) -> None:
        self.host = host
        self.machine = machine
        self.cgroup_root = cgroup_root
        self.cache = PackageCache(host, cgroup_root, machine.packages)

    @property
    def lock(self) -> Path:
        return self.machine.run / "machine.lock"

    def registry(self) -> Registry:
        return Registry.load(self.machine.registry)

    def refuse_other_owner(self, layout: Layout) -> None:
        """Raise ColdironError where another inventory's rack has this one's name."""
        owner = self.registry().racks.get(layout.name)
        if owner is not None and Path(owner) != layout.inventory:
            how = f"-i {owner}" if Path(owner).is_dir() else f"--name {layout.name}"
            raise ColdironError(
                f"{layout.inventory}/cluster.yml: a rack called {layout.name} is up, made from {owner}; "
                f"write another name, or take that one away: coldiron rack down {how}",
                ExitCode.REFUSED,
            )

    def register(self, layout: Layout, apt_proxy: str | None) -> int:
        """Write the rack down, prepare the host and start the package cache. Returns the cache's port."""
        with self.host.lock(self.lock):
            self.refuse_other_owner(layout)
            registry = self.registry()
            mounted = bool(mount_points(self._mountinfo(), self.machine.netns))
            if not registry.racks:
                registry.netns_mount = not mounted
            for name in (*RAISED, *CHANGED_BY_NODES):
                with contextlib.suppress(OSError):
                    registry.sysctl.setdefault(name, sysctl_path(self.machine.proc, name).read_text().strip())
            registry.racks[layout.name] = str(layout.inventory)
            if not self.cache.running():
                registry.cache_port = free_port(registry.cache_port or PORT)
            registry.save(self.machine.registry)
            for name, value in RAISED.items():
                self._raise(name, value)
            port = registry.cache_port or PORT
            if not self.cache.running():
                self.cache.start(port, apt_proxy)
            return port

    def unregister(self, name: str) -> None:
        """Take a rack off; with the last one go the package cache and every change to the host."""
        with self.host.lock(self.lock):
            registry = self.registry()
            registry.racks.pop(name, None)
            if registry.racks:
                registry.save(self.machine.registry)
                return
            self.cache.stop()
            for sysctl, value in registry.sysctl.items():
                path = sysctl_path(self.machine.proc, sysctl)
                with contextlib.suppress(OSError):
                    if path.read_text().strip() != value:
                        path.write_text(value)
            if registry.netns_mount and not any(self.machine.netns.glob("*")):
                for _ in mount_points(self._mountinfo(), self.machine.netns):
                    self.host.run(["umount", str(self.machine.netns)], check=False)
                with contextlib.suppress(OSError):
                    self.machine.netns.rmdir()
            Cgroup(self.cgroup_root, "coldiron").remove()
            # Last, so that a tear-down that is cut off can be taken up again.
            self.machine.registry.unlink(missing_ok=True)
            for directory in (self.machine.lib / "rack", self.machine.lib):
                with contextlib.suppress(OSError):
                    directory.rmdir()

    def leave(self) -> None:
        """Remove the run directory if nobody needs it any more."""
        with contextlib.suppress(OSError):
            self.machine.run.rmdir()

    def purge(self) -> None:
        """Remove base images, kept snapshots and cached packages. Raises ColdironError while racks are up."""
        if racks := self.registry().racks:
            raise ColdironError(
                f"{self.machine.cache}: racks stand on it; take them down first: {', '.join(sorted(racks))}",
                ExitCode.REFUSED,
            )
        shutil.rmtree(self.machine.cache, ignore_errors=True)

    def _raise(self, name: str, value: int) -> None:
        path = sysctl_path(self.machine.proc, name)
        with contextlib.suppress(OSError, ValueError):
            if int(path.read_text()) < value:
                path.write_text(str(value))

    def _mountinfo(self) -> str:
        return (self.machine.proc / "self/mountinfo").read_text()


def refuse_not_root() -> None:
    """Raise ColdironError for an ordinary user."""
    if os.geteuid() != 0:
        raise ColdironError(
            "the virtual rack makes containers and a bridge, which only root may; type the same behind sudo",
            ExitCode.ENVIRONMENT,
        )
