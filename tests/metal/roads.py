"""A rack for the roads to a machine that the other proofs do not take: two machines, each with a mirrored system disk.

One starts from UEFI, whose firmware fetches by HTTP, and has two cards of one network; the other starts from a BIOS
and has a BMC that speaks IPMI only. What they are installed from comes through a cache near them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path

import yaml

from coldiron.rack.metal.spec import second_mac
from coldiron.testing.steps import call, command
from tests.metal.site import BAKE_SECONDS, KEPT, ROOT, Metal

INVENTORY = ROOT / ".cache" / "roads" / "inventory"
CLASSES = ("deploy", "cpu-debian-13")
HEAD, CACHE, UEFI, BIOS = "head01", "cache01", "cpu01", "cpu02"
CACHE_ADDRESS = "10.92.8.9"
MACS = {UEFI: "02:cd:92:00:00:41", BIOS: "02:cd:92:00:00:42"}
HALVES = {name: (f"LEFT-{name.upper()}", f"RIGHT-{name.upper()}") for name in MACS}
# A disk that cluster.yml does not know of, and one that it calls data.
STRAY, DATA = "STRAY-CPU01", "DATA-CPU02"
# A BIOS or a kernel that is emulated beside others takes its time.
STEP_SECONDS = {UEFI: {}, BIOS: {"stream": 600}}
CABLE = ("cdroads0", "cdroads1")


def node(name: str, number: int, **options: object) -> dict[str, object]:
    """A machine with a mirrored system disk, as cluster.yml has it."""
    disks: list[dict[str, object]] = [
        {"use": "system", "serial": serial, "size_gb": 10} for serial in HALVES[name]
    ]
    return {
        "name": name,
        "kind": "cpu",
        "address": f"10.92.8.{number}",
        "mac": MACS[name],
        "serial": f"CHASSIS-{name.upper()}",
        "hardware": {"sockets": 1, "cores_per_socket": 1, "memory_gib": 2},
        "disks": disks,
        **options,
    }


def cluster(*, stray: bool) -> dict[str, object]:
    """cluster.yml; with ``stray`` the rack is to put a disk in that is not declared afterwards."""
    uefi = node(
        UEFI, 41, boot={"firmware": "uefi", "path": "http"},
        bmc={"address": "10.92.9.41", "credentials": "bmc_credentials"},
    )  # fmt: skip
    bios = node(
        BIOS, 42, boot={"firmware": "bios"},
        bmc={"address": "10.92.9.42", "protocol": "ipmi", "credentials": "bmc_credentials"},
    )  # fmt: skip
    for machine, serial, wanted in ((uefi, STRAY, stray), (bios, DATA, True)):
        if wanted:
            machine["disks"] = [*machine["disks"], {"use": "data", "serial": serial, "size_gb": 2}]  # type: ignore[misc]
    head = {"name": HEAD, "kind": "head", "address": "10.92.8.1", "platform": "container"}
    cache = {
        "name": CACHE, "kind": "storage", "address": CACHE_ADDRESS, "platform": "container",
        "functions": ["netboot_cache"],
    }  # fmt: skip
    return {
        "plugin": "coldiron.cluster.cluster",
        "name": "roads",
        "domain": "roads.internal",
        "networks": {
            # A bond wants to know what its cards can; a rack takes what is written.
            "cluster": {"subnet": "10.92.8.0/24", "gateway": "10.92.8.254", "mtu": 1400},
            "bmc": {"subnet": "10.92.9.0/24"},
        },
        "features": {"scheduler": "none", "home_backend": "provided", "monitoring": "prometheus"},
        "defaults": {"platform": "machine", "distribution": "debian-13"},
        "nodes": [head, cache, uefi, bios],
    }


EVERYBODY = {
    "dns_isolated": True,
    "time_upstream_servers": [],
    # Emulated machines are slow.
    "deploy_files": {
        "/etc/systemd/system.conf.d/emulated.conf": {
            "text": "[Manager]\nDefaultDeviceTimeoutSec=600s\nDefaultTimeoutStartSec=600s\n"
        },
        "/etc/udev/udev.conf.d/emulated.conf": {"text": "event_timeout=600\n"},
    },
}


class Roads(Metal):
    """The site of these machines."""

    @property
    def head(self) -> str:
        return HEAD

    def write(self, path: str, content: object) -> None:
        """Write a file of the inventory."""
        file = self.inventory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")

    def make(self) -> None:
        """Make the inventory; images and secrets of an earlier one stay."""
        if (self.inventory / ".rack").is_dir():
            unplug()
            call([command("coldiron"), "rack", "down", "-i", str(self.inventory)], "coldiron rack down")
        for path in self.inventory.iterdir() if self.inventory.is_dir() else ():
            if path.name not in (*KEPT, "group_vars"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.write("cluster.yml", cluster(stray=True))
        self.write("group_vars/all/site.yml", EVERYBODY)
        self.write(
            f"host_vars/{UEFI}.yml", {"network_cards": {"cluster": [MACS[UEFI], second_mac(MACS[UEFI])]}}
        )
        self.write(f"host_vars/{BIOS}.yml", {"deploy_step_seconds": STEP_SECONDS[BIOS]})

    def up(self) -> None:
        """Bake, bring the rack up, put content on the disks that nobody may write, and declare one of them no more."""
        self.verb("secrets", "init")
        for node_class in CLASSES:
            self.verb("image", "bake", node_class, seconds=BAKE_SECONDS)
        self.verb("rack", "up", seconds=300)
        for name, target in ((UEFI, "vdc"), (BIOS, "vdc")):
            fill(self.disk(name, target))
        self.write("cluster.yml", cluster(stray=False))
        plug()
        record = self.run("--limit", CACHE, "--tags", "provision")
        assert record.status == 0, record.told()

    def down(self) -> None:
        """Take all of it away."""
        unplug()
        self.write("cluster.yml", cluster(stray=True))
        self.verb("rack", "down", seconds=120)

    def disk(self, name: str, target: str) -> Path:
        """The file behind a machine's disk."""
        return Path(self.machine(name)["console"]).parent / f"disk-{target}.raw"

    def start(self, name: str, seconds: float = 420) -> None:
        """Switch a machine on that is off, and wait until ssh answers."""
        self.verb("rack", "power", name, "on")
        self.site.connections.forget()
        end = time.monotonic() + seconds
        while self.site.connections.run(name, "true", timeout=15).returncode != 0:
            assert time.monotonic() < end, f"{name} does not answer: {self.console(name)[-2000:]}"
            time.sleep(2)

    def stop(self, name: str) -> None:
        """Shut a machine down and wait until it is off."""
        self.on(name, "systemctl poweroff")
        self.wait_until_off(name)
        self.site.connections.forget()


def fill(path: Path) -> None:
    """Put bytes on a disk that look like nothing: a rule that chose by content would take it for blank."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        for place in (1 << 20, size // 2, size - (1 << 20)):
            file.seek(place)
            file.write(hashlib.sha256(str(place).encode()).digest() * 128)


def digest(path: Path) -> str:
    """What a disk holds, in a word."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def bridges() -> tuple[str, ...]:
    """The rack's two bridges."""
    told = subprocess.run(
        ["ip", "-o", "link", "show", "type", "bridge"], capture_output=True, text=True, check=True
    )
    found = [
        line.split()[1].rstrip(":") for line in told.stdout.splitlines() if "coldiron-rack-roads" in line
    ]
    assert len(found) == 2, told.stdout
    return tuple(found)


def plug() -> None:
    """Make one network of the rack's two: both cards of a machine then reach the head, as on one switch."""
    unplug()
    ip("link", "add", CABLE[0], "type", "veth", "peer", "name", CABLE[1])
    for end, bridge in zip(CABLE, bridges(), strict=True):
        ip("link", "set", "dev", end, "master", bridge, "up")


def unplug() -> None:
    """Take the cable between the two away."""
    subprocess.run(["ip", "link", "del", CABLE[0]], capture_output=True, check=False)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def kill_emulator(name: str) -> None:
    """End a machine's QEMU as its own faults do: at once, without a word."""
    for pid in Path("/proc").glob("[0-9]*"):
        try:
            line = (pid / "cmdline").read_bytes()
        except OSError:
            continue
        if (
            line.startswith(b"/usr/bin/qemu-system")
            and f"nodes/{name}/qmp.sock".encode() in line
            and b"/roads/" in line
        ):
            os.kill(int(pid.name), 9)
            return
    raise AssertionError(f"{name} does not run")
