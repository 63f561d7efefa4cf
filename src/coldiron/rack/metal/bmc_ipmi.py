"""A machine's IPMI BMC: OpenIPMI's ipmi_sim (RMCP+, serial over LAN, event log, sensors), with libvirt as the chassis.

The machine has an interface to it too (KCS), as a real one has: ``ipmitool`` works inside.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent

from coldiron.rack.metal.domain import IPMI_PORT, SOL_PORT
from coldiron.rack.metal.places import Places
from coldiron.rack.metal.spec import MachineSpec
from coldiron.rack.state import write_atomically

PORT = 623
_BAUD = 115200
# Sensor's number, type, reading code; name; unit; its value; what may be read, upper non-critical and critical.
_SENSORS = (
    (1, 0x01, 0x01, "CPU Temp", 0x01, 48, (85, 95)),
    (2, 0x01, 0x01, "Inlet Temp", 0x01, 24, (38, 42)),
    (3, 0x04, 0x01, "Fan 1", 0x12, 84, (250, 254)),
)
# The fan's register counts in hundreds.
_FACTORS = {3: 100}


def sdr(number: int, kind: int, reading: int, name: str, unit: int, limits: tuple[int, int]) -> list[int]:
    """A full sensor record (IPMI 2.0, table 43-1) of a linear sensor; one wrong byte and ipmi_sim does not start."""
    factor = _FACTORS.get(number, 1)
    body = [
        0x20, 0x00, number,  # owner: the BMC, LUN 0
        0x03, 0x01,  # entity: processor 1
        0x7F, 0x68, kind, reading,  # scanned and initialised; upper thresholds readable and settable
        0x00, 0x00, 0x00, 0x00, 0x18, 0x18,  # no events; upper non-critical and critical are there
        0x00, unit, 0x00,  # unsigned, base unit
        0x00, factor & 0xFF, (factor >> 2) & 0xC0, 0x00, 0x00, 0x00, 0x00,  # linear, M, B = 0
        0x00, 0x00, 0x00, 0x00,  # no nominal values
        0xFF, 0x00,  # greatest and least reading
        0x00, limits[1], limits[0], 0x00, 0x00, 0x00,  # upper: non-recoverable, critical, non-critical; lower
        0x02, 0x02,  # hysteresis
        0x00, 0x00, 0x00,
        0xC0 | len(name), *name.encode(),
    ]  # fmt: skip
    return [0x00, 0x00, 0x51, 0x01, len(body), *body]


def emulation() -> str:
    """ipmi_sim's commands: one controller with an event log and a few sensors."""
    lines = [
        "mc_setbmc 0x20",
        "mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr",
        "sel_enable 0x20 1000 0x0a",
        # The first entry of any log: that it was cleared.
        "sel_add 0x20 2 0 0 0 0 0x20 0 4 0x10 0 0x6f 0x02 0xff 0xff",
    ]
    for number, kind, reading, name, unit, value, limits in _SENSORS:
        record = " ".join(f"0x{byte:02x}" for byte in sdr(number, kind, reading, name, unit, limits))
        lines += [
            f"main_sdr_add 0x20 {record}",
            f"sensor_add 0x20 0 {number} {kind} {reading}",
            # Its upper critical and non-critical thresholds, readable and settable.
            f"sensor_set_threshold 0x20 0 {number} settable 011000 0 {limits[1]} {limits[0]} 0 0 0",
            f"sensor_set_value 0x20 0 {number} {value} 0",
        ]
    return "\n".join([*lines, "mc_enable 0x20", ""])


def lan_configuration(spec: MachineSpec, places: Places, script: Path, user: str, password: str) -> str:
    """ipmi_sim's configuration: one LAN channel, one user, the chassis behind a script, the machine's serial port."""
    loopback = places.loopback(spec)
    return "\n".join(
        [
            f'name "{spec.name}"',
            "set_working_mc 0x20",
            "  startlan 1",
            f"    addr {spec.bmc_address} {PORT}",
            "    priv_limit admin",
            "    allowed_auths_admin md5",
            f"    guid {spec.uuid.replace('-', '')}",
            "  endlan",
            f'  chassis_control "{script}"',
            f"  serial 15 {loopback} {IPMI_PORT} codec VM",
            f'  sol "tcp:{loopback}:{SOL_PORT}" {_BAUD}',
            f'  user 2 true "{user}" "{password}" admin 10 md5',
            "",
        ]
    )


def chassis(head: str, told: Sequence[str], done: Sequence[str]) -> str:
    """A script as ipmi_sim calls it: ``ADDRESS get power`` and ``ADDRESS set power 1``, several at once.

    ``told`` are cases of ``$what`` that is asked for, ``done`` those of ``$what-$value``; ``head`` comes before them.
    """
    cases = {"told": indent("\n".join(told), " " * 12), "done": indent("\n".join(done), " " * 8)}
    return f"""#!/bin/sh
{head}
while [ $# -gt 0 ] && [ "$1" != get ] && [ "$1" != set ]; do shift; done
verb=$1
shift
while [ $# -gt 0 ]; do
    what=$1
    shift
    if [ "$verb" = get ]; then
        case $what in
{cases["told"]}
        esac
        continue
    fi
    value=$1
    shift
    case $what-$value in
{cases["done"]}
    esac
done
exit 0
"""


def chassis_script(spec: MachineSpec, places: Places) -> str:
    """The chassis of a machine. An override is for one start only."""
    own = places.node(spec.name)
    virsh = shlex.join(["virsh", "--quiet", "--connect", places.uri])
    name = shlex.quote(spec.name)
    head = f"""\
# The chassis of {spec.name}: ipmi_sim's way to libvirt.
cd {shlex.quote(str(places.bmc(spec.name)))}
on() {{ [ "$({virsh} domstate {name} 2>/dev/null)" = running ]; }}
boot() {{ cat boot 2>/dev/null || echo default; }}
start() {{
    definition=domain
    [ "$(boot)" = pxe ] && ! grep -q boot-ignored faults.json && definition=domain-network
    echo default >boot
    # ipmi_sim answers nobody while it waits for this script; a chassis takes the command and starts then.
    (
        {virsh} define {shlex.quote(str(own))}/$definition.xml && {virsh} start {name}
        {virsh} define {shlex.quote(str(own))}/domain.xml
    ) >/dev/null 2>&1 </dev/null &
}}"""
    told = ("power) if on; then echo power:1; else echo power:0; fi ;;", 'boot) echo "boot:$(boot)" ;;')
    done = (
        "power-1) on || start ;;",
        f"power-0) {virsh} destroy {name} >/dev/null 2>&1 ;;",
        f"reset-*) {virsh} destroy {name} >/dev/null 2>&1; start ;;",
        f"shutdown-*) {virsh} shutdown {name} >/dev/null 2>&1 ;;",
        'boot-*) echo "$value" >boot ;;',
    )
    return chassis(head, told, done)


def prepare(spec: MachineSpec, places: Places) -> list[str]:
    """Write what ipmi_sim reads and return its command."""
    own = places.bmc(spec.name)
    pair = json.loads(places.credentials.read_text())
    password = "-" if "bmc-password" in spec.faults else pair["password"]
    script = own / "chassis.sh"
    write_atomically(script, chassis_script(spec, places), 0o700)
    write_atomically(own / "sim.emu", emulation())
    text = lan_configuration(spec, places, script, pair["user"], password)
    write_atomically(own / "lan.conf", text, 0o600)
    (own / "state").mkdir(exist_ok=True)
    return [
        "ipmi_sim", "-n", "-c", str(own / "lan.conf"), "-f", str(own / "sim.emu"), "-s", str(own / "state"),
    ]  # fmt: skip
