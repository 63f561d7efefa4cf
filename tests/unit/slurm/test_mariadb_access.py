"""The plan between MariaDB's users and what is declared."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import mariadb_access as access
from ansible_collections.coldiron.cluster.plugins.modules import mariadb_access

ROOT = ("root", "localhost")
# SELECT PASSWORD('secret') of the server itself.
SECRET = "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7"
FRESH = {
    "plugin": "mysql_native_password",
    "authentication_string": "invalid",
    "auth_or": [{}, {"plugin": "unix_socket"}],
}
SAFE = {**FRESH, "authentication_string": SECRET}


def facts(
    databases: str = "mysql", users: dict[Any, Any] | None = None, **grants: list[str]
) -> dict[str, Any]:
    return {
        "databases": databases.split(),
        "users": {ROOT: SAFE, **(users or {})},
        "grants": {(name, "localhost"): lines for name, lines in grants.items()},
    }


def sql(
    found: dict[str, Any], databases: list[Any] | None = None, users: list[Any] | None = None
) -> list[str]:
    wanted = {"root_password": "secret", "databases": databases or [], "users": users or []}
    return [step.sql for step in access.plan(found, wanted)]


def test_the_hash_is_the_servers_own() -> None:
    assert access.native_hash("secret") == SECRET


def test_root_gets_a_password_and_keeps_the_socket() -> None:
    found = facts()
    assert sql(found) == []
    for other in (FRESH, {}, {**SAFE, "auth_or": None}):
        found["users"][ROOT] = other
        assert sql(found) == [
            f"ALTER USER 'root'@'localhost' IDENTIFIED VIA mysql_native_password USING '{SECRET}' OR unix_socket"
        ]


def test_other_roots_nobody_and_test_are_removed() -> None:
    found = facts(
        "mysql test",
        {("root", "%"): {}, ("", "localhost"): {}, ("mysql", "localhost"): {}, ("PUBLIC", ""): {}},
    )
    assert sql(found) == ["DROP USER ''@'localhost'", "DROP USER 'root'@'%'", "DROP DATABASE `test`"]
    assert sql(facts("test"), [{"name": "test"}]) == []


def test_databases() -> None:
    assert sql(facts("a"), [{"name": "a"}, {"name": "b"}]) == ["CREATE DATABASE `b`"]
    assert sql(facts("a"), [{"name": "a", "state": "absent"}, {"name": "b", "state": "absent"}]) == [
        "DROP DATABASE `a`"
    ]
    with pytest.raises(access.AccessError, match="is no name of a database"):
        sql(facts(), [{"name": "a`; DROP"}])


SLURM = {"name": "slurm", "password": "secret", "privileges": "slurm_acct_db.*:ALL"}
MADE = {("slurm", "localhost"): {"plugin": "mysql_native_password", "authentication_string": SECRET}}
GRANTED = [
    "GRANT USAGE ON *.* TO `slurm`@`localhost` IDENTIFIED BY PASSWORD '*X'",
    "GRANT ALL PRIVILEGES ON `slurm_acct_db`.* TO `slurm`@`localhost`",
]


def test_a_user_is_made_with_a_hash_and_never_a_password() -> None:
    assert sql(facts(), users=[SLURM]) == [
        f"CREATE USER 'slurm'@'localhost' IDENTIFIED BY PASSWORD '{SECRET}'",
        "GRANT ALL PRIVILEGES ON `slurm_acct_db`.* TO 'slurm'@'localhost'",
    ]


def test_a_user_as_declared_is_left_alone() -> None:
    assert sql(facts(users=MADE, slurm=GRANTED), users=[SLURM]) == []


def test_a_lost_grant_and_another_password_are_put_right() -> None:
    changed = {("slurm", "localhost"): {"plugin": "mysql_native_password", "authentication_string": "*OLD"}}
    assert sql(facts(users=changed, slurm=GRANTED[:1]), users=[SLURM]) == [
        f"ALTER USER 'slurm'@'localhost' IDENTIFIED BY PASSWORD '{SECRET}'",
        "GRANT ALL PRIVILEGES ON `slurm_acct_db`.* TO 'slurm'@'localhost'",
    ]


def test_grants_beyond_the_declared_are_taken_back() -> None:
    more = [*GRANTED, "GRANT SELECT, INSERT ON `mysql`.`user` TO `slurm`@`localhost`"]
    assert sql(facts(users=MADE, slurm=more), users=[SLURM]) == [
        "REVOKE INSERT, SELECT ON `mysql`.`user` FROM 'slurm'@'localhost'"
    ]
    fewer = {**SLURM, "privileges": "slurm_acct_db.*:select"}
    assert sql(facts(users=MADE, slurm=GRANTED), users=[fewer]) == [
        "REVOKE ALL PRIVILEGES ON `slurm_acct_db`.* FROM 'slurm'@'localhost'",
        "GRANT SELECT ON `slurm_acct_db`.* TO 'slurm'@'localhost'",
    ]


def test_a_user_goes() -> None:
    gone = {**SLURM, "state": "absent"}
    assert sql(facts(users=MADE), users=[gone]) == ["DROP USER 'slurm'@'localhost'"]
    assert sql(facts(), users=[gone]) == []


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"name": "root", "password": "x"}, "belongs to the server"),
        ({"name": "mysql", "password": "x"}, "belongs to the server"),
        ({"name": "a"}, "user a@localhost has no password"),
        ({**SLURM, "privileges": "everything"}, "grants nothing: write it like"),
    ],
)
def test_users_that_cannot_be(user: dict[str, str], said: str) -> None:
    with pytest.raises(access.AccessError, match=said):
        sql(facts(), users=[user])


def test_words_hold_no_secret() -> None:
    wanted = {"root_password": "canary", "databases": [], "users": [{**SLURM, "password": "canary"}]}
    for step in access.plan(facts(), wanted):
        assert "canary" not in step.sql + step.words
        assert access.native_hash("canary") not in step.words


def test_quotes_are_quoted() -> None:
    assert access.quote("o'brien\\") == "'o''brien\\\\'"


def test_users_are_read_from_the_servers_table() -> None:
    lines = ["root\tlocalhost\t" + json.dumps(SAFE), "\tlocalhost\t{}"]
    assert access.parse_users(lines) == {ROOT: SAFE, ("", "localhost"): {}}


AWAY = (
    1,
    "",
    "ERROR 2002 (HY000): Can't connect to local server through socket '/run/mysqld/mysqld.sock' (2)",
)
DENIED = (1, "", "ERROR 1698 (28000): Access denied for user 'root'@'localhost'")


class Module:
    """The client's answers, one after the other; the last one for ever."""

    def __init__(self, *answers: tuple[int, str, str], check_mode: bool = False, seconds: int = 60) -> None:
        self.params = {"socket": "/run/mysqld/mysqld.sock", "wait_seconds": seconds}
        self.check_mode = check_mode
        self.answers = list(answers)
        self.asked = 0

    def get_bin_path(self, name: str) -> str:
        return f"/usr/bin/{name}"

    def run_command(self, _words: list[str], data: str) -> tuple[int, str, str]:
        assert data == "SELECT 1;\n"
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def fail_json(self, msg: str) -> None:
        raise RuntimeError(msg)


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mariadb_access.time, "sleep", lambda seconds: None)


def test_a_server_that_still_recovers_is_waited_for() -> None:
    module = Module(AWAY, AWAY, (0, "1", ""))
    assert mariadb_access.Server(module).answers()
    assert module.asked == 3


def test_one_that_stays_away_is_told() -> None:
    module = Module(AWAY, seconds=0)
    with pytest.raises(RuntimeError, match=r"does not let root in through /run/mysqld.*Can't connect"):
        mariadb_access.Server(module).answers()


@pytest.mark.parametrize(("answer", "check_mode"), [(DENIED, False), (AWAY, True)])
def test_an_answer_and_a_look_wait_for_nothing(answer: tuple[int, str, str], check_mode: bool) -> None:
    module = Module(answer, check_mode=check_mode)
    if check_mode:
        assert not mariadb_access.Server(module).answers()
    else:
        with pytest.raises(RuntimeError, match="Access denied"):
            mariadb_access.Server(module).answers()
    assert module.asked == 1
