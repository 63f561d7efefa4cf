"""Ask a web server on its own node, as those do that it is for: by TLS of the site's authority, with a password."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

# Nodes have Python, and not always curl. What is asked, and as whom, is on standard input and in no process list.
_PROGRAM: Final = """
import base64, http.client, json, ssl, sys, urllib.error, urllib.request
words = json.load(sys.stdin)
headers = words["headers"]
if words["user"] is not None:
    pair = words["user"] + ":" + words["password"]
    headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
data = None if words["body"] is None else words["body"].encode()
asked = urllib.request.Request(words["url"], data, headers, method=words["method"])
try:
    if words["authority"] is None:
        context = ssl._create_unverified_context()
    else:
        context = ssl.create_default_context(cadata=words["authority"] or None)
    if words["client"]:
        context.load_cert_chain(*words["client"])
    with urllib.request.urlopen(asked, timeout=30, context=context) as answer:
        status, text = answer.status, answer.read()
except urllib.error.HTTPError as error:
    status, text = error.code, error.read()
except (OSError, http.client.HTTPException) as error:
    status, text = 0, str(error).encode()
print(json.dumps([status, text.decode(errors="replace")]))
"""
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Samples = dict[str, list[tuple[dict[str, str], float]]]


def answered(
    host: Any,
    url: str,
    *,
    authority: str | None = "",
    client: tuple[str, str] | None = None,
    user: str | None = None,
    password: str = "",
    method: str = "",
    headers: Mapping[str, str] | None = None,
    body: str | None = None,
) -> tuple[int, str]:
    """The status and the text that ``host`` is answered at ``url``; 0, and why, where it is not answered.

    ``authority`` is PEM, and empty those that the node trusts; with None the server's certificate is not looked at.
    ``client`` is who asks: files on the node with a certificate and its key. Without a ``user`` nobody logs in. A
    ``body`` is posted, or what ``method`` says is done.
    """
    words = {
        "url": url,
        "authority": None if authority is None else str(authority),
        "client": client,
        # As it is, and not encoded: a report knows it then, and leaves it out.
        "user": None if user is None else str(user),
        "password": str(password),
        "method": method or ("GET" if body is None else "POST"),
        "headers": {"Content-Type": "application/json", **(headers or {})},
        "body": body,
    }
    said = host.check_output("printf %%s %s | python3 -c %s", json.dumps(words), _PROGRAM)
    status, text = json.loads(said)
    return int(status), str(text)


def ask(
    host: Any, url: str, *, authority: str = "", user: str = "", password: str = "", body: str = ""
) -> tuple[int, str]:
    """The status and the text that ``host`` is answered at ``url``; with a ``body`` it posts that.

    ``authority`` is PEM; without a ``password`` none is shown. Nobody's answer at all fails the test.
    """
    status, text = answered(
        host,
        url,
        authority=authority,
        user=user if password else None,
        password=password,
        body=body or None,
    )
    assert status, f"{url}: {text}"
    return status, text


def samples(text: str) -> Samples:
    """What an exporter serves, by metric: each value with its labels."""
    found: Samples = {}
    for name, labels, value in _SAMPLE.findall(text):
        found.setdefault(name, []).append((dict(_LABEL.findall(labels)), float(value)))
    return found
