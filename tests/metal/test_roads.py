"""The other roads from power-off to ssh, and what a mirrored system disk is good for. On two machines, in their order.

One machine's UEFI fetches over HTTP itself, and its two cards share one network. The other has a BIOS, a BMC that
speaks IPMI only, and a clock that is four years behind; its emulator is killed while its disks are written.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldiron.provision.store import Store
from coldiron.rack.metal.domain import CLOCK_OFF_SECONDS
from coldiron.rack.metal.spec import second_mac
from coldiron.status.client import Alertmanager
from coldiron.status.where import watch_of
from coldiron.testing.steps import command, environment
from tests.e2e.siterun import eventually
from tests.metal.conftest import STANDING
from tests.metal.roads import (
    BIOS,
    CACHE,
    CACHE_ADDRESS,
    CLASSES,
    DATA,
    HALVES,
    HEAD,
    INVENTORY,
    MACS,
    STRAY,
    UEFI,
    Roads,
    digest,
    kill_emulator,
)

pytestmark = [pytest.mark.metal, pytest.mark.slow]

PROVISION_SECONDS = 1800
# The kernel writes the whole of one half from the other, under emulation.
SYNC_SECONDS = 900
SITE_SECONDS = 1200
# The rule waits for two minutes, and so does what takes an alert for over.
ALERT_SECONDS = 600
CACHE_LOG = "/var/log/nginx/coldiron-netboot-cache.access.log"
UNTOUCHED = {UEFI: STRAY, BIOS: DATA}


@pytest.fixture(scope="module")
def roads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roads]:
    """The rack: head up, machines powered off, with empty system disks and full other ones."""
    site = Roads(INVENTORY, tmp_path_factory.mktemp("roads"))
    if not (os.environ.get(STANDING) and (INVENTORY / ".rack").is_dir()):
        site.make()
        site.up()
    yield site
    if not os.environ.get(STANDING):
        site.down()


@pytest.fixture(scope="module")
def contents(roads: Roads) -> dict[str, str]:
    """What lies on the disks that nothing may write, before anything is installed."""
    return {name: digest(roads.disk(name, "vdc")) for name in UNTOUCHED}


def mirror(roads: Roads, name: str, *words: str, code: int = 0) -> str:
    """What coldiron-mirror says on a machine."""
    done = roads.site.connections.run(name, " ".join(("coldiron-mirror", *words)), timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def wait_for_sync(roads: Roads, name: str) -> None:
    """Wait until both halves of a machine's system disk hold the same."""
    end = time.monotonic() + SYNC_SECONDS
    while roads.site.connections.run(name, "coldiron-mirror", timeout=60).returncode != 0:
        assert time.monotonic() < end, roads.on(name, "cat /proc/mdstat")
        time.sleep(3)
    assert "[UU]" in roads.on(name, "cat /proc/mdstat")


def served(roads: Roads) -> str:
    """The lines of the provisioner's web server: who fetched what."""
    return roads.on(HEAD, "cat /var/log/nginx/*access*.log")


def test_uefi_fetches_by_http_itself(roads: Roads, contents: dict[str, str]) -> None:
    roads.verb("provision", UEFI, seconds=PROVISION_SECONDS)
    print(UEFI, roads.times(UEFI))
    assert re.search(r'"GET /snponly\.efi [^"]*" 200 .*"UefiHttpBoot', served(roads))
    dhcp = roads.on(HEAD, "journalctl -q --no-pager -u coldiron-netboot")
    assert "snponly.efi" not in "".join(line for line in dhcp.splitlines() if "tftp" in line)
    assert "BootCurrent" in roads.on(UEFI, "efibootmgr")
    assert digest(roads.disk(UEFI, "vdc")) == contents[UEFI]


def test_what_it_was_installed_from_came_through_the_cache(roads: Roads) -> None:
    """The provisioner was asked once and by the cache; what is secret went past it, and is not in its log."""
    event = next(line for line in roads.deployd("status", "--json") if line["node"] == UEFI)["events"]
    assert not [one for one in event if "cache" in one["text"]]
    kept = roads.on(CACHE, f"cat {CACHE_LOG}")
    image = Store(INVENTORY / ".images").current(CLASSES[-1])
    for path in ("deploy/vmlinuz", "deploy/initrd", f"images/{image.manifest.sha256}/image.tar.zst"):
        assert re.search(rf'"GET /{re.escape(path)} HTTP/1\.[01]" 200 ', kept), kept
    sent = sum(int(size) for size in re.findall(r'"GET /images/\S+ HTTP/1\.1" 200 (\d+)', kept))
    assert sent >= image.manifest.size_bytes
    # Of the provisioner itself the machine had its script, over plain HTTP, and over TLS what is signed or secret.
    lines = served(roads).splitlines()
    own = [line for line in lines if re.search(r'"GET /(images/\S+\.zst|deploy/)', line)]
    assert own
    assert all(line.startswith(f"{CACHE_ADDRESS} ") for line in own), own
    slices = [line for line in own if "/images/" in line]
    assert len(slices) == -(-image.manifest.size_bytes // (4 << 20))
    assert not re.search(r"/(api|boot)[/.]|token|Bearer", kept), kept


def test_a_disk_that_no_rule_names_is_told_and_left_alone(roads: Roads) -> None:
    told = next(line for line in roads.deployd("status", "--json") if line["node"] == UEFI)
    disks = next(event["text"] for event in told["events"] if event["step"] == "disks")
    assert f"serial {STRAY} (vdc, 2 GB): never written" in disks
    assert f"serial {HALVES[UEFI][0]} (vda, 10 GB): written for system" in disks


def test_both_cards_are_one_network_from_the_first_start(roads: Roads) -> None:
    """The bond was there before Ansible first saw the machine; either card may lose its link."""
    bond = json.loads(roads.on(UEFI, "ip -json -d link show type bond"))[0]["ifname"]
    members = roads.on(UEFI, f"cat /sys/class/net/{bond}/bonding/slaves").split()
    assert len(members) == 2
    active = f"cat /sys/class/net/{bond}/bonding/active_slave"
    roads.on(UEFI, f"echo {members[0]} > /sys/class/net/{bond}/bonding/active_slave")
    assert roads.on(UEFI, active).strip() == members[0]
    boot = roads.boot_id(UEFI)
    roads.verb("rack", "fault", UEFI, "nic-down")
    try:
        # The connection that is open goes on, and a new one is made.
        assert roads.on(UEFI, active, timeout=120).strip() == members[1]
        roads.site.connections.forget()
        assert roads.boot_id(UEFI) == boot
    finally:
        roads.verb("rack", "fault", UEFI, "nic-down", "--clear")


def test_a_card_that_udev_has_lost_is_taken_in_again(roads: Roads) -> None:
    """A machine that is too slow at its start loses a card's event, and networkd waits for it for ever."""
    second = roads.on(UEFI, "cat /sys/class/net/bond*/bonding/slaves").split()[1]
    roads.on(
        UEFI,
        f"""set -e
        number=$(cat /sys/class/net/{second}/ifindex)
        systemctl stop systemd-networkd.socket systemd-networkd
        rm /run/udev/data/n$number
        ip link set {second} nomaster
        ip link set {second} down
        systemctl start systemd-networkd.socket systemd-networkd
        networkctl reconfigure {second}
        """,
    )
    assert "pending" in roads.on(UEFI, f"networkctl list --no-legend --no-pager {second}")
    record = roads.run("--tags", "network", "--limit", UEFI, timeout=300)
    assert record.status == 0, record.told()
    assert set(record.restless) == {UEFI}, record.told()
    assert second in roads.on(UEFI, "cat /sys/class/net/bond*/bonding/slaves").split()


def test_a_network_that_cuts_the_machine_off_takes_itself_back(roads: Roads) -> None:
    """Role network finds what was installed as it wants it; what is wrong is undone by the machine."""
    words = ("--tags", "network", "--limit", UEFI)
    record = roads.run(*words, timeout=300)
    assert record.status == 0, record.told()
    assert record.restless == {}, record.told()
    before = roads.on(UEFI, "ip -json address | tr -d ' '; cat /etc/systemd/network/*coldiron*")
    # Another address: what applies it is cut off in the midst of it.
    left, right = ({"name": name, "mac": mac} for name, mac in zip(("left", "right"), cards(), strict=True))
    bond = {"name": "bond7", "kind": "bond", "members": ["left", "right"], "addresses": ["10.92.77.41/24"]}
    options = {"network_interfaces": [left, right, bond], "network_confirm_seconds": 30}
    wrong = ("-e", json.dumps(options))
    record = roads.run(*words, *wrong, timeout=420)
    assert record.status != 0
    roads.site.connections.forget()
    end = time.monotonic() + 120
    while roads.site.connections.run(UEFI, "true", timeout=15).returncode != 0:
        assert time.monotonic() < end, "the old network did not come back"
        time.sleep(2)
    after = roads.on(UEFI, "ip -json address | tr -d ' '; cat /etc/systemd/network/*coldiron*")
    assert network_of(after) == network_of(before)


def test_a_clock_that_is_years_off_is_told_and_ends(roads: Roads) -> None:
    """A container's clock is its host's; a machine's own is wrong until something sets it right."""
    record = roads.run("--limit", f"{HEAD},{UEFI}", timeout=SITE_SECONDS)
    assert record.status == 0, record.told()
    server = watch_of(roads.inventory).alertmanager
    assert server is not None

    def told() -> list[str]:
        labels = [one["labels"] for one in Alertmanager(server).get("/api/v2/alerts?active=true")]
        return [one["alertname"] for one in labels if one.get("instance") == UEFI]

    eventually(lambda: "ColdironClockFarOff" not in told(), told)
    roads.on(UEFI, "systemctl disable --now chrony", timeout=300)
    roads.verb("rack", "fault", UEFI, "clock-off")
    roads.stop(UEFI)
    roads.start(UEFI)
    assert time.time() - float(roads.on(UEFI, "date +%s")) > 86400
    eventually(lambda: "ColdironClockFarOff" in told(), told, ALERT_SECONDS)
    roads.verb("rack", "fault", UEFI, "clock-off", "--clear")
    roads.on(UEFI, "systemctl enable chrony", timeout=300)
    roads.stop(UEFI)
    roads.start(UEFI)
    assert abs(time.time() - float(roads.on(UEFI, "date +%s"))) < 60
    eventually(lambda: "ColdironClockFarOff" not in told(), told, ALERT_SECONDS)


def cards() -> tuple[str, str]:
    """The burnt-in addresses of the machine's two cards."""
    return MACS[UEFI], second_mac(MACS[UEFI])


def network_of(text: str) -> tuple[list[tuple[str, str]], str]:
    """Addresses by interface, and the files; counters and lifetimes aside."""
    line, _, files = text.partition("\n")
    found = json.loads(line)
    return sorted(
        (one["ifname"], address["local"])
        for one in found
        for address in one["addr_info"]
        if address["family"] == "inet"
    ), files


def test_a_machine_that_its_emulator_kills_is_started_once_more(
    roads: Roads, contents: dict[str, str]
) -> None:
    """By IPMI, from a BIOS whose clock is four years behind; and killed among its half-written disks.

    Its cache is away: kernel, initramfs and image come from the provisioner.
    """
    roads.verb("rack", "fault", BIOS, "clock-off")
    roads.on(CACHE, "systemctl stop nginx")
    log = roads.scratch / "provision.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [command("coldiron"), "provision", BIOS, "-i", str(roads.inventory)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment(),
        )  # fmt: skip
    watchdog = threading.Timer(PROVISION_SECONDS, process.kill)
    watchdog.start()
    try:
        while process.poll() is None and step(roads, BIOS) != "stream":
            time.sleep(1)
        assert process.poll() is None, log.read_text()
        kill_emulator(BIOS)
        process.wait()
    finally:
        watchdog.cancel()
        process.kill()
        # What the hardware's clock says now, the machine has written there itself.
        roads.verb("rack", "fault", BIOS, "clock-off", "--clear")
        roads.on(CACHE, "systemctl start nginx")
    told = log.read_text()
    print(told)
    assert process.returncode == 0, told
    print(BIOS, roads.times(BIOS))
    assert f"{BIOS} hangs: `stream` was not over" in told
    steps = next(line for line in roads.deployd("status", "--json") if line["node"] == BIOS)["events"]
    assert any(f"the cache {CACHE_ADDRESS}: Connection refused" in one["text"] for one in steps), steps
    # The clock was mended before TLS was spoken, and the hardware's with it.
    console = roads.console(BIOS)
    behind = re.findall(r"the clock was (\d+) s behind the provisioner's", console)
    assert behind, console[-3000:]
    assert abs(int(behind[0]) - CLOCK_OFF_SECONDS) < 3600
    assert digest(roads.disk(BIOS, "vdc")) == contents[BIOS]
    assert abs(float(roads.on(BIOS, "date +%s")) - time.time()) < 60


def step(roads: Roads, name: str) -> str:
    """The last step that a machine has told of; "" before there is a provisioner."""
    done = roads.site.connections.run(HEAD, "coldiron-deployd status --json", timeout=30)
    if done.returncode:
        return ""
    lines = json.loads(done.stdout)
    return str(next((line.get("step") or "" for line in lines if line["node"] == name), ""))


@pytest.mark.parametrize("verb", ["events", "sensors", "console"])
def test_ipmi_tells_what_it_knows(roads: Roads, verb: str) -> None:
    play = roads.scratch / f"{verb}.yml"
    out = roads.scratch / "told"
    play.write_text(
        "- hosts: bare_metal\n  gather_facts: false\n  tasks:\n    - ansible.builtin.include_role:\n"
        f"        {{name: coldiron.cluster.bmc, tasks_from: {verb}, rolespec_validate: false}}\n"
        f"      vars: {{bmc_output_dir: {out}, bmc_console_file: '', bmc_console_seconds: 5}}\n",
        encoding="utf-8",
    )
    done = roads.playbook(play, "-l", BIOS)
    assert done.returncode == 0, done.stdout[-3000:]
    text = "".join(file.read_text() for file in Path(out).rglob("*") if file.is_file())
    wanted = {"events": "Log area reset/cleared", "sensors": "Inlet Temp", "console": ""}[verb]
    assert wanted in text, text


@pytest.mark.parametrize("name", [UEFI, BIOS])
def test_the_machine_starts_from_either_half_and_is_mended(roads: Roads, name: str) -> None:
    """The first half is lost and a blank disk put in for it; then the second is lost, and comes back as it was."""
    first, second = HALVES[name]
    wait_for_sync(roads, name)
    roads.on(name, "echo kept > /root/mark; sync")
    roads.stop(name)
    roads.verb("rack", "fault", name, "disk-gone", "--disk", first)
    roads.start(name)
    assert f"{first} is missing, {second} is alone" in mirror(roads, name, code=1)
    assert "[_U]" in roads.on(name, "cat /proc/mdstat") or "[U_]" in roads.on(name, "cat /proc/mdstat")
    assert roads.on(name, "cat /root/mark").strip() == "kept"
    roads.on(name, "echo from-the-second > /root/mark; sync")
    roads.stop(name)
    disk = roads.disk(name, "vda")
    with disk.open("r+b") as file:
        size = disk.stat().st_size
        file.truncate(0)
        file.truncate(size)
    roads.verb("rack", "fault", name, "disk-gone", "--clear")
    roads.start(name)
    assert f"{first} is missing" in mirror(roads, name, code=1)
    mirror(roads, name, "mend")
    wait_for_sync(roads, name)
    roads.stop(name)
    # What starts now is the disk that was blank a moment ago.
    roads.verb("rack", "fault", name, "disk-gone", "--disk", second)
    roads.start(name)
    assert f"{second} is missing, {first} is alone" in mirror(roads, name, code=1)
    assert roads.on(name, "cat /root/mark").strip() == "from-the-second"
    roads.stop(name)
    roads.verb("rack", "fault", name, "disk-gone", "--clear")
    roads.start(name)
    mirror(roads, name, "mend")
    wait_for_sync(roads, name)
    assert "both halves are in sync" in mirror(roads, name)
