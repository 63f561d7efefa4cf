"""The pure halves: what is to be done, from what is and what is wanted."""

from __future__ import annotations

from typing import Any

import pytest
from harness import declaration, module


def complete(section: str, **item: Any) -> dict[str, Any]:
    """An item with all its keys, as the action sends it."""
    entry, wrong = declaration.check_item(section, 0, item)
    assert not wrong
    checked: dict[str, Any] = entry
    return checked


NOTHING: dict[str, list[str]] = {"install": [], "remove": [], "hold": [], "unhold": []}


@pytest.mark.parametrize(
    ("want", "installed", "plan"),
    [
        ({}, {}, {"install": ["p"]}),
        ({}, {"p": ("1.0", False)}, {}),
        ({"version": "1.*"}, {"p": ("1.0", False)}, {}),
        ({"version": "2.*"}, {"p": ("1.0", False)}, {"install": ["p=2.*"]}),
        ({"version": "2"}, {}, {"install": ["p=2"]}),
        ({"version": "2"}, {"p": ("1", True)}, {"install": ["p=2"], "unhold": ["p"], "hold": ["p"]}),
        ({"version": "2", "hold": False}, {"p": ("1", True)}, {"install": ["p=2"], "unhold": ["p"]}),
        ({"hold": True}, {}, {"install": ["p"], "hold": ["p"]}),
        ({"hold": True}, {"p": ("1", False)}, {"hold": ["p"]}),
        ({"hold": True}, {"p": ("1", True)}, {}),
        ({"hold": False}, {"p": ("1", True)}, {"unhold": ["p"]}),
        ({}, {"p": ("1", True)}, {}),
        ({"state": "absent"}, {}, {}),
        # A held one would not be removed.
        ({"state": "absent"}, {"p": ("1.0", True)}, {"remove": ["p"], "unhold": ["p"]}),
        ({"state": "absent"}, {"p": ("1", False)}, {"remove": ["p"]}),
    ],
)
def test_packages(want: dict[str, Any], installed: dict[str, Any], plan: dict[str, list[str]]) -> None:
    assert module.plan_packages([complete("packages", name="p", **want)], installed) == {**NOTHING, **plan}


GROUPS = {
    "root": ["root", "x", "0", ""],
    "hpc": ["hpc", "x", "3000", "bob"],
    "alice": ["alice", "x", "2001", ""],
}
ALICE = ["alice", "x", "2001", "3000", "Alice", "/home/alice", "/bin/bash"]
SHADOW = {"alice": ["alice", "$6$old", "1", "", "", "", "", "", ""]}


def accounts(groups: list[dict[str, Any]], users: list[dict[str, Any]], passwd: Any = None) -> list[Any]:
    steps: list[Any] = module.plan_accounts(
        {"alice": ALICE} if passwd is None else passwd,
        GROUPS,
        SHADOW,
        [complete("groups", **group) for group in groups],
        [complete("users", **user) for user in users],
    )
    return [(" ".join(argv), data) for _, argv, data in steps]


@pytest.mark.parametrize(
    ("group", "command"),
    [
        ({"name": "new"}, "groupadd new"),
        ({"name": "new", "gid": 7, "system": True}, "groupadd -r -g 7 new"),
        ({"name": "hpc"}, None),
        ({"name": "hpc", "gid": 3000}, None),
        ({"name": "hpc", "gid": "3001"}, "groupmod -g 3001 hpc"),
        ({"name": "hpc", "state": "absent"}, "groupdel hpc"),
        ({"name": "new", "state": "absent"}, None),
    ],
)
def test_groups(group: dict[str, Any], command: str | None) -> None:
    assert accounts([group], []) == ([(command, "")] if command else [])


@pytest.mark.parametrize(
    ("user", "command"),
    [
        ({}, None),
        (
            {"uid": 2001, "group": "hpc", "comment": "Alice", "home": "/home/alice", "shell": "/bin/bash"},
            None,
        ),
        ({"group": "3000"}, None),
        ({"groups": []}, None),
        ({"uid": 2002}, "usermod -u 2002 alice"),
        ({"shell": "/bin/sh", "comment": ""}, "usermod -c  -s /bin/sh alice"),
        ({"group": "root"}, "usermod -g root alice"),
        ({"groups": ["hpc"], "group": "root"}, "usermod -g root -G hpc alice"),
        ({"state": "absent"}, "userdel alice"),
        ({"state": "absent", "remove": True}, "userdel -r alice"),
        ({"password": "$6$old"}, None),
    ],
)
def test_a_user_that_exists(user: dict[str, Any], command: str | None) -> None:
    assert accounts([], [{"name": "alice", **user}]) == ([(command, "")] if command else [])


@pytest.mark.parametrize(
    ("user", "command"),
    [
        ({"name": "carol"}, "useradd -M carol"),
        ({"name": "carol", "create_home": True, "system": True, "uid": 9}, "useradd -r -m -u 9 carol"),
        ({"name": "carol", "group": "hpc", "groups": ["alice", "hpc"]}, "useradd -M -g hpc -G alice carol"),
        ({"name": "hpc"}, "useradd -M -g hpc hpc"),  # its own group is there already
        ({"name": "carol", "state": "absent"}, None),
    ],
)
def test_a_user_that_does_not_exist(user: dict[str, Any], command: str | None) -> None:
    assert accounts([], [user], {}) == ([(command, "")] if command else [])


def test_memberships_are_exact_unless_appended() -> None:
    bob = {"bob": ["bob", "x", "2002", "0", "", "/", "/bin/sh"]}
    assert accounts([], [{"name": "bob", "groups": ["alice"]}], bob) == [("usermod -G alice bob", "")]
    appended = {"name": "bob", "groups": ["alice"], "append": True}
    assert accounts([], [appended], bob) == [("usermod -G alice,hpc bob", "")]
    assert accounts([], [{"name": "bob", "groups": ["3000"], "append": True}], bob) == []


def test_a_password_goes_by_standard_input() -> None:
    assert accounts([], [{"name": "alice", "password": "$6$new"}]) == [("chpasswd -e", "alice:$6$new\n")]


def test_groups_go_after_their_users() -> None:
    steps = accounts([{"name": "hpc", "state": "absent"}], [{"name": "alice", "state": "absent"}])
    assert [command for command, _ in steps] == ["userdel alice", "groupdel hpc"]


STAMPS = {"/etc/a": "1", "/etc/b": "2"}


@pytest.mark.parametrize(
    ("loaded", "answer"),
    [
        ({}, ""),  # nothing known: the unit is taken as it is found
        ({"/etc/a": "1", "/etc/b": "2"}, ""),
        ({"/etc/a": "0"}, "restart"),
        ({"/etc/b": "0"}, "reload"),
        ({"/etc/a": "0", "/etc/b": "0"}, "restart"),
        ({"/etc/a": ""}, "restart"),
        ({"/etc/a.d/gone": ""}, "restart"),  # a file that an exclusive directory lost
        ({"/etc/a.d/other-roles-file": "7"}, ""),
    ],
)
def test_due(loaded: dict[str, str], answer: str) -> None:
    unit = complete("units", name="u", restart_on=["/etc/a*"], reload_on=["/etc/b"])
    assert module.due(unit, STAMPS, loaded) == answer


def facts(
    active: str = "active", file: str = "enabled", sub: str = "running", reloads: str = "yes"
) -> dict[str, str]:
    return {"ActiveState": active, "UnitFileState": file, "SubState": sub, "CanReload": reloads}


@pytest.mark.parametrize(
    ("unit", "is_now", "need", "verbs"),
    [
        ({}, facts(), "", []),
        ({}, facts("inactive", "disabled", "dead"), "restart", ["enable", "start"]),
        ({}, facts("failed", sub="failed"), "", ["start"]),
        ({}, facts("activating", sub="auto-restart"), "", ["start"]),
        ({}, facts(file="static"), "", []),
        ({}, facts(), "restart", ["restart"]),
        ({}, facts(), "reload", ["reload"]),
        ({}, facts(reloads="no"), "reload", ["restart"]),
        ({"reload_command": ["x"]}, facts(reloads="no"), "reload", ["reload"]),
        ({"enabled": False}, facts(), "", ["disable"]),
        ({"enabled": False}, facts(file="static"), "", []),
        ({"state": "stopped"}, facts(), "restart", ["stop"]),
        ({"state": "stopped"}, facts("inactive", sub="dead"), "restart", []),
        ({"state": "none"}, facts("inactive", sub="dead"), "restart", []),
        ({"state": "none"}, facts(), "restart", ["restart"]),
        ({"masked": True, "enabled": None, "state": "stopped"}, facts(), "", ["mask", "stop"]),
        ({"masked": False}, facts("inactive", "masked", "dead"), "", ["unmask", "enable", "start"]),
        ({"masked": True, "enabled": None, "state": "stopped"}, facts("inactive", "masked", "dead"), "", []),
    ],
)
def test_units(unit: dict[str, Any], is_now: dict[str, str], need: str, verbs: list[str]) -> None:
    wanted = complete("units", name="u") | {"enabled": True, "state": "started", **unit}
    assert module.plan_unit(wanted, is_now, need, offline=False) == verbs
    assert module.plan_unit(wanted, is_now, need, offline=True) == [
        verb for verb in verbs if verb in ("mask", "unmask", "enable", "disable")
    ]
