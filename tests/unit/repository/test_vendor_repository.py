"""What is known of the makers' repositories, and what a site says over it."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleLookupError
from ansible.plugins.loader import lookup_loader
from ansible_collections.coldiron.cluster.plugins.lookup.vendor_repository import known, vendor_data
from ansible_collections.coldiron.cluster.plugins.module_utils import repository_files as texts

TRIXIE = {
    "ansible_facts": {
        "distribution": "Debian", "distribution_major_version": "13", "distribution_version": "13.1",
        "os_family": "Debian", "architecture": "x86_64",
    }
}  # fmt: skip
NOBLE = {
    "ansible_facts": {
        "distribution": "Ubuntu", "distribution_major_version": "24", "distribution_version": "24.04",
        "os_family": "Debian", "architecture": "aarch64",
    }
}  # fmt: skip
ROCKY = {
    "ansible_facts": {
        "distribution": "Rocky", "distribution_major_version": "9", "distribution_version": "9.5",
        "os_family": "RedHat", "architecture": "x86_64",
    }
}  # fmt: skip

# Those of Debian are known by its keyring, and one that a site names has no address of its own.
MAKERS = sorted(
    name for name, of in known().items() if all(data and "keyring" not in data for data in of.values())
)


def asked(*terms, facts=TRIXIE, **kwargs):
    return lookup_loader.get("coldiron.cluster.vendor_repository").run(list(terms), facts, **kwargs)[0]


def complete(found):
    base = {
        "state": "present",
        "uris": [],
        "suites": ["/"],
        "components": [],
        "priority": None,
        "pins": [],
        "key": "",
        "fingerprints": [],
        "keyring": None,
    }
    return {**base, **found}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("facts", [TRIXIE, NOBLE, ROCKY])
def test_every_known_repository_is_whole_for_each_distribution(name, facts):
    found = asked(name, {}, facts=facts)
    assert texts.problems(complete(found)) == []
    assert all(uri.startswith("https://") for uri in found["uris"])


def test_debian_s_own_archive_is_known_by_the_keyring_that_debian_brings():
    found = asked("debian-non-free")
    assert texts.problems(complete(found)) == []
    assert (found["suites"], found["keyring"][:5]) == (["trixie", "trixie-updates"], "/usr/")


def test_the_machine_s_own_tree_is_named():
    assert asked("nvidia-cuda", facts=NOBLE)["uris"][0].endswith("/ubuntu2404/sbsa/")
    assert asked("nvidia-cuda", facts=ROCKY)["uris"][0].endswith("/rhel9/x86_64/")
    # Debian 13 has a key of its own.
    assert asked("nvidia-cuda")["fingerprints"] != asked("nvidia-cuda", facts=NOBLE)["fingerprints"]


def test_a_site_s_mirror_replaces_the_address_and_keeps_the_key_s_fingerprint():
    found = asked("docker", {"uris": ["https://mirror.example/docker"]}, pins=[])
    assert found["uris"] == ["https://mirror.example/docker"]
    assert found["fingerprints"] == ["9DC858229FC7DD38854AE2D88D81803C0EBFCD88"]


def test_a_key_file_of_the_controller_is_sent_along(tmp_path):
    (tmp_path / "key.gpg").write_bytes(b"\x98\x01\x04")
    (tmp_path / "key.asc").write_text(texts.armoured(b"\x98\x01\x04"))
    for name in ("key.gpg", "key.asc"):
        assert (
            texts.dearmoured(asked("docker", {"key": str(tmp_path / name)})["key"].encode())
            == b"\x98\x01\x04"
        )
    with pytest.raises(AnsibleLookupError, match="cannot be read on the controller"):
        asked("docker", {"key": str(tmp_path / "none")})


def test_what_is_not_known_is_said():
    with pytest.raises(AnsibleLookupError, match="known are"):
        asked("nowhere")
    with pytest.raises(AnsibleLookupError, match="url is no key"):
        asked("docker", {"url": "https://mirror.example"})
    debian_11 = {"ansible_facts": {**TRIXIE["ansible_facts"], "distribution_major_version": "11"}}
    with pytest.raises(AnsibleLookupError, match="has none for Debian 11"):
        asked("docker", {}, facts=debian_11)
    assert asked("docker", {}, state="absent") == {"name": "docker", "state": "absent"}
    assert vendor_data("docker", "Debian", "11", "Debian", "x86_64") == {}
