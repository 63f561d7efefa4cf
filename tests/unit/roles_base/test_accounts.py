"""People as data: what is refused, and what converge is told."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.filter.accounts import (
    account_problems,
    accounts,
    key_problem,
    shared_keys,
)


def public_key(kind: str = "ssh-ed25519", body: bytes = b"x" * 32) -> str:
    """Return a line of a .pub file whose blob is whole."""
    blob = len(kind).to_bytes(4, "big") + kind.encode() + len(body).to_bytes(4, "big") + body
    return f"{kind} {base64.b64encode(blob).decode()}"


KEY = public_key()


def alice(**more: Any) -> dict[str, Any]:
    return {"name": "alice", "uid": 2001, **more}


def problems(*people: dict[str, Any], groups: list[dict[str, Any]] | None = None) -> str:
    return " ".join(account_problems(list(people), groups or []))


def test_good_data_has_no_problem() -> None:
    people = [
        alice(groups=["hpc"], ssh_keys=[f"{KEY} alice@desk", f'from="10.0.0.0/8" {KEY}'], sudo="nopasswd"),
        {"name": "bob", "uid": 2002, "gid": 3000, "sudo": "ALL=(root) NOPASSWD: /bin/ls", "state": "locked"},
        {"name": "carol", "uid": 2003, "password": "$6$salt$hash", "sudo": "password", "shell": "/bin/zsh"},
    ]
    assert problems(*people, groups=[{"name": "hpc", "gid": 3000}]) == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (alice(uid=999), "alice: uid 999 is below 1000"),
        (alice(gid=100), "alice: gid 100 is below 1000"),
        (alice(uid=65534), "65534 belongs to systemd or to nobody"),
        (alice(uid=61200), "61200 belongs to systemd"),
        ({"name": "Alice", "uid": 2001}, "name 'Alice': write lower-case letters"),
        ({"name": "slurm", "uid": 2001}, "slurm: a package makes an account of this name"),
        (alice(comment="Ada: Alice"), "comment holds a colon"),
        (alice(shell="zsh"), "shell 'zsh': write its whole path"),
        (alice(password="secret"), "password is no hash"),
        (alice(sudo="password"), "sudo asks for a password and there is none"),
        (alice(sudo="yes"), "sudo 'yes': write none, password, nopasswd, or a rule"),
        (alice(ssh_keys=[KEY, "ssh-ed25519"]), "alice: ssh_keys entry 2 is no public key"),
    ],
)
def test_one_account_that_cannot_be(wrong: dict[str, Any], said: str) -> None:
    assert said in problems(wrong)


def test_a_password_is_never_repeated() -> None:
    assert "hunter2" not in problems(alice(password="hunter2"))


@pytest.mark.parametrize(
    ("people", "groups", "said"),
    [
        ([alice(), alice(uid=2002)], [], "two accounts are named alice"),
        ([alice(), {"name": "bob", "uid": 2001}], [], "alice and bob share uid 2001"),
        ([alice(), {"name": "bob", "uid": 2001, "state": "absent"}], [], "alice and bob share uid 2001"),
        ([alice(gid=2500), {"name": "bob", "uid": 2002, "gid": 2500}], [], "alice and bob share gid 2500"),
        ([], [{"name": "a", "gid": 3000}, {"name": "b", "gid": 3000}], "a and b share gid 3000"),
        ([], [{"name": "a", "gid": 3000}, {"name": "a", "gid": 3001}], "two groups are named a"),
        ([], [{"name": "a", "gid": 30}], "group a: gid 30 is below 1000"),
        ([alice()], [{"name": "alice", "gid": 3000}], "alice is a shared group and a user with a group"),
        (
            [alice(groups=["old"])],
            [{"name": "old", "gid": 3000, "state": "absent"}],
            "alice is in group old, which users_groups declares absent",
        ),
    ],
)
def test_data_that_clashes(people: list[dict[str, Any]], groups: list[dict[str, Any]], said: str) -> None:
    assert said in problems(*people, groups=groups)


def test_every_problem_is_told_at_once() -> None:
    found = account_problems([alice(uid=5, shell="sh"), {"name": "B", "uid": 5}], [])
    assert len(found) == 5
    assert all(problem.startswith("users_accounts/users_groups: ") for problem in found)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (KEY, None),
        (f"{KEY} somebody somewhere", None),
        (f'command="ls -l",no-pty {KEY}', None),
        (public_key("sk-ssh-ed25519@openssh.com"), None),
        (public_key("ecdsa-sha2-nistp256"), None),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA", "is a private key"),
        (f"{KEY}\n{KEY}", "more than one line"),
        (KEY[:-3], "cut off or damaged"),
        (KEY.replace("ssh-ed25519", "ssh-rsa"), "holds another kind of key"),
        ("alice@desk", "is no public key"),
    ],
)
def test_keys_are_read_as_sshd_reads_them(key: str, said: str | None) -> None:
    found = key_problem(key)
    assert found is None if said is None else said in str(found)


def test_a_key_of_two_people_is_told_and_allowed() -> None:
    people = [alice(ssh_keys=[f"{KEY} a"]), {"name": "bob", "uid": 2002, "ssh_keys": [f"{KEY} b"]}]
    assert shared_keys(people) == [
        "users_accounts: alice and bob log in with the same key; give each person a key"
    ]
    assert problems(*people) == ""


def declared(
    people: list[dict[str, Any]], groups: list[dict[str, Any]] | None = None, homes: bool = True
) -> Any:
    return accounts(people, groups or [], "/bin/bash", "/usr/sbin/nologin", "/home/", "0711", homes)


def test_a_person_becomes_a_group_an_account_a_home_and_keys() -> None:
    found = declared([alice(comment="Ada", groups=["hpc"], ssh_keys=[f"{KEY} a "], sudo="nopasswd")])
    assert found["groups"] == [{"name": "alice", "gid": 2001, "state": "present"}]
    assert found["users"] == [
        {
            "name": "alice", "uid": 2001, "group": "alice", "groups": ["hpc"], "append": False,
            "home": "/home/alice", "create_home": True, "shell": "/bin/bash", "comment": "Ada", "password": "*",
            "state": "present",
        }
    ]  # fmt: skip
    assert [(item["path"], item["mode"], item["owner"]) for item in found["directories"]] == [
        ("/home/alice", "0711", "alice"),
        ("/home/alice/.ssh", "0700", "alice"),
    ]
    [keys] = found["files"]
    assert (keys["dest"], keys["mode"], keys["owner"]) == (
        "/home/alice/.ssh/authorized_keys",
        "0600",
        "alice",
    )
    assert keys["content"].splitlines()[1:] == [f"{KEY} a"]
    assert found["sudo"] == ["alice ALL=(ALL:ALL) NOPASSWD: ALL"]


def test_nodes_without_the_homes_make_none() -> None:
    found = declared([alice(ssh_keys=[KEY])], homes=False)
    assert found["users"][0]["create_home"] is False
    assert found["directories"] == found["files"] == []


def test_a_shared_group_can_be_the_primary_one() -> None:
    found = declared([alice(gid=3000)], [{"name": "hpc", "gid": 3000}])
    assert found["users"][0]["group"] == "hpc"
    assert [group["name"] for group in found["groups"]] == ["hpc"]


def test_who_is_locked_has_no_way_in() -> None:
    found = declared([alice(state="locked", ssh_keys=[KEY], sudo="nopasswd", password="$6$a$b")])
    [user] = found["users"]
    assert (user["shell"], user["password"]) == ("/usr/sbin/nologin", "!")
    assert KEY not in found["files"][0]["content"]
    assert found["sudo"] == []


def test_who_is_absent_leaves_the_home() -> None:
    found = declared([alice(state="absent", ssh_keys=[KEY], sudo="nopasswd")])
    assert found["users"] == [{"name": "alice", "state": "absent", "remove": False}]
    assert found["groups"] == found["directories"] == found["files"] == found["sudo"] == []


def test_sudo_rules_are_taken_as_they_are() -> None:
    rule = "ALL=(root) NOPASSWD: /usr/bin/systemctl restart slurmd"
    people = [alice(sudo=rule), {"name": "bob", "uid": 2002, "sudo": "password"}]
    assert declared(people)["sudo"] == [f"alice {rule}", "bob ALL=(ALL:ALL) ALL"]
