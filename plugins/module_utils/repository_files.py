# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a package repository is on a node, as text: its key, its source, its pins. Nothing here touches a file."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

HEADER = "# Written by Ansible (coldiron.cluster.repository).\n"
BEGIN, END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"
PRIMARY = 6
SPELT = re.compile(r"[0-9A-F]{40}|[0-9A-F]{64}")
_SIGNED_BY = re.compile(r"^Signed-By:(.*(?:\n[ \t].*)*)", re.MULTILINE)
NAME = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


class BadKey(ValueError):
    """Why a file is no key to trust, in a few words."""


def dearmoured(content: bytes) -> bytes:
    """The packets of a key file, armoured or not. Raises BadKey."""
    if b"-----BEGIN PGP" not in content[:4096]:
        return content
    found = b""
    for block in content.decode("ascii", "replace").replace("\r", "").split(BEGIN)[1:]:
        lines = block.split(END)[0].split("\n")
        # Headers end with an empty line; the line that begins with = is a sum, which nothing here relies on.
        start = next((number for number, line in enumerate(lines[1:], 1) if not line.strip()), 0)
        body = "".join(line.strip() for line in lines[start:] if not line.startswith("="))
        try:
            found += base64.b64decode(body, validate=True)
        except binascii.Error:
            raise BadKey("its armour is broken") from None
    return found


def armoured(packets: bytes) -> str:
    """A key file as text, with the sum that older readers insist on (RFC 4880, 6.1)."""
    crc = 0xB704CE
    for byte in packets:
        crc ^= byte << 16
        for _ in range(8):
            crc = (crc << 1) ^ (0x1864CFB if crc & 0x800000 else 0)
    lines = re.findall(".{1,64}", base64.b64encode(packets).decode())
    total = base64.b64encode((crc & 0xFFFFFF).to_bytes(3, "big")).decode()
    return "\n".join([BEGIN, "", *lines, f"={total}", END, ""])


def packets_of(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Each packet of a key: its tag and its body (RFC 9580, 4.2). Raises BadKey."""
    at = 0
    while at < len(content):
        head = content[at]
        if not head & 0x80:
            raise BadKey("it is no OpenPGP key")
        try:
            if head & 0x40:
                tag, first = head & 0x3F, content[at + 1]
                if first < 192:
                    start, size = at + 2, first
                elif first < 224:
                    start, size = at + 3, ((first - 192) << 8) + content[at + 2] + 192
                elif first == 255:
                    start, size = at + 6, int.from_bytes(content[at + 2 : at + 6], "big")
                else:
                    raise BadKey("it is no OpenPGP key")
            else:
                tag, octets = (head >> 2) & 0x0F, 1 << (head & 0x03)
                if octets == 8:
                    raise BadKey("it is no OpenPGP key")
                start = at + 1 + octets
                size = int.from_bytes(content[at + 1 : start], "big")
        except IndexError:
            raise BadKey("it is cut off") from None
        at = start + size
        if at > len(content):
            raise BadKey("it is cut off")
        yield tag, content[start:at]


def fingerprints(content: bytes) -> list[str]:
    """The fingerprints of all primary keys in a key file, armoured or not. Raises BadKey."""
    found = []
    for tag, body in packets_of(dearmoured(content)):
        if tag != PRIMARY:
            continue
        version = body[0] if body else 0
        if version == 4:
            digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False)
        elif version == 6:
            digest = hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body)
        else:
            raise BadKey(f"it holds a key of version {version}, which is not to be trusted")
        found.append(digest.hexdigest().upper())
    if not found:
        raise BadKey("it holds no public key")
    return found


def spelt(fingerprint: str) -> str:
    """A fingerprint as it is compared: no spaces, no 0x, upper case."""
    return "".join(fingerprint.split()).upper().removeprefix("0X")


def trusted_key(content: bytes, wanted: list[str]) -> str:
    """The key file as text, if it holds the keys with these fingerprints and no other. Raises BadKey."""
    found, expected = set(fingerprints(content)), {spelt(one) for one in wanted}
    if found != expected:
        raise BadKey(
            f"it holds the key {', '.join(sorted(found))}, and the one to trust is {', '.join(sorted(expected))}"
        )
    return armoured(dearmoured(content))


def problems(given: Mapping[str, Any]) -> list[str]:
    """What is wrong with one repository as a role gives it, each a sentence."""
    name = given["name"]
    if not NAME.fullmatch(name):
        return [f"{name!r} is no name of a repository: small letters, digits, dots and dashes"]
    if given["state"] == "absent":
        return []
    wrong = []
    if not given["uris"] and not given["keyring"]:
        wrong.append("uris: is empty; write the repository's address")
    for uri in given["uris"]:
        if urlsplit(uri).scheme not in ("http", "https", "file"):
            wrong.append(f"uris: {uri} does not begin with https://, http:// or file:")
        if re.search(r"\s", uri):
            wrong.append(f"uris: {uri!r} has a space in it")
    if not given["fingerprints"] and not given["keyring"]:
        wrong.append("fingerprints: is empty; write the fingerprint of the key that signs the repository")
    for one in given["fingerprints"]:
        if not SPELT.fullmatch(spelt(one)):
            wrong.append(f"fingerprints: {one} is no whole fingerprint, which has 40 hexadecimal digits")
    if not given["key"] and not given["keyring"]:
        wrong.append("key: is empty; write the address of the key, or the key itself")
    flat = [suite.endswith("/") for suite in given["suites"]]
    if any(flat) and given["components"]:
        wrong.append("components: a suite that ends in / has none; write components: []")
    return [f"repository {name}: {sentence}" for sentence in wrong]


def complaints(said: str) -> str:
    """What a package manager complains of, in one line; empty where it does not."""
    lines = [line for line in said.splitlines() if re.match(r"(E|W|Err|Error|Warning)[: ]", line)]
    lines = [re.sub(r"^[EW]: ", "", line) for line in lines if not line.startswith("Err:")] or lines
    return " | ".join(dict.fromkeys(lines))


def archive_of(sources: list[str], suite: str) -> str:
    """The address from which a node has ``suite``, by the texts of its own sources; empty where none says it."""
    for text in sources:
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        for line in lines:
            match = re.match(r"deb\s+(?:\[[^\]]*\]\s+)?(https?://\S+)\s+(\S+)\s", line)
            if match and match[2] == suite:
                return match[1]
        for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
            fields = dict(re.findall(r"^([A-Za-z-]+):\s*(.*)$", paragraph, re.MULTILINE))
            if suite in fields.get("Suites", "").split() and "deb" in fields.get("Types", "").split():
                return next((uri for uri in fields.get("URIs", "").split() if uri.startswith("http")), "")
    return ""


def signed_by(key: str) -> str:
    """A key as apt has it in the source itself: `Signed-By` of several lines, an empty one as a dot."""
    return "".join(f"\n {line or '.'}" for line in key.strip().split("\n"))


def key_in(source: str) -> bytes:
    """The key in the text of a source, empty where it has none."""
    lines = [line.strip() for line in _signers(source).split("\n")]
    return "\n".join("" if line == "." else line for line in lines).encode() if BEGIN in lines else b""


def _signers(source: str) -> str:
    match = _SIGNED_BY.search(source)
    return match[1] if match else ""


def addresses(source: str) -> set[tuple[str, str]]:
    """What a source of :func:`sources_text` reads: each address with each suite, as apt tells them apart."""
    fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*)$", source, re.MULTILINE))
    return {
        (uri.rstrip("/"), suite.rstrip("/"))
        for uri in fields.get("URIs", "").split()
        for suite in fields.get("Suites", "").split()
    }


def agreeing(source: str, other: str) -> str:
    """``source`` with the key of ``other`` where both read one address, of which apt takes one key only."""
    if not addresses(source) & addresses(other):
        return source
    return _SIGNED_BY.sub(lambda _: f"Signed-By:{_signers(other)}", source)


def sources_text(given: Mapping[str, Any], signers: str) -> str:
    """The repository for apt, as sources.list(5) writes it in deb822 style. ``signers``: a path, or `signed_by`."""
    fields = {
        "Types": "deb",
        "URIs": " ".join(given["uris"]),
        "Suites": " ".join(given["suites"]),
        "Components": " ".join(given["components"]),
        "Signed-By": signers,
    }
    lines = [
        f"{name}:{value}\n" if value.startswith("\n") else f"{name}: {value}\n"
        for name, value in fields.items()
        if value
    ]
    return HEADER + "".join(lines)


def priority_text(given: Mapping[str, Any]) -> str:
    """How the whole repository ranks, as apt_preferences(5) writes it; empty where nothing is said."""
    if given["priority"] is None:
        return ""
    hosts = dict.fromkeys(urlsplit(uri).hostname or "" for uri in given["uris"])
    stanzas = [f'Package: *\nPin: origin "{host}"\nPin-Priority: {given["priority"]}\n' for host in hosts]
    return HEADER + "\n" + "\n".join(stanzas)


def pins_text(given: Mapping[str, Any]) -> str:
    """Packages that are kept at a version, as apt_preferences(5) writes them; empty where there are none."""
    stanzas = [
        f"Package: {' '.join(pin['packages'])}\nPin: version {pin['version']}\nPin-Priority: {pin['priority']}\n"
        for pin in given["pins"] or ()
    ]
    return HEADER + "\n" + "\n".join(stanzas) if stanzas else ""


def repo_text(given: Mapping[str, Any], key_path: str) -> str:
    """The repository for dnf, as dnf.conf(5) writes it."""
    name = f"coldiron-{given['name']}"
    fields: dict[str, Any] = {
        "name": given["name"],
        "baseurl": " ".join(given["uris"]),
        "enabled": 1,
        "gpgcheck": 1,
        "repo_gpgcheck": int(given["signed_metadata"]),
        "gpgkey": f"file://{key_path}",
    }
    if given["priority"] is not None:
        fields["priority"] = given["priority"]
    lines = [f"{key}={value}\n" for key, value in fields.items()]
    return HEADER + f"[{name}]\n" + "".join(lines)
