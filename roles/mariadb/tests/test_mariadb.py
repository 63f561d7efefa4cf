"""MariaDB serves what is declared, to those who are declared, with the settings that slurmdbd wants."""

from __future__ import annotations

import hashlib
import json

import pytest

MIB = 1024 * 1024


def ask(host, sql):
    """Return the lines of a query's answer, as root over the socket."""
    return host.check_output("mariadb --batch --skip-column-names --raw --execute %s", sql).splitlines()


def native_hash(password):
    """Return the server's own hash of a password."""
    inner = hashlib.sha1(str.__str__(password).encode()).digest()
    return "*" + hashlib.sha1(inner).hexdigest().upper()


def private(host, user, origin):
    """Return what the server knows of a user, or None."""
    lines = ask(host, f"SELECT Priv FROM mysql.global_priv WHERE User='{user}' AND Host='{origin}'")
    return json.loads(lines[0]) if lines else None


def test_the_server_runs_and_starts_at_boot(host):
    mariadb = host.service("mariadb")
    assert mariadb.is_running
    assert mariadb.is_enabled


@pytest.mark.parametrize(
    ("variable", "option", "unit"),
    [
        ("innodb_buffer_pool_size", "mariadb_buffer_pool_mib", MIB),
        ("innodb_log_file_size", "mariadb_log_file_mib", MIB),
        ("innodb_lock_wait_timeout", "mariadb_lock_wait_timeout_seconds", 1),
        ("max_allowed_packet", "mariadb_max_allowed_packet_mib", MIB),
    ],
)
def test_the_running_server_has_the_settings(host, opts, variable, option, unit):
    assert ask(host, f"SELECT @@global.{variable}") == [str(opts[option] * unit)]


def test_the_running_server_has_further_settings(host, opts):
    for name, value in opts["mariadb_config"].items():
        if value is None:  # taken out: the server's own default
            assert not host.file(opts["__mariadb_os"]["config_file"]).contains(f"^{name} ")
            continue
        assert ask(host, f"SELECT @@global.{name.replace('-', '_')}") == [str(value)], name


def test_it_listens_where_it_is_told(host, opts):
    listening = host.check_output("ss --no-header --listening --numeric --tcp 'sport = :3306'")
    assert {line.split()[3] for line in listening.splitlines()} == {f"{opts['mariadb_bind_address']}:3306"}


def test_root_comes_through_the_socket_or_with_the_password(host, opts):
    root = private(host, "root", "localhost")
    # Compared as a truth, so that a failure prints no hash.
    same = root["authentication_string"] == native_hash(opts["mariadb_root_password"])
    assert same, "root has another password"
    ways = {way.get("plugin", root["plugin"]) for way in root.get("auth_or", [{}])}
    assert ways == {"unix_socket", "mysql_native_password"}


def test_nobody_else_is_root_and_nobody_is_nameless(host):
    users = ask(host, "SELECT CONCAT(User, '@', Host) FROM mysql.global_priv")
    assert [user for user in users if user.startswith(("root@", "@"))] == ["root@localhost"]


def test_databases_are_as_declared(host, opts):
    there = ask(host, "SHOW DATABASES")
    for database in opts["mariadb_databases"]:
        assert (database["name"] in there) == (database.get("state", "present") == "present"), database[
            "name"
        ]
    assert "test" not in there


def test_users_are_as_declared(host, opts):
    for user in opts["mariadb_users"]:
        name, origin = str.__str__(user["name"]), str.__str__(user.get("host", "localhost"))
        found = private(host, name, origin)
        if user.get("state", "present") == "absent":
            assert found is None, name
            continue
        assert found is not None, f"{name}@{origin} is missing"
        same = found["authentication_string"] == native_hash(user["password"])
        assert same, f"{name}@{origin} has another password"
        grants = [line.split(" TO ")[0] for line in ask(host, f"SHOW GRANTS FOR '{name}'@'{origin}'")]
        wanted = {"GRANT USAGE ON *.*"}
        for part in filter(None, str.__str__(user.get("privileges", "")).split("/")):
            scope, _, privileges = part.partition(":")
            database, _, table = scope.partition(".")
            words = "ALL PRIVILEGES" if privileges.upper() == "ALL" else privileges.upper().replace(",", ", ")
            wanted.add(f"GRANT {words} ON `{database}`.{table}")
        assert set(grants) == wanted
