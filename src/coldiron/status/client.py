"""HTTP interfaces of the servers that watch a cluster, as far as a look at it needs them."""

from __future__ import annotations

import base64
import http.client
import json
import math
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from coldiron.errors import ColdironError
from coldiron.inventory.findings import shown, shown_whole

_MOST_BYTES = 256 * 1024 * 1024
# Of what a server says of a refusal.
_MOST_WORDS = 2000


@dataclass(frozen=True)
class Source:
    """Where a server is and how it is spoken to.

    ``address`` is its URL without a path's end, ``ca`` the PEM text of the authority that signed its certificate
    (empty: those of the system), ``user`` and ``password`` are of HTTP basic authentication (empty: none).
    """

    address: str
    ca: str = ""
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True)
class Sample:
    """One value of an instant query; never NaN or infinite."""

    labels: dict[str, str]
    value: float


class Client:
    """Asks one server. Every method raises ColdironError, in one line, where it gives no sound answer."""

    def __init__(self, source: Source, what: str, timeout_seconds: float = 20.0) -> None:
        self._source = source
        self._what = what
        self._timeout = timeout_seconds
        try:
            context = ssl.create_default_context(cadata=source.ca or None)
        except ssl.SSLError as error:
            raise ColdironError(
                f"{what}: its certificate authority is no PEM certificate: {error}"
            ) from error
        # Of no proxy: the password is for this server alone.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirect()
        )

    def get(self, path: str, **words: object) -> Any:
        """Return what ``path`` answers, read as JSON. ``words`` are its query's."""
        # A long expression is longer than an address may be; Prometheus and Alertmanager read a form as well.
        return self._ask(path, urllib.parse.urlencode(words).encode() if words else None, {})

    def post(self, path: str, body: object) -> Any:
        """Return what ``path`` answers to ``body``, both as JSON."""
        return self._ask(path, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _ask(self, path: str, body: bytes | None, headers: dict[str, str]) -> Any:
        url = f"{self._source.address.rstrip('/')}{path}"
        if self._source.user:
            pair = f"{self._source.user}:{self._source.password}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        try:
            request = urllib.request.Request(url, body, headers)
            with self._opener.open(request, timeout=self._timeout) as answer:
                text = answer.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise ColdironError(self._refused(error)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise ColdironError(
                f"{self._what} at {self._source.address} does not answer: {reason}"
            ) from error
        if len(text) > _MOST_BYTES:
            raise ColdironError(f"{self._what} at {self._source.address} answers {path} without an end")
        return self._read(path, text)

    def _refused(self, error: urllib.error.HTTPError) -> str:
        where = f"{self._what} at {self._source.address}"
        if error.code in (401, 403):
            return f"{where} refuses user {shown(self._source.user or '(none)')}: {error.code}"
        try:
            said = json.loads(error.read(65536))["error"]
        except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
            said = error.reason
        # Elasticsearch says more than one sentence.
        text = said if isinstance(said, str) else json.dumps(said)
        return f"{where} answers {error.code}: {shown_whole(text[:_MOST_WORDS])}"

    def _read(self, path: str, text: bytes) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise ColdironError(
                f"{self._what} at {self._source.address} answers {path} with no JSON"
            ) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nobody anywhere else: the password goes along."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Prometheus(Client):
    """A Prometheus, by its version 1 interface."""

    def __init__(self, source: Source, timeout_seconds: float = 20.0) -> None:
        super().__init__(source, "Prometheus", timeout_seconds)

    def query(self, expression: str) -> list[Sample]:
        """Return the values of ``expression`` now, whatever is no number left out."""
        try:
            result = self.get("/api/v1/query", query=expression)["data"]
            if result["resultType"] == "scalar":
                samples = [Sample({}, float(result["result"][1]))]
            else:
                samples = [Sample(dict(item["metric"]), float(item["value"][1])) for item in result["result"]]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ColdironError(
                f"Prometheus at {self._source.address}: it says no answer to a query"
            ) from error
        return [sample for sample in samples if math.isfinite(sample.value)]

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that pend or fire: labels, annotations, state, activeAt."""
        try:
            return list(self.get("/api/v1/alerts")["data"]["alerts"])
        except (KeyError, TypeError) as error:
            raise ColdironError(f"Prometheus at {self._source.address}: it says no alerts") from error


class Alertmanager(Client):
    """An Alertmanager, by its version 2 interface."""

    def __init__(self, source: Source, timeout_seconds: float = 20.0) -> None:
        super().__init__(source, "Alertmanager", timeout_seconds)

    def quiet(self) -> list[dict[str, str]]:
        """Return the labels of the alerts that are silenced or inhibited."""
        try:
            return [
                {str(name): str(value) for name, value in alert["labels"].items()}
                for alert in self.get("/api/v2/alerts")
                if alert["status"]["state"] == "suppressed"
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise ColdironError(f"Alertmanager at {self._source.address}: it says no alerts") from error
