"""What the exporters of this collection share: how Prometheus reads samples, and the server that tells them.

Roles redfish_exporter and slurm_exporter install this file beside their own, as it is; the programs import it, and
nothing starts it by itself. Standard library only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

#: Who speaks no faster has said nothing.
CLIENT_SECONDS = 15.0

#: What is answered: of a path, its query and the question's headers, status and text.
Answer = Callable[[str, str, Message], tuple[int, str]]


class Sample(NamedTuple):
    """One value with its labels."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def render(metrics: Mapping[str, tuple[str, str]], samples: Sequence[Sample]) -> str:
    """The samples as Prometheus reads them, those of one metric together, and of two alike the first.

    ``metrics`` has the type and the meaning of each; samples of others are left out.
    """
    by_name: dict[str, dict[str, float]] = defaultdict(dict)
    for sample in samples:
        words = ",".join(f'{key}="{_escaped(str(value))}"' for key, value in sample.labels.items())
        by_name[sample.name].setdefault(f"{{{words}}}" if words else "", sample.value)
    lines = []
    for name, (kind, what) in metrics.items():
        if name in by_name:
            lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
        for labels, value in by_name.get(name, {}).items():
            lines.append(f"{name}{labels} {int(value) if value == int(value) else value}")
    return "\n".join(lines) + "\n"


def patience(headers: Message) -> float | None:
    """What Prometheus waits, less what the way back takes."""
    try:
        return max(1.0, float(headers.get("X-Prometheus-Scrape-Timeout-Seconds", "")) - 1.0)
    except ValueError:
        return None


class Handler(BaseHTTPRequestHandler):
    """GET, and nothing else; the server says what is answered."""

    server: Server
    protocol_version = "HTTP/1.0"
    server_version = "coldiron-exporter"
    sys_version = ""
    timeout = CLIENT_SECONDS

    def do_GET(self) -> None:
        """Answer who may ask."""
        if not self._known():
            self._send(401, "wrong password or none\n", {"WWW-Authenticate": 'Basic realm="metrics"'})
            return
        path, _, query = self.path.partition("?")
        self._send(*self.server.answer(path, query, self.headers))

    def _known(self) -> bool:
        wanted = self.server.config.get("password_sha256")
        if not wanted:
            return True
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        try:
            user, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        digest = hashlib.sha256(password.encode()).hexdigest()
        # Both are looked at, whatever the first says.
        right = hmac.compare_digest(user.encode(), self.server.config["user"].encode())
        return kind == "Basic" and hmac.compare_digest(digest, wanted) and right

    def _send(self, status: int, text: str, more: Mapping[str, str] | None = None) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for key, value in (more or {}).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line for every question would be the journal's most."""


class Server(ThreadingHTTPServer):
    """Serves on the configured address, by TLS where there is a certificate."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, config: Mapping[str, Any], answer: Answer) -> None:
        self.config, self.answer = config, answer
        self._tls = None
        if config.get("certificate"):
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
            self._tls.load_cert_chain(config["certificate"], config["key"])
        super().__init__((config["address"], config["port"]), Handler)

    def get_request(self) -> tuple[Any, Any]:
        """Accept; the handshake is the first read's, in the connection's own thread and time."""
        connection, peer = super().get_request()
        connection.settimeout(CLIENT_SECONDS)
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, peer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that goes away, or speaks no TLS, is no news."""


def serve(path: str, begin: Callable[[Mapping[str, Any]], Answer]) -> None:
    """Serve by the configuration at ``path`` until the process is ended; ``begin`` makes of it what answers."""
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    Server(config, begin(config)).serve_forever()
