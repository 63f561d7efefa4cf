"""A BMC behind IPMI 2.0 (RMCP+), through ipmitool: for machines whose BMC has no Redfish.

The password is in ipmitool's environment, never among its words, which any user of this machine could read. IPMI has no
certificate: what proves the BMC to be the right one is that it knows the password, too.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import time
from collections.abc import Callable
from typing import Final

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown
from coldiron.provision.bmc_facts import Asset, Facts, Override
from coldiron.provision.bmc_plan import Step
from coldiron.provision.bmc_trouble import Trouble, Where, trouble

Runner = Callable[..., "subprocess.CompletedProcess[str]"]

# Redfish's boot targets in the words of ipmitool, and how it tells of them.
_DEVICES: Final = {"Pxe": "pxe", "Hdd": "disk", "Cd": "cdrom", "BiosSetup": "bios"}
_TOLD: Final = (
    (r"PXE", "Pxe"),
    (r"Hard-Drive", "Hdd"),
    (r"CD/DVD", "Cd"),
    (r"BIOS Setup", "BiosSetup"),
)
_POWER: Final = {"PowerOn": "on", "PowerGracefulShutdown": "soft", "PowerForceOff": "off"}
# What IPMI has, as Redfish calls it.
_RESETS: Final = ("On", "ForceOff", "GracefulShutdown")
# The longest password of IPMI 2.0, in bytes.
_LONGEST: Final = 20
# Seconds that ipmitool waits for a packet, and how often it sends one again.
_PACKET = ("-N", "2", "-R", "2")


class Ipmi:
    """One machine behind one BMC. ``efi`` asks for boots by UEFI instead of by the BIOS."""

    def __init__(
        self,
        where: Where,
        password: str,
        *,
        port: int = 0,
        timeout: int = 30,
        cipher_suite: int = 3,
        efi: bool = True,
        program: str = "ipmitool",
        runner: Runner = subprocess.run,
    ) -> None:
        if len(password.encode()) > _LONGEST:
            raise ColdironError(
                where.told(f"its password is longer than IPMI's {_LONGEST} bytes; give it a shorter one")
            )
        self.where = where
        self._words = [program, "-I", "lanplus", "-H", where.address, "-p", str(port or 623), *_PACKET]
        self._words += ["-C", str(cipher_suite), "-U", where.user, "-E"]
        self._environment = {**os.environ, "IPMI_PASSWORD": password, "LC_ALL": "C"}
        self._password = password
        self._timeout = timeout
        self._efi = efi
        self._run = runner
        self._says_valid = False

    def facts(
        self, *, asset: bool = False, bios: bool = False, order: bool = False, resets: bool = False
    ) -> Facts:
        """Power and boot override; ``asset`` adds what the FRU says. IPMI knows no BIOS attributes and no order."""
        del bios, order, resets
        said = self._meet()
        power = re.search(r"Chassis Power is (on|off)", said)
        if not power:
            raise trouble(self.where, "TypeError: chassis power status")
        override = self._override(self._ask("chassis", "bootparam", "get", "5"))
        return Facts(
            power[1].capitalize(),
            override=override,
            asset=self._asset() if asset else Asset(),
            resets=_RESETS,
        )

    def send(self, step: Step) -> None:
        """Carry out one step of a plan."""
        if step.command == "SetOneTimeBoot":
            device = _DEVICES.get(step.target)
            if device is None:
                raise ColdironError(
                    self.where.told(
                        f"IPMI cannot boot from {shown(step.target)}; write one of: {', '.join(sorted(_DEVICES))}"
                    ),
                    ExitCode.REFUSED,
                )
            self._ask("chassis", "bootdev", device, *(("options=efiboot",) if self._efi else ()))
        elif step.command == "DisableBootOverride":
            self._ask("chassis", "bootdev", "none")
        elif step.command in _POWER:
            self._ask("chassis", "power", _POWER[step.command])
        else:
            raise ColdironError(self.where.told(f"IPMI has no {step.command}"), ExitCode.REFUSED)

    def logs(self) -> dict[str, str]:
        """The system event log, as ``ipmitool sel list`` tells it."""
        self._meet()
        return {"sel.txt": self._ask("sel", "list")}

    def sensors(self) -> str:
        """All sensors, as ``ipmitool sensor`` tells them."""
        self._meet()
        return self._ask("sensor")

    def console(self, seconds: float) -> str:
        """What the serial line says (serial over LAN) within ``seconds``. Somebody else's session is left alone."""
        self._meet()
        # ipmitool wants a terminal for this.
        ours, its = pty.openpty()
        words = [*self._words, "sol", "activate"]
        try:
            process = subprocess.Popen(
                words, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self._environment
            )
        except OSError as error:
            raise self._missing(error) from None
        try:
            time.sleep(seconds)
            early = process.poll()
            if early is None:
                # Nothing else is typed: it would arrive at the machine.
                os.write(ours, b"~.")
            try:
                said, _ = process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
        finally:
            os.close(ours)
            os.close(its)
        text = said.decode("utf-8", errors="replace")
        refused = process.returncode > 0 and "SOL Session operational" not in text
        if early or refused:
            raise trouble(self.where, text, self._password)
        return re.sub(
            r"(?m)^(> |\[SOL Session operational.*|Loading IANA.*|.*terminated ipmitool.*).*$\n?", "", text
        )

    def _override(self, said: str) -> Override:
        target = next((word for pattern, word in _TOLD if re.search(f"Selector : .*{pattern}", said)), "None")
        valid = "Boot Flag Valid" in said
        self._says_valid = self._says_valid or valid
        if valid:
            enabled = "Continuous" if "all future boots" in said else "Once"
        else:
            # ipmi_sim, for one, never says that it is valid; then what is selected counts.
            enabled = "Disabled" if self._says_valid or target == "None" else "kept"
        return Override(enabled, target, ("None", *sorted(_DEVICES)))

    def _asset(self) -> Asset:
        try:
            said = self._ask("fru", "print", "0")
        except Trouble as error:
            if error.passing:
                raise
            # A BMC without a FRU of its own: not known.
            return Asset()
        fields = dict(re.findall(r"(?m)^\s*([\w ]+?)\s*: (.*\S)\s*$", said))
        serials = [fields.get(f"{part} Serial", "") for part in ("Chassis", "Product", "Board")]
        return Asset(
            fields.get("Product Manufacturer", ""),
            fields.get("Product Name", ""),
            tuple(dict.fromkeys(word for word in serials if word)),
        )

    def _meet(self) -> str:
        """Ask for the power, and be told of a wrong password, which else looks like a BMC that is not there.

        That takes -v, which would make another thing of logs and sensors.
        """
        return self._ask("-v", "chassis", "power", "status")

    def _ask(self, *words: str) -> str:
        try:
            result = self._run(
                [*self._words, *words],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise trouble(self.where, "timed out") from None
        except OSError as error:
            raise self._missing(error) from None
        if result.returncode:
            raise trouble(self.where, f"{result.stderr} {result.stdout}", self._password)
        return result.stdout

    def _missing(self, error: OSError) -> ColdironError:
        if isinstance(error, FileNotFoundError):
            return ColdironError(
                self.where.told("IPMI needs ipmitool on this machine; install it: apt-get install ipmitool"),
                ExitCode.ENVIRONMENT,
            )
        return ColdironError(
            self.where.told(f"ipmitool cannot be started: {error.strerror or error}"), ExitCode.ENVIRONMENT
        )
