"""Caches near the machine that have the provisioner's images, and that nobody needs to trust.

Nothing is sent to them but the image's name. What they answer is only bytes on their way through the hash; whoever is
dead, slow or lies costs time, and then the provisioner is asked.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

from coldiron.inventory.findings import shown
from coldiron.provision.deploy_tools import DeployFailed

_CHUNK = 1024 * 1024
# More than these are not asked: the provisioner is always there to end with.
_MOST = 4


class CacheAbsent(DeployFailed):
    """A cache has not even begun to give the image."""


class CacheBroke(DeployFailed):
    """A cache has given a part of the image, and no more."""


class Cache:
    """The cache at ``url``, which comes before ``/DIGEST/FILE``; http or https, the latter by the site's CA.

    Seconds: ``reach`` until it takes the connection, ``timeout`` until it answers, and between two of its answers; a
    cache that fetches the image itself makes others wait. ``least_rate``: the bytes a second
    that it has to bring on average once it was waited for ``patience`` seconds; a slow disk here is not its fault.
    """

    def __init__(
        self, url: str, authority: str, *, reach: float = 10, timeout: float = 30, patience: float = 30,
        least_rate: float = 2e6, now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        parts = urlsplit(url)
        self.name = parts.hostname or ""
        self._scheme, self._path = parts.scheme, parts.path.rstrip("/")
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._authority = authority
        self._reach = reach
        self._timeout = timeout
        self._least_rate = least_rate
        self._patience = patience
        self._now = now

    def stream(self, path: str, length: int) -> Iterator[bytes]:
        """The file ``path`` of ``length`` bytes, as it comes, once the cache has said that it has it.

        Raises CacheAbsent in the call itself, CacheBroke on the way.
        """
        try:
            connection = self._opened()
            connection.connect()
            connection.sock.settimeout(self._timeout)
            connection.request("GET", f"{self._path}/{path}", headers={"Accept-Encoding": "identity"})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._absent(_why(error)) from None
        if response.status != 200:
            connection.close()
            raise self._absent(f"it answers {response.status}")
        if response.length != length:
            connection.close()
            raise self._absent("what it has is of another length")
        return self._chunks(connection, response, length)

    def _chunks(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, length: int
    ) -> Iterator[bytes]:
        waited, got = 0.0, 0
        try:
            while True:
                began = self._now()
                # Not read: a cache that trickles would hold a whole megabyte back.
                chunk = response.read1(_CHUNK)
                waited += self._now() - began
                if not chunk:
                    break
                got += len(chunk)
                if waited > self._patience and got < waited * self._least_rate:
                    raise self._broke(f"it is slow: {got / waited / 1e6:.1f} MB/s")
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            raise self._broke(f"it broke off after {got} bytes: {_why(error)}") from None
        finally:
            connection.close()
        if got < length:
            raise self._broke(f"it broke off after {got} bytes")

    def _opened(self) -> http.client.HTTPConnection:
        if self._scheme == "https":
            context = ssl.create_default_context(cafile=self._authority)
            return http.client.HTTPSConnection(self.name, self._port, timeout=self._reach, context=context)
        return http.client.HTTPConnection(self.name, self._port, timeout=self._reach)

    def _absent(self, why: str) -> CacheAbsent:
        return CacheAbsent(f"the cache {shown(self.name)}: {why}")

    def _broke(self, why: str) -> CacheBroke:
        return CacheBroke(f"the cache {shown(self.name)}: {why}")


def caches(answer: object, server: str, authority: str) -> Sequence[Cache]:
    """The caches that the provisioner's answer to the token names; ``server`` is its own address, and no cache."""
    found = []
    for url in answer if isinstance(answer, list) else []:
        if not isinstance(url, str) or url.startswith(f"{server}/"):
            continue
        try:
            usable = urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname
            if usable and (urlsplit(url).port or 1) > 0:
                found.append(Cache(url, authority))
        except ValueError:
            # No port, or no address: there is nobody to ask.
            continue
    return found[:_MOST]


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not good: {shown(error.verify_message)}"
    return shown(getattr(error, "strerror", None) or str(error) or type(error).__name__)
