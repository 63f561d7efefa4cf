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
from typing import Literal

from coldiron.errors import ColdironError

# What of a cluster needs a secret: Slurm, machines that are installed from here, monitoring, logs, dashboards, or who
# shows the logs.
Need = Literal["slurm", "machines", "monitoring", "logging", "dashboards", "log_viewer"]

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


CA_KEY = "coldiron_ca_key"
CA_CERTIFICATE = "coldiron_ca_certificate"

# Keys beside a password that say whose it is.
USERS = ("user", "username", "login")


@dataclass(frozen=True)
class Secret:
    """One secret: the role variable ``key`` that holds it, what it is for, and how it is made and judged."""

    key: str
    purpose: str
    # It is given those that are there already, of which one may be what it belongs to.
    make: Callable[[Mapping[str, object]], str]
    # What is wrong with a value, or None. It must never quote the value.
    fault: Callable[[str], str | None]
    needed_for: Need = "slurm"


def _base64_of(size: int) -> Callable[[Mapping[str, object]], str]:
    """A maker of ``size`` random bytes, in base64."""
    return lambda _: base64.b64encode(secrets.token_bytes(size)).decode("ascii")


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


def _password(_: Mapping[str, object]) -> str:
    """Letters and digits only: the word goes into configuration files whose quoting differs."""
    return "".join(secrets.choice(_PASSWORD_LETTERS) for _ in range(_PASSWORD_LENGTH))


def _password_fault(value: str) -> str | None:
    return "is shorter than 12 characters" if len(value) < 12 else None


def _long_fault(value: str) -> str | None:
    return "is shorter than 32 characters" if len(value) < 32 else None


# The library of certificates takes a while to import: only who makes or judges one pays.
def _ca_key(_: Mapping[str, object]) -> str:
    from coldiron.provision.pki import make_ca_key

    return make_ca_key()


def _ca_key_fault(value: str) -> str | None:
    from coldiron.provision.pki import key_fault

    return key_fault(value)


def _ca_certificate(others: Mapping[str, object]) -> str:
    from coldiron.provision.pki import make_ca_certificate

    return make_ca_certificate(str(others[CA_KEY]))


def _ca_certificate_fault(value: str) -> str | None:
    from coldiron.provision.pki import certificate_fault

    return certificate_fault(value)


def _image_key(_: Mapping[str, object]) -> str:
    from coldiron.provision.images import make_key

    return make_key().decode("ascii")


def _image_key_fault(value: str) -> str | None:
    from coldiron.provision.images import public_key

    try:
        public_key(value.encode())
    except ColdironError:
        return "is no Ed25519 key in PEM"
    return None


# A further secret is a line here: `secrets init` adds it to clusters that have the others already.
SECRETS: tuple[Secret, ...] = (
    Secret("munge_key", "key that all nodes of the cluster trust", _base64_of(1024), _base64_fault(32, 1024)),
    Secret("mariadb_root_password", "database administrator", _password, _password_fault),
    Secret("slurm_dbd_database_password", "slurmdbd's database user", _password, _password_fault),
    Secret(
        "slurm_controller_jwt_key", "key that signs Slurm's tokens", _base64_of(32), _base64_fault(32, 4096)
    ),
    Secret(CA_KEY, "key of the site's certificate authority", _ca_key, _ca_key_fault, "machines"),
    # No secret, but it belongs to the key.
    Secret(
        CA_CERTIFICATE,
        "certificate of the site's certificate authority",
        _ca_certificate,
        _ca_certificate_fault,
        "machines",
    ),
    Secret("coldiron_image_key", "key that signs machines' images", _image_key, _image_key_fault, "machines"),
    Secret(
        "prometheus_scrape_password",
        "what Prometheus shows to those that it asks",
        _password,
        _password_fault,
        "monitoring",
    ),
    Secret(
        "prometheus_web_password",
        "what people and dashboards show to Prometheus and Alertmanager",
        _password,
        _password_fault,
        "monitoring",
    ),
    Secret(
        "elasticsearch_admin_password",
        "administrator of the logs' servers",
        _password,
        _password_fault,
        "logging",
    ),
    Secret("log_shipper_password", "with which nodes ship their logs", _password, _password_fault, "logging"),
    Secret("elasticsearch_reader_password", "who reads the logs", _password, _password_fault, "logging"),
    Secret(
        "elasticsearch_exporter_password",
        "who asks the logs' servers for metrics",
        _password,
        _password_fault,
        "logging",
    ),
    Secret("grafana_admin_password", "Grafana's administrator", _password, _password_fault, "dashboards"),
    Secret("grafana_secret_key", "encrypts what Grafana keeps", _password, _password_fault, "dashboards"),
    Secret("kibana_password", "Kibana, to the logs' servers", _password, _password_fault, "log_viewer"),
    Secret("kibana_admin_password", "Kibana's administrator", _password, _password_fault, "log_viewer"),
    Secret("kibana_encryption_key", "encrypts Kibana's sessions", _password, _long_fault, "log_viewer"),
    Secret("kibana_saved_objects_key", "encrypts what Kibana keeps", _password, _long_fault, "log_viewer"),
    Secret("kibana_reporting_key", "encrypts Kibana's reports", _password, _long_fault, "log_viewer"),
)


def make_missing(present: Mapping[str, object]) -> dict[str, str]:
    """Those of ``SECRETS`` that are not ``present``, made anew. Raises ColdironError where one would not fit."""
    if CA_CERTIFICATE in present and CA_KEY not in present:
        raise ColdironError(
            f"`{CA_CERTIFICATE}` is there, and its key `{CA_KEY}` is not; put the key back, or remove the "
            "certificate to have both made anew"
        )
    made: dict[str, str] = {}
    for secret in SECRETS:
        if secret.key not in present:
            made[secret.key] = secret.make({**present, **made})
    return made


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
    return faults or _pair_faults(values)


def _pair_faults(values: Mapping[str, object]) -> list[str]:
    """What is wrong with two sound values together."""
    if CA_KEY not in values or CA_CERTIFICATE not in values:
        return []
    from coldiron.provision.pki import certificate_fault

    fault = certificate_fault(str(values[CA_CERTIFICATE]), str(values[CA_KEY]))
    return [f"`{CA_CERTIFICATE}` {fault}; {_advice(CA_CERTIFICATE, None)}"] if fault else []


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
