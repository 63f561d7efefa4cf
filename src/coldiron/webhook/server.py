"""The receiver's HTTP side: one bearer token, one path to post to, and a bound on everything that a sender decides.

``POST /alerts`` takes what Alertmanager sends; ``GET /healthy`` says that the receiver answers. Alertmanager sends
again after a 5xx and lets go after a 4xx, so "no room" is the one and "not understood" the other.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import socket
import socketserver
import ssl
import threading
import time
from collections import Counter
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from coldiron.errors import ColdironError
from coldiron.inventory import find, load
from coldiron.webhook.alerts import Alert, parse
from coldiron.webhook.ledger import HEARD, Ledger, Task
from coldiron.webhook.policy import Policy, Roster, Verdict, Word, decide
from coldiron.webhook.worker import Worker

LONGEST_BODY: Final = 4 * 1024 * 1024
"""Bytes of a request. Alertmanager's are some hundred a label, and a group may hold every alert of a cluster."""
CONNECTIONS: Final = 16
"""At once; one more is closed unanswered. A receiver has one Alertmanager, or a few."""
# Alerts that wait for their turn.
_MOST_WAITING = 256
# Lines of an answer and of an event; the others are counted.
_MOST_LINES = 20

log = logging.getLogger("coldiron-webhook")


class Receiver:
    """Decides on the alerts of a request, and remembers."""

    def __init__(self, inventory: Path, policy: Policy, ledger: Ledger, worker: Worker) -> None:
        self._file = find(inventory)
        self._policy = policy
        self.ledger = ledger
        self._worker = worker
        self._lock = threading.Lock()
        self._roster: tuple[tuple[int, int], Roster] | None = None
        self.roster()

    def roster(self) -> Roster:
        """The nodes as cluster.yml has them now. Raises ColdironError where it cannot be used."""
        about = self._file.stat()
        stamp = (about.st_mtime_ns, about.st_size)
        if self._roster is None or self._roster[0] != stamp:
            self._roster = (stamp, Roster(load(self._file)))
        return self._roster[1]

    def hear(self, alerts: list[Alert], peer: str) -> tuple[Counter[str], list[str]]:
        """Decide on each of ``alerts``; returns how many met which fate, and the lines that a person may read.

        Raises ColdironError where nothing can be decided now.
        """
        words: Counter[str] = Counter()
        lines = []
        with self._lock:
            roster = self.roster()
            self._worker.resolved({alert.key for alert in alerts if alert.status == "resolved"})
            for alert in alerts:
                verdict = self._one(alert, roster)
                words[verdict.word] += 1
                if verdict.why:
                    lines.append(verdict.why)
            more = len(lines) - _MOST_LINES
            lines = [*lines[:_MOST_LINES], *([f"and {more} lines more"] if more > 0 else [])]
            self.ledger.write(time.time(), HEARD, {"peer": peer, "alerts": dict(words), "lines": lines})
        self._worker.wake()
        return words, lines

    def _one(self, alert: Alert, roster: Roster) -> Verdict:
        now = time.time()
        known = self.ledger.known
        verdict = decide(alert, self._policy, roster, known, now)
        if verdict.word is not Word.ACCEPTED:
            return verdict
        if len(known.waiting) >= _MOST_WAITING:
            return Verdict(Word.LATER, verdict.node, f"{alert.name}: {len(known.waiting)} nodes wait already")
        self.ledger.accept(now, Task(verdict.node, alert.name, alert.key))
        return verdict


class _Wrong(Exception):
    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class _Handler(BaseHTTPRequestHandler):
    server: Server
    # One request a connection, so that no idle one holds a place.
    protocol_version = "HTTP/1.0"
    server_version = "coldiron-webhook"
    sys_version = ""

    def setup(self) -> None:
        # The socket's own time-out is one read's: who sends a byte now and then would stay for ever.
        self._end = threading.Timer(self.server.seconds, _cut, [self.request])
        self._end.daemon = True
        self._end.start()
        super().setup()
        self.connection.settimeout(self.server.seconds)

    def finish(self) -> None:
        self._end.cancel()
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        if self.path == "/healthy":
            self._send(HTTPStatus.OK, {"healthy": True})
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such thing here; alerts are posted to /alerts")

    def do_POST(self) -> None:
        try:
            self._check_token()
            if self.path != "/alerts":
                raise _Wrong(
                    HTTPStatus.NOT_FOUND, "there is no such thing here; alerts are posted to /alerts"
                )
            body = self._body()
        except _Wrong as wrong:
            self._refuse(wrong.status, wrong.why)
            return
        try:
            alerts = parse(body)
        except ColdironError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, error.message)
            return
        try:
            words, lines = self.server.receiver.hear(alerts, self._peer())
        except (ColdironError, OSError) as error:
            why = getattr(error, "message", str(error))
            log.error("nothing can be decided: %s", why)
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the receiver has a fault; see its journal")
            return
        for line in lines:
            log.info("%s", line)
        status = HTTPStatus.SERVICE_UNAVAILABLE if words[Word.LATER] else HTTPStatus.OK
        self._send(status, {"alerts": dict(words), "lines": lines})

    def _check_token(self) -> None:
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or not hmac.compare_digest(given.strip().encode(), self.server.token):
            raise _Wrong(HTTPStatus.UNAUTHORIZED, "wrong token or none; send Authorization: Bearer TOKEN")

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise _Wrong(HTTPStatus.LENGTH_REQUIRED, "the request does not say how long it is")
        if len(length) > 12 or int(length) > LONGEST_BODY:
            raise _Wrong(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {LONGEST_BODY} bytes; set max_alerts"
            )
        data = self.rfile.read(int(length))
        if len(data) != int(length):
            raise _Wrong(HTTPStatus.BAD_REQUEST, "the request is shorter than it says")
        return data

    def _peer(self) -> str:
        return str(self.client_address[0])

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        log.warning("%s: %d, %s", self._peer(), status, why)
        with contextlib.suppress(ColdironError):
            self.server.receiver.ledger.refuse(time.time(), int(status), why, self._peer())
        self._send(status, {"error": why})

    def _send(self, status: HTTPStatus, answer: dict[str, Any]) -> None:
        data = (json.dumps(answer) + "\n").encode()
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses by itself, in the words of the rest. It would quote the request."""
        self._refuse(HTTPStatus(code), "the request cannot be read")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the requests that matter are told in words."""


def _cut(connection: socket.socket) -> None:
    # Not ssl's own shutdown, which another thread's read would trip over.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves ``receiver`` on ``where``. ``seconds``: how long a whole request may take, ``tls``: None is plain HTTP."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(
        self,
        where: tuple[str, int],
        receiver: Receiver,
        token: str,
        tls: ssl.SSLContext | None = None,
        seconds: float = 15.0,
    ) -> None:
        self.receiver = receiver
        self.token = token.encode()
        self.seconds = seconds
        self._tls = tls
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        if ":" in where[0]:
            self.address_family = socket.AF_INET6
        super().__init__(where, _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, peer = super().get_request()
        if self._tls is not None:
            # The handshake is the first read's, in the connection's own thread and time.
            connection.settimeout(self.seconds)
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, peer

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            log.warning("%s: more than %d connections", client_address[0], CONNECTIONS)
            request.close()
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def shutdown_request(self, request: Any) -> None:
        _cut(request)
        request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One line: a client that went away is no news, and a traceback would be noise."""
        log.warning("%s: the connection ended early", client_address[0])
