"""Filters that monitoring's roles and topology.yml share: certificates, web configurations, flags and targets."""

from __future__ import annotations

import base64
import ctypes
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError

ROLES = Path(__file__).parents[2] / "roles"
#: bcrypt's own alphabet, in base64's order.
_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BCRYPT = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@functools.lru_cache(maxsize=4096)
def _issue(key: str, certificate: str, names: tuple[str, ...]) -> tuple[str, str]:
    from coldiron.errors import ColdironError
    from coldiron.provision.pki import issue

    try:
        return issue(key, certificate, names)
    except ColdironError as error:
        raise AnsibleFilterError(error.message) from None


def site_certificate(names: Sequence[str], key: str, certificate: str) -> dict[str, str]:
    """Return the ``certificate`` and ``key`` of who is called ``names``, by the site's authority, as PEM."""
    pair = _issue(str(key), str(certificate), tuple(str(name) for name in names if name))
    return {"certificate": pair[0], "key": pair[1]}


@functools.lru_cache(maxsize=64)
def password_bcrypt(password: str) -> str:
    """Return the bcrypt hash of ``password``, the same each time.

    The salt follows from the password by a function that is slower than the hash, so it gives nothing away.
    """
    salt = hashlib.scrypt(password.encode(), salt=b"coldiron web password", n=2**13, r=8, p=1, dklen=16)
    letters = base64.b64encode(salt).rstrip(b"=").translate(bytes.maketrans(_STANDARD, _BCRYPT))
    try:
        crypt = ctypes.CDLL("libcrypt.so.1").crypt
    except OSError:
        try:
            crypt = ctypes.CDLL("libcrypt.so.2").crypt
        except OSError:
            raise AnsibleFilterError(
                "the controller has no libcrypt, which hashes passwords; install libcrypt1 or libxcrypt"
            ) from None
    crypt.restype = ctypes.c_char_p
    made = crypt(password.encode(), b"$2b$06$" + letters)
    if not made or not made.startswith(b"$2b$"):
        raise AnsibleFilterError("the controller's libcrypt makes no bcrypt hashes; install libxcrypt")
    return str(made.decode("ascii"))


def web_config(directory: str, tls: bool, user: str, password: str) -> str:
    """Return what exporters, Prometheus and Alertmanager call their web configuration, as YAML.

    With ``tls`` certificate.pem and key.pem lie in ``directory``. Without ``password`` everybody may read.
    """
    words: dict[str, Any] = {}
    if tls:
        words["tls_server_config"] = {
            "cert_file": f"{directory}/certificate.pem",
            "key_file": f"{directory}/key.pem",
            "min_version": "TLS12",
        }
    if password:
        words["basic_auth_users"] = {str(user): password_bcrypt(str(password))}
    return yaml.safe_dump(words, sort_keys=True)


def collector_words(collectors: Mapping[str, Any]) -> list[str]:
    """Return node_exporter's flags for ``collectors``: true, false, or a collector's own flags."""
    words = []
    for name, wanted in collectors.items():
        words.append(
            f"--collector.{name}" if wanted or isinstance(wanted, Mapping) else f"--no-collector.{name}"
        )
        if isinstance(wanted, Mapping):
            words += [f"--collector.{name}.{key}={value}" for key, value in wanted.items()]
    return words


def unit_words(words: Sequence[Any]) -> str:
    """Return ``words`` as one ExecStart: quoted, and nothing in them is systemd's to expand."""
    quoted = []
    for word in map(str, words):
        text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
        quoted.append(f'"{text}"' if set(text) & set(" \t'\"\\;") or not text else text)
    return " ".join(quoted)


def labels_of(
    host: str, hostvars: Mapping[str, Mapping[str, Any]], known: Mapping[str, Any]
) -> dict[str, str]:
    """Return what every metric of a host is labelled with: its name, its kind and its rack, where they are known."""
    variables = known[host] if host in known else hostvars[host]
    labels = {"instance": host}
    for label, name in (("kind", "coldiron_kind"), ("rack", "coldiron_rack_name")):
        if variables.get(name):
            labels[label] = str(variables[name])
    return labels


def scrape_targets(
    addresses: Mapping[str, str],
    hosts: Sequence[str],
    port: int,
    hostvars: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return ``hosts`` as role prometheus takes targets: address with port, and labels."""
    return [
        {"address": f"{addresses[host]}:{port}", "labels": labels_of(host, hostvars, known)} for host in hosts
    ]


def probe_targets(
    addresses: Mapping[str, str],
    probes: Sequence[Mapping[str, Any]],
    shape: Mapping[str, Sequence[str]],
    hostvars: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the targets of ``probes`` (module, port, of: a function in ``shape``) for the blackbox exporter."""
    return [
        {
            "address": f"{addresses[host]}:{probe['port']}" if probe.get("port") else addresses[host],
            "labels": {**labels_of(host, hostvars, known), "module": probe["module"]},
        }
        for probe in probes
        for host in shape[probe["of"]]
        if host in addresses
    ]


def rules_of(roles: Sequence[str]) -> list[dict[str, str]]:
    """Return the rules that the ``roles`` bring, each file's name and content. A role without any brings none."""
    return [
        {"name": path.name, "content": path.read_text(encoding="utf-8")}
        for role in roles
        for path in sorted((ROLES / role / "files").glob("*.rules.yml"))
    ]


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "collector_words": collector_words,
            "password_bcrypt": password_bcrypt,
            "probe_targets": probe_targets,
            "rules_of": rules_of,
            "scrape_targets": scrape_targets,
            "site_certificate": site_certificate,
            "unit_words": unit_words,
            "web_config": web_config,
        }
