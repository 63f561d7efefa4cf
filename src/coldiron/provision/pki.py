"""The site's certificate authority: a key and a certificate that machines trust before they know anything else.

It signs the certificates of the site's own servers and nothing more. The key is a secret of the vault and does not
leave the controller; the certificate is no secret, and is baked into the RAM environment.

A node's certificate and its key follow from the authority's key, the node and the quarter alone (:func:`issue`), so a
run needs neither a state nor a step on the node to give it the same pair again.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    derive_private_key,
    generate_private_key,
)
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from coldiron.errors import ColdironError

CA_YEARS: Final = 10
# Machines whose clock is a little late take it too.
_EARLY = timedelta(days=1)

PERIOD: Final = timedelta(days=91)
"""How long a node's pair stays the same. A run in the next period gives it another one."""
LIFE: Final = timedelta(days=398)
"""How long a node's certificate is good; a site that nobody runs anything on for ten months loses its own."""
# The order of the curve's group, by which a derived number becomes a key.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def make_ca_key() -> str:
    """A new private key (P-256, which firmware and old TLS libraries know too), PKCS 8 as PEM. It is a secret."""
    return _pem(generate_private_key(SECP256R1()))


def make_ca_certificate(key: str, now: datetime | None = None) -> str:
    """The self-signed certificate of the authority whose PEM is ``key``, good for ten years from ``now``.

    Raises ColdironError where the key is none.
    """
    private = _private(key)
    begin = now or datetime.now(UTC)
    # Two sites' authorities are told apart by their names, for a store of certificates finds them by name.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"coldiron site CA {secrets.token_hex(4)}")])
    public = private.public_key()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - _EARLY)
        .not_valid_after(begin + timedelta(days=CA_YEARS * 365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_certifies(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(private, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def issue(key: str, certificate: str, names: Sequence[str], now: datetime | None = None) -> tuple[str, str]:
    """A certificate and its key, as PEM, for a server and client that is called ``names`` (names and addresses).

    The first name is its subject. The same authority, names and period give the same pair, to the letter. Raises
    ColdironError where the authority is none, or its certificate has ended.
    """
    fault = certificate_fault(certificate, key, now)
    if fault:
        raise ColdironError(f"the site's authority {fault}")
    private, authority = _private(key), x509.load_pem_x509_certificate(certificate.encode())
    moment = now or datetime.now(UTC)
    first = authority.not_valid_before_utc
    begin = first + (moment - first) // PERIOD * PERIOD
    about = "\n".join(("coldiron node certificate", begin.isoformat(), *names)).encode()
    number = private.private_numbers().private_value.to_bytes(32, "big")
    derived = HKDF(hashes.SHA256(), 48, salt=None, info=about).derive(number)
    own = derive_private_key(int.from_bytes(derived, "big") % (_ORDER - 1) + 1, SECP256R1())
    serial = int.from_bytes(hmac.digest(derived, b"serial", "sha256")[:16], "big") | 1
    built = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]))
        .issuer_name(authority.subject)
        .public_key(own.public_key())
        .serial_number(serial)
        .not_valid_before(max(begin - _EARLY, first))
        .not_valid_after(min(begin + LIFE, authority.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(private.public_key()), critical=False
        )
        .sign(private, hashes.SHA256(), ecdsa_deterministic=True)
    )
    return built.public_bytes(serialization.Encoding.PEM).decode("ascii"), _pem(own)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def key_fault(key: str) -> str | None:
    """What is wrong with an authority's key, or None. It quotes nothing of it."""
    try:
        _private(key)
    except ColdironError as error:
        return error.message
    return None


def certificate_fault(certificate: str, key: str | None = None, now: datetime | None = None) -> str | None:
    """What is wrong with an authority's certificate, or with its being ``key``'s; None if nothing is."""
    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        return "is no certificate in PEM"
    try:
        constraints = found.extensions.get_extension_for_class(x509.BasicConstraints).value
        found.verify_directly_issued_by(found)
    except (x509.ExtensionNotFound, ValueError, TypeError, InvalidSignature):
        return "is not an authority's, signed by itself"
    if not constraints.ca:
        return "is not an authority's"
    if found.not_valid_after_utc <= (now or datetime.now(UTC)):
        return f"has ended on {found.not_valid_after_utc:%Y-%m-%d}"
    if key is not None and key_fault(key) is None and _private(key).public_key() != found.public_key():
        return "is of another key"
    return None


def _private(key: str) -> EllipticCurvePrivateKey:
    try:
        found = serialization.load_pem_private_key(key.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ColdironError("is no private key in PEM without a password") from None
    if not isinstance(found, EllipticCurvePrivateKey):
        raise ColdironError("is no private key of an elliptic curve, such as P-256")
    return found


def _pem(key: EllipticCurvePrivateKey) -> str:
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return encoded.decode("ascii")


def _certifies() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
