"""Make a BMC for a rack's node that has none: what plays it on the node itself, on its address, without a machine.

    python -m coldiron.testing.bmc_double redfish FOLDER ADDRESS
    python -m coldiron.testing.bmc_double ipmi FOLDER ADDRESS

FOLDER is what a scenario brings to its node as ``/run/bmc-double``. The Redfish one is sushy-tools' emulator behind
the same TLS, password and faults as a rack's machine has, with systems that are only a file; the IPMI one is ipmi_sim
with the sensors of a rack's machine, and a chassis that is a file.
"""

from __future__ import annotations

import json
import shutil
import ssl
import sys
import tarfile
from importlib.resources import files
from pathlib import Path

from coldiron.provision.bmc_trust import fingerprint
from coldiron.rack.host import Host
from coldiron.rack.layout import Machine
from coldiron.rack.metal import bmc_ipmi, bmc_redfish
from coldiron.rack.metal.certificates import make_ca, make_certificate

PLACE = "/run/bmc-double"
#: Of BMCs that exist as long as a scenario.
USER, PASSWORD = "reader", "canary-Bmc-9e07"
SYSTEM = "c7a5fdbd-cdaf-9455-926a-d65c16db1809"


def redfish(folder: Path, address: str) -> None:
    """Write a Redfish BMC's certificates, its configuration, the emulator and what that needs."""
    make_ca(folder / "ca.key", folder / "ca.crt", "BMCs of a scenario")
    make_certificate(
        folder / "bmc.key", folder / "bmc.crt", "bmc", address, (folder / "ca.key", folder / "ca.crt")
    )
    make_certificate(folder / "wrong.key", folder / "wrong.crt", "bmc", address, None)
    der = ssl.PEM_cert_to_DER_cert((folder / "bmc.crt").read_text())
    (folder / "fingerprint").write_text(fingerprint(der))
    (folder / "credentials.json").write_text(json.dumps({"user": USER, "password": PASSWORD}))
    (folder / "faults.json").write_text("[]")
    config = {
        "address": address,
        "port": bmc_redfish.PORT,
        "certificate": f"{PLACE}/bmc.crt",
        "key": f"{PLACE}/bmc.key",
        "wrong_certificate": f"{PLACE}/wrong.crt",
        "wrong_key": f"{PLACE}/wrong.key",
        "credentials": f"{PLACE}/credentials.json",
        "faults": f"{PLACE}/faults.json",
        "system": SYSTEM,
        "sushy": {
            "SUSHY_EMULATOR_FAKE_DRIVER": True,
            "SUSHY_EMULATOR_FAKE_SYSTEMS": [
                {
                    "uuid": SYSTEM,
                    "name": "double",
                    "power_state": "Off",
                    "external_notifier": False,
                    "nics": [],
                }
            ],
            "SUSHY_EMULATOR_STATE_DIR": f"{PLACE}/state",
        },
    }
    (folder / "config.json").write_text(json.dumps(config))
    program = files("coldiron.rack.metal").joinpath("redfish_bmc.py").read_text(encoding="utf-8")
    (folder / "redfish_bmc.py").write_text(program, encoding="utf-8")
    environment = bmc_redfish.make_environment(Host(), Machine().cache)
    (packages,) = environment.glob("lib/python3*/site-packages")
    with tarfile.open(folder / "packages.tar", "w") as tar:
        tar.add(packages, "packages", filter=lambda one: None if "__pycache__" in one.name else one)


# The machine is a file.
CHASSIS = bmc_ipmi.chassis(
    "# The chassis of a machine that is not there.",
    (f'power) echo "power:$(cat {PLACE}/power)" ;;', "boot) echo boot:default ;;"),
    (f'power-*) echo "$value" >{PLACE}/power ;;',),
)


def ipmi(folder: Path, address: str) -> None:
    """Write what ipmi_sim reads, and its chassis."""
    (folder / "sim.emu").write_text(bmc_ipmi.emulation())
    (folder / "chassis.sh").write_text(CHASSIS)
    (folder / "power").write_text("1\n")
    words = [
        'name "double"',
        "set_working_mc 0x20",
        "  startlan 1",
        f"    addr {address} {bmc_ipmi.PORT}",
        "    priv_limit admin",
        "    allowed_auths_admin md5",
        f"    guid {SYSTEM.replace('-', '')}",
        "  endlan",
        f'  chassis_control "{PLACE}/chassis.sh"',
        f'  user 2 true "{USER}" "{PASSWORD}" admin 10 md5',
        "",
    ]
    (folder / "lan.conf").write_text("\n".join(words))


def main(words: list[str]) -> None:
    """Entry point."""
    kind, place, address = words
    folder = Path(place)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    {"redfish": redfish, "ipmi": ipmi}[kind](folder, address)


if __name__ == "__main__":
    main(sys.argv[1:])
