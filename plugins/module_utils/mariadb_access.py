"""Who may do what in MariaDB: what is, what is wanted, and the SQL between. Pure; standard library only.

Passwords never reach the server as text: they are hashed here, as mysql_native_password does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

#: MariaDB's own accounts; the rest of what the packages leave behind is cleared.
SYSTEM_USERS = ("mariadb.sys", "mysql")
_NAME = re.compile(r"^[A-Za-z0-9_.$-]+$")
_GRANT = re.compile(r"^GRANT (?P<privileges>.+?) ON (?P<scope>\S+) TO ")


class AccessError(ValueError):
    """A declaration that cannot be; the message says what to write."""


class Step(NamedTuple):
    """One change: its SQL, and what it is in words (free of secrets)."""

    sql: str
    words: str


def native_hash(password: str) -> str:
    """Return the mysql_native_password hash of a password: ``*`` and 40 hexadecimal digits."""
    inner = hashlib.sha1(password.encode("utf-8")).digest()
    return "*" + hashlib.sha1(inner).hexdigest().upper()


def quote(text: str) -> str:
    """Return a string literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def name(text: str, what: str) -> str:
    """Return a database's name between backticks; AccessError for one that would need escaping."""
    if text != "*" and not _NAME.match(text):
        raise AccessError(f"{text!r} is no name of a {what}: letters, digits, _, $, . and - can be in it")
    return text if text == "*" else f"`{text}`"


def parse_privileges(text: str) -> dict[str, set[str]]:
    """Read "slurm_acct_db.*:ALL/mysql.*:SELECT,INSERT" as {scope: privileges}, scopes without backticks."""
    wanted: dict[str, set[str]] = {}
    for part in filter(None, text.split("/")):
        scope, colon, words = part.partition(":")
        if not colon or scope.count(".") != 1:
            raise AccessError(f"{part!r} grants nothing: write it like slurm_acct_db.*:ALL")
        wanted[scope] = {
            "ALL PRIVILEGES" if word.strip().upper() == "ALL" else word.strip().upper()
            for word in words.split(",")
        }
    return wanted


def parse_grants(lines: Iterable[str]) -> dict[str, set[str]]:
    """Read SHOW GRANTS as {scope: privileges}; USAGE means none and is left out."""
    found: dict[str, set[str]] = {}
    for line in lines:
        match = _GRANT.match(line)
        if match and match["privileges"] != "USAGE":
            scope = match["scope"].replace("`", "").replace("\\_", "_")
            found[scope] = {word.strip().upper() for word in match["privileges"].split(",")}
    return found


def _account(user: tuple[str, str]) -> str:
    return f"{quote(user[0])}@{quote(user[1])}"


def _scope(scope: str) -> str:
    database, _, table = scope.partition(".")
    return "{}.{}".format(name(database, "database"), name(table, "table"))


def root_is_safe(private: Mapping[str, Any], root_hash: str) -> bool:
    """Say whether root has this password and still comes in through the socket without one."""
    ways = private.get("auth_or") or [{}]
    plugins = {way.get("plugin", private.get("plugin")) for way in ways}
    return private.get("authentication_string") == root_hash and plugins == {
        "mysql_native_password",
        "unix_socket",
    }


def plan(facts: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Step]:
    """Return the changes from what is to what is wanted, in the order the server takes them.

    ``facts``: databases (names), users ({(name, host): global_priv as a mapping}), grants ({(name, host):
    lines of SHOW GRANTS}). ``wanted``: root_password, databases, users.
    """
    steps: list[Step] = []
    root = ("root", "localhost")
    root_hash = native_hash(wanted["root_password"])
    if not root_is_safe(facts["users"].get(root, {}), root_hash):
        steps.append(
            Step(
                f"ALTER USER {_account(root)} IDENTIFIED VIA"
                f" mysql_native_password USING {quote(root_hash)} OR unix_socket",
                "root@localhost: password set, socket kept",
            )
        )
    for user in sorted(facts["users"]):
        if user[0] in ("", "root") and user != root:
            words = f"{user[0] or 'anybody'}@{user[1]}: removed"
            steps.append(Step(f"DROP USER {_account(user)}", words))
    declared = {item["name"]: item for item in wanted["databases"]}
    if "test" in facts["databases"] and "test" not in declared:
        steps.append(Step("DROP DATABASE `test`", "database test: removed"))
    for database, item in declared.items():
        there = database in facts["databases"]
        if item.get("state") == "absent":
            if there:
                steps.append(
                    Step(
                        "DROP DATABASE {}".format(name(database, "database")), f"database {database}: removed"
                    )
                )
        elif not there:
            steps.append(
                Step("CREATE DATABASE {}".format(name(database, "database")), f"database {database}: added")
            )
    for item in wanted["users"]:
        user = (item["name"], item.get("host") or "localhost")
        if user[0] in SYSTEM_USERS or user[0] == "root":
            raise AccessError(f"user {user[0]} belongs to the server: take it out of mariadb_users")
        steps += _plan_user(item, user, facts)
    return steps


def _plan_user(item: Mapping[str, Any], user: tuple[str, str], facts: Mapping[str, Any]) -> list[Step]:
    words = "{}@{}".format(*user)
    live = facts["users"].get(user)
    if item.get("state") == "absent":
        return [] if live is None else [Step(f"DROP USER {_account(user)}", f"{words}: removed")]
    if not item.get("password"):
        raise AccessError(f"user {words} has no password in mariadb_users")
    steps: list[Step] = []
    hashed = native_hash(item["password"])
    identified = f"USER {_account(user)} IDENTIFIED BY PASSWORD {quote(hashed)}"
    if live is None:
        steps.append(Step("CREATE " + identified, f"{words}: added"))
    elif live.get("authentication_string") != hashed or live.get("plugin") != "mysql_native_password":
        steps.append(Step("ALTER " + identified, f"{words}: password set"))
    granted = parse_grants(facts["grants"].get(user, []))
    declared = parse_privileges(item.get("privileges") or "")
    for scope in sorted(set(granted) - set(declared)):
        steps.append(
            Step(
                "REVOKE {} ON {} FROM {}".format(
                    ", ".join(sorted(granted[scope])), _scope(scope), _account(user)
                ),
                f"{words}: no longer anything on {scope}",
            )
        )
    for scope in sorted(declared):
        surplus = granted.get(scope, set()) - declared[scope]
        missing = declared[scope] - granted.get(scope, set())
        if surplus and declared[scope] != {"ALL PRIVILEGES"}:
            steps.append(
                Step(
                    "REVOKE {} ON {} FROM {}".format(
                        ", ".join(sorted(surplus)), _scope(scope), _account(user)
                    ),
                    "{}: no longer {} on {}".format(words, ", ".join(sorted(surplus)), scope),
                )
            )
            if surplus == {"ALL PRIVILEGES"}:
                missing = declared[scope]
        if missing:
            steps.append(
                Step(
                    "GRANT {} ON {} TO {}".format(", ".join(sorted(missing)), _scope(scope), _account(user)),
                    "{}: {} on {}".format(words, ", ".join(sorted(missing)), scope),
                )
            )
    return steps


def parse_users(lines: Iterable[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """Read lines "user TAB host TAB JSON" of mysql.global_priv."""
    users: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines:
        user, host, private = line.split("\t", 2)
        users[(user, host)] = json.loads(private)
    return users
