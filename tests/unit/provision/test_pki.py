"""The site's certificate authority: what is made, and what is taken for one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from coldiron.errors import ColdironError
from coldiron.provision.images import make_key
from coldiron.provision.pki import (
    LIFE,
    PERIOD,
    certificate_fault,
    issue,
    key_fault,
    make_ca_certificate,
    make_ca_key,
)


def test_an_authority_may_sign_servers_and_no_other_authority() -> None:
    found = x509.load_pem_x509_certificate(make_ca_certificate(make_ca_key()).encode())
    constraints = found.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    usage = found.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert not usage.digital_signature
    assert found.not_valid_after_utc - found.not_valid_before_utc >= timedelta(days=3650)
    assert found.not_valid_before_utc < datetime.now(UTC) - timedelta(hours=23)


def test_two_authorities_have_two_names() -> None:
    made = [x509.load_pem_x509_certificate(make_ca_certificate(make_ca_key()).encode()) for _ in range(2)]
    assert made[0].subject != made[1].subject


def test_a_sound_pair_has_no_fault() -> None:
    key = make_ca_key()
    assert key_fault(key) is None
    assert certificate_fault(make_ca_certificate(key), key) is None
    assert certificate_fault(make_ca_certificate(key), make_ca_key()) == "is of another key"


@pytest.mark.parametrize("text", ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key(text: str) -> None:
    assert key_fault(text) == "is no private key in PEM without a password"
    with pytest.raises(ColdironError):
        make_ca_certificate(text)


def test_a_key_of_another_kind_is_no_authority_s() -> None:
    assert "elliptic curve" in str(key_fault(make_key().decode()))


def test_what_is_no_certificate_of_an_authority() -> None:
    key = make_ca_key()
    assert certificate_fault("nothing") == "is no certificate in PEM"
    old = make_ca_certificate(key, datetime.now(UTC) - timedelta(days=4000))
    assert str(certificate_fault(old)).startswith("has ended on 20")


@pytest.mark.parametrize("ca", [None, False])
def test_a_server_s_own_certificate_is_no_authority_s(ca: bool | None) -> None:
    key = make_ca_key()
    authority = x509.load_pem_x509_certificate(make_ca_certificate(key).encode())
    private = serialization.load_pem_private_key(key.encode(), None)
    assert isinstance(private, EllipticCurvePrivateKey)
    plain = (
        x509.CertificateBuilder()
        .subject_name(authority.subject)
        .issuer_name(authority.subject)
        .public_key(authority.public_key())
        .serial_number(1)
        .not_valid_before(authority.not_valid_before_utc)
        .not_valid_after(authority.not_valid_after_utc)
    )
    if ca is not None:
        plain = plain.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    text = plain.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
    assert str(certificate_fault(text)).startswith("is not an authority's")


def test_a_node_s_certificate_changes_with_the_period_and_never_outlives_its_authority() -> None:
    key = make_ca_key()
    began = datetime(2026, 1, 1, tzinfo=UTC)
    authority = make_ca_certificate(key, began)
    first = issue(key, authority, ["node01", "10.0.0.1"], began + timedelta(days=1))
    assert first == issue(key, authority, ["node01", "10.0.0.1"], began + PERIOD - timedelta(days=2))
    later = issue(key, authority, ["node01", "10.0.0.1"], began + PERIOD + timedelta(days=2))
    assert first[0] != later[0]
    assert first[1] != later[1]
    found = x509.load_pem_x509_certificate(later[0].encode())
    assert found.not_valid_after_utc - began > LIFE
    assert x509.load_pem_x509_certificate(first[0].encode()).serial_number != found.serial_number
    end = x509.load_pem_x509_certificate(authority.encode()).not_valid_after_utc
    last = x509.load_pem_x509_certificate(issue(key, authority, ["a"], end - timedelta(days=3))[0].encode())
    assert last.not_valid_after_utc == end
    with pytest.raises(ColdironError, match="has ended"):
        issue(key, authority, ["a"], end)
