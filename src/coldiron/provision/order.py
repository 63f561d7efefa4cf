"""What a node is told to become, and who it then is: the two texts that the provisioner hands to a machine.

An order says how a machine is deployed and holds no secret; an identity is full of them and leaves the provisioner
only for a session that a token opened. Both are read strictly: a key that nobody knows is refused, since what it was
meant to say would not be done. Only the standard library is used: this travels to machines that have no more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from coldiron.errors import ColdironError
from coldiron.inventory.findings import shown
from coldiron.inventory.names import check_host_name

FORMAT: Final = 1
PURPOSES: Final = ("deploy",)
FIRMWARES: Final = ("bios", "uefi")
BOOTS: Final = ("disk", "kexec")
USES: Final = ("system", "swap", "scratch", "data")
# What OpenSSH calls the kinds of host keys: /etc/ssh/ssh_host_KIND_key.
HOST_KEYS: Final = ("ed25519", "ecdsa", "rsa")
# The largest order or identity that is read, in bytes.
LONGEST: Final = 1024 * 1024

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CLASS = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
_MODE = re.compile(r"0[0-7]{3}")
_MOST_BYTES = 2**62


@dataclass(frozen=True)
class ImageWanted:
    """The image to write, by its digest. ``oldest`` is the least ``created`` still allowed, seconds since the epoch."""

    sha256: str
    node_class: str
    oldest: int


@dataclass(frozen=True)
class Order:
    """How one machine is deployed.

    ``disks`` are rules as in ``coldiron_disks``; ``consent`` the serials of disks whose content may be lost; ``sizes``
    the keywords of ``layout.Sizes``, in bytes; ``serial`` the chassis', or "" where nobody has said it; ``boot`` how
    the machine gets into its system at the end.
    """

    node: str
    fqdn: str
    mac: str
    firmware: str
    disks: tuple[Mapping[str, Any], ...]
    image: ImageWanted
    serial: str = ""
    consent: tuple[str, ...] = ()
    sizes: Mapping[str, Any] = field(default_factory=dict)
    kernel_arguments: tuple[str, ...] = ()
    boot: str = "disk"
    purpose: str = "deploy"

    def as_dict(self) -> dict[str, Any]:
        """The order as JSON has it; ``parse_order`` takes it back."""
        return {
            "format": FORMAT,
            "node": self.node,
            "fqdn": self.fqdn,
            "mac": self.mac,
            "purpose": self.purpose,
            "firmware": self.firmware,
            "serial": self.serial,
            "disks": [dict(rule) for rule in self.disks],
            "consent": list(self.consent),
            "sizes": dict(self.sizes),
            "image": {
                "sha256": self.image.sha256,
                "class": self.image.node_class,
                "oldest": self.image.oldest,
            },
            "kernel_arguments": list(self.kernel_arguments),
            "boot": self.boot,
        }


@dataclass(frozen=True)
class File:
    """A file to write on the node: its text, and its mode as four octal digits."""

    text: str
    mode: str = "0644"


@dataclass(frozen=True)
class Identity:
    """Who a node is. Its ``repr`` shows no key and no file.

    ``host_keys`` is kind to private key (OpenSSH's own format or PEM), ``authorized_keys`` root's lines, ``network``
    path to text of systemd-networkd's files, ``files`` path to any other file, ``hosts`` the text of /etc/hosts.
    """

    hostname: str
    host_keys: Mapping[str, str] = field(repr=False)
    authorized_keys: tuple[str, ...] = field(default=(), repr=False)
    network: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, File] = field(default_factory=dict, repr=False)
    hosts: str = field(default="", repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The identity as JSON has it; ``parse_identity`` takes it back. It is a secret."""
        return {
            "format": FORMAT,
            "hostname": self.hostname,
            "host_keys": dict(self.host_keys),
            "authorized_keys": list(self.authorized_keys),
            "network": dict(self.network),
            "files": {path: {"text": file.text, "mode": file.mode} for path, file in self.files.items()},
            "hosts": self.hosts,
        }


def parse_order(data: object) -> Order:
    """The order in ``data``: JSON text, bytes, or what was read from it. Raises ColdironError, one line."""
    fields = _Fields(_loaded(data, "order"), "the order")
    fields.format()
    order = Order(
        node=fields.checked("node", _host_name),
        fqdn=fields.checked("fqdn", _domain_name),
        mac=fields.checked("mac", _matching(_MAC, "a MAC address in lower case, e.g. 02:00:00:00:00:01")),
        purpose=fields.checked("purpose", _one_of(PURPOSES)),
        firmware=fields.checked("firmware", _one_of(FIRMWARES)),
        serial=fields.checked("serial", _printable(may_be_empty=True)),
        disks=tuple(_rule(rule, number) for number, rule in enumerate(fields.sequence("disks"), 1)),
        consent=tuple(fields.texts("consent", _printable())),
        sizes=_sizes(fields.mapping("sizes")),
        image=_image(fields.mapping("image")),
        kernel_arguments=tuple(fields.texts("kernel_arguments", _word)),
        boot=fields.checked("boot", _one_of(BOOTS)),
    )
    fields.end()
    if not order.disks:
        raise ColdironError("the order's disks are empty; write a rule for a system disk")
    if order.fqdn.partition(".")[0] != order.node:
        raise ColdironError(f"the order's fqdn {shown(order.fqdn)} is not of node {shown(order.node)}")
    return order


def parse_identity(data: object) -> Identity:
    """The identity in ``data``, as ``parse_order`` takes it. Raises ColdironError, which quotes no value."""
    fields = _Fields(_loaded(data, "identity"), "the identity")
    fields.format()
    identity = Identity(
        hostname=fields.checked("hostname", _host_name),
        host_keys=_keys(fields.mapping("host_keys")),
        authorized_keys=tuple(fields.texts("authorized_keys", _line)),
        network=_texts_by_path(fields.mapping("network"), "network"),
        files=_files(fields.mapping("files")),
        hosts=fields.checked("hosts", _any_text),
    )
    fields.end()
    if not identity.host_keys:
        raise ColdironError("the identity has no host key; the node could not be told from another machine")
    return identity


class _Fields:
    """The keys of one mapping, each taken once; what is left at the end is one that nobody knows."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = dict(values)
        self._where = where

    def format(self) -> None:
        value = self.take("format")
        if value != FORMAT or isinstance(value, bool):
            raise ColdironError(
                f"{self._where} has format {shown(value)}, and this version of coldiron reads {FORMAT}"
            )

    def take(self, key: str) -> Any:
        if key not in self._values:
            raise ColdironError(f"{self._where} has no {key}")
        return self._values.pop(key)

    def checked(self, key: str, check: Callable[[str], str | None]) -> str:
        value = self.take(key)
        _check_text(value, f"{self._where}'s {key}", check)
        return str(value)

    def texts(self, key: str, check: Callable[[str], str | None]) -> list[str]:
        values = self.sequence(key)
        for number, value in enumerate(values, 1):
            _check_text(value, f"{self._where}'s {key}[{number}]", check)
        return values

    def sequence(self, key: str) -> list[Any]:
        value = self.take(key)
        if not isinstance(value, list):
            raise ColdironError(f"{self._where}'s {key} is not a list")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.take(key)
        if not isinstance(value, dict):
            raise ColdironError(f"{self._where}'s {key} is not a mapping")
        return value

    def number(self, key: str, least: float, most: float, *, whole: bool = True) -> Any:
        value = self.take(key)
        number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        # NaN is in no range.
        if not number or not least <= value <= most:
            kind = "a whole number" if whole else "a number"
            raise ColdironError(f"{self._where}'s {key} is not {kind} from {least:g} to {most:g}")
        return value

    def absent(self, key: str) -> bool:
        """Whether there is nothing to take: the key is missing, or null, which is then taken."""
        if self._values.get(key) is not None:
            return False
        self._values.pop(key, None)
        return True

    def end(self) -> None:
        if self._values:
            raise ColdironError(f"{self._where} has a key that nobody knows: {shown(min(self._values))}")


def _loaded(data: object, what: str) -> dict[str, Any]:
    if isinstance(data, str | bytes):
        if len(data) > LONGEST:
            raise ColdironError(f"the {what} is longer than {LONGEST // 1024} KiB")
        try:
            data = json.loads(data, object_pairs_hook=_once, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise ColdironError(f"the {what} is not JSON, or names a key twice") from None
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ColdironError(f"the {what} is not a mapping")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _no_constant(_: str) -> NoReturn:
    raise ValueError


def _rule(rule: object, number: int) -> dict[str, Any]:
    where = f"the order's disks[{number}]"
    if not isinstance(rule, dict):
        raise ColdironError(f"{where} is not a mapping")
    fields = _Fields(rule, where)
    found: dict[str, Any] = {"use": fields.checked("use", _one_of(USES))}
    for key in ("serial", "wwn", "model"):
        if not fields.absent(key):
            found[key] = fields.checked(key, _printable())
    if not fields.absent("size_gb"):
        found["size_gb"] = fields.number("size_gb", 1e-3, 1e6, whole=False)
    if not fields.absent("count"):
        found["count"] = fields.number("count", 1, 128)
    fields.end()
    if not {"serial", "wwn", "size_gb"} & found.keys():
        raise ColdironError(f"{where} names no serial, no WWN and no size; it would mean any disk")
    return found


def _sizes(values: dict[str, Any]) -> dict[str, Any]:
    fields = _Fields(values, "the order's sizes")
    found: dict[str, Any] = {}
    for key in ("esp", "root", "swap"):
        if not fields.absent(key):
            found[key] = fields.number(key, 0, _MOST_BYTES)
    if not fields.absent("scratch"):
        found["scratch"] = fields.take("scratch")
        if not isinstance(found["scratch"], bool):
            raise ColdironError("the order's sizes's scratch is not true or false")
    fields.end()
    return found


def _image(values: dict[str, Any]) -> ImageWanted:
    fields = _Fields(values, "the order's image")
    image = ImageWanted(
        sha256=fields.checked("sha256", _matching(_SHA256, "64 hexadecimal digits")),
        node_class=fields.checked("class", _matching(_CLASS, "a class of images, e.g. cpu-debian-13")),
        oldest=fields.number("oldest", 0, _MOST_BYTES),
    )
    fields.end()
    return image


def _keys(values: dict[str, Any]) -> dict[str, str]:
    for kind, key in values.items():
        if kind not in HOST_KEYS:
            raise ColdironError(
                f"the identity's host key is one of {', '.join(HOST_KEYS)}, not {shown(kind)}"
            )
        if not isinstance(key, str) or not key.startswith("-----BEGIN ") or not key.endswith("-----\n"):
            raise ColdironError(f"the identity's {kind} host key is no private key")
    return values


def _texts_by_path(values: dict[str, Any], key: str) -> dict[str, str]:
    for path, text in values.items():
        _check_path(path, key)
        _check_text(text, f"the identity's {shown(path)}", _any_text)
    return values


def _files(values: dict[str, Any]) -> dict[str, File]:
    found = {}
    for path, value in values.items():
        _check_path(path, "files")
        where = f"the identity's {shown(path)}"
        if not isinstance(value, dict):
            raise ColdironError(f"{where} is not a mapping")
        fields = _Fields(value, where)
        mode = _matching(_MODE, "four octal digits, e.g. 0600")
        found[path] = File(fields.checked("text", _any_text), fields.checked("mode", mode))
        fields.end()
    return found


def _check_path(path: str, key: str) -> None:
    parts = path.split("/")
    if parts[0] or len(parts) < 2 or not path.isprintable() or {"", ".", ".."} & set(parts[1:]):
        raise ColdironError(f"the identity's {key} name {shown(path)}, which is no plain absolute path")


def _check_text(value: object, where: str, check: Callable[[str], str | None]) -> None:
    fault = check(value) if isinstance(value, str) else "is not text"
    if fault:
        raise ColdironError(f"{where} {fault}")


# Each says what is wrong with a text, or None. None of them quotes it: an identity's texts are secrets.
def _matching(pattern: re.Pattern[str], what: str) -> Callable[[str], str | None]:
    return lambda value: None if pattern.fullmatch(value) else f"is not {what}"


def _one_of(choices: tuple[str, ...]) -> Callable[[str], str | None]:
    return lambda value: None if value in choices else f"is not one of {', '.join(choices)}"


def _printable(*, may_be_empty: bool = False) -> Callable[[str], str | None]:
    def fault(value: str) -> str | None:
        if not value:
            return None if may_be_empty else "is empty"
        return None if value.isprintable() and len(value) <= 256 else "is not one printable line"

    return fault


def _host_name(value: str) -> str | None:
    try:
        check_host_name(value)
    except ValueError as error:
        return f"is no host name: {error}"
    return None


def _domain_name(value: str) -> str | None:
    if len(value) > 253 or not re.fullmatch(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*", value):
        return "is no domain name in lower case"
    return None


def _word(value: str) -> str | None:
    plain = re.fullmatch(r"[!-~]{1,256}", value) and not set(value) & set("\"'\\${}")
    return None if plain else "is not one word without quotes, braces, $ and backslash"


def _line(value: str) -> str | None:
    # A comment may be in any language; control characters are in no line.
    return None if value and value.isprintable() else "is not one line"


def _any_text(value: str) -> str | None:
    return "holds a NUL" if "\0" in value else None
