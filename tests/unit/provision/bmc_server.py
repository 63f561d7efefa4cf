"""A machine behind Redfish, as far as the work on a BMC goes: a TLS server on this machine, with faults on demand.

The answers' shapes are those of sushy-tools 2.2 (system, NICs, BIOS) and of DMTF's mockups (logs, thermal, options).
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import ipaddress
import json
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

USER, PASSWORD = "admin", "canary-Bmc-7c1f"
SYSTEM = "/redfish/v1/Systems/1"
# What a machine whose state is a file keeps there.
KEPT = ("power", "enabled", "target", "bios", "pending", "order", "serial", "starts")


@dataclass
class Machine:
    """The machine, and how its BMC misbehaves."""

    power: str = "Off"
    enabled: str = "Disabled"
    target: str = "None"
    allowed: list[str] = field(default_factory=lambda: ["None", "Pxe", "Cd", "Hdd", "UefiHttp"])
    resets: list[str] = field(default_factory=lambda: ["On", "ForceOff", "GracefulShutdown", "ForceRestart"])
    serial: str = "SN0001"
    mac: str = "52:54:00:AA:00:01"
    bios: dict[str, Any] = field(default_factory=lambda: {"BootMode": "Uefi", "NumLock": "On", "Fan": 10})
    pending: dict[str, Any] = field(default_factory=dict)
    order: list[str] = field(default_factory=lambda: ["Boot0001", "Boot0002"])
    #: What arrived, method and path; and what was sent with it.
    asked: list[str] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    starts: int = 0
    # --- faults
    keeps_once: bool = False
    ignores_override: bool = False
    ignores_shutdown: bool = False
    ignores_bios: bool = False
    busy: int = 0
    busy_on: str = ""
    broken: dict[str, int] = field(default_factory=dict)
    garbage: str | None = None
    hangs: float = 0
    loses_answers: int = 0

    def reset(self, kind: str) -> None:
        if kind == "On" and self.power == "Off":
            self.power, self.starts = "On", self.starts + 1
            if not self.keeps_once and self.enabled == "Once":
                self.enabled, self.target = "Disabled", "None"
            if not self.ignores_bios:
                self.bios.update(self.pending)
            self.pending.clear()
        elif kind == "ForceOff" or (kind == "GracefulShutdown" and not self.ignores_shutdown):
            self.power = "Off"

    def patch(self, path: str, data: dict[str, Any]) -> None:
        boot = data.get("Boot") or {}
        if "BootSourceOverrideTarget" in boot and not self.ignores_override:
            self.target = boot["BootSourceOverrideTarget"]
            self.enabled = boot.get("BootSourceOverrideEnabled", "Once")
            if self.keeps_once and self.enabled == "Once":
                self.enabled = "Continuous"
        self.order = boot.get("BootOrder", self.order)
        if path.endswith("/Bios/Settings"):
            self.pending.update(data["Attributes"])


def resources(machine: Machine) -> dict[str, Any]:
    """Every resource that can be read, by its path."""

    def link(path: str) -> dict[str, str]:
        return {"@odata.id": path}

    def members(*paths: str) -> dict[str, Any]:
        return {"Members": [link(path) for path in paths]}

    logs = f"{SYSTEM}/LogServices"
    found: dict[str, Any] = {
        "/redfish/v1/": {
            "Systems": link("/redfish/v1/Systems"),
            "Chassis": link("/redfish/v1/Chassis"),
            "Managers": link("/redfish/v1/Managers"),
        },
        "/redfish/v1/Systems": members(SYSTEM),
        "/redfish/v1/Chassis": members("/redfish/v1/Chassis/1"),
        "/redfish/v1/Chassis/1": {"Id": "1", "Thermal": link("/redfish/v1/Chassis/1/Thermal")},
        "/redfish/v1/Chassis/1/Thermal": {
            "Temperatures": [
                {
                    "Name": "CPU|1 Temp",
                    "ReadingCelsius": 98,
                    "UpperThresholdCritical": 95,
                    "Status": {"Health": "Critical"},
                },
                {"Name": "Inlet", "ReadingCelsius": 23, "Status": {"Health": "OK"}},
            ],
            "Fans": [
                {"Name": "Fan 3", "Reading": 0, "ReadingUnits": "RPM", "Status": {"Health": "Critical"}}
            ],
        },
        "/redfish/v1/Managers/1": {"Id": "BMC"},
        SYSTEM: {
            "Id": "1",
            "Manufacturer": "Coldiron Tests",
            "Model": "T1",
            "SerialNumber": machine.serial,
            "BiosVersion": "1.2.3",
            "PowerState": machine.power,
            "Boot": {
                "BootSourceOverrideEnabled": machine.enabled,
                "BootSourceOverrideTarget": machine.target,
                "BootSourceOverrideMode": "UEFI",
                "BootSourceOverrideTarget@Redfish.AllowableValues": machine.allowed,
                "BootOrder": machine.order,
                "BootOptions": link(f"{SYSTEM}/BootOptions"),
            },
            "Bios": link(f"{SYSTEM}/Bios"),
            "EthernetInterfaces": link(f"{SYSTEM}/EthernetInterfaces"),
            "LogServices": link(logs),
            "Links": {"ManagedBy": [link("/redfish/v1/Managers/1")]},
            "Actions": {
                "#ComputerSystem.Reset": {
                    "target": f"{SYSTEM}/Actions/ComputerSystem.Reset",
                    "ResetType@Redfish.AllowableValues": machine.resets,
                }
            },
        },
        f"{SYSTEM}/EthernetInterfaces": members(f"{SYSTEM}/EthernetInterfaces/1"),
        f"{SYSTEM}/EthernetInterfaces/1": {"Id": "1", "MACAddress": machine.mac},
        f"{SYSTEM}/BootOptions": members(*(f"{SYSTEM}/BootOptions/{name}" for name in machine.order)),
        f"{SYSTEM}/Bios": {
            "Attributes": machine.bios,
            "AttributeRegistry": "Reg",
            "@Redfish.Settings": {"SettingsObject": link(f"{SYSTEM}/Bios/Settings")},
        },
        f"{SYSTEM}/Bios/Settings": {"Attributes": machine.pending},
        "/redfish/v1/Registries/Reg": {
            "Location": [{"Language": "en", "Uri": "/redfish/v1/Registries/Reg/Reg.json"}]
        },
        "/redfish/v1/Registries/Reg/Reg.json": {
            "RegistryEntries": {
                "Attributes": [
                    {
                        "AttributeName": "BootMode",
                        "Type": "Enumeration",
                        "Value": [{"ValueName": "Uefi"}, {"ValueName": "Bios"}],
                    },
                    {
                        "AttributeName": "NumLock",
                        "Type": "Enumeration",
                        "Value": [{"ValueName": "On"}, {"ValueName": "Off"}],
                    },
                ]
            }
        },
        logs: members(f"{logs}/Sel"),
        f"{logs}/Sel": {"Id": "Sel", "Entries": link(f"{logs}/Sel/Entries")},
        f"{logs}/Sel/Entries": {
            "Members": [{"Id": "1", "Severity": "Critical", "Message": "Power supply 1 failed"}],
            "Members@odata.nextLink": f"{logs}/Sel/Entries?$skip=1",
        },
        f"{logs}/Sel/Entries?$skip=1": members(f"{logs}/Sel/Entries/2"),
        f"{logs}/Sel/Entries/2": {"Id": "2", "Severity": "OK", "Message": "System started"},
    }
    for number, name in enumerate(machine.order):
        found[f"{SYSTEM}/BootOptions/{name}"] = {
            "BootOptionReference": name,
            "DisplayName": ["PXE NIC 1", "debian"][number % 2] if name == "Boot0001" else name.lower(),
        }
    return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    machine: Machine
    state: Path | None = None

    def log_message(self, *_: Any) -> None:
        """Nothing on a test's output."""

    def do_GET(self) -> None:
        if not self._faults():
            found = resources(self.machine).get(self.path)
            self._answer(404 if found is None else 200, {} if found is None else found)

    def do_PATCH(self) -> None:
        data = self._data()
        if not self._faults():
            self.machine.sent.append(data)
            self.machine.patch(self.path, data)
            self._remember()
            self._answer(200, {})

    def do_POST(self) -> None:
        data = self._data()
        if not self._faults():
            self.machine.sent.append(data)
            self.machine.reset(data["ResetType"])
            self._remember()
            if self.machine.loses_answers:
                self.machine.loses_answers -= 1
                self.close_connection = True
                return
            self._answer(200, {})

    def _data(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return data

    def _faults(self) -> bool:
        self._recall()
        machine = self.machine
        machine.asked.append(f"{self.command} {self.path}")
        time.sleep(machine.hangs)
        wanted = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.path in machine.broken:
            self._answer(machine.broken[self.path], {})
        elif machine.busy and machine.busy_on in f"{self.command} {self.path}":
            machine.busy -= 1
            self._answer(503, {"error": {"@Message.ExtendedInfo": [{"Message": "busy, come later"}]}})
        elif machine.garbage is not None:
            self._bytes(200, machine.garbage.encode())
        elif self.path != "/redfish/v1/" and self.headers.get("Authorization") != wanted:
            self._answer(401, {})
        else:
            return False
        return True

    def _recall(self) -> None:
        """What the state's file says: there the machine can be changed behind the BMC's back."""
        if self.state:
            vars(self.machine).update(json.loads(self.state.read_text(encoding="utf-8")))

    def _remember(self) -> None:
        if self.state:
            kept = {name: getattr(self.machine, name) for name in KEPT}
            self.state.write_text(json.dumps(kept), encoding="utf-8")

    def _answer(self, status: int, data: Any) -> None:
        self._bytes(status, json.dumps(data).encode())

    def _bytes(self, status: int, body: bytes) -> None:
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)


def play(folder: Path, address: str) -> None:
    """Be the BMC of this node, for good, at ``address``: its certificate and its state lie in ``folder``."""
    state = folder / "state.json"
    machine = Machine(power="On")
    state.write_text(json.dumps({name: getattr(machine, name) for name in KEPT}), encoding="utf-8")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "bmc.pem")
    handler = type("Handler", (_Handler,), {"machine": machine, "state": state})
    server = ThreadingHTTPServer((address, 443), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


@dataclass(frozen=True)
class Served:
    """A BMC that runs: its port and machine, the CA that signed it, and its own certificate."""

    port: int
    machine: Machine
    ca: Path
    certificate: bytes


@contextlib.contextmanager
def serving(
    folder: Path, machine: Machine, name: str = "127.0.0.1", issuer: str = "site CA", days: int = 9
) -> Iterator[Served]:
    """A BMC whose certificate is for ``name``, for ``days`` from now on, by a CA of its own in ``folder``."""
    ca, certificate = certify(folder, name, issuer, days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "bmc.pem")
    handler = type("Handler", (_Handler,), {"machine": machine})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield Served(server.server_address[1], machine, ca, certificate)
    finally:
        server.shutdown()
        server.server_close()


def certify(folder: Path, name: str, issuer: str, days: int) -> tuple[Path, bytes]:
    """Make a CA and a certificate for ``name`` in ``folder``: the CA's file, and the certificate as DER."""
    # Here alone: where it plays a node's BMC, the node has nothing but Python.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def builder(subject: str, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named(issuer))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=30))
            .not_valid_after(now + datetime.timedelta(days=9 if subject == issuer else days))
        )

    constraints = x509.BasicConstraints(ca=True, path_length=None)
    # Python 3.13 takes no authority without these, and nothing that one signed without its identifier.
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    ca = (
        builder(issuer, ca_key.public_key())
        .add_extension(constraints, True)
        .add_extension(usage, True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), False)
        .sign(ca_key, hashes.SHA256())
    )
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        alternative = x509.DNSName(name)
    leaf = (
        builder("a BMC", key.public_key())
        .add_extension(x509.SubjectAlternativeName([alternative]), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(ca.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "bmc.pem").write_bytes(private + leaf.public_bytes(pem))
    return folder / "ca.crt", leaf.public_bytes(serialization.Encoding.DER)


if __name__ == "__main__":
    if sys.argv[1] == "certify":
        certify(Path(sys.argv[2]), sys.argv[3], "molecule's CA", days=9)
    else:
        play(Path(sys.argv[2]), sys.argv[3])
