"""One self-contained HTML file: templates, style and script in one, and a policy that lets nothing else in."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from coldiron import __version__
from coldiron.inventory.ranges import fold
from coldiron.text import counted, duration, moment, printable

TEMPLATES = Path(__file__).with_name("templates")
# Inside a script element only these could end it or begin a comment.
_ESCAPED = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "printable": printable, "moment": moment, "duration": duration, "counted": counted, "fold": folded,
    }  # fmt: skip
    return environment


def folded(names: list[str]) -> str:
    """Return node names as ranges; their number where even that is long."""
    text = fold(list(names)).replace(",", ", ")
    # Commas inside brackets belong to one range.
    text = re.sub(r"\[[^\]]*\]", lambda match: match[0].replace(" ", ""), text)
    return text if len(text) <= 120 else counted(len(names), "node")


def told_versions(versions: dict[str, str]) -> str:
    """Return versions as one line."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def as_data(value: Any) -> Markup:
    """Return a value as JSON that can stand inside a script element, whatever texts are in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.translate(_ESCAPED))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def render(template: str, **values: Any) -> str:
    """Return a whole page. Texts in ``values`` are escaped; only the page's own style and script may run."""
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    script = (TEMPLATES / "script.js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup(style),
            script=Markup(script),
            policy=policy,
            coldiron_version=__version__,
            **values,
        )
    )
