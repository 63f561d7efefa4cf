"""Keys are trusted by their fingerprint alone; what is written is what apt and dnf read."""

from __future__ import annotations

import base64
import configparser
import hashlib

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import repository_files as texts

# A packet of a version 4 key: nothing verifies it here, it only has a fingerprint.
BODY = b"\x04\x60\x00\x00\x00\x16" + bytes(range(40))
OTHER = b"\x04\x61\x00\x00\x00\x16" + bytes(range(40))


def packet(body, tag=6):
    return bytes([0x80 | tag << 2, len(body)]) + body


def fingerprint(body):
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()


def given(**own):
    base = {
        "name": "fixture", "state": "present", "uris": ["https://mirror.example/deb"], "suites": ["./"],
        "components": [], "key": "https://mirror.example/key.asc", "fingerprints": [fingerprint(BODY)],
        "priority": None, "pins": [], "signed_metadata": False, "keyring": None,
    }  # fmt: skip
    return {**base, **own}


def test_a_key_file_is_read_armoured_or_not_and_with_long_packets():
    key = packet(BODY) + packet(b"user", 13) + packet(OTHER, 14)
    assert texts.fingerprints(key) == [fingerprint(BODY)]
    assert texts.fingerprints(texts.armoured(key).encode()) == [fingerprint(BODY)]
    long = b"\x04" + bytes(300)
    two_octets = b"\x99" + len(long).to_bytes(2, "big") + long
    new_form = b"\xc6" + bytes([((len(long) - 192) >> 8) + 192, (len(long) - 192) & 0xFF]) + long
    five_octets = b"\xc6\xff" + len(long).to_bytes(4, "big") + long
    for one in (two_octets, new_form, five_octets):
        assert texts.fingerprints(one) == [fingerprint(long)]


def test_a_key_of_the_sixth_version_has_a_longer_fingerprint():
    body = b"\x06" + BODY[1:]
    expected = hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    assert texts.fingerprints(packet(body)) == [expected]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no public key"),
        (b"<html>not here</html>", "no OpenPGP key"),
        (packet(BODY)[:-3], "cut off"),
        (b"\x99\x01", "cut off"),
        (b"\xc6\xe0" + BODY, "no OpenPGP key"),
        (b"\x9b" + BODY, "no OpenPGP key"),
        (packet(b"\x03" + BODY[1:]), "version 3"),
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nno!base64\n-----END", "armour is broken"),
    ],
)
def test_what_is_no_key_is_said_to_be_none(content, why):
    with pytest.raises(texts.BadKey, match=why):
        texts.fingerprints(content)


def test_a_key_beside_the_one_to_trust_is_refused():
    both = packet(BODY) + packet(OTHER)
    assert texts.BEGIN in texts.trusted_key(packet(BODY), [fingerprint(BODY).lower()])
    spaced = " ".join(fingerprint(BODY)[at : at + 4] for at in range(0, 40, 4))
    assert texts.trusted_key(texts.armoured(both).encode(), [f"0x{spaced}", fingerprint(OTHER)])
    with pytest.raises(texts.BadKey, match=fingerprint(OTHER)):
        texts.trusted_key(both, [fingerprint(BODY)])
    with pytest.raises(texts.BadKey):
        texts.trusted_key(packet(BODY), [fingerprint(BODY), fingerprint(OTHER)])


def test_the_armour_ends_with_the_sum_that_older_readers_want():
    # RFC 4880, 6.1: of nothing, the sum is the initial value.
    assert "=" + base64.b64encode(b"\xb7\x04\xce").decode() in texts.armoured(b"")


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"name": "Big One"}, "no name"),
        ({"uris": []}, "uris: is empty"),
        ({"uris": ["ftp://mirror.example"]}, "does not begin with"),
        ({"uris": ["https://mirror.example/a b"]}, "space"),
        ({"fingerprints": []}, "fingerprints: is empty"),
        ({"fingerprints": ["3BF863CC"]}, "no whole fingerprint"),
        ({"key": ""}, "key: is empty"),
        ({"components": ["main"]}, "components: []"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_fetched(own, words):
    assert words in " ".join(texts.problems(given(**own)))


def test_a_repository_that_is_right_or_going_has_no_problem():
    assert texts.problems(given()) == []
    assert texts.problems({"name": "fixture", "state": "absent"}) == []
    assert texts.problems(given(key="", fingerprints=[], keyring="/usr/share/keyrings/k.gpg")) == []


def test_apt_reads_one_key_for_one_repository():
    assert texts.sources_text(given(), "/etc/apt/keyrings/k.asc").splitlines()[1:] == [
        "Types: deb", "URIs: https://mirror.example/deb", "Suites: ./", "Signed-By: /etc/apt/keyrings/k.asc",
    ]  # fmt: skip
    assert "Components: stable\n" in texts.sources_text(given(suites=["trixie"], components=["stable"]), "/k")


def test_pins_hold_packages_at_a_version_and_rank_the_whole():
    pin = {"packages": ["a", "b-*"], "version": "580.95.05-*", "priority": 1001}
    said = texts.pins_text(given(priority=100, pins=[pin]))
    ranked = texts.priority_text(given(priority=100, pins=[pin]))
    assert 'Package: *\nPin: origin "mirror.example"\nPin-Priority: 100\n' in ranked
    assert "Package: a b-*\nPin: version 580.95.05-*\nPin-Priority: 1001\n" in said
    assert 'Pin: origin ""' in texts.priority_text(given(uris=["file:/srv/here"], priority=1))
    assert texts.pins_text(given()) == texts.priority_text(given()) == ""


def test_dnf_reads_an_ini_file_and_checks_signatures():
    parser = configparser.ConfigParser()
    parser.read_string(texts.repo_text(given(priority=50, signed_metadata=True), "/etc/pki/rpm-gpg/k.asc"))
    section = dict(parser["coldiron-fixture"])
    assert section == {
        "name": "fixture", "baseurl": "https://mirror.example/deb", "enabled": "1", "gpgcheck": "1",
        "repo_gpgcheck": "1", "gpgkey": "file:///etc/pki/rpm-gpg/k.asc", "priority": "50",
    }  # fmt: skip
    assert "repo_gpgcheck=0" in texts.repo_text(given(), "/k")


def test_a_node_s_own_archive_is_found_in_either_style():
    one_line = (
        "# deb http://old.example/d trixie main\ndeb [arch=amd64] http://mirror.example/debian trixie main\n"
    )
    deb822 = "Types: deb\nURIs: https://mirror.example/d\nSuites: trixie trixie-updates\nComponents: main\n"
    assert texts.archive_of([one_line], "trixie") == "http://mirror.example/debian"
    assert texts.archive_of(["", deb822], "trixie") == "https://mirror.example/d"
    assert texts.archive_of([one_line, deb822], "bookworm") == ""
