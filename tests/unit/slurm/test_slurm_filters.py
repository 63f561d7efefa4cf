"""The filters that roles speak through."""

from __future__ import annotations

import base64

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.coldiron.cluster.plugins.filter.slurm import FilterModule

FILTERS = FilterModule().filters()


def test_a_good_secret_is_passed_on() -> None:
    secret = base64.b64encode(b"\0" * 128).decode()
    assert FILTERS["long_secret"](secret, "munge_key", 32) == secret


@pytest.mark.parametrize(
    "secret", ["", "short", "not base64 at all, but long enough to be a key", "QUJD", "é" * 64]
)
def test_a_bad_secret_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(AnsibleFilterError, match="munge_key is not base64 of at least 32 bytes") as caught:
        FILTERS["long_secret"](secret, "munge_key", 32)
    assert not secret or secret not in str(caught.value)


def test_packages_carry_version_and_hold() -> None:
    packages = FILTERS["slurm_packages"]
    assert packages(["a"]) == [{"name": "a"}]
    assert packages(["a", "b"], "24.11*", True) == [
        {"name": "a", "version": "24.11*", "hold": True},
        {"name": "b", "version": "24.11*", "hold": True},
    ]
    assert packages(["a"], "", False) == [{"name": "a", "hold": False}]


def test_releases_of_distributions() -> None:
    releases = {"debian-12": "22.05", "debian-13": "24.11"}
    assert FILTERS["slurm_release"](["debian-13", "debian-13"], releases) == ["24.11"]
    assert FILTERS["slurm_release"](["debian-13", "debian-12", "plan-9"], releases) == [
        "22.05",
        "24.11",
        "unknown (plan-9)",
    ]


def test_errors_are_one_line_for_the_person_who_wrote_it() -> None:
    with pytest.raises(AnsibleFilterError, match="only one can be"):
        FILTERS["slurm_partition_lines"]([{"name": "a", "default": True}, {"name": "b", "default": True}], [])
    with pytest.raises(AnsibleFilterError, match="the key 'hardware' is missing"):
        FILTERS["slurm_node_lines"]([{"name": "a", "address": "b"}], 0, 0)


def test_settings_are_layers() -> None:
    assert FILTERS["slurm_settings"]([{"A": 1}, {"a": None}, {"B": True}]) == {"B": "yes"}
