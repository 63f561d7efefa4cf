"""The people of the data are known on every node, with these numbers and rights and no others."""

from __future__ import annotations

import re

import pytest

NOLOGIN = ("/usr/sbin/nologin", "/sbin/nologin")
RULES = {"password": "ALL=(ALL:ALL) ALL", "nopasswd": "ALL=(ALL:ALL) NOPASSWD: ALL"}


def having(opts, *states):
    return [account for account in opts["users_accounts"] if account.get("state", "present") in states]


@pytest.fixture
def group_names(opts):
    return {group["gid"]: group["name"] for group in opts["users_groups"]}


def test_accounts_are_as_declared(host, opts, group_names):
    for account in having(opts, "present", "locked"):
        name, uid = account["name"], account["uid"]
        gid = uid if account.get("gid") is None else account["gid"]
        shell = account.get("shell") or opts["users_shell"]
        home = f"{opts['users_home_root']}/{name}"
        found = host.check_output(f"getent passwd {name}").split(":")
        assert [found[0], *found[2:6]] == [name, str(uid), str(gid), account.get("comment", ""), home]
        assert found[6] in (NOLOGIN if account.get("state") == "locked" else (shell,))
        primary = group_names.get(gid, name)
        assert host.check_output(f"id -gn {name}") == primary
        assert set(host.check_output(f"id -Gn {name}").split()) == {primary, *account.get("groups", [])}


def test_shared_groups_are_as_declared(host, opts):
    for group in opts["users_groups"]:
        found = host.run(f"getent group {group['name']}")
        if group.get("state") == "absent":
            assert found.rc == 2
        else:
            assert found.stdout.split(":")[2] == str(group["gid"])


def test_who_is_gone_is_gone(host, opts):
    for account in having(opts, "absent"):
        assert host.run(f"getent passwd {account['name']}").rc == 2
        assert host.run(f"getent group {account['name']}").rc == 2


def test_passwords_are_the_declared_ones_or_none(host, opts):
    for account in having(opts, "present", "locked"):
        field = host.check_output(f"getent shadow {account['name']}").split(":")[1]
        if account.get("state") == "locked":
            assert field == "!"
        elif account.get("password"):
            assert re.match(r"\$\w+\$", field)
        else:
            assert field == "*"


def test_who_is_present_can_work_and_who_is_locked_cannot(host, opts):
    for account in having(opts, "present"):
        name, uid = account["name"], str(account["uid"])
        if (account.get("shell") or opts["users_shell"]) in NOLOGIN:
            # Nobody logs in here, and jobs still run as their users.
            assert host.run(f"runuser -l {name} -c true").rc != 0
            assert host.check_output(f"runuser -u {name} -- id -u") == uid
        else:
            assert host.check_output(f"runuser -l {name} -c 'id -u'") == uid
    for account in having(opts, "locked"):
        assert host.run(f"runuser -l {account['name']} -c true").rc != 0


def test_rights_are_those_of_the_data(host, opts):
    for account in opts["users_accounts"]:
        sudo = account.get("sudo", "none")
        if account.get("state", "present") != "present":
            continue
        said = host.run(f"sudo -n -l -U {account['name']}").stdout
        if sudo == "none":
            assert "is not allowed to run sudo" in said
        elif sudo in RULES:
            assert re.search(r"\(ALL : ALL\) (NOPASSWD: )?ALL", said)
            assert ("NOPASSWD: ALL" in said) == (sudo == "nopasswd")
        else:
            assert sudo.split(":")[-1].strip() in said


def test_nobody_else_has_rights(host, opts):
    rights = host.file("/etc/sudoers.d/coldiron")
    assert (rights.mode, rights.user, rights.group) == (0o440, "root", "root")
    lines = [line for line in rights.content_string.splitlines() if line and not line.startswith("#")]
    wanted = [
        f"{account['name']} {RULES.get(account['sudo'], account['sudo'])}"
        for account in having(opts, "present")
        if account.get("sudo", "none") != "none"
    ]
    assert lines == wanted
    assert host.run("visudo -c").rc == 0


def test_homes_are_their_owners(host, opts):
    if not opts["users_create_homes"]:
        return
    for account in having(opts, "present", "locked"):
        home = host.file(f"{opts['users_home_root']}/{account['name']}")
        assert home.is_directory
        assert home.uid == account["uid"]
        assert home.mode == int(opts["users_home_mode"], 8)


def test_keys_are_those_of_the_data(host, opts):
    if not opts["users_create_homes"]:
        return
    for account in having(opts, "present", "locked"):
        folder = f"{opts['users_home_root']}/{account['name']}/.ssh"
        path = f"{folder}/authorized_keys"
        keys = host.file(path)
        wanted = account.get("ssh_keys", []) if account.get("state") != "locked" else []
        lines = [line for line in keys.content_string.splitlines() if not line.startswith("#")]
        assert lines == wanted
        assert (keys.uid, keys.mode, host.file(folder).mode) == (account["uid"], 0o600, 0o700)
        if wanted:
            assert len(host.check_output(f"ssh-keygen -l -f {path}").splitlines()) == len(wanted)
