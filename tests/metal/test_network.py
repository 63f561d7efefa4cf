"""A node's network changed for good and for bad: what is wrong takes itself back, whoever dies in between.

On containers with cards of their own, whose gateway is a network namespace in the node (molecule/network/wires.yml).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from coldiron.testing.steps import call, command, environment

pytestmark = [pytest.mark.metal, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "molecule" / "network"
# Not below /tmp, of which some tests have a view that is read-only.
INVENTORY = ROOT / ".cache" / "network" / "inventory"
NODE = "cpu01"
STATE = "/var/lib/coldiron/network"
CONFIRM_SECONDS = 25
# Where the test has to come in between: a busy machine needs that long to look.
PATIENT_SECONDS = 150
CLUSTER = {
    "plugin": "coldiron.cluster.cluster",
    "name": "network-test",
    "domain": "network.internal",
    "networks": {"cluster": {"subnet": "10.96.9.0/24", "gateway": "10.96.9.254"}},
    "features": {"scheduler": "none", "home_backend": "provided"},
    "defaults": {"platform": "container", "distribution": "debian-13"},
    "nodes": [
        {"name": "head01", "kind": "head", "address": "10.96.9.1"},
        {"name": NODE, "kind": "cpu", "address": "10.96.9.31"},
    ],
}
SITE = {"dns_isolated": True, "time_upstream_servers": []}


def wanted() -> dict[str, Any]:
    """The scenario's options: two cards, of which one has a gateway."""
    scenario = yaml.safe_load((SCENARIO / "molecule.yml").read_text())
    return {**SITE, **scenario["provisioner"]["inventory"]["group_vars"]["cluster"]}


class Bench:
    """One node, and the playbook that is run on it."""

    def __init__(self, inventory: Path) -> None:
        self.inventory = inventory
        self.words = [
            command("ansible-playbook"),
            "coldiron.cluster.site",
            *("-i", str(inventory), "--tags", "network", "--limit", NODE),
        ]

    def write(self, **options: Any) -> None:
        """Write the node's options."""
        (self.inventory / "group_vars" / "cluster.yml").write_text(yaml.safe_dump({**wanted(), **options}))

    def run(self, *words: str) -> tuple[int, str]:
        """Run the stages; returns the exit status and all that was said, in one line."""
        done = subprocess.run(
            [*self.words, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment(),
            timeout=240, check=False,
        )  # fmt: skip
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def start(self) -> subprocess.Popen[bytes]:
        """Start the stages in a process group of their own."""
        return subprocess.Popen(
            self.words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=environment(), start_new_session=True,
        )  # fmt: skip

    def ask(self, text: str) -> str:
        """Run a command on the node."""
        words = [command("coldiron"), "rack", "ssh", "-i", str(self.inventory), NODE, "--", text]
        return call(words, text)

    def mtu(self) -> int:
        """The MTU of the first card, in bytes."""
        return int(json.loads(self.ask("ip -json link show dev card1"))[0]["mtu"])

    def gateway(self) -> list[str]:
        """Where the default routes lead."""
        return [way["gateway"] for way in json.loads(self.ask("ip -json route show default"))]

    def until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Wait until something holds."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"did not hold within {seconds} s"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    shutil.rmtree(INVENTORY, ignore_errors=True)
    (INVENTORY / "group_vars").mkdir(parents=True)
    (INVENTORY / "cluster.yml").write_text(yaml.safe_dump(CLUSTER))
    (INVENTORY / "managed.yml").write_text(yaml.safe_dump({"network_managed": {"hosts": {NODE: None}}}))
    bench = Bench(INVENTORY)
    bench.write()
    call([command("coldiron"), "rack", "up", "-i", str(INVENTORY)], "coldiron rack up")
    try:
        call([command("ansible-playbook"), "-i", str(INVENTORY), str(SCENARIO / "wires.yml")], "wires.yml")
        status, said = bench.run()
        assert status == 0, said
        yield bench
    finally:
        call([command("coldiron"), "rack", "down", "-i", str(INVENTORY)], "coldiron rack down")


@pytest.fixture(autouse=True)
def as_it_was(bench: Bench) -> Iterator[None]:
    """Each test begins and ends with the good network, and leaves nothing waiting."""
    yield
    bench.write()
    status, said = bench.run()
    assert status == 0, said
    assert bench.mtu() == 1400
    assert bench.gateway() == ["10.98.0.254"]
    assert "pending" not in bench.ask(f"ls {STATE}")


def lan(**more: Any) -> list[dict[str, Any]]:
    """The scenario's interfaces, the first of which differs."""
    first, *others = wanted()["network_interfaces"]
    return [{**first, **more}, *others]


def test_a_second_run_changes_nothing_and_check_says_so(bench: Bench) -> None:
    for words in ((), ("--check",)):
        status, said = bench.run(*words)
        assert status == 0, said
        assert "changed=0" in said.partition("PLAY RECAP")[2].partition("head01")[0]


def test_check_announces_a_change_and_makes_none(bench: Bench) -> None:
    bench.write(network_interfaces=lan(mtu=1300))
    status, said = bench.run("--check", "--diff")
    assert status == 0, said
    assert "-MTUBytes=1400 +MTUBytes=1300" in said
    assert bench.mtu() == 1400


def test_a_right_change_stays(bench: Bench) -> None:
    bench.write(network_interfaces=lan(mtu=1300))
    status, said = bench.run()
    assert status == 0, said
    assert bench.mtu() == 1300
    time.sleep(CONFIRM_SECONDS + 3)
    assert bench.mtu() == 1300


def test_an_interface_that_does_not_change_keeps_its_packets_flowing(bench: Bench) -> None:
    """Its route would be another one, were it configured anew."""
    bench.ask("ip route add 10.55.0.0/16 via 10.97.0.9 dev card2")
    bench.write(network_interfaces=lan(mtu=1300))
    status, said = bench.run()
    assert status == 0, said
    assert "10.55.0.0/16" in bench.ask("ip route show")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"gateway": "10.98.0.250"}, "10.98.0.250 does not answer"),
        (
            {"addresses": ["10.123.0.31/24"], "gateway": "10.123.0.254", "routes": []},
            "10.123.0.254 does not answer",
        ),
    ],
)
def test_a_wrong_change_is_taken_back(bench: Bench, more: dict[str, Any], said: str) -> None:
    bench.write(network_interfaces=lan(**more))
    status, told = bench.run()
    assert status != 0
    assert "the new network was taken back, and the old one answers" in told
    assert said in told
    assert bench.gateway() == ["10.98.0.254"]
    assert "10.98.0.31/24" in bench.ask("ip address show dev card1")


def test_a_change_that_cuts_the_controller_off_is_taken_back(bench: Bench) -> None:
    """The rack's own card gets another address: no new connection can stand."""
    mac = json.loads(bench.ask("ip -json link show dev eth0"))[0]["address"]
    rackside = {"name": "rackside", "mac": mac, "addresses": ["10.96.200.31/24"]}
    bench.write(network_interfaces=[*wanted()["network_interfaces"], rackside])
    status, told = bench.run()
    assert status != 0
    assert f"no new connection stood within {CONFIRM_SECONDS} s" in told
    assert "the old one answers" in told
    # It was in no file of ours: the kernel had it, and has it again.
    assert "10.96.9.31/24" in bench.ask("ip address show dev eth0")


def begin_and_kill(bench: Bench) -> None:
    """Kill the controller between a change and its proof, and its module on the node, as when the connection is cut."""
    # An address that never answers would end the proof in seconds: nothing of it lives to do so.
    loop = "until grep -qx 1300 /sys/class/net/card1/mtu; do sleep 0.1; done; "
    loop += "while :; do pkill -9 -f [A]nsiballZ; sleep 0.1; done"
    bench.ask(f"systemd-run --quiet --collect --unit=killer sh -c '{loop}'")
    bench.write(
        network_interfaces=lan(mtu=1300),
        network_probes=["10.98.0.77"],
        network_confirm_seconds=PATIENT_SECONDS,
    )
    process = bench.start()
    try:
        bench.until(lambda: bench.mtu() == 1300, 2 * PATIENT_SECONDS)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_killed_controller_leaves_no_half_made_network(bench: Bench) -> None:
    begin_and_kill(bench)
    bench.ask("systemctl stop killer")
    # The timer alone is left.
    bench.until(lambda: bench.mtu() == 1400, 2 * PATIENT_SECONDS)
    assert "undone" in bench.ask(f"ls {STATE}")


def test_what_lost_its_power_in_between_boots_with_the_old_network(bench: Bench) -> None:
    """The unit of the boot, with the timer gone as after a power cut."""
    begin_and_kill(bench)
    gone = "killer.service coldiron-network-deadline.timer systemd-networkd.service"
    assert "1300" in bench.ask(f"systemctl stop {gone}; cat /etc/systemd/network/20-coldiron-lan.network")
    bench.ask("systemctl start coldiron-network-rollback.service")
    assert "1400" in bench.ask("cat /etc/systemd/network/20-coldiron-lan.network")
    bench.until(lambda: bench.mtu() == 1400, 60)


def test_a_card_that_is_not_there_is_refused_before_anything_is_touched(bench: Bench) -> None:
    bench.write(network_interfaces=lan(mac="02:c0:1d:00:00:99"))
    status, told = bench.run()
    assert status != 0
    assert "lan: no card has the MAC 02:c0:1d:00:00:99; there are eth0" in told


def test_a_description_that_cannot_work_is_refused_before_a_node_is_asked(bench: Bench) -> None:
    bench.write(network_interfaces=lan(gateway="10.1.1.1"))
    status, told = bench.run()
    assert status != 0
    assert "lan: gateway: 10.1.1.1 is outside its subnet (10.98.0.0/24)" in told
    assert "Ensure the interfaces" not in told


def test_ifupdown_s_card_is_not_configured_twice(bench: Bench) -> None:
    bench.ask("mkdir -p /etc/network; echo 'iface card1 inet dhcp' > /etc/network/interfaces")
    try:
        status, told = bench.run()
    finally:
        bench.ask("rm /etc/network/interfaces")
    assert status != 0
    assert "/etc/network/interfaces configures card1 as well: take its lines out" in told
