"""Manifests of images: what is signed, what is refused, and what says that nothing has to be baked."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision import images
from coldiron.provision.images import ImageAltered, ImageRefused, Manifest

IMAGE = b"an operating system " * 1000
MANIFEST = Manifest(
    sha256=hashlib.sha256(IMAGE).hexdigest(),
    size_bytes=len(IMAGE),
    node_class="gpu",
    distribution="debian-13",
    kernel="6.12.107",
    packages={"slurmd": "24.11.5-4", "chrony": "4.6.1-3"},
    roles=("base", "time", "slurm_worker"),
    inputs="0" * 64,
    created=1_790_000_000,
)
DATA = MANIFEST.encoded()
KEY, OTHER = images.make_key(), images.make_key()
PUBLIC = images.public_key(KEY)
SIGNED = images.sign(DATA, KEY)


def chunks(data: bytes) -> list[bytes]:
    return [data[at : at + 4096] for at in range(0, len(data), 4096)]


def test_what_was_signed_is_taken() -> None:
    found = images.verify(DATA, SIGNED, [images.public_key(OTHER), PUBLIC], oldest=MANIFEST.created)
    assert found == MANIFEST
    assert b"".join(images.checked(chunks(IMAGE), found)) == IMAGE
    assert found.encoded() == DATA


def test_the_file_is_for_people_too() -> None:
    fields = json.loads(DATA)
    assert fields["created"] == "2026-09-21T14:13:20Z"
    assert fields["format"] == 1
    assert replace(MANIFEST, packages=dict(sorted(MANIFEST.packages.items()))).encoded() == DATA


@pytest.mark.parametrize(
    ("manifest", "signature", "oldest", "refusal"),
    [
        (DATA.replace(b"debian-13", b"debian-12"), SIGNED, None, images.ManifestAltered),
        (DATA + b" ", SIGNED, None, images.ManifestAltered),
        (DATA, images.sign(DATA, OTHER), None, images.KeyUnknown),
        (DATA, SIGNED, MANIFEST.created + 1, images.ImageTooOld),
        (DATA, b"", None, images.SignatureBroken),
        (DATA, b"[]", None, images.SignatureBroken),
        (DATA, b"[" * 3000, None, images.SignatureBroken),
        (DATA, b" " * 5000, None, images.SignatureBroken),
        (DATA, b'{"key": 7, "signature": ""}', None, images.SignatureBroken),
        (DATA, b'{"key": "a", "signature": "!"}', None, images.SignatureBroken),
        # The right key's name over no signature of it.
        (
            DATA,
            json.dumps({"key": images.key_id(PUBLIC), "signature": "AAAA"}).encode(),
            None,
            images.ManifestAltered,
        ),
    ],
    # Keys are made anew by each process: they are no names of tests.
    ids=itertools.count(),
)
def test_each_refusal_is_its_own(
    manifest: bytes, signature: bytes, oldest: float | None, refusal: type[ImageRefused]
) -> None:
    with pytest.raises(ImageRefused) as refused:
        images.verify(manifest, signature, [PUBLIC], oldest)
    assert type(refused.value) is refusal
    assert refused.value.exit_code == ExitCode.REFUSED
    assert refused.value.message.isprintable()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (IMAGE[:-1], "ends after 19999 of 20000 bytes"),
        (IMAGE + b"x", "longer than the 20000 bytes"),
        (b"X" + IMAGE[1:], "not those of its manifest"),
        (b"", "ends after 0"),
    ],
)
def test_an_altered_image(data: bytes, words: str) -> None:
    with pytest.raises(ImageAltered, match=words):
        list(images.checked(chunks(data), MANIFEST))


def test_an_endless_image_is_left_early() -> None:
    def endless() -> Any:
        while True:
            yield b"0" * 4096

    with pytest.raises(ImageAltered, match="longer"):
        list(images.checked(endless(), MANIFEST))


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_one_changed_byte_is_seen(at: int, change: int) -> None:
    altered = bytearray(DATA)
    altered[at] ^= change
    with pytest.raises(images.ManifestAltered):
        images.verify(bytes(altered), SIGNED, [PUBLIC])


def test_a_signature_is_for_a_manifest_only() -> None:
    key = serialization.load_pem_private_key(KEY, None)
    raw = key.sign(DATA)  # type: ignore[union-attr, call-arg]
    signature = json.dumps({"key": images.key_id(PUBLIC), "signature": base64.b64encode(raw).decode()})
    with pytest.raises(images.ManifestAltered):
        images.verify(DATA, signature.encode(), [PUBLIC])


def _with(**values: object) -> bytes:
    return json.dumps(json.loads(DATA) | values).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b" " * (16 * 1024 * 1024 + 1),
        _with(format=2),
        _with(more=1),
        _with(created="soon"),
        _with(created=5),
        _with(sha256="0"),
        _with(inputs=7),
        _with(size_bytes=0),
        _with(size_bytes=True),
        _with(packages=[]),
        _with(packages={"a": 1}),
        _with(roles=[1]),
        _with(roles=3),
        _with(roles="base"),
        _with(kernel=""),
    ],
)
def test_a_manifest_that_is_none(data: bytes) -> None:
    with pytest.raises(ColdironError, match="the image's manifest") as refused:
        images.parse_manifest(data)
    assert refused.value.message.isprintable()


def foreign_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize("use", [images.public_key, lambda pem: images.sign(DATA, pem)])
def test_a_key_that_is_none_is_not_quoted(use: Callable[[bytes], bytes]) -> None:
    other = foreign_key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for pem in (b"", b"verysecret", other):
        with pytest.raises(ColdironError, match="no Ed25519 key") as refused:
            use(pem)
        assert "verysecret" not in str(refused.value)


def test_a_trusted_key_that_is_none() -> None:
    other = (
        foreign_key()
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    for pem in (b"", other):
        with pytest.raises(ColdironError, match="trusted image key"):
            images.verify(DATA, SIGNED, [pem])


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
INPUTS = st.dictionaries(st.text(max_size=5), PLAIN, max_size=4)


@given(INPUTS)
def test_the_order_does_not_matter(inputs: dict[str, Any]) -> None:
    assert images.inputs_digest(inputs) == images.inputs_digest(dict(reversed(inputs.items())))


@given(INPUTS, INPUTS)
def test_other_inputs_have_another_digest(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = images.inputs_digest(one) == images.inputs_digest(other)
    # repr tells True from 1, which == does not.
    assert same == (repr(_sorted(one)) == repr(_sorted(other)))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(inner) for inner in value] if isinstance(value, list) else value


def test_the_digest_stays_the_same_from_release_to_release() -> None:
    assert images.inputs_digest({"roles": ("base",), "size": 1.5, "ä": None}) == (
        "9a0d1bfc1092f81c91e8de9fffb7e293e6d489720499108b5ab082271f317b14"
    )


@pytest.mark.parametrize("value", [{1: "a"}, {"a": {1, 2}}, {"a": [b""]}, {"a": object()}])
def test_inputs_without_a_certain_text(value: Any) -> None:
    with pytest.raises(TypeError):
        images.inputs_digest(value)
    with pytest.raises(ValueError, match="JSON"):
        images.inputs_digest({"a": float("nan")})
