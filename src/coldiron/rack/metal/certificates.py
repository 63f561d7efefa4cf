"""The rack's own CA and the certificates of its BMCs: what a site's CA is to real ones."""

from __future__ import annotations

import datetime
import os
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from coldiron.rack.state import write_atomically

_YEARS = datetime.timedelta(days=3650)
# A host whose clock is a little ahead of a container's must not make certificates of the future.
_BEFORE = datetime.timedelta(days=1)


def make_ca(key_path: Path, certificate_path: Path, name: str) -> None:
    """Make the CA called ``name``, unless both halves are there."""
    if key_path.exists() and certificate_path.exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    certificate = (
        _builder(subject, subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(key_path, key)
    write_atomically(certificate_path, certificate.public_bytes(serialization.Encoding.PEM).decode())


def make_certificate(
    key_path: Path, certificate_path: Path, name: str, address: str, ca: tuple[Path, Path] | None
) -> None:
    """Make a server's certificate for ``name`` and ``address``, unless it is there.

    ``ca``: the key and the certificate that sign it; without one it signs itself, as a BMC out of the box does.
    """
    if key_path.exists() and certificate_path.exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    issuer, signer = subject, key
    if ca is not None:
        loaded = serialization.load_pem_private_key(ca[0].read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        issuer, signer = x509.load_pem_x509_certificate(ca[1].read_bytes()).subject, loaded
    certificate = (
        _builder(subject, issuer, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(IPv4Address(address))]),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    _write_key(key_path, key)
    write_atomically(certificate_path, certificate.public_bytes(serialization.Encoding.PEM).decode())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _YEARS)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text, 0o600)
    os.chmod(path, 0o600)
