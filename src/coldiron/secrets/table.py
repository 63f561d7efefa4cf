"""The secrets that a cluster has, as data, and what no secret may be."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

# Where they lie, below an inventory's directory.
VAULT_FILE = Path("group_vars") / "all" / "vault.yml"

_PASSWORD_LETTERS = string.ascii_letters + string.digits
_PASSWORD_LENGTH = 40

# Words that a reader was meant to replace, or that anyone would guess first.
_PLACEHOLDERS = re.compile(
    r"(your_?|my_?|default_?|example_?|some_?)?(password|passw0rd|pass|secret|key)"
    r"|(change|replace|fill|fix)(_?(it|me|this|in))*"
    r"|admin|ansible|default|demo|dummy|example|foo(bar)?|letmein|qwerty|root|temp|test|vault"
    r"|mariadb|munge|mysql|slurm|none|null|placeholder|tbd|todo|undefined|unset|x+"
)


# Keys beside a password that say whose it is.
USERS = ("user", "username", "login")


@dataclass(frozen=True)
class Secret:
    """One secret: the role variable ``key`` that holds it, what it is for, and how it is made and judged."""

    key: str
    purpose: str
    make: Callable[[], str]
    # What is wrong with a value, or None. It must never quote the value.
    fault: Callable[[str], str | None]


def _base64_of(size: int) -> Callable[[], str]:
    """A maker of ``size`` random bytes, in base64."""
    return lambda: base64.b64encode(secrets.token_bytes(size)).decode("ascii")


def _base64_fault(least: int, most: int) -> Callable[[str], str | None]:
    def fault(value: str) -> str | None:
        try:
            size = len(base64.b64decode(value, validate=True))
        except (binascii.Error, ValueError):
            return "is not base64"
        if not least <= size <= most:
            return f"holds {size} bytes, and needs {least} to {most}, in base64"
        return None

    return fault


def _password() -> str:
    """Letters and digits only: the word goes into configuration files whose quoting differs."""
    return "".join(secrets.choice(_PASSWORD_LETTERS) for _ in range(_PASSWORD_LENGTH))


def _password_fault(value: str) -> str | None:
    return "is shorter than 12 characters" if len(value) < 12 else None


# A further secret is a line here: `secrets init` adds it to clusters that have the others already.
SECRETS: tuple[Secret, ...] = (
    Secret("munge_key", "key that all nodes of the cluster trust", _base64_of(1024), _base64_fault(32, 1024)),
    Secret("mariadb_root_password", "database administrator", _password, _password_fault),
    Secret("slurm_dbd_database_password", "slurmdbd's database user", _password, _password_fault),
    Secret(
        "slurm_controller_jwt_key", "key that signs Slurm's tokens", _base64_of(32), _base64_fault(32, 4096)
    ),
)


def check(values: Mapping[str, object]) -> list[str]:
    """What is wrong with ``values`` (variable: secret), a sentence each; none of them quotes a value.

    Empty values, placeholders and guessable words are refused for every key, so also for those a site adds.
    """
    by_key = {secret.key: secret for secret in SECRETS}
    faults: list[str] = []
    for key, value in values.items():
        secret = by_key.get(key)
        for place, text in _texts(key, value):
            # Who logs in is no secret: a controller's user may well be called admin.
            fault = None if place.rpartition(".")[2] in USERS and text else _placeholder_fault(text)
            if fault is None and secret is not None:
                fault = secret.fault(text) if isinstance(value, str) else "is not text"
            if fault is not None:
                faults.append(f"`{place}` {fault}; {_advice(key, secret)}")
    return faults


def _advice(key: str, secret: Secret | None) -> str:
    if secret is None:
        return "write a real secret, or remove the key"
    return f"remove the line and run `coldiron secrets init` to have {key} made"


def _texts(place: str, value: object) -> list[tuple[str, str]]:
    """Every leaf of ``value`` as text, with its place."""
    if isinstance(value, Mapping):
        return [leaf for key, inner in value.items() for leaf in _texts(f"{place}.{key}", inner)]
    if isinstance(value, list):
        return [leaf for index, inner in enumerate(value) for leaf in _texts(f"{place}[{index + 1}]", inner)]
    return [(place, "" if value is None else str(value))]


def _placeholder_fault(text: str) -> str | None:
    word = text.strip()
    if not word:
        return "is empty"
    plain = re.sub(r"[- ]", "_", word.strip("<>[]{}()*\"' ").lower()).rstrip("0123456789!_")
    if _PLACEHOLDERS.fullmatch(plain):
        return "is a placeholder or a word that anyone would guess"
    if word.startswith("<") and word.endswith(">"):
        return "is a placeholder"
    if len(set(word)) == 1 or word in "01234567890123456789":
        return "is one character over and over, or a row of digits"
    return None
