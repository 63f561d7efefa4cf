"""Elasticsearch as the modules ask it: over TLS, by the site's authority. Standard library only."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

ASK_SECONDS = 20
#: Arguments of every module that asks one; plugins/doc_fragments/elasticsearch.py says what they mean.
CONNECTION: dict[str, dict[str, Any]] = {
    "address": {"type": "str", "required": True},
    "port": {"type": "int", "default": 9200},
    "ca": {"type": "path", "required": True},
    "user": {"type": "str", "required": True},
    "password": {"type": "str", "required": True, "no_log": True},
}
#: What is asked of a server only to learn whether it can at all.
UNKNOWN = (400, 404, 405)


class Answer(NamedTuple):
    """A status, 0 where nobody answered, and the answer; of a server that is away the reason."""

    status: int
    body: Any

    @property
    def why(self) -> str:
        """What is wrong, for a person."""
        error = self.body.get("error") if isinstance(self.body, dict) else self.body
        if isinstance(error, dict):
            error = error.get("reason") or error.get("type")
        return f"{self.status or 'no answer'}: {error}"


class Server:
    """One server of a cluster, asked as ``user``. ``address`` is one that its certificate names."""

    def __init__(self, address: str, port: int, ca: str, user: str, password: str) -> None:
        self.url, self.ca = f"https://{address}:{port}", ca
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.headers = {"Authorization": f"Basic {pair}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Ask once. Nobody there is an answer too, of status 0."""
        if isinstance(body, list):
            data = "".join(json.dumps(line) + "\n" for line in body).encode()
        else:
            data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=self.headers, method=method)
        try:
            context = ssl.create_default_context(cafile=self.ca)
            with urllib.request.urlopen(request, timeout=ASK_SECONDS, context=context) as answer:
                return Answer(answer.status, _read(answer.read()))
        except urllib.error.HTTPError as error:
            return Answer(error.code, _read(error.read()))
        except (OSError, ValueError) as error:
            return Answer(0, str(getattr(error, "reason", error)))


def server_of(module: Any) -> Server:
    """The server that a module's arguments name."""
    return Server(*(module.params[name] for name in CONNECTION))


def _read(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode("utf-8", "replace")


def wait(check: Callable[[], str], seconds: float, pause: float = 1.0) -> str:
    """Ask ``check`` until it has nothing to complain of; its last complaint otherwise."""
    end = time.monotonic() + seconds
    while True:
        complaint = check()
        if not complaint or time.monotonic() >= end:
            return complaint
        time.sleep(pause)


def health_complaint(answer: Answer, nodes: int = 0) -> str:
    """What keeps a cluster from losing a server without losing anything; empty when nothing does.

    ``nodes``: how many servers have to be in it; 0 asks for none in particular.
    """
    if answer.status != 200:
        return f"it does not say how the cluster is ({answer.why})"
    health: Mapping[str, Any] = answer.body
    if health["number_of_nodes"] < nodes:
        return f"{health['number_of_nodes']} of {nodes} servers are in the cluster"
    if health["status"] != "green":
        return f"the cluster is {health['status']}: {health['unassigned_shards']} shards have no place"
    if health["relocating_shards"] or health["initializing_shards"]:
        return "shards are on their way"
    return ""


def covers(wanted: Any, found: Any) -> bool:
    """Whether ``found`` has all that ``wanted`` says. Servers answer numbers and booleans of settings as text."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            key in found and covers(value, found[key]) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(wanted) == len(found)
            and all(covers(one, other) for one, other in zip(wanted, found))
        )
    return _plain(wanted) == _plain(found)


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
