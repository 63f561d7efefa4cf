"""A machine's Redfish BMC: sushy-tools' emulator behind TLS, basic authentication and the faults that are asked for.

Runs by itself in sushy-tools' own virtual environment: ``python redfish_bmc.py CONFIG.json``. Standard library only,
but for the emulator. The configuration: ``address``, ``port``, ``certificate`` and ``key`` (paths), and
``wrong_certificate`` and ``wrong_key``, ``credentials`` (path of a JSON file with ``user`` and ``password``),
``faults`` (path of a JSON list, read at every request: a fault begins and ends without a restart), ``system`` (the
machine's UUID), ``sushy`` (the emulator's own options).
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import io
import json
import socket
import socketserver
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

Start = Callable[..., Any]
Application = Callable[[dict[str, Any], Start], Iterable[bytes]]

# Redfish lets everybody ask who answers.
_OPEN = {"", "redfish", "redfish/v1"}
_HANG_SECONDS = 600.0
_LOOK_SECONDS = 0.2
# A client that connects and says nothing is let go.
_SILENCE_SECONDS = 60.0
_STARTING = {"On", "ForceOn", "ForceRestart", "GracefulRestart", "PowerCycle"}


def active_faults(path: str) -> set[str]:
    """The faults that are asked for now."""
    try:
        return set(json.loads(Path(path).read_text()))
    except (OSError, ValueError):
        return set()


class Front:
    """What stands between a client and the emulator: a WSGI application around another."""

    def __init__(self, app: Application, config: dict[str, Any]) -> None:
        self.app = app
        self.faults_path: str = config["faults"]
        self.system = f"/redfish/v1/Systems/{config['system']}"
        credentials = json.loads(Path(config["credentials"]).read_text())
        pair = f"{credentials['user']}:{credentials['password']}".encode()
        self.expected = f"Basic {base64.b64encode(pair).decode()}"
        # The emulator makes Pxe of a boot by HTTP without a URI: both are "from the network" to libvirt.
        self.by_http = False

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        faults = active_faults(self.faults_path)
        if "bmc-hang" in faults:
            self.hang()
            faults = active_faults(self.faults_path)
        if "bmc-503" in faults:
            return _refuse(start, "503 Service Unavailable", "the service is busy", ("Retry-After", "30"))
        if not self.let_in(environ, faults):
            challenge = ("WWW-Authenticate", 'Basic realm="BMC"')
            return _refuse(start, "401 Unauthorized", "wrong user or password", challenge)
        if "boot-ignored" in faults and self.starts(environ):
            self.boot_from_disk()
        if environ.get("PATH_INFO", "").rstrip("/") == self.system:
            if environ.get("REQUEST_METHOD") == "PATCH":
                self.note_override(environ)
            elif self.by_http and environ.get("REQUEST_METHOD") == "GET":
                return self.tell_http(environ, start)
        return self.app(environ, start)

    def note_override(self, environ: dict[str, Any]) -> None:
        """Remember whether the boot that is being set is one by HTTP, from what DHCP says."""
        boot = _body(environ).get("Boot")
        if isinstance(boot, dict) and "BootSourceOverrideTarget" in boot:
            self.by_http = boot["BootSourceOverrideTarget"] == "UefiHttp" and not boot.get("HttpBootUri")

    def tell_http(self, environ: dict[str, Any], start: Start) -> list[bytes]:
        """The emulator's answer, with the boot as it was asked for."""
        told: list[Any] = []
        text = b"".join(self.app(environ, lambda *words: told.extend(words[:2])))
        text = text.replace(b'"BootSourceOverrideTarget": "Pxe"', b'"BootSourceOverrideTarget": "UefiHttp"')
        headers = [pair for pair in told[1] if pair[0].lower() != "content-length"]
        start(told[0], [*headers, ("Content-Length", str(len(text)))])
        return [text]

    def hang(self) -> None:
        """Say nothing, until the fault is cleared or nobody can be waiting any more."""
        deadline = time.monotonic() + _HANG_SECONDS
        while "bmc-hang" in active_faults(self.faults_path) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)

    def let_in(self, environ: dict[str, Any], faults: set[str]) -> bool:
        """Whether the client has the right user and password; with the fault nobody has."""
        if environ.get("PATH_INFO", "").strip("/") in _OPEN:
            return True
        given = str(environ.get("HTTP_AUTHORIZATION", ""))
        return hmac.compare_digest(given.encode(), self.expected.encode()) and "bmc-password" not in faults

    def starts(self, environ: dict[str, Any]) -> bool:
        """Whether the request switches the machine on. Its body is kept for the emulator."""
        if environ.get("REQUEST_METHOD") != "POST" or not environ.get("PATH_INFO", "").endswith("Reset"):
            return False
        return _body(environ).get("ResetType") in _STARTING

    def boot_from_disk(self) -> None:
        """Set the boot override back to the disk, as a BMC does that accepts one and forgets it."""
        body = json.dumps({"Boot": {"BootSourceOverrideTarget": "Hdd"}}).encode()
        environ = {
            "REQUEST_METHOD": "PATCH",
            "PATH_INFO": self.system,
            "SCRIPT_NAME": "",
            "QUERY_STRING": "",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(body)),
            "SERVER_NAME": "bmc",
            "SERVER_PORT": "443",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "https",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for _ in self.app(environ, lambda *_: None):
            pass


def _body(environ: dict[str, Any]) -> dict[str, Any]:
    """The request's JSON, kept for the emulator; empty where it is no object."""
    text = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(text)
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _refuse(start: Start, status: str, text: str, header: tuple[str, str]) -> list[bytes]:
    body = json.dumps({"error": {"code": "Base.1.0.GeneralError", "message": text}}).encode()
    start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body))), header])
    return [body]


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """A thread a connection; TLS is agreed in the thread, so that a client that says nothing holds nobody up."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, config: dict[str, Any], app: Application) -> None:
        self.faults_path: str = config["faults"]
        self.right = _context(config["certificate"], config["key"])
        self.wrong = _context(config["wrong_certificate"], config["wrong_key"])
        super().__init__((config["address"], config["port"]), Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Bind without asking the resolver for the address's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]
        self.setup_environ()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Agree on TLS, with the wrong certificate where that is asked for, then answer."""
        request.settimeout(_SILENCE_SECONDS)
        context = self.wrong if "bmc-certificate" in active_faults(self.faults_path) else self.right
        try:
            with context.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)
        except (OSError, ssl.SSLError) as error:
            print(f"{client_address[0]}: {error}", file=sys.stderr, flush=True)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection; TLS has closed it where it came that far."""
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_WR)
        self.close_request(request)


class Handler(WSGIRequestHandler):
    """Logs a line a request: who, what, the answer; never a header."""

    def log_message(self, format: str, *args: Any) -> None:
        stamp = time.strftime("%H:%M:%S")
        print(f"{stamp} {self.client_address[0]} {format % args}", file=sys.stderr, flush=True)

    def address_string(self) -> str:
        return str(self.client_address[0])


def _context(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


def main(path: str) -> None:
    """Serve until killed."""
    from sushy_tools.emulator import main as emulator  # type: ignore[import-not-found]

    config = json.loads(Path(path).read_text())
    emulator.app.configure(extra_config=config["sushy"])
    Server(config, Front(emulator.app, config)).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
