"""Talking to a machine's BMC the way a site does: over its own protocol, never past it to libvirt."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.host import CommandError, Host
from coldiron.rack.metal.spec import MachineSpec

_SECONDS = 20.0
# What the two protocols call the same.
REDFISH_RESET = {"on": "On", "off": "ForceOff", "cycle": "ForceRestart"}
IPMI_RESET = {"on": "on", "off": "off", "cycle": "cycle"}


class BmcClient:
    """One machine's BMC. Errors are ColdironErrors that name the machine and the BMC."""

    def __init__(self, host: Host, spec: MachineSpec, user: str, password: str, ca: Path) -> None:
        self.host = host
        self.spec = spec
        self.user = user
        self.password = password
        self.ca = ca

    def answers(self) -> bool:
        """Whether it answers at all, with a certificate that the rack's CA has signed."""
        try:
            if self.spec.protocol == "redfish":
                return "RedfishVersion" in self._redfish("GET", "/redfish/v1/")
            return bool(self._ipmi("mc", "info"))
        except ColdironError:
            return False

    def power(self) -> bool:
        """Whether the machine is switched on."""
        if self.spec.protocol == "redfish":
            return bool(self._redfish("GET", self._system)["PowerState"] == "On")
        return "is on" in self._ipmi("chassis", "power", "status")

    def set_power(self, verb: str) -> None:
        """``on``, ``off`` (at once) or ``cycle`` (off and on again)."""
        if self.spec.protocol == "redfish":
            reset = REDFISH_RESET[verb]
            self._redfish("POST", f"{self._system}/Actions/ComputerSystem.Reset", {"ResetType": reset})
        else:
            self._ipmi("chassis", "power", IPMI_RESET[verb])

    @property
    def _system(self) -> str:
        return f"/redfish/v1/Systems/{self.spec.uuid}"

    def _redfish(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=str(self.ca))
        pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        connection = http.client.HTTPSConnection(self.spec.bmc_address, context=context, timeout=_SECONDS)
        headers = {"Authorization": f"Basic {pair}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._failed(str(error) or type(error).__name__) from None
        finally:
            connection.close()
        if answer.status >= 300:
            raise self._failed(f"{answer.status} {answer.reason}")
        try:
            return dict(json.loads(text)) if text else {}
        except ValueError:
            raise self._failed("what it says is no JSON") from None

    def _ipmi(self, *words: str) -> str:
        # The password goes by a file: a process list is everybody's.
        descriptor, secret = tempfile.mkstemp(prefix="coldiron-ipmi-")
        try:
            os.write(descriptor, self.password.encode())
            command = [
                "ipmitool", "-I", "lanplus", "-C", "3", "-N", "2", "-R", "2", "-H", self.spec.bmc_address,
                "-U", self.user, "-f", secret, *words,
            ]  # fmt: skip
            return self.host.run(command, timeout_seconds=_SECONDS).stdout
        except CommandError as error:
            raise self._failed(" ".join(error.output.split())[-200:]) from None
        finally:
            os.close(descriptor)
            Path(secret).unlink(missing_ok=True)

    def _failed(self, why: str) -> ColdironError:
        return ColdironError(f"{self.spec.name}: its BMC {self.spec.bmc_url}: {why}", ExitCode.HOSTS_FAILED)
