"""Everybody has the subordinate ids that follow from the uid, and can use them; nobody has anybody else's."""

from __future__ import annotations

import itertools

import pytest


def ranges(host, name):
    """The ranges in a file, as name -> (start, count)."""
    rows = [line.split(":") for line in host.file(name).content_string.splitlines() if line]
    return {row[0]: (int(row[1]), int(row[2])) for row in rows}


@pytest.mark.parametrize("name", ["/etc/subuid", "/etc/subgid"])
def test_everybody_has_the_range_that_follows_from_the_uid(host, opts, name):
    declared = {item["name"]: (item["start"], item["count"]) for item in opts["__subids_ranges"]}
    assert ranges(host, name) == declared


@pytest.mark.parametrize("name", ["/etc/subuid", "/etc/subgid"])
def test_no_two_ranges_meet(host, name):
    rows = sorted(ranges(host, name).values())
    assert all(one[0] + one[1] <= other[0] for one, other in itertools.pairwise(rows)), rows


@pytest.mark.acts
def test_a_person_can_use_the_range(host, opts):
    """newuidmap, which is what Podman, Apptainer and rootless Docker call, hands the ids out."""
    for account in opts["subids_accounts"]:
        if account.get("state", "present") != "present" or not host.user(account["name"]).exists:
            continue
        start, count = ranges(host, "/etc/subuid")[account["name"]]
        wanted = f"{start},1,{count}"
        command = f"unshare --user --map-users={wanted} --map-groups={wanted} cat /proc/self/uid_map"
        shown = host.check_output(f"runuser -u {account['name']} -- {command}")
        assert [str(start), str(count)] in [line.split()[1:] for line in shown.splitlines()], shown
