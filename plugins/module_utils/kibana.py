"""Kibana as a module asks it: over TLS, by the site's authority. Standard library only."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.coldiron.cluster.plugins.module_utils.elasticsearch import Answer

ASK_SECONDS = 60
Objects = Sequence[Mapping[str, Any]]


class Kibana:
    """One Kibana, asked as ``user``. ``address`` is one that its certificate names."""

    def __init__(self, address: str, port: int, ca: str, user: str, password: str) -> None:
        self.url, self.ca = f"https://{address}:{port}", ca
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        # It takes no change without the second word, which no page elsewhere can make a browser say.
        self.headers = {"Authorization": f"Basic {pair}", "kbn-xsrf": "true"}

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Ask once. Nobody there is an answer too, of status 0."""
        data = None if body is None else json.dumps(body).encode()
        return self._ask(method, path, data, "application/json")

    def send(self, path: str, objects: Objects) -> Answer:
        """Send objects as the file that Kibana's import takes."""
        return self._ask("POST", path, *form(objects))

    def _ask(self, method: str, path: str, data: bytes | None, kind: str) -> Answer:
        headers = {**self.headers, "Content-Type": kind}
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            context = ssl.create_default_context(cafile=self.ca)
            with urllib.request.urlopen(request, timeout=ASK_SECONDS, context=context) as answer:
                return Answer(answer.status, read(answer.read()))
        except urllib.error.HTTPError as error:
            return Answer(error.code, read(error.read()))
        except (OSError, ValueError) as error:
            return Answer(0, str(getattr(error, "reason", error)))


def form(objects: Objects) -> tuple[bytes, str]:
    """``objects`` as the file of a form: its bytes, and what they are."""
    border = uuid.uuid4().hex
    lines = "".join(json.dumps(one) + "\n" for one in objects)
    head = 'Content-Disposition: form-data; name="file"; filename="coldiron.ndjson"'
    text = f"--{border}\r\n{head}\r\nContent-Type: application/ndjson\r\n\r\n{lines}\r\n--{border}--\r\n"
    return text.encode(), f"multipart/form-data; boundary={border}"


def read(content: bytes) -> Any:
    """What an answer says: JSON, or lines of it, or text."""
    text = content.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return text


def plain(value: Any) -> Any:
    """``value`` with JSON that lies in a string taken out of it: Kibana may write that otherwise."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return plain(json.loads(value))
        except ValueError:
            return value
    return value


def differs(wanted: Any, found: Any, place: str = "") -> str:
    """Where ``found`` lacks something of ``wanted``, such as ``attributes.title``; empty where it has all.

    What ``found`` says beyond it is Kibana's own.
    """
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping):
            return place or "all of it"
        inner = (
            differs(value, found.get(key), f"{place}.{key}" if place else str(key))
            for key, value in wanted.items()
        )
        return next((one for one in inner if one), "")
    return "" if wanted == found else place or "all of it"


def same(wanted: Mapping[str, Any], found: Mapping[str, Any] | None) -> str:
    """Where an object that is there differs from the wanted one; empty where it does not."""
    if found is None:
        return "all of it"
    place = differs(plain(wanted["attributes"]), plain(found.get("attributes")), "attributes")
    if place:
        return place
    return "" if _references(wanted) == _references(found) else "references"


def _references(one: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return sorted((ref["name"], ref["type"], ref["id"]) for ref in one.get("references") or [])
