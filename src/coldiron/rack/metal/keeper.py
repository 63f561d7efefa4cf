"""A rack's machines: defined, with disks, cables and BMCs, and powered off; and all that is asked of them later."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.cgroup import Cgroup
from coldiron.rack.host import Host, wait_until
from coldiron.rack.metal import bmc_ipmi, bmc_redfish
from coldiron.rack.metal.accel import kvm_serves
from coldiron.rack.metal.certificates import make_ca, make_certificate
from coldiron.rack.metal.client import BmcClient
from coldiron.rack.metal.disks import make_disks
from coldiron.rack.metal.domain import Surroundings, domain_xml
from coldiron.rack.metal.libvirt import Libvirt
from coldiron.rack.metal.places import Firmware, Places
from coldiron.rack.metal.spec import MachineSpec
from coldiron.rack.network import Network
from coldiron.rack.state import RackState, write_atomically

if TYPE_CHECKING:
    from coldiron.rack.layout import Layout

_BMC_SECONDS = 90.0
_AT_ONCE = 4
_USER = "admin"


class MachinesKeeper:
    """Makes, describes and removes the machines of one rack."""

    def __init__(self, host: Host, layout: Layout, state: RackState, cgroup_root: Path) -> None:
        self.host = host
        self.layout = layout
        self.state = state
        self.cgroup_root = cgroup_root
        self.places = Places(layout)
        self.network = Network(host)
        self.libvirt = Libvirt(host, self.places, cgroup_root)
        self.firmware = Firmware()

    def bmc_group(self, name: str) -> Cgroup:
        """The control group of a machine's BMC."""
        return Cgroup(self.cgroup_root, f"{self.layout.cgroup}/{self.places.group(name)}")

    def stand(self) -> bool:
        """Whether libvirtd or a machine of the rack runs: then its bridges are in use."""
        return self.libvirt.group.populated()

    def around(self) -> Surroundings:
        """What the machines stand in."""
        kvm = kvm_serves(self.host, self.layout.machine.cache)
        return Surroundings(self.places, self.state.bridge, self.state.mtu, kvm, self.firmware)

    def up(self, wanted: Sequence[MachineSpec], say: Callable[[str], None]) -> None:
        """Define what is missing of ``wanted`` and start the BMCs that do not run. Nothing is powered on.

        Raises ColdironError where something does not come up.
        """
        if not wanted:
            return
        self.make_places()
        self.make_second_bridge()
        self.libvirt.start()
        environment = None
        if any(spec.protocol == "redfish" for spec in wanted):
            environment = self.make_environment(say)
        defined = self.libvirt.defined()
        around = self.around()
        for spec in wanted:
            if spec.name not in defined:
                self.make(spec, around)
        self.add_addresses(wanted)
        missing = [spec for spec in wanted if not self.bmc_group(spec.name).populated()]
        for spec in missing:
            self.start_bmc(spec, environment)
        self.wait(missing)

    def make_places(self) -> None:
        """Make the CA and the BMCs' user and password."""
        self.places.root.mkdir(parents=True, exist_ok=True)
        self.places.root.chmod(0o700)
        make_ca(self.places.ca_key, self.places.ca, f"BMCs of the virtual rack {self.state.name}")
        if not self.places.credentials.exists():
            pair = {"user": _USER, "password": secrets.token_urlsafe(12)}
            write_atomically(self.places.credentials, json.dumps(pair) + "\n", 0o600)

    def make_environment(self, say: Callable[[str], None]) -> Path:
        """sushy-tools' environment, made if it is not there yet."""
        cache = self.layout.machine.cache
        with self.host.lock(self.layout.machine.run / "sushy.lock", say):
            if not (bmc_redfish.environment(cache) / "complete").exists():
                say("installing sushy-tools, the machines' Redfish BMC (once on this machine)")
            return bmc_redfish.make_environment(self.host, cache)

    def make_second_bridge(self) -> None:
        """Make the bridge of the second cards: no address of the host is on it."""
        name = self.places.bridge
        if name in self.network.links():
            return
        commands = (
            f"link add name {name} mtu {self.state.mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n"
            f"link set dev {name} alias coldiron-rack-{self.state.name}\n"
            f"link set dev {name} up\n"
        )
        self.host.run(["ip", "-batch", "-"], stdin=commands, what=f"bridge {name}")

    def make(self, spec: MachineSpec, around: Surroundings) -> None:
        """Make a machine's disks and certificates, and define it."""
        own = self.places.bmc(spec.name)
        (own / "state").mkdir(parents=True, exist_ok=True)
        own.chmod(0o700)
        self.places.console(spec.name).touch()
        make_disks(self.places, spec)
        if spec.protocol == "redfish":
            name = f"{spec.name}-bmc" + (f".{self.state.domain}" if self.state.domain else "")
            signers = (self.places.ca_key, self.places.ca)
            make_certificate(own / "bmc.key", own / "bmc.crt", name, spec.bmc_address, signers)
            make_certificate(own / "wrong.key", own / "wrong.crt", name, spec.bmc_address, None)
        self.define(spec, around)

    def define(self, spec: MachineSpec, around: Surroundings) -> None:
        """Tell libvirt what a machine is; one that runs takes it up at its next power on."""
        if spec.protocol == "ipmi":
            # What the chassis is defined as for one start, when the BMC was told to boot from the network.
            path = self.places.node(spec.name) / "domain-network.xml"
            write_atomically(path, domain_xml(spec, around, "network"))
        self.libvirt.define(domain_xml(spec, around), spec.name)

    def add_addresses(self, wanted: Iterable[MachineSpec]) -> None:
        """Give the rack's bridge the addresses of the BMCs that it lacks."""
        shown = self.host.run(["ip", "-4", "-json", "addr", "show", "dev", self.state.bridge]).stdout
        present = {
            info["local"] for link in json.loads(shown or "[]") if link for info in link.get("addr_info", ())
        }
        missing = [spec.bmc_address for spec in wanted if spec.bmc_address not in present]
        if missing:
            batch = "".join(
                f"addr add {IPv4Address(address)}/32 dev {self.state.bridge}\n" for address in missing
            )
            self.host.run(["ip", "-batch", "-"], stdin=batch, what="the BMCs' addresses")

    def start_bmc(self, spec: MachineSpec, environment: Path | None) -> None:
        """Start a machine's BMC."""
        own = self.places.bmc(spec.name)
        group = self.bmc_group(spec.name)
        group.make()
        self.write_faults(spec)
        if spec.protocol == "redfish":
            assert environment is not None
            config = own / "redfish.json"
            write_atomically(
                config, json.dumps(bmc_redfish.configuration(spec, self.places, self.firmware), indent=2)
            )
            command = bmc_redfish.command(environment, config)
        else:
            command = bmc_ipmi.prepare(spec, self.places)
        self.host.spawn(command, cgroup=group.path, log=own / "bmc.log", env={"TMPDIR": str(own / "state")})

    def write_faults(self, spec: MachineSpec) -> None:
        """Tell a machine's BMC what is broken of it."""
        write_atomically(self.places.bmc(spec.name) / "faults.json", json.dumps(spec.faults) + "\n")

    def restart_bmc(self, spec: MachineSpec) -> None:
        """Start a machine's BMC anew; the machine goes on as it is."""
        self.bmc_group(spec.name).kill()
        self.start_bmc(spec, bmc_redfish.environment(self.layout.machine.cache))

    def client(self, spec: MachineSpec) -> BmcClient:
        """A way to talk to a machine's BMC."""
        pair = json.loads(self.places.credentials.read_text())
        return BmcClient(self.host, spec, pair["user"], pair["password"], self.places.ca)

    def wait(self, specs: Sequence[MachineSpec]) -> None:
        """Wait until the BMCs answer, but those that are told not to. Raises ColdironError naming one that does not."""
        told = {"bmc-503", "bmc-hang", "bmc-certificate"}

        def answers(spec: MachineSpec) -> bool:
            return bool(told & set(spec.faults)) or wait_until(self.client(spec).answers, _BMC_SECONDS, 0.2)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for spec, fine in zip(specs, pool.map(answers, specs), strict=True):
                if not fine:
                    log = self.places.bmc(spec.name) / "bmc.log"
                    raise ColdironError(
                        f"{spec.name}: its BMC {spec.bmc_url} does not answer after {_BMC_SECONDS:.0f} s; "
                        f"what it says: {log}",
                        ExitCode.HOSTS_FAILED,
                    )

    def renew(self, spec: MachineSpec) -> None:
        """Make a machine as it was delivered: powered off, disks empty, firmware settings forgotten."""
        self.libvirt.remove(spec.name)
        own = self.places.node(spec.name)
        for path in [*own.glob("disk-*.raw"), self.places.nvram(spec.name), self.places.console(spec.name)]:
            path.unlink(missing_ok=True)
        self.make(spec, self.around())

    def remove(self, spec: MachineSpec) -> None:
        """Take a machine away, with its disks."""
        if self.libvirt.answers():
            self.libvirt.remove(spec.name)
        group = self.bmc_group(spec.name)
        group.kill()
        group.remove()
        if self.state.bridge in self.network.links():
            command = ["ip", "addr", "del", f"{spec.bmc_address}/32", "dev", self.state.bridge]
            self.host.run(command, check=False)
        shutil.rmtree(self.places.node(spec.name), ignore_errors=True)

    def status(self) -> list[dict[str, Any]]:
        """What stands of the machines, as plain data. ``state``: on, off, or gone where libvirt does not know it."""
        if not self.state.machines:
            return []
        power = self.libvirt.defined() if self.libvirt.answers() else {}
        return [
            {
                "name": spec.name,
                "address": spec.address,
                "distribution": spec.distribution,
                "kind": spec.kind,
                "state": {True: "on", False: "off", None: "gone"}[power.get(spec.name)],
                "firmware": spec.firmware,
                "boot": spec.path,
                "mac": spec.mac,
                "serial": spec.serial,
                "bmc": spec.bmc_url,
                "bmc_state": "running" if self.bmc_group(spec.name).populated() else "stopped",
                "disks": [
                    {"serial": disk.serial, "use": disk.use, "size_gb": round(disk.size / 10**9, 3)}
                    for disk in spec.disks
                ],
                "console": str(self.places.console(spec.name)),
                "faults": list(spec.faults),
            }
            for spec in self.state.machines.values()
        ]
