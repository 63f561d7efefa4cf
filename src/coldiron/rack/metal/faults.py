"""What can be broken of a machine on purpose: one table, and what each fault does to libvirt, QEMU, cable or BMC."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.metal.domain import clock_element, disk_element, monitor
from coldiron.rack.metal.inject import Monitor, disk_errors, set_errors
from coldiron.rack.metal.keeper import MachinesKeeper
from coldiron.rack.metal.places import Places, nft_table
from coldiron.rack.metal.spec import MachineDisk, MachineSpec


@dataclass(frozen=True)
class Fault:
    """One kind of fault. ``redfish_only``: an IPMI BMC has no such thing. ``cleared``: a state, no event."""

    name: str
    text: str
    of_disk: bool = False
    redfish_only: bool = False
    cleared: bool = True


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("power-cut", "its power is cut this moment, whatever it writes", cleared=False),
        Fault("disk-gone", "accesses fail at once, and from the next power on the disk is not there", True),
        Fault("disk-read-only", "writes fail at once, and from the next power on it says so itself", True),
        Fault("disk-full", "writes fail with no space left, also after a power cycle", True),
        Fault("nic-down", "the first card has no link, also after a power cycle"),
        Fault("dhcp-silent", "no DHCP answer reaches it"),
        Fault("clock-off", "from the next power on its clock is four years behind"),
        Fault("bmc-503", "the BMC answers 503 to everything", redfish_only=True),
        Fault("bmc-password", "the BMC takes nobody's password"),
        Fault("bmc-hang", "the BMC takes connections and says nothing"),
        Fault("bmc-certificate", "the BMC shows a certificate that nobody has signed", redfish_only=True),
        Fault("boot-ignored", "the BMC accepts a boot override, and starts from the disk"),
    )
}


def find(name: str) -> Fault:
    """The fault called ``name``. Raises ColdironError for one that there is not."""
    if name not in FAULTS:
        raise ColdironError(f"no fault is called {name}; there are: {', '.join(FAULTS)}")
    return FAULTS[name]


def find_disk(spec: MachineSpec, which: str) -> MachineDisk:
    """The disk by its serial or place; the first system disk where ``which`` is empty. Raises ColdironError."""
    for disk in spec.disks:
        if which in (disk.serial, disk.target) or (not which and disk.use == "system"):
            return disk
    if not which:
        return spec.disks[0]
    there = ", ".join(disk.serial for disk in spec.disks)
    raise ColdironError(f"{spec.name} has no disk {which}; its disks: {there}")


def key(fault: Fault, spec: MachineSpec, disk: str) -> str:
    """What stands for the fault in the machine's list. Raises ColdironError where it cannot be."""
    if fault.redfish_only and spec.protocol != "redfish":
        raise ColdironError(f"{spec.name}: its BMC speaks IPMI, which knows no {fault.name}")
    if disk and not fault.of_disk:
        raise ColdironError(f"--disk says nothing to {fault.name}; leave it out")
    return f"{fault.name}:{find_disk(spec, disk).target}" if fault.of_disk else fault.name


def changed(root: ET.Element, spec: MachineSpec, places: Places) -> ET.Element:
    """libvirt's definition ``root`` as the machine's faults want it; all else stays, what a BMC has set included."""
    devices = root.find("devices")
    assert devices is not None
    present = {element.find("target").get("dev"): element for element in devices.findall("disk")}  # type: ignore[union-attr]
    ordered = sorted(
        (element for element in devices if element.find("boot") is not None),
        key=lambda element: int(str(element.find("boot").get("order"))),  # type: ignore[union-attr]
    )
    at = list(devices).index(next(iter(devices.findall("interface"))))
    for disk in spec.disks:
        element = present.get(disk.target)
        if f"disk-gone:{disk.target}" in spec.faults:
            if element is not None:
                devices.remove(element)
                at -= 1
            continue
        fresh = disk_element(spec, disk, places)
        if element is None:
            devices.insert(at, fresh)
            at += 1
            continue
        readonly = element.find("readonly")
        if fresh.find("readonly") is None and readonly is not None:
            element.remove(readonly)
        elif fresh.find("readonly") is not None and readonly is None:
            ET.SubElement(element, "readonly")
    if ordered:
        there = {element.find("target").get("dev"): element for element in devices.findall("disk")}  # type: ignore[union-attr]
        _boot_order([there[disk.target] for disk in spec.disks if disk.target in there], ordered)
    clock = root.find("clock")
    if clock is not None:
        root.remove(clock)
    root.append(clock_element(spec))
    card = devices.findall("interface")[0]
    link = card.find("link")
    if link is None:
        link = ET.SubElement(card, "link")
    link.set("state", "down" if "nic-down" in spec.faults else "up")
    return root


def _boot_order(disks: list[ET.Element], before: list[ET.Element]) -> None:
    """Number anew what is booted from: the disks in their own order, where the first of them stood."""
    others = [element for element in before if element.tag != "disk"]
    at = next((place for place, element in enumerate(before) if element.tag == "disk"), len(others))
    for order, element in enumerate([*others[:at], *disks, *others[at:]], start=1):
        boot = element.find("boot")
        if boot is None:
            # Where each device has its order, one without is not booted from.
            boot = ET.SubElement(element, "boot")
        boot.set("order", str(order))


def silence_rules(table: str, taps: list[str]) -> str:
    """nft's input that lets no DHCP answer out of these cables; the table is replaced as a whole."""
    text = f"table bridge {table} {{}}\ndelete table bridge {table}\n"
    if not taps:
        return text
    names = ", ".join(f'"{tap}"' for tap in taps)
    rule = f"oifname {{ {names} }} udp dport 68 counter drop"
    return text + "".join(
        [
            f"table bridge {table} {{\n",
            *(
                f"  chain {hook} {{ type filter hook {hook} priority 0; {rule}; }}\n"
                for hook in ("forward", "output")
            ),
            "}\n",
        ]
    )


class Breaker:
    """Breaks one rack's machines, and mends them. The caller holds the rack's lock and saves its state."""

    def __init__(self, keeper: MachinesKeeper) -> None:
        self.keeper = keeper
        self.places = keeper.places

    def set(self, spec: MachineSpec, fault: Fault, disk: str = "") -> None:
        """Break something of a machine."""
        if not fault.cleared:
            if not self.keeper.libvirt.defined().get(spec.name):
                raise ColdironError(f"{spec.name} is off already", ExitCode.REFUSED)
            self.keeper.libvirt.power_off(spec.name)
            return
        name = key(fault, spec, disk)
        if name not in spec.faults:
            spec.faults.append(name)
        self.apply(spec, fault)

    def clear(self, spec: MachineSpec, fault: Fault | None, disk: str = "") -> list[str]:
        """Mend what ``fault`` broke, or everything; returns what was mended."""
        if fault is not None and not fault.cleared:
            raise ColdironError(
                f"{fault.name} leaves nothing to clear; type: coldiron rack power {spec.name} on"
            )
        gone = [
            name
            for name in spec.faults
            if fault is None
            or (name == key(fault, spec, disk) if disk else name.partition(":")[0] == fault.name)
        ]
        spec.faults = [name for name in spec.faults if name not in gone]
        for kind in dict.fromkeys(name.partition(":")[0] for name in gone):
            self.apply(spec, FAULTS[kind])
        return gone

    def apply(self, spec: MachineSpec, fault: Fault) -> None:
        """Make the world what the machine's list of faults says, as far as ``fault`` goes."""
        self.keeper.write_faults(spec)
        how: dict[str, Callable[[MachineSpec], None]] = {
            "nic-down": self.link,
            "dhcp-silent": self.silence,
            "clock-off": self.define,
            "bmc-hang": self.hang,
            "bmc-password": self.password,
        }
        if fault.of_disk:
            self.define(spec)
            self.inject(spec)
        elif fault.name in how:
            how[fault.name](spec)

    def define(self, spec: MachineSpec) -> None:
        """Change the machine's definition; it holds from the next power on."""
        libvirt = self.keeper.libvirt
        xml = ET.tostring(changed(libvirt.xml(spec.name), spec, self.places), encoding="unicode")
        if spec.protocol == "ipmi":
            self.keeper.define(spec, self.keeper.around())
        else:
            libvirt.define(xml, spec.name)

    def inject(self, spec: MachineSpec) -> None:
        """Let the disks of a machine that runs fail, or work again."""
        if not self.keeper.libvirt.defined().get(spec.name):
            return
        wanted = disk_errors(spec.faults)
        try:
            connection = Monitor(str(monitor(self.places, spec.name)))
            for disk in spec.disks:
                file = self.places.disk(spec.name, disk).name
                set_errors(connection, file, wanted.get(file, {}))
            connection.close()
        except OSError as error:
            raise ColdironError(
                f"{spec.name}: QEMU does not take the fault: {error}", ExitCode.ENVIRONMENT
            ) from None

    def link(self, spec: MachineSpec) -> None:
        """Take the first card's link away, or give it back: now, and at the next power on."""
        state = "down" if "nic-down" in spec.faults else "up"
        libvirt = self.keeper.libvirt
        if libvirt.defined().get(spec.name):
            libvirt.virsh("domif-setlink", spec.name, self.places.tap(spec.name), state)
        self.define(spec)

    def silence(self, spec: MachineSpec) -> None:
        """Drop the DHCP answers to all machines that are to hear none."""
        taps = [
            self.places.tap(one.name)
            for one in self.keeper.state.machines.values()
            if "dhcp-silent" in one.faults
        ]
        rules = silence_rules(nft_table(self.keeper.state.bridge), taps)
        self.keeper.host.run(["nft", "-f", "-"], stdin=rules, what="nft")

    def hang(self, spec: MachineSpec) -> None:
        """Stop ipmi_sim where it stands; a Redfish BMC reads its faults itself."""
        if spec.protocol == "ipmi":
            what = signal.SIGSTOP if "bmc-hang" in spec.faults else signal.SIGCONT
            for pid in self.keeper.bmc_group(spec.name).pids():
                os.kill(pid, what)

    def password(self, spec: MachineSpec) -> None:
        """Start ipmi_sim with another password; a Redfish BMC reads its faults itself."""
        if spec.protocol == "ipmi":
            self.keeper.restart_bmc(spec)
