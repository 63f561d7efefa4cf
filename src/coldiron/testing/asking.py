"""Ask a web server on its own node, as those do that it is for: by TLS of the site's authority, with a password."""

from __future__ import annotations

import re
from typing import Any, Final

# Nodes have Python, and not always curl. The password is no word of the command line.
_PROGRAM: Final = """
import base64, ssl, sys, urllib.error, urllib.request
url, authority, user, body = sys.argv[1:5]
word = sys.stdin.readline().strip()
context = ssl.create_default_context(cadata=authority) if authority else None
asked = urllib.request.Request(url, data=body.encode() if body else None)
asked.add_header("Content-Type", "application/json")
if word:
    asked.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{word}".encode()).decode())
try:
    with urllib.request.urlopen(asked, timeout=15, context=context) as answer:
        print(answer.status)
        sys.stdout.write(answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Samples = dict[str, list[tuple[dict[str, str], float]]]


def ask(
    host: Any, url: str, *, authority: str = "", user: str = "", password: str = "", body: str = ""
) -> tuple[int, str]:
    """The status and the text that ``host`` is answered at ``url``; with a ``body`` it posts that.

    ``authority`` is PEM; without a ``password`` none is shown. Nobody's answer at all fails the test.
    """
    words = (str(password), _PROGRAM, url, str(authority), str(user), body)
    said = host.check_output("printf '%%s\\n' %s | python3 -c %s %s %s %s %s", *words)
    status, _, text = said.partition("\n")
    return int(status), text


def samples(text: str) -> Samples:
    """What an exporter serves, by metric: each value with its labels."""
    found: Samples = {}
    for name, labels, value in _SAMPLE.findall(text):
        found.setdefault(name, []).append((dict(_LABEL.findall(labels)), float(value)))
    return found
