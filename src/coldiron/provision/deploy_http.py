"""The deploy program's one connection: to the provisioner that the site's CA vouches for, and to nobody else.

A request is tried again where trying again can help, and each attempt is bounded in bytes and in seconds. A machine
whose clock is years off would refuse every certificate: then the provisioner, known by the site's CA all the same, is
asked for the time once, and its answer is believed within what is sane.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from coldiron.errors import ExitCode
from coldiron.inventory.findings import shown
from coldiron.provision.deploy_cache import Cache, caches
from coldiron.provision.deploy_tools import DeployFailed

_LONGEST_ANSWER = 16 * 1024 * 1024
_CHUNK = 1024 * 1024
_ATTEMPTS = 5
# X509_V_FLAG_NO_CHECK_TIME of OpenSSL: all but the dates is verified.
_NO_TIME_CHECK = 0x200000
# X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_BY_DATE = (9, 10)
# A RAM environment is replaced long before it is this old; a later date is nonsense.
SANE_SECONDS = 10 * 365 * 24 * 3600
_OFF_SECONDS = 2.0


class ServerRefused(DeployFailed):
    """The provisioner says no."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.REFUSED)


class ServerSilent(DeployFailed):
    """The provisioner cannot be reached, or does not make sense."""


@dataclass
class Clock:
    """This machine's clock. ``built``: when the RAM environment was made, seconds since the epoch; it is never before.

    ``corrected`` is how many seconds it was put forward or back.
    """

    built: float
    now: Callable[[], float] = time.time
    put: Callable[[float], None] = field(
        default=lambda seconds: time.clock_settime(time.CLOCK_REALTIME, seconds)
    )
    corrected: float = 0.0

    def at_least_built(self) -> None:
        """A clock that is before this environment was made is wrong."""
        if self.now() < self.built:
            self._set(self.built)

    def believe(self, date: str | None) -> None:
        """Take the time of a ``Date`` header, if it is sane. ``date`` comes from a server that the CA vouches for."""
        parsed = email.utils.parsedate_tz(date or "")
        seconds = email.utils.mktime_tz(parsed) if parsed else 0
        if not self.built <= seconds <= self.built + SANE_SECONDS:
            return
        if abs(seconds - self.now()) > _OFF_SECONDS:
            self._set(float(seconds))

    def _set(self, seconds: float) -> None:
        off = seconds - self.now()
        try:
            self.put(seconds)
        except OSError as error:
            raise DeployFailed(f"the clock cannot be set: {error.strerror}") from None
        self.corrected += off


class Server:
    """The provisioner at ``address`` (``https://HOST:PORT``), for node ``node``."""

    def __init__(
        self, address: str, node: str, authority: str, clock: Clock, *, timeout: float = 30,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        parts = urlsplit(address)
        if parts.scheme != "https" or not parts.hostname:
            raise ServerRefused(
                f"the provisioner's address {shown(address)} is not https://; no secret goes there"
            )
        self._host, self._port = parts.hostname, parts.port or 443
        self.node = node
        self.caches: Sequence[Cache] = ()
        """Where the image may be fetched from before it is asked for here, once the token was handed in."""
        self._authority = authority
        self._clock = clock
        self._timeout = timeout
        self._sleep = sleep
        self._session = ""
        self._connection: http.client.HTTPSConnection | None = None

    def redeem(self, token: str) -> dict[str, Any]:
        """Hand the token in, once; the order's fields."""
        answer = self._json("POST", "redeem", {"Authorization": f"Bearer {token}"})
        session, order = answer.get("session"), answer.get("order")
        if not isinstance(session, str) or not session.isascii() or not isinstance(order, dict):
            raise ServerSilent("the provisioner's answer to the token holds no order and session")
        self._session = session
        self.caches = caches(answer.get("images"), f"https://{self._host}:{self._port}", self._authority)
        return order

    def identity(self) -> dict[str, Any]:
        """Who this node is; it is full of secrets."""
        return self._json("GET", "identity")

    def event(self, event: Mapping[str, Any], attempts: int = 2) -> None:
        """Tell of a step. Raises DeployFailed as every request does; the caller may go on without."""
        self._json("POST", "events", body=event, attempts=attempts, timeout=10)

    def done(self, body: Mapping[str, Any]) -> None:
        """Close the order: from now on this machine boots from its disk."""
        self._json("POST", "done", body=body)

    @property
    def open(self) -> bool:
        """Whether a session was opened, so that events arrive."""
        return bool(self._session)

    def file(self, path: str) -> bytes:
        """A small file below ``/images``."""
        return self._request("GET", f"/images/{path}", {})

    def stream(self, path: str, start: int = 0) -> Iterator[bytes]:
        """A large file from byte ``start`` on, as it comes; after a break it goes on where it broke off.

        Raises ServerSilent where nothing came in ``_ATTEMPTS`` attempts in a row.
        """
        silent = 0
        while True:
            try:
                for chunk in self._part(f"/images/{path}", start):
                    silent = 0
                    start += len(chunk)
                    yield chunk
                return
            except (OSError, http.client.HTTPException) as error:
                self.close()
                silent += 1
                if silent == _ATTEMPTS:
                    raise ServerSilent(
                        f"the image broke off after {start} bytes, {silent} times: {_why(error)}"
                    ) from None
                self._sleep(min(2**silent, 8))

    def close(self) -> None:
        """Forget the connection; the next request opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _part(self, path: str, start: int) -> Iterator[bytes]:
        headers = {"Range": f"bytes={start}-"} if start else {}
        response = self._send("GET", path, headers, None, self._timeout)
        if response.status == 416 and start:
            response.read()
            return
        if response.status != (206 if start else 200):
            response.read(_LONGEST_ANSWER)
            self.close()
            raise ServerRefused(f"the provisioner answers {response.status} for {shown(path)}")
        whole = response.length
        got = 0
        while chunk := response.read(_CHUNK):
            got += len(chunk)
            yield chunk
        if whole is not None and got < whole:
            raise http.client.IncompleteRead(b"", whole - got)

    def _json(
        self, method: str, what: str, headers: Mapping[str, str] | None = None, *,
        body: Mapping[str, Any] | None = None, attempts: int = _ATTEMPTS, timeout: float | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        sent = {"Authorization": f"Bearer {self._session}", **(headers or {})}
        data = json.dumps(body).encode() if body is not None else b"" if method == "POST" else None
        if body is not None:
            sent["Content-Type"] = "application/json"
        path = f"/api/v1/nodes/{self.node}/{what}"
        text = self._request(method, path, sent, data, attempts=attempts, timeout=timeout)
        if not text.strip():
            return {}
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ServerSilent(f"the provisioner's answer to {what} is not JSON")
        return answer

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None, *,
        attempts: int = _ATTEMPTS, timeout: float | None = None,
    ) -> bytes:  # fmt: skip
        why = ""
        for attempt in range(attempts):
            if attempt:
                self._sleep(min(2**attempt, 8))
            try:
                response = self._send(method, path, headers, body, timeout or self._timeout)
                answer = _bounded(response, time.monotonic() + 4 * self._timeout)
            except ssl.SSLCertVerificationError as error:
                # Whoever answers there is not the provisioner, however often it is asked.
                raise ServerRefused(
                    f"{self._host}:{self._port} is not to be trusted: {_why(error)}; nothing was sent to it"
                ) from None
            except (OSError, http.client.HTTPException) as error:
                self.close()
                why = _why(error)
                continue
            if response.status < 300:
                return answer
            if response.status < 500 and response.status != 429:
                raise ServerRefused(
                    f"the provisioner refuses {_last(path)} ({response.status}): {_reason(answer)}"
                )
            why = f"it answers {response.status}"
        raise ServerSilent(
            f"the provisioner {self._host}:{self._port} did not answer {_last(path)} in {attempts} attempts: {why}"
        )

    def _send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> http.client.HTTPResponse:
        kept = self._connection is not None
        connection = self._connect(timeout)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            if not kept:
                raise
            # A kept connection may have been closed meanwhile, and then nobody has seen the request.
            self.close()
            connection = self._connect(timeout)
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
        self._clock.believe(response.headers.get("Date"))
        return response

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        if self._connection is None:
            try:
                self._connection = self._opened(timeout, by_date=True)
            except ssl.SSLCertVerificationError as error:
                if error.verify_code not in _BY_DATE:
                    raise
                self._ask_time(timeout)
                self._connection = self._opened(timeout, by_date=True)
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        return self._connection

    def _ask_time(self, timeout: float) -> None:
        """Nothing secret is sent, and nothing but the date is read."""
        connection = self._opened(timeout, by_date=False)
        try:
            connection.request("HEAD", "/")
            self._clock.believe(connection.getresponse().headers.get("Date"))
        finally:
            connection.close()

    def _opened(self, timeout: float, *, by_date: bool) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self._authority)
        if not by_date:
            context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_TIME_CHECK)
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)
        connection.connect()
        return connection


def _bounded(response: http.client.HTTPResponse, ends: float) -> bytes:
    """The answer, which is neither endless nor endlessly slow."""
    parts: list[bytes] = []
    length = 0
    while chunk := response.read1(_CHUNK):
        parts.append(chunk)
        length += len(chunk)
        if length > _LONGEST_ANSWER:
            raise http.client.HTTPException("its answer is too long")
        if time.monotonic() > ends:
            raise http.client.HTTPException("its answer is too slow")
    # read1 leaves an answer of known length open, and the next request on this connection would be refused.
    response.read()
    return b"".join(parts)


def _reason(answer: bytes) -> str:
    """The one line that the provisioner gives with a no."""
    try:
        fields = json.loads(answer)
        return shown(str(fields["error"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no reason given"


def _last(path: str) -> str:
    return path.rsplit("/", 1)[1]


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not good: {shown(error.verify_message)}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return shown(text)
