"""What cluster.yml says of machines, and what libvirt and the BMCs are told of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from cryptography import x509

from coldiron.errors import ColdironError
from coldiron.rack.host import Host, wait_until
from coldiron.rack.metal import accel, bmc_ipmi, bmc_redfish
from coldiron.rack.metal.backports import write
from coldiron.rack.metal.certificates import make_ca, make_certificate
from coldiron.rack.metal.disks import make_disks
from coldiron.rack.metal.domain import Surroundings, domain_xml
from coldiron.rack.metal.libvirt import daemon_command, with_users
from coldiron.rack.metal.places import Firmware, Places
from coldiron.rack.metal.spec import MachineSpec, machine_uuid, second_mac

from .conftest import CLUSTER

Describe = Callable[[str], dict[str, MachineSpec]]


def xml(spec: MachineSpec, places: Places, first: str = "hd") -> ET.Element:
    return ET.fromstring(domain_xml(spec, Surroundings(places, "ci-toy", 1400), first))


def test_a_machine_is_what_the_file_says(specs: dict[str, MachineSpec]) -> None:
    first, second = specs["cpu01"], specs["cpu02"]
    assert (first.firmware, first.path, first.protocol) == ("bios", "pxe", "redfish")
    assert (second.firmware, second.path, second.protocol) == ("uefi", "http", "ipmi")
    assert [(disk.serial, disk.size, disk.target) for disk in first.disks] == [
        ("SYSTEM-1", 4 * 10**9, "vda"),
        ("DATA-1", 2 * 10**9, "vdb"),
    ]
    assert [(disk.serial, disk.use, disk.size) for disk in second.disks] == [
        ("cpu02-system1", "system", 10**10),
        ("cpu02-data1", "data", 2 * 10**9),
    ]
    assert (first.bmc_url, second.bmc_url) == ("https://10.9.0.131", "ipmi://10.9.0.132")
    assert MachineSpec.load(json.loads(json.dumps(asdict(first)))) == first


def test_a_machine_keeps_its_identity() -> None:
    assert machine_uuid("toy", "cpu01") == machine_uuid("toy", "cpu01") != machine_uuid("other", "cpu01")
    assert second_mac("02:09:00:00:00:31") == "02:09:00:00:01:b1"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "    bmc: {address: 10.9.0.131}\n",
            "",
            "without a BMC, so nobody could switch it on; write e.g. `bmc:",
        ),
        ('    mac: "02:09:00:00:00:31"\n', "", "without a MAC address"),
        ("SYSTEM-1", "S" * 21, "more than 20 characters"),
        ("10.9.0.132", "10.9.0.131", "give each its own"),
        ("DATA-1}", "DATA-1}\n      - {use: data, size_gb: 1, count: 15}", "17 disks"),
        ("02:09:00:00:00:32", "02:09:00:00:01:b1", "is cpu01's too"),
    ],
)
def test_what_no_machine_can_be_is_refused(describe: Describe, old: str, new: str, said: str) -> None:
    assert old in CLUSTER
    with pytest.raises(ColdironError, match=said):
        describe(CLUSTER.replace(old, new, 1))


def test_what_virtio_cannot_tell_is_a_scsi_disk(describe: Describe, places: Places) -> None:
    text = CLUSTER.replace("serial: DATA-1}", 'wwn: "0x5002538f00000001", model: TOY-DISK}')
    spec = describe(text)["cpu01"]
    disk = spec.disks[1]
    assert (disk.target, disk.bus) == ("sda", "scsi")
    found = xml(spec, places)
    assert found.findtext(".//disk/wwn") == "5002538f00000001"
    assert found.findtext(".//disk/product") == "TOY-DISK"
    assert found.find(".//controller[@model='virtio-scsi']") is not None


def boots(domain: ET.Element) -> list[str]:
    """The first three letters of what a machine is booted from, in its order: of disks, and of taps."""
    found = [one for one in domain.findall("devices/*") if one.find("boot") is not None]
    found.sort(key=lambda one: int(one.find("boot").get("order")))  # type: ignore[union-attr,arg-type]
    return [one.find("target").get("dev")[:3] for one in found]  # type: ignore[union-attr]


def test_a_bios_machine(specs: dict[str, MachineSpec], places: Places) -> None:
    found = xml(specs["cpu01"], places)
    assert found.get("type") == "qemu"
    assert (found.findtext("vcpu"), found.findtext("memory")) == ("1", "2048")
    assert found.find("os/loader") is None
    assert found.find("os/bios").get("useserial") == "yes"  # type: ignore[union-attr]
    assert boots(found) == ["vda", "vdb", "civ"]
    assert [one.text for one in found.findall(".//disk/serial")] == ["SYSTEM-1", "DATA-1"]
    assert {one.get("cache") for one in found.findall(".//disk/driver")} == {"unsafe"}
    cards = found.findall(".//interface")
    assert [card.find("source").get("bridge") for card in cards] == ["ci-toy", "cj-toy"]  # type: ignore[union-attr]
    assert [card.find("rom") is None for card in cards] == [True, False]
    assert {card.find("mtu").get("size") for card in cards} == {"1400"}  # type: ignore[union-attr]
    assert found.find("sysinfo[@type='smbios']/system/entry[@name='serial']").text == "CHASSIS-1"  # type: ignore[union-attr]
    assert found.find(".//serial/source").get("append") == "on"  # type: ignore[union-attr]
    assert found.find(".//memballoon").get("model") == "none"  # type: ignore[union-attr]


def test_a_uefi_machine_that_boots_over_http(specs: dict[str, MachineSpec], places: Places) -> None:
    found = xml(specs["cpu02"], places, "network")
    assert found.findtext("os/loader") == Firmware().code
    assert found.findtext("os/nvram") == str(places.nvram("cpu02"))
    assert boots(found) == ["civ", "vda", "vdb"]
    options = [entry.get("name") for entry in found.findall("sysinfo[@type='fwcfg']/entry")]
    assert options == ["opt/org.tianocore/IPv4PXESupport", "opt/org.tianocore/IPv6PXESupport"]
    assert [card.find("rom").get("enabled") for card in found.findall(".//interface")] == ["no", "no"]  # type: ignore[union-attr]
    text = ET.tostring(found, encoding="unicode")
    assert "ipmi-bmc-extern" in text
    assert places.loopback(specs["cpu02"]).startswith("127.")
    assert places.loopback(specs["cpu02"]) != places.loopback(specs["cpu01"])


def test_names_fit_an_interface(places: Places) -> None:
    names = [places.bridge, places.tap("cpu01"), places.second_tap("cpu01")]
    assert len(set(names)) == 3
    assert all(len(name) <= 15 for name in names)


def test_disks_are_empty_sparse_and_never_made_twice(specs: dict[str, MachineSpec], places: Places) -> None:
    make_disks(places, specs["cpu01"])
    path = places.disk("cpu01", specs["cpu01"].disks[0])
    assert path.stat().st_size == 4 * 10**9
    assert path.stat().st_blocks == 0
    with path.open("r+b") as file:
        file.write(b"data")
    make_disks(places, specs["cpu01"])
    assert path.open("rb").read(4) == b"data"


def test_the_bmc_s_certificate_is_the_ca_s(tmp_path: Path) -> None:
    ca = (tmp_path / "ca.key", tmp_path / "ca.crt")
    make_ca(*ca, "toy")
    before = ca[1].read_bytes()
    make_ca(*ca, "toy")
    assert ca[1].read_bytes() == before
    for name, signer in (("good", ca), ("bad", None)):
        make_certificate(
            tmp_path / f"{name}.key", tmp_path / f"{name}.crt", "cpu01-bmc", "10.9.0.131", signer
        )
        make_certificate(
            tmp_path / f"{name}.key", tmp_path / f"{name}.crt", "cpu01-bmc", "10.9.0.131", signer
        )
        assert (tmp_path / f"{name}.key").stat().st_mode & 0o777 == 0o600
    checked = {
        name: subprocess.run(
            [
                "openssl",
                "verify",
                "-CAfile",
                str(ca[1]),
                "-verify_ip",
                "10.9.0.131",
                str(tmp_path / f"{name}.crt"),
            ],
            capture_output=True,
        ).returncode
        for name in ("good", "bad")
    }
    assert checked["good"] == 0 != checked["bad"]
    names = x509.load_pem_x509_certificate((tmp_path / "good.crt").read_bytes()).extensions
    text = str(names.get_extension_for_class(x509.SubjectAlternativeName).value)
    assert "cpu01-bmc" in text


def test_the_redfish_bmc_knows_one_machine_only(specs: dict[str, MachineSpec], places: Places) -> None:
    config = bmc_redfish.configuration(specs["cpu01"], places, Firmware())
    assert config["sushy"]["SUSHY_EMULATOR_ALLOWED_INSTANCES"] == [specs["cpu01"].uuid]
    assert (config["address"], config["port"]) == ("10.9.0.131", 443)
    command = bmc_redfish.command(Path("/env"), Path("/config.json"))
    assert command[:2] == ["/env/bin/python", "-P"]
    assert command[-1] == "/config.json"
    assert "sushy-tools==" in bmc_redfish.requirements()
    assert "index-url" not in bmc_redfish.requirements()


def test_sushy_s_environment_is_made_once(tmp_path: Path) -> None:
    calls: list[list[str]] = []

    class Recorder(Host):
        def run(self, argv, **options):  # type: ignore[no-untyped-def]
            calls.append(list(argv))
            bmc_redfish.environment(tmp_path).mkdir(exist_ok=True)

    made = bmc_redfish.make_environment(Recorder(), tmp_path)
    assert "--system-site-packages" in calls[0]
    assert calls[1][1:4] == ["-m", "pip", "install"]
    assert bmc_redfish.make_environment(Recorder(), tmp_path) == made
    assert len(calls) == 2


def test_what_ipmi_sim_is_told(specs: dict[str, MachineSpec], places: Places) -> None:
    spec = specs["cpu02"]
    places.credentials.parent.mkdir(parents=True)
    places.credentials.write_text('{"user": "admin", "password": "canary"}')
    places.bmc("cpu02").mkdir(parents=True)
    command = bmc_ipmi.prepare(spec, places)
    assert command[0] == "ipmi_sim"
    assert "canary" not in " ".join(command)
    lan = places.bmc("cpu02") / "lan.conf"
    assert lan.stat().st_mode & 0o777 == 0o600
    assert 'user 2 true "admin" "canary" admin 10 md5' in lan.read_text()
    assert "addr 10.9.0.132 623" in lan.read_text()
    spec.faults.append("bmc-password")
    bmc_ipmi.prepare(spec, places)
    assert "canary" not in lan.read_text()


def test_a_sensor_record_has_the_length_that_it_says() -> None:
    record = bmc_ipmi.sdr(1, 0x01, 0x01, "CPU Temp", 0x01, (85, 95))
    assert record[2:4] == [0x51, 0x01]
    assert record[4] == len(record) - 5
    # IPMI 2.0, table 43-1: the name's type and length stand in byte 48.
    assert record[47] == 0xC0 | 8
    assert bytes(record[48:]).decode() == "CPU Temp"
    assert bmc_ipmi.emulation().count("main_sdr_add") == 3


def test_the_chassis_starts_from_the_network_once(
    specs: dict[str, MachineSpec], places: Places, tmp_path: Path
) -> None:
    own = places.bmc("cpu02")
    own.mkdir(parents=True)
    (own / "faults.json").write_text("[]")
    log = tmp_path / "virsh.log"
    fake = tmp_path / "bin" / "virsh"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\necho "$@" | sed "s/.*log //" >>{log}\ncase "$*" in *domstate*) cat {tmp_path}/power;; esac\n'
    )
    fake.chmod(0o755)
    (tmp_path / "power").write_text("shut off\n")
    script = own / "chassis.sh"
    script.write_text(bmc_ipmi.chassis_script(specs["cpu02"], places))

    def call(*words: str) -> str:
        path = f"{fake.parent}:/usr/bin:/bin"
        done = subprocess.run(
            ["sh", script, "0x20", *words], capture_output=True, text=True, env={"PATH": path}
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert call("get", "power", "boot") == "power:0\nboot:default\n"
    call("set", "boot", "pxe")
    assert call("get", "boot") == "boot:pxe\n"
    call("set", "power", "1")

    def defined() -> list[str]:
        return [line.split("/")[-1] for line in log.read_text().splitlines() if " define " in f" {line}"]

    # It starts by itself: the BMC goes on answering meanwhile.
    assert wait_until(lambda: len(defined()) == 2, 20, 0.05)
    assert defined() == ["domain-network.xml", "domain.xml"]
    assert call("get", "boot") == "boot:default\n"
    log.write_text("")
    call("set", "boot", "pxe")
    (own / "faults.json").write_text('["boot-ignored"]')
    call("set", "reset", "1")
    assert wait_until(lambda: len(defined()) == 2, 20, 0.05)
    assert "domain-network.xml" not in log.read_text()
    assert "destroy" in log.read_text()
    (tmp_path / "power").write_text("running\n")
    log.write_text("")
    call("set", "power", "1")
    assert "start cpu02" not in log.read_text()
    assert call("get", "power") == "power:1\n"


def test_libvirtd_finds_its_users_and_its_own_places(places: Places) -> None:
    text = with_users("root:x:0:0\nkvm:x:1:", "libvirt-qemu:x:2:\nkvm:x:3:\n")
    assert text == "root:x:0:0\nkvm:x:1:\nlibvirt-qemu:x:2:\n"
    script = daemon_command(places, Path("/cache"))[-1]
    for there in ("/etc/libvirt", "/var/lib/libvirt", "/run/libvirt", "/etc/passwd", "/var/cache/libvirt"):
        assert f" {there} &&" in script


def test_kvm_is_tried_once_a_boot_and_not_believed(tmp_path: Path) -> None:
    device = tmp_path / "kvm"
    assert not accel.kvm_serves(Host(), tmp_path, device)
    device.touch()
    codes: list[int] = []

    class Machine(Host):
        def run(self, argv, **options):  # type: ignore[no-untyped-def]
            codes.append(self.code)
            return subprocess.CompletedProcess(argv, self.code, "", "")

        code = 134

    host = Machine()
    assert not accel.kvm_serves(host, tmp_path / "a", device)
    assert not accel.kvm_serves(host, tmp_path / "a", device)
    assert codes == [134]
    host.code = 33
    assert accel.kvm_serves(host, tmp_path / "b", device)
    assert accel.kvm_serves(host, tmp_path / "b", device)
    assert len(codes) == 2
    assert len(accel.boot_sector()) == 1 << 20


def test_backports_come_from_the_machine_s_own_mirror(tmp_path: Path) -> None:
    apt = tmp_path / "apt"
    (apt / "sources.list.d").mkdir(parents=True)
    (apt / "sources.list.d" / "own.list").write_text("deb http://mirror.example/debian bookworm main\n")
    config = write(tmp_path / "made", apt, "", "bookworm")
    made = (tmp_path / "made/parts/coldiron-backports.list").read_text()
    assert made.endswith(" http://mirror.example/debian bookworm-backports main\n")
    assert (tmp_path / "made/parts/own.list").exists()
    assert 'APT::Default-Release "bookworm-backports"' in config.read_text()
