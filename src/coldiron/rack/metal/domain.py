"""A machine as libvirt's domain: the XML, made from what the machine is and what was broken on it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from coldiron.rack.metal.places import Firmware, Places
from coldiron.rack.metal.spec import MachineDisk, MachineSpec

EMULATOR = "/usr/bin/qemu-system-x86_64"
_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
# Four years: far outside of what any certificate or token forgives.
CLOCK_OFF_SECONDS = 4 * 365 * 24 * 3600
# Ports on the machine's own address of the loopback, for IPMI.
IPMI_PORT = 9002
SOL_PORT = 9003
_IPMI_LINK = "ipmi0"

ET.register_namespace("qemu", _QEMU)


@dataclass(frozen=True)
class Surroundings:
    """What a machine stands in: the rack's bridges, their MTU in bytes, and whether the host's KVM serves."""

    places: Places
    bridge: str
    mtu: int
    kvm: bool = False
    firmware: Firmware = field(default_factory=Firmware)


def domain_xml(spec: MachineSpec, around: Surroundings, first: str = "hd") -> str:
    """libvirt's XML of a machine that boots from ``first``: ``hd`` or ``network``, and then from the other."""
    ET.register_namespace("qemu", _QEMU)
    root = ET.Element("domain", type="kvm" if around.kvm else "qemu")
    _texts(root, name=spec.name, uuid=spec.uuid, vcpu="1")
    ET.SubElement(root, "memory", unit="MiB").text = str(spec.memory_mib)
    _os(root, spec, around)
    _system(root, spec)
    if spec.firmware == "uefi":
        _firmware_options(root, spec)
    features = ET.SubElement(root, "features")
    ET.SubElement(features, "acpi")
    ET.SubElement(root, "cpu", mode="host-passthrough" if around.kvm else "maximum")
    root.append(clock_element(spec))
    _texts(root, on_poweroff="destroy", on_reboot="restart", on_crash="destroy")
    devices = ET.SubElement(root, "devices")
    _texts(devices, emulator=EMULATOR)
    ET.SubElement(devices, "controller", type="usb", model="none")
    if any(disk.bus == "scsi" for disk in spec.disks):
        ET.SubElement(devices, "controller", type="scsi", index="0", model="virtio-scsi")
    disks = [
        disk_element(spec, disk, around.places)
        for disk in spec.disks
        if f"disk-gone:{disk.target}" not in spec.faults
    ]
    devices.extend(disks)
    down = "nic-down" in spec.faults
    card = _nic(spec.mac, around.bridge, around.places.tap(spec.name), around.mtu, down)
    # The card's own iPXE would answer before UEFI's PXE and HTTP clients; a BIOS has none but the card's.
    if spec.firmware == "uefi":
        ET.SubElement(card, "rom", enabled="no")
    second = _nic(
        spec.second_mac, around.places.bridge, around.places.second_tap(spec.name), around.mtu, False
    )
    ET.SubElement(second, "rom", enabled="no")
    devices.extend([card, second])
    # By device: of ``<boot dev='hd'>`` only the first disk gets an index, and a BIOS does not see the others at all.
    for order, element in enumerate([card, *disks] if first == "network" else [*disks, card], start=1):
        ET.SubElement(element, "boot", order=str(order))
    _serial(devices, spec, around.places)
    rng = ET.SubElement(devices, "rng", model="virtio")
    ET.SubElement(rng, "backend", model="random").text = "/dev/urandom"
    video = ET.SubElement(devices, "video")
    ET.SubElement(video, "model", type="none")
    ET.SubElement(devices, "memballoon", model="none")
    _command_line(root, spec, around.places)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def disk_element(spec: MachineSpec, disk: MachineDisk, places: Places) -> ET.Element:
    """One disk of a machine, as it is plugged in."""
    element = ET.Element("disk", type="file", device="disk")
    # Raw and sparse: what the machine has flushed is in the file, also when its power is cut.
    ET.SubElement(
        element,
        "driver",
        name="qemu",
        type="raw",
        cache="unsafe",
        discard="unmap",
        detect_zeroes="unmap",
        error_policy="report",
    )
    ET.SubElement(element, "source", file=str(places.disk(spec.name, disk)))
    ET.SubElement(element, "target", dev=disk.target, bus=disk.bus)
    if f"disk-read-only:{disk.target}" in spec.faults:
        ET.SubElement(element, "readonly")
    ET.SubElement(element, "serial").text = disk.serial
    if disk.wwn:
        ET.SubElement(element, "wwn").text = disk.wwn.lower().removeprefix("0x")
    if disk.model:
        _texts(element, product=disk.model[:16])
    return element


def _texts(parent: ET.Element, **texts: str) -> None:
    for name, text in texts.items():
        ET.SubElement(parent, name).text = text


def _os(root: ET.Element, spec: MachineSpec, around: Surroundings) -> None:
    system = ET.SubElement(root, "os")
    ET.SubElement(system, "type", arch="x86_64", machine="q35").text = "hvm"
    if spec.firmware == "uefi":
        loader = ET.SubElement(system, "loader", readonly="yes", type="pflash")
        loader.text = around.firmware.code
        nvram = ET.SubElement(system, "nvram", template=around.firmware.variables)
        nvram.text = str(around.places.nvram(spec.name))
    if spec.firmware == "bios":
        # SeaBIOS and what it starts speak on the serial port.
        ET.SubElement(system, "bios", useserial="yes")
    ET.SubElement(system, "smbios", mode="sysinfo")


def _system(root: ET.Element, spec: MachineSpec) -> None:
    info = ET.SubElement(root, "sysinfo", type="smbios")
    system = ET.SubElement(info, "system")
    for name, text in (
        ("manufacturer", "coldiron"),
        ("product", "virtual rack"),
        ("serial", spec.serial),
        ("uuid", spec.uuid),
    ):
        ET.SubElement(system, "entry", name=name).text = text
    chassis = ET.SubElement(info, "chassis")
    ET.SubElement(chassis, "entry", name="serial").text = spec.serial


def _firmware_options(root: ET.Element, spec: MachineSpec) -> None:
    """Which of OVMF's network clients start: each of the others is waited for in vain, for half a minute or more."""
    info = ET.SubElement(root, "sysinfo", type="fwcfg")
    for name in ("IPv4PXESupport", "IPv6PXESupport") if spec.path == "http" else ("IPv6PXESupport",):
        ET.SubElement(info, "entry", name=f"opt/org.tianocore/{name}").text = "no"


def clock_element(spec: MachineSpec) -> ET.Element:
    """The machine's hardware clock."""
    if "clock-off" in spec.faults:
        return ET.Element("clock", offset="variable", adjustment=f"-{CLOCK_OFF_SECONDS}", basis="utc")
    return ET.Element("clock", offset="utc")


def _nic(mac: str, bridge: str, tap: str, mtu: int, down: bool) -> ET.Element:
    element = ET.Element("interface", type="bridge")
    ET.SubElement(element, "mac", address=mac)
    ET.SubElement(element, "source", bridge=bridge)
    ET.SubElement(element, "target", dev=tap)
    ET.SubElement(element, "model", type="virtio")
    ET.SubElement(element, "mtu", size=str(mtu))
    ET.SubElement(element, "link", state="down" if down else "up")
    return element


def _serial(devices: ET.Element, spec: MachineSpec, places: Places) -> None:
    log = str(places.console(spec.name))
    if spec.protocol == "ipmi":
        # The BMC speaks on the serial port too (serial over LAN).
        serial = ET.SubElement(devices, "serial", type="tcp")
        ET.SubElement(serial, "source", mode="bind", host=places.loopback(spec), service=str(SOL_PORT))
        ET.SubElement(serial, "protocol", type="raw")
        ET.SubElement(serial, "log", file=log, append="on")
    else:
        serial = ET.SubElement(devices, "serial", type="file")
        ET.SubElement(serial, "source", path=log, append="on")
    ET.SubElement(serial, "target", port="0")


def monitor(places: Places, name: str) -> Path:
    """The socket of a second QMP monitor: libvirt keeps the first to itself."""
    return places.node(name) / "qmp.sock"


def _command_line(root: ET.Element, spec: MachineSpec, places: Places) -> None:
    """What libvirt has no words for."""
    line = ET.SubElement(root, f"{{{_QEMU}}}commandline")
    words = ["-qmp", f"unix:{monitor(places, spec.name)},server=on,wait=off"]
    if spec.protocol == "ipmi":
        host = places.loopback(spec)
        words += [
            "-chardev", f"socket,id={_IPMI_LINK},host={host},port={IPMI_PORT},reconnect-ms=2000",
            "-device", f"ipmi-bmc-extern,id=bmc0,chardev={_IPMI_LINK}",
            "-device", "isa-ipmi-kcs,bmc=bmc0",
        ]  # fmt: skip
    for word in words:
        ET.SubElement(line, f"{{{_QEMU}}}arg", value=word)
