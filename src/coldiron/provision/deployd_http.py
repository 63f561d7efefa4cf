"""The provisioner's HTTP side: boot scripts for everybody, and secrets for the holder of a token, over TLS only.

It listens on a unix socket behind a web server, which ends TLS and says in a header what came in how. Every answer to
a wrong request is one line; what went wrong inside is told to the journal and to nobody else. The journal holds no
token, session or key.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import socketserver
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.names import check_host_name
from coldiron.provision import deployd_script
from coldiron.provision.deployd_script import Mirror
from coldiron.provision.deployd_state import LONGEST_TEXT, STEPS, Event, Refused, State
from coldiron.provision.token import TokenRefused

# The web server sets it for every request, whatever the client wrote there.
TRANSPORT_HEADER: Final = "X-Coldiron-Transport"
ADDRESS_HEADER: Final = "X-Real-IP"
LONGEST_BODY: Final = 64 * 1024
# Requests at work at once; more wait.
_WORKERS = 32
_REQUEST_SECONDS = 30
# First of the file descriptors that systemd passes, sd_listen_fds(3).
_LISTEN_FD = 3
_BOOT = re.compile(r"/boot/([0-9a-f]{2}(?:-[0-9a-f]{2}){5})\.ipxe")
_API = re.compile(r"/api/v1/nodes/([a-z0-9-]{1,63})/([a-z]+)")
_MOST_SERIALS = 256

log = logging.getLogger("coldiron-deployd")


@dataclass(frozen=True)
class Settings:
    """What the role says. ``server`` and ``files`` are the base URLs of TLS and of kernel and initrd.

    ``refusal_seconds`` is how long a wrong token waits for its answer.
    """

    server: str
    files: str
    arguments: tuple[str, ...] = ()
    mirrors: tuple[Mirror, ...] = ()
    refusal_seconds: float = 1.0


class _Wrong(Exception):
    """A request that is not answered as asked: the status, and the line that says why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class _Handler(BaseHTTPRequestHandler):
    server: Server
    # HTTP/1.0: one request a connection, so that no idle one holds a worker.
    protocol_version = "HTTP/1.0"
    server_version = "coldiron-deployd"
    sys_version = ""
    timeout = _REQUEST_SECONDS
    _heard_all = False

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        try:
            with self.server.workers:
                self._dispatch(method)
        except _Wrong as wrong:
            self._refuse(wrong.status, wrong.why)
        except (TokenRefused, Refused) as refused:
            time.sleep(self.server.settings.refusal_seconds)
            self._refuse(HTTPStatus.FORBIDDEN, refused.message)
        except ColdironError as error:
            log.error("%s: %s", self._told(), error.message)
            if error.exit_code == ExitCode.ENVIRONMENT:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the provisioner has a fault; see its journal")
            else:
                self._refuse(HTTPStatus.BAD_REQUEST, error.message)
        except (TimeoutError, ConnectionError):
            self.close_connection = True
        except Exception as error:
            # The text of an unforeseen error may quote what was sent: its kind and place are enough to find it.
            place = error.__traceback__
            while place and place.tb_next:
                place = place.tb_next
            where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else "?"
            log.error("%s: %s at %s", self._told(), type(error).__name__, where)
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "the provisioner has a fault; see its journal")

    def _dispatch(self, method: str) -> None:
        if found := _BOOT.fullmatch(self.path):
            self._allow(method, "GET")
            self._boot(found[1])
            return
        if self.path.startswith("/api"):
            if self.headers.get(TRANSPORT_HEADER) != "tls":
                raise _Wrong(HTTPStatus.FORBIDDEN, "this is for TLS only")
            if found := _API.fullmatch(self.path):
                self._api(method, _node(found[1]), found[2])
                return
        raise _Wrong(HTTPStatus.NOT_FOUND, "there is no such thing here")

    def _boot(self, dashed: str) -> None:
        mac = dashed.replace("-", ":")
        settings = self.server.settings
        opened = self.server.state.boot(mac)
        if opened is None:
            self._send(HTTPStatus.OK, deployd_script.LOCAL, "text/plain; charset=utf-8")
            return
        order, token = opened
        log.info("%s: boot script with a token for %s", self._told(), order.node)
        near = deployd_script.nearest(settings.mirrors, self.headers.get(ADDRESS_HEADER, ""), settings.files)
        script = deployd_script.deploy(
            order,
            token,
            server=settings.server,
            files=list(dict.fromkeys([near, settings.files])),
            again=f"{settings.files}/boot/{dashed}.ipxe",
            arguments=settings.arguments,
        )
        self._send(HTTPStatus.OK, script, "text/plain; charset=utf-8")

    def _api(self, method: str, node: str, call: str) -> None:
        state = self.server.state
        if call == "redeem":
            self._allow(method, "POST")
            order, session = state.redeem(node, self._bearer())
            log.info("%s: token of %s redeemed", self._told(), node)
            near = deployd_script.nearest(
                self.server.settings.mirrors, self.headers.get(ADDRESS_HEADER, ""), ""
            )
            urls = [f"{near}/images"] if near else []
            urls.append(f"{self.server.settings.server}/images")
            self._send_json({"order": order.as_dict(), "session": session, "images": urls})
        elif call == "identity":
            self._allow(method, "GET")
            identity = state.identity(node, self._bearer())
            log.info("%s: identity of %s given", self._told(), node)
            self._send_json(identity.as_dict())
        elif call == "events":
            self._allow(method, "POST")
            event = parse_event(self._body(), time.time())
            state.report(node, self._bearer(), event)
            log.info("%s: %s: %s%s", self._told(), node, event.step, " failed" if event.failed else "")
            self._send_json({})
        elif call == "done":
            self._allow(method, "POST")
            state.done(node, self._bearer(), parse_serials(self._body()))
            log.info("%s: %s is deployed", self._told(), node)
            self._send_json({})
        else:
            raise _Wrong(HTTPStatus.NOT_FOUND, "there is no such thing here")

    def _bearer(self) -> str:
        kind, _, text = self.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or not text:
            raise _Wrong(HTTPStatus.FORBIDDEN, "there is no token; send Authorization: Bearer TOKEN")
        return text.strip()

    def _body(self) -> Any:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise _Wrong(HTTPStatus.LENGTH_REQUIRED, "the request does not say how long it is")
        if len(length) > 9 or int(length) > LONGEST_BODY:
            raise _Wrong(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {LONGEST_BODY} bytes")
        self._heard_all = True
        data = self.rfile.read(int(length))
        if len(data) != int(length):
            raise ConnectionError
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise _Wrong(HTTPStatus.BAD_REQUEST, "the request is not JSON") from None

    def _allow(self, method: str, wanted: str) -> None:
        if method != wanted:
            raise _Wrong(HTTPStatus.METHOD_NOT_ALLOWED, f"this wants {wanted}")

    def _send_json(self, answer: Mapping[str, Any]) -> None:
        self._send(HTTPStatus.OK, json.dumps(answer) + "\n", "application/json")

    def _send(self, status: HTTPStatus, text: str, kind: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        log.warning("%s: %d, %s", self._told(), status, why)
        self.close_connection = True
        try:
            # Who is still sending would get a broken connection in place of the answer.
            if not self._heard_all:
                length = self.headers.get("Content-Length", "") if hasattr(self, "headers") else ""
                if length.isascii() and length.isdigit():
                    self.rfile.read(min(int(length[:9]), LONGEST_BODY))
            self._send(status, json.dumps({"error": why}) + "\n", "application/json")
        except OSError:
            # It has gone away; there is nobody to tell.
            return

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses by itself, in the words of the rest. It would quote the request."""
        self.command = getattr(self, "command", None) or ""
        self._refuse(HTTPStatus(code), "the request cannot be read")

    def _told(self) -> str:
        """Who asked, and for what: never a query, a header or a body."""
        headers = getattr(self, "headers", None)
        who = (headers.get(ADDRESS_HEADER) if headers else None) or "?"
        path = getattr(self, "path", "") or ""
        known = path if _BOOT.fullmatch(path) or _API.fullmatch(path) else "?"
        return f"{who if re.fullmatch(r'[0-9a-fA-F.:]{1,45}', who) else '?'} {known}"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the requests that matter are told in words."""


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Serves ``state`` on the unix socket ``where``, or on the one that systemd has passed."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, state: State, settings: Settings, where: Path | None) -> None:
        self.state = state
        self.settings = settings
        self.workers = threading.BoundedSemaphore(_WORKERS)
        super().__init__(str(where or ""), _Handler, bind_and_activate=False)
        if where is None:
            self.socket.close()
            self.socket = _passed_socket()
        else:
            where.unlink(missing_ok=True)
            self.server_bind()
            self.server_activate()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One line: a client that went away is no news, and a traceback would be noise."""
        log.warning("a connection ended early")


def _passed_socket() -> socket.socket:
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        raise ColdironError("systemd has passed no socket; name one with --socket FILE", ExitCode.ENVIRONMENT)
    return socket.socket(fileno=_LISTEN_FD)


def parse_event(data: object, now: float) -> Event:
    """What a node reports: step, seconds since its start, text, and why it failed. Raises ColdironError."""
    if not isinstance(data, dict):
        raise ColdironError("an event is a mapping")
    if unknown := data.keys() - {"step", "seconds", "text", "failed"}:
        raise ColdironError(f"an event has {len(unknown)} keys that nobody knows")
    if data.get("step") not in STEPS:
        raise ColdironError(f"an event's step is one of {', '.join(STEPS)}")
    seconds = data.get("seconds")
    if seconds is not None and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9
    ):
        raise ColdironError("an event's seconds are a number from 0 on")
    return Event(data["step"], now, seconds, _text(data.get("text")), _text(data.get("failed")))


def parse_serials(data: object) -> list[str]:
    """The serials of the disks that a node says it has written. Raises ColdironError."""
    serials = data.get("serials") if isinstance(data, dict) else None
    if not isinstance(serials, list) or len(serials) > _MOST_SERIALS:
        raise ColdironError('done wants {"serials": [the serials of the disks that were written]}')
    for serial in serials:
        if not isinstance(serial, str) or not serial.isprintable() or not 0 < len(serial) <= 256:
            raise ColdironError("a serial is one printable line")
    return serials


def _text(value: object) -> str:
    """A node's words on one line, and not longer than anybody reads: they go to terminals."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ColdironError("an event's text and failed are text")
    return "".join(letter if letter.isprintable() else " " for letter in value[:LONGEST_TEXT]).strip()


def _node(name: str) -> str:
    try:
        check_host_name(name)
    except ValueError:
        raise _Wrong(HTTPStatus.BAD_REQUEST, "that is no name of a node") from None
    return name
