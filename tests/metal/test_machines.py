"""The rack's machines themselves: they are defined, powered through their BMCs, broken and mended.

A rack of its own, without a head: no operating system is needed, and hardly a moment of an emulated processor.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.metal, pytest.mark.slow]

CLUSTER = """\
plugin: coldiron.cluster.cluster
name: tmachines
domain: tmachines.internal
networks:
  cluster: {subnet: 10.91.40.0/24, gateway: 10.91.40.254}
features: {scheduler: none, home_backend: provided}
defaults: {platform: machine, distribution: debian-13}
nodes:
  - {name: head01, kind: head, address: 10.91.40.1, platform: container}
  - name: bios01
    kind: cpu
    address: 10.91.40.31
    mac: "02:91:40:00:00:31"
    boot: {firmware: bios}
    bmc: {address: 10.91.40.131}
  - name: ipmi01
    kind: cpu
    address: 10.91.40.33
    mac: "02:91:40:00:00:33"
    boot: {firmware: bios}
    bmc: {address: 10.91.40.133, protocol: ipmi}
"""
MACHINES = ("bios01", "ipmi01")
DATA = Path("/var/lib/coldiron/rack/tmachines")


class Site:
    """The rack, asked by its command line."""

    def __init__(self, inventory: Path) -> None:
        self.inventory = inventory

    def run(self, *words: str, code: int = 0) -> str:
        command = [str(Path(sys.executable).parent / "coldiron"), "rack", words[0], "-i", str(self.inventory)]
        done = subprocess.run(
            [*command, *words[1:]], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def machine(self, name: str) -> dict[str, object]:
        found = json.loads(self.run("status", "--json"))["machines"]
        return dict(next(one for one in found if one["name"] == name))


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    inventory = Path("/srv/coldiron-test-machines")
    inventory.mkdir(parents=True, exist_ok=True)
    (inventory / "cluster.yml").write_text(CLUSTER)
    made = Site(inventory)
    made.run("up", *MACHINES)
    yield made
    made.run("down")
    assert not DATA.exists()
    (inventory / "cluster.yml").unlink()
    inventory.rmdir()


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_comes_off_and_its_firmware_speaks_when_it_is_switched_on(site: Site, name: str) -> None:
    assert site.run("power", name) == f"{name}: off\n"
    site.run("power", name, "on")
    try:
        deadline = time.monotonic() + 90
        while "iPXE" not in site.run("console", name) and time.monotonic() < deadline:
            time.sleep(1)
        assert "iPXE" in site.run("console", name)
        assert site.machine(name)["state"] == "on"
        site.run("up", name)
        assert site.machine(name)["state"] == "on"
    finally:
        site.run("fault", name, "power-cut")
    assert site.run("power", name) == f"{name}: off\n"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("bmc-503", "503"),
        ("bmc-password", "401"),
        ("bmc-certificate", "self-signed"),
        ("bmc-hang", "timed out"),
    ],
)
def test_a_broken_redfish_bmc_is_told_by_name(site: Site, fault: str, said: str) -> None:
    site.run("fault", "bios01", fault)
    try:
        answer = site.run("power", "bios01", code=1)
        assert "bios01: its BMC https://10.91.40.131" in answer
        assert said in answer
    finally:
        site.run("fault", "bios01", fault, "--clear")
    assert site.run("power", "bios01") == "bios01: off\n"


@pytest.mark.parametrize("fault", ["bmc-password", "bmc-hang"])
def test_a_broken_ipmi_bmc_is_told_by_name(site: Site, fault: str) -> None:
    site.run("fault", "ipmi01", fault)
    try:
        assert "ipmi01: its BMC ipmi://10.91.40.133" in site.run("power", "ipmi01", code=1)
    finally:
        site.run("fault", "ipmi01", fault, "--clear")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and site.machine("ipmi01")["bmc_state"] != "running":
        time.sleep(0.5)
    assert site.run("power", "ipmi01") == "ipmi01: off\n"


def test_a_full_disk_stays_full_over_a_power_cycle(site: Site) -> None:
    """The machine is started without its processor running: QEMU itself writes to the disk."""
    uri = f"qemu+unix:///system?socket={DATA}/metal/libvirt/run/libvirt-sock"
    disk = DATA / "nodes/bios01/disk-vda.raw"

    def write_is_refused() -> bool:
        subprocess.run(["virsh", "-c", uri, "start", "--paused", "bios01"], check=True, capture_output=True)
        before = disk.read_bytes()[:512] if disk.stat().st_size < 1 << 20 else disk.open("rb").read(512)
        command = 'qemu-io -d /machine/peripheral/virtio-disk0/virtio-backend "write -P 7 0 512"'
        monitor = ["virsh", "-c", uri, "qemu-monitor-command", "bios01", "--hmp", command]
        try:
            subprocess.run(monitor, check=True, capture_output=True)
        finally:
            site.run("fault", "bios01", "power-cut")
        return disk.open("rb").read(512) == before

    site.run("fault", "bios01", "disk-full")
    assert write_is_refused()
    site.run("fault", "bios01", "disk-full", "--clear")
    assert not write_is_refused()
    site.run("reset", "bios01")
    assert disk.open("rb").read(512) == bytes(512)


def test_no_dhcp_answer_reaches_a_silenced_machine(site: Site) -> None:
    def rules() -> str:
        return subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout

    site.run("fault", "bios01", "dhcp-silent")
    assert "udp dport 68" in rules().split("table bridge coldiron_ci_tmachines")[1]
    site.run("fault", "bios01", "--clear")
    assert "coldiron_ci_tmachines" not in rules()
