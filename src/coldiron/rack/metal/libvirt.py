"""The rack's own libvirtd: private places by a mount name space, no systemd, no D-Bus, no other libvirt's domains.

It and the machines live in one control group of the rack: what kills the group leaves nothing of them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.cgroup import Cgroup
from coldiron.rack.host import CommandError, Host, wait_until
from coldiron.rack.metal import inject
from coldiron.rack.metal.places import LIBVIRT_GROUP, Places
from coldiron.rack.state import write_atomically

_START_SECONDS = 60.0
# libvirt starts every QEMU that it finds, to ask what it can do; the answers are kept.
_CACHE = "libvirt"

DAEMON = """\
listen_tls = 0
listen_tcp = 0
auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_group = "root"
unix_sock_rw_perms = "0700"
unix_sock_ro_perms = "0700"
"""
QEMU = """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
"""
# What libvirtd holds for its own, and what of the rack's stands there for it.
_MOUNTS = {
    "etc": "/etc/libvirt", "lib": "/var/lib/libvirt", "run": "/run/libvirt", "log": "/var/log/libvirt",
    "cache": "/var/cache/libvirt",
}  # fmt: skip
# Called when a machine has started: a disk that is to fail goes on failing after a power cycle.
_HOOK = """\
#!/bin/sh
own={nodes}/$1
[ "$2" = started ] && grep -q '"disk-' "$own/bmc/faults.json" || exit 0
exec /usr/bin/python3 -P {program} "$own/qmp.sock" "$own/bmc/faults.json"
"""
_FILES = {"passwd": "/etc/passwd", "group": "/etc/group"}
# libvirt looks these up before it reads its configuration. The package that makes them starts a libvirtd of the
# host's too, with a network of its own; so they are there in the rack's name space only.
_USERS = {
    "passwd": "libvirt-qemu:x:64055:64055:rack:/nonexistent:/usr/sbin/nologin\n",
    "group": "libvirt-qemu:x:64055:\nkvm:x:64056:\n",
}


def with_users(text: str, more: str) -> str:
    """A passwd or group file with the lines of ``more`` whose names it lacks."""
    known = {line.split(":")[0] for line in text.splitlines()}
    lines = [line for line in more.splitlines(keepends=True) if line.split(":")[0] not in known]
    return text + ("" if text.endswith("\n") or not text else "\n") + "".join(lines)


def daemon_command(places: Places, cache: Path) -> list[str]:
    """libvirtd in a mount name space of its own, where the rack's directories lie over the host's."""
    here = {name: places.libvirt / name for name in _MOUNTS} | {"cache": cache}
    here |= {name: places.libvirt / name for name in _USERS}
    binds = " && ".join(
        f'mount --bind "{here[name]}" {there}' for name, there in {**_MOUNTS, **_FILES}.items()
    )
    script = f"{binds} && exec libvirtd -f /etc/libvirt/libvirtd.conf -p /run/libvirt/libvirtd.pid"
    return ["unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-c", script]


class Libvirt:
    """The rack's libvirtd, and what virsh can ask of it."""

    def __init__(self, host: Host, places: Places, cgroup_root: Path) -> None:
        self.host = host
        self.places = places
        self.group = Cgroup(cgroup_root, f"{places.layout.cgroup}/{LIBVIRT_GROUP}")

    @property
    def log(self) -> Path:
        return self.places.libvirt / "libvirtd.log"

    def virsh(
        self, *words: str, check: bool = True, what: str = "", timeout_seconds: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run virsh. Raises CommandError if it fails, unless ``check`` is off."""
        return self.host.run(
            ["virsh", "--quiet", "--connect", self.places.uri, *words],
            check=check,
            what=what,
            timeout_seconds=timeout_seconds,
        )

    def answers(self) -> bool:
        """Whether it takes connections."""
        if not self.places.socket.exists():
            return False
        try:
            return self.virsh("uri", check=False, timeout_seconds=10.0).returncode == 0
        except CommandError:
            return False

    def start(self) -> None:
        """Start it, unless it answers. Raises ColdironError where it does not come up."""
        if self.group.populated() and self.answers():
            return
        cache = self.places.layout.machine.cache / _CACHE
        for directory in (*(self.places.libvirt / name for name in ("etc", "lib", "run", "log")), cache):
            directory.mkdir(parents=True, exist_ok=True)
        for there in _MOUNTS.values():
            Path(there).mkdir(parents=True, exist_ok=True)
        write_atomically(self.places.libvirt / "etc" / "libvirtd.conf", DAEMON)
        write_atomically(self.places.libvirt / "etc" / "qemu.conf", QEMU)
        hook = _HOOK.format(nodes=self.places.layout.data / "nodes", program=Path(inject.__file__))
        write_atomically(self.places.libvirt / "etc" / "hooks" / "qemu", hook, 0o755)
        for name, there in _FILES.items():
            text = with_users(Path(there).read_text(), _USERS[name])
            write_atomically(self.places.libvirt / name, text)
        self.places.socket.unlink(missing_ok=True)
        self.group.make()
        process = self.host.spawn(
            daemon_command(self.places, cache), cgroup=self.group.path, log=self.log,
        )  # fmt: skip
        if not wait_until(lambda: self.answers() or process.poll() is not None, _START_SECONDS, 0.1):
            self._refuse()
        if not self.answers():
            self._refuse()
        self._pool()

    def _refuse(self) -> None:
        said = " ".join(self.log.read_text(errors="replace").split())[-300:] if self.log.exists() else ""
        raise ColdironError(f"{self.log}: libvirtd does not start: {said}", ExitCode.ENVIRONMENT)

    def _pool(self) -> None:
        """Make the pool `default`, where sushy puts what is inserted as virtual media."""
        self.places.media.mkdir(parents=True, exist_ok=True)
        if "default" not in self.virsh("pool-list", "--all", "--name").stdout.split():
            self.virsh("pool-define-as", "default", "dir", "--target", str(self.places.media))
        self.virsh("pool-start", "default", check=False)

    def define(self, xml: str, name: str) -> None:
        """Make a machine what ``xml`` says; one that runs takes it up at its next power on."""
        path = self.places.node(name) / "domain.xml"
        write_atomically(path, xml)
        self.virsh("define", str(path), what=f"machine {name}")

    def defined(self) -> dict[str, bool]:
        """The machines by name, and whether each runs."""
        everybody = self.virsh("list", "--all", "--name").stdout.split()
        running = set(self.virsh("list", "--name").stdout.split())
        return {name: name in running for name in everybody}

    def remove(self, name: str) -> None:
        """Switch a machine off and forget it; its files stay."""
        self.virsh("destroy", name, check=False)
        self.virsh("undefine", name, "--nvram", check=False)
        self.virsh("undefine", name, check=False)

    def power_off(self, name: str) -> None:
        """Cut the power, without a word to the machine."""
        self.virsh("destroy", name, what=f"power of {name}")

    def xml(self, name: str) -> ET.Element:
        """The machine as it will be at its next power on."""
        return ET.fromstring(self.virsh("dumpxml", "--inactive", name).stdout)

    def pid(self, name: str) -> int | None:
        """The process of a machine that runs."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.places.libvirt / "run" / "qemu" / f"{name}.pid").read_text())
            os.kill(pid, 0)
            return pid
        return None
