"""Subordinate ids follow from a uid alone; registries and proxies come out as the engines read them."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.filter import containers

ALICE = {"name": "alice", "uid": 2001}
BOB = {"name": "bob", "uid": 2002, "state": "locked"}
GONE = {"name": "gone", "uid": 2003, "state": "absent"}


def ranges(
    *accounts: dict[str, Any], services: tuple[str, ...] = (), **words: Any
) -> dict[str, tuple[int, int]]:
    extra = words.get("extra", [])
    found = containers.subids(accounts, services, extra, words.get("count", 65536), words.get("least", 1000))
    return {item["name"]: (item["start"], item["count"]) for item in found}


def test_a_range_follows_from_the_uid_alone() -> None:
    people = [{"name": f"user{uid}", "uid": uid} for uid in range(1000, 1400, 7)]
    one = ranges(*people)
    random.Random(7).shuffle(people)
    some = ranges(*people[:11], services=("dockremap",))
    assert all(one[name] == found for name, found in some.items() if name != "dockremap")
    starts = sorted(start for start, _ in one.values())
    assert all(after - before >= 65536 for before, after in itertools.pairwise(starts))


def test_who_is_gone_has_no_range_and_who_is_locked_keeps_it() -> None:
    assert set(ranges(ALICE, BOB, GONE)) == {"alice", "bob"}
    assert containers.people([ALICE, BOB, GONE]) == ["alice"]


def test_a_range_given_by_hand_wins() -> None:
    found = ranges(
        ALICE, BOB, extra=[{"name": "alice", "start": 700000}, {"name": "carol", "start": 900000, "count": 9}]
    )
    assert found["alice"] == (700000, 65536)
    assert found["carol"] == (900000, 9)


@pytest.mark.parametrize(
    ("accounts", "services", "extra", "words"),
    [
        ([ALICE], (), [], None),
        ([{"name": "far", "uid": 70000}], (), [], "subids_least_uid"),
        ([{"name": "low", "uid": 900}], (), [], "low would have"),
        ([ALICE], (), [{"name": "carol", "start": 67174400}], "alice and carol meet at 67174400"),
        (
            [ALICE, {"name": "dan", "uid": 600000}],
            (),
            [{"name": "carol", "start": 599000}],
            "uid 600000 of dan",
        ),
        ([ALICE], [f"d{number}" for number in range(17)], [], "17 names"),
    ],
)
def test_ranges_that_harm_are_refused(
    accounts: list[dict[str, Any]], services: list[str], extra: list[dict[str, Any]], words: str | None
) -> None:
    found = containers.subids(accounts, services, extra, 65536, 1000)
    problems = containers.subid_problems(found, accounts, services, 65536)
    if words is None:
        assert problems == []
    else:
        assert any(words in problem for problem in problems), problems


def test_a_registry_s_authority_is_trusted_for_its_host_only() -> None:
    registries = [
        {
            "location": "docker.io/library",
            "mirrors": [{"location": "mirror.example.com:5000/x", "ca": "PEM\n\n"}],
        },
        {"location": "plain.example.com"},
    ]
    found = containers.registry_certificates(registries, "/etc/containers/certs.d")
    assert found == [{"dest": "/etc/containers/certs.d/mirror.example.com:5000/ca.crt", "content": "PEM\n"}]


def test_a_person_s_directory_is_nobody_else_s() -> None:
    found = containers.private_directories(["alice"], "/srv/users/")
    assert found == [{"path": "/srv/users/alice", "owner": "alice", "mode": "0700"}]


def test_a_proxy_is_said_in_variables() -> None:
    proxy = {"http": None, "https": "http://p:1", "no_proxy": [".a", "b"]}
    assert containers.proxy_environment(proxy) == ["HTTPS_PROXY=http://p:1", "NO_PROXY=.a,b"]
    assert containers.proxy_environment({}) == []


def test_a_person_has_several_directories() -> None:
    found = containers.private_directories(["alice"], "/srv", ["cache", "tmp"])
    assert [item["path"] for item in found] == ["/srv/alice/cache", "/srv/alice/tmp"]


def test_apptainer_reads_yes_and_no_and_one_line_a_bind() -> None:
    words = {"allow setuid": False, "bind path": ["/a", "/b"], "sessiondir max size": 64}
    assert containers.apptainer_lines(words) == [
        "allow setuid = no",
        "bind path = /a",
        "bind path = /b",
        "sessiondir max size = 64",
    ]


def test_words_that_say_nothing_are_left_out() -> None:
    words = {"a": "", "b": [], "c": {}, "d": None, "e": False, "f": 0, "g": "x"}
    assert containers.without_empty(words) == {"e": False, "f": 0, "g": "x"}


def test_a_package_is_held_only_at_a_version() -> None:
    assert containers.packages_at(["a"], "") == [{"name": "a"}]
    assert containers.packages_at(["a"], "1.*") == [{"name": "a", "version": "1.*", "hold": True}]
