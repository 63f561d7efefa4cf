"""What a machine's Redfish BMC is started with. Pure, but for the virtual environment that sushy-tools lives in."""

from __future__ import annotations

import hashlib
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

from coldiron.rack.host import Host
from coldiron.rack.metal.places import Firmware, Places
from coldiron.rack.metal.spec import MachineSpec

PORT = 443
PYTHON = "/usr/bin/python3"
_INSTALL_SECONDS = 600.0


def requirements() -> str:
    """The pinned packages of sushy-tools' environment."""
    return files("coldiron.rack").joinpath("files/sushy-requirements.txt").read_text(encoding="utf-8")


def environment(cache: Path) -> Path:
    """Where the environment of these very pins lies."""
    return cache / f"sushy-{hashlib.sha256(requirements().encode()).hexdigest()[:12]}"


def make_environment(host: Host, cache: Path) -> Path:
    """Make sushy-tools' virtual environment, unless it is there whole; returns its directory.

    It sees the distribution's python3-libvirt, which no index has for every libvirt. Raises CommandError.
    """
    final = environment(cache)
    if (final / "complete").exists():
        return final
    shutil.rmtree(final, ignore_errors=True)
    host.run([PYTHON, "-m", "venv", "--system-site-packages", str(final)], what="sushy-tools' environment")
    pins = final / "requirements.txt"
    pins.write_text(requirements(), encoding="utf-8")
    host.run(
        [
            str(final / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "--no-input", "-r", str(pins),
        ],
        what="installing sushy-tools",
        timeout_seconds=_INSTALL_SECONDS,
    )  # fmt: skip
    (final / "complete").touch()
    return final


def configuration(spec: MachineSpec, places: Places, firmware: Firmware) -> dict[str, Any]:
    """The BMC's configuration, see redfish_bmc."""
    own = places.bmc(spec.name)
    return {
        "address": spec.bmc_address,
        "port": PORT,
        "certificate": str(own / "bmc.crt"),
        "key": str(own / "bmc.key"),
        "wrong_certificate": str(own / "wrong.crt"),
        "wrong_key": str(own / "wrong.key"),
        "credentials": str(places.credentials),
        "faults": str(own / "faults.json"),
        "system": spec.uuid,
        "sushy": {
            "SUSHY_EMULATOR_LIBVIRT_URI": places.uri,
            "SUSHY_EMULATOR_ALLOWED_INSTANCES": [spec.uuid],
            "SUSHY_EMULATOR_STATE_DIR": str(own / "state"),
            "SUSHY_EMULATOR_BOOT_LOADER_MAP": {
                "UEFI": {"x86_64": firmware.code},
                "Legacy": {"x86_64": None},
            },
            "SUSHY_EMULATOR_SECURE_BOOT_ENABLED_NVRAM": firmware.secure_variables,
            "SUSHY_EMULATOR_SECURE_BOOT_DISABLED_NVRAM": firmware.variables,
        },
    }


def command(environment_directory: Path, config: Path) -> list[str]:
    """What serves a machine's BMC."""
    program = files("coldiron.rack.metal").joinpath("redfish_bmc.py")
    # Without the program's own folder on the path: a module there is called libvirt too.
    return [str(environment_directory / "bin" / "python"), "-P", str(program), str(config)]
