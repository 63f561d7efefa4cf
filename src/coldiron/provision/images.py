"""An image's manifest: what is in it, signed. Nothing is booted whose manifest or bytes are not what was signed.

The signature (Ed25519) is over the manifest's bytes, and the manifest holds the image's digest: so a node that knows
the site's key needs no other trust in whoever serves either. Only keys need ``cryptography``: a node without it
verifies by another ``Check``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT = 1
_LONGEST_MANIFEST = 16 * 1024 * 1024
_LONGEST_SIGNATURE = 4096
# What is signed begins with it: a signature made for something else never fits.
_DOMAIN = b"coldiron image manifest\0"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEY_ID_LENGTH = 16
_TIME = "%Y-%m-%dT%H:%M:%SZ"
# What stands before the 32 bytes of an Ed25519 public key (RFC 8410, section 4).
_SPKI = bytes.fromhex("302a300506032b6570032100")
_PUBLIC_PEM = re.compile(
    rb"\s*-----BEGIN PUBLIC KEY-----\s+([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*", re.ASCII
)
# Whether ``raw`` is the signature of ``message`` by the public key ``pem``.
Check = Callable[[bytes, bytes, bytes], bool]


class ImageRefused(ColdironError):
    """An image that is not to be used."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.REFUSED)


class SignatureBroken(ImageRefused):
    """What should be a signature is none."""


class KeyUnknown(ImageRefused):
    """It is signed by a key that the site does not trust, or no longer."""


class ManifestAltered(ImageRefused):
    """The manifest is not what was signed."""


class ImageAltered(ImageRefused):
    """The image is not what the manifest says."""


class ImageTooOld(ImageRefused):
    """It is soundly signed, and older than the site still allows."""


@dataclass(frozen=True)
class Manifest:
    """What an image is. ``sha256`` and ``size_bytes`` are of the image file, ``inputs`` is ``inputs_digest``'s answer.

    ``packages`` is name to version; ``roles`` are those whose install halves ran; ``created`` in seconds since the
    epoch, whole.
    """

    sha256: str
    size_bytes: int
    node_class: str
    distribution: str
    kernel: str
    packages: Mapping[str, str]
    roles: tuple[str, ...]
    inputs: str
    created: int

    def encoded(self) -> bytes:
        """The file's bytes: the same for the same manifest."""
        fields = asdict(self) | {
            "format": FORMAT,
            "packages": dict(self.packages),
            "created": datetime.fromtimestamp(self.created, UTC).strftime(_TIME),
        }
        return (json.dumps(fields, sort_keys=True, indent=1, ensure_ascii=True) + "\n").encode()


def inputs_digest(inputs: Mapping[str, Any]) -> str:
    """The SHA-256 of what an image is made from, whatever order it is told in.

    ``inputs`` is made of mappings with text keys, lists, text, numbers, booleans and None. Raises TypeError for
    anything else, whose text might differ from one run to the next.
    """
    _check_plain(inputs)
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def parse_manifest(data: bytes) -> Manifest:
    """The manifest in ``data``, whose signature was looked at before. Raises ColdironError, one line."""
    if len(data) > _LONGEST_MANIFEST:
        raise ColdironError("the image's manifest is longer than any manifest")
    try:
        fields = json.loads(data)
        if fields.pop("format") != FORMAT:
            raise ColdironError("the image's manifest has another format; bake the image again")
        created = datetime.strptime(fields.pop("created"), _TIME).replace(tzinfo=UTC)
        roles = fields.pop("roles")
        if not isinstance(roles, list):
            raise TypeError
        manifest = Manifest(**fields, roles=tuple(roles), created=int(created.timestamp()))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ColdironError("the image's manifest cannot be read; bake the image again") from None
    if fault := _fault(manifest):
        raise ColdironError(f"the image's manifest is wrong: {fault}; bake the image again")
    return manifest


def make_key() -> bytes:
    """A new signing key as PEM (PKCS 8). It is a secret."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_key(private: bytes) -> bytes:
    """The PEM that verifies what ``private`` signs; it is no secret."""
    from cryptography.hazmat.primitives import serialization

    return (
        _private(private)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def key_id(public: bytes) -> str:
    """The short name of a public key, from the key itself."""
    return hashlib.sha256(_public(public)).hexdigest()[:_KEY_ID_LENGTH]


def sign(manifest: bytes, private: bytes) -> bytes:
    """The signature file of a manifest's bytes. Raises ColdironError where the key is none."""
    signature = base64.b64encode(_private(private).sign(_DOMAIN + manifest)).decode()
    return (json.dumps({"key": key_id(public_key(private)), "signature": signature}) + "\n").encode()


def check_signature(pem: bytes, message: bytes, raw: bytes) -> bool:
    """The ``Check`` by ``cryptography``."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(_public(pem)).verify(raw, message)
    except InvalidSignature:
        return False
    return True


def verify(
    manifest: bytes,
    signature: bytes,
    trusted: Iterable[bytes],
    oldest: float | None = None,
    check: Check = check_signature,
) -> Manifest:
    """The manifest, if one of the ``trusted`` public keys has signed these bytes.

    ``oldest``: the earliest creation that is still allowed, in seconds since the epoch. Raises SignatureBroken,
    KeyUnknown, ManifestAltered, ImageTooOld, in this order; ColdironError for a trusted key that is none.
    """
    key, raw = _parse_signature(signature)
    known = {key_id(public): public for public in trusted}
    if key not in known:
        raise KeyUnknown(f"the image is signed by key {shown(key)}, which this site does not trust")
    if not check(known[key], _DOMAIN + manifest, raw):
        raise ManifestAltered(f"the image's manifest is not what key {key} has signed")
    found = parse_manifest(manifest)
    if oldest is not None and found.created < oldest:
        made = datetime.fromtimestamp(found.created, UTC).strftime(_TIME)
        raise ImageTooOld(f"the image was made {made}, earlier than this site allows; bake it again")
    return found


def checked(chunks: Iterable[bytes], manifest: Manifest) -> Iterator[bytes]:
    """``chunks`` of the image as they come. Raises ImageAltered at the end, or as soon as there are too many bytes.

    What was passed on before is not to be booted until this has ended well.
    """
    digest, length = hashlib.sha256(), 0
    for chunk in chunks:
        length += len(chunk)
        if length > manifest.size_bytes:
            raise ImageAltered(f"the image is longer than the {manifest.size_bytes} bytes of its manifest")
        digest.update(chunk)
        yield chunk
    if length < manifest.size_bytes:
        raise ImageAltered(f"the image ends after {length} of {manifest.size_bytes} bytes")
    if not hmac.compare_digest(digest.hexdigest(), manifest.sha256):
        raise ImageAltered("the image's bytes are not those of its manifest")


def _parse_signature(data: bytes) -> tuple[str, bytes]:
    try:
        if len(data) > _LONGEST_SIGNATURE:
            raise ValueError
        fields = json.loads(data)
        key, raw = fields["key"], base64.b64decode(fields["signature"], validate=True)
        if not isinstance(key, str):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise SignatureBroken("the image's signature cannot be read; sign its manifest again") from None
    return key, raw


def _private(pem: bytes) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The library's own words may quote what they could not read.
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ColdironError("the image signing key is no Ed25519 key in PEM")
    return key


def _public(pem: bytes) -> bytes:
    """The 32 bytes of an Ed25519 public key."""
    match = _PUBLIC_PEM.fullmatch(pem)
    try:
        der = base64.b64decode(b"".join(match[1].split()), validate=True) if match else b""
    except ValueError:
        der = b""
    if not der.startswith(_SPKI) or len(der) != len(_SPKI) + 32:
        raise ColdironError("a trusted image key is no Ed25519 public key in PEM")
    return der[len(_SPKI) :]


def _fault(manifest: Manifest) -> str:
    """What is wrong with the values; "" where they are sound."""
    words = (manifest.node_class, manifest.distribution, manifest.kernel, *manifest.roles)
    if not all(isinstance(word, str) and word for word in words):
        return "class, distribution, kernel and roles are texts"
    for digest in (manifest.sha256, manifest.inputs):
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            return f"`{shown(digest)}` is no SHA-256"
    if (
        not isinstance(manifest.size_bytes, int)
        or isinstance(manifest.size_bytes, bool)
        or manifest.size_bytes <= 0
    ):
        return "`size_bytes` is no length"
    packages = manifest.packages
    if not isinstance(packages, dict) or not all(isinstance(version, str) for version in packages.values()):
        return "`packages` is no mapping of versions"
    return ""


def _check_plain(value: object) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            # JSON would write the keys 1 and "1" alike.
            if not isinstance(key, str):
                raise TypeError(f"an input has the key {key!r}, which is no text")
            _check_plain(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_plain(inner)
    elif value is not None and not isinstance(value, str | int | float | bool):
        raise TypeError(f"an input is a {type(value).__name__}; give its text or digest")
