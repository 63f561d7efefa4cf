"""Filters of the role ``users``: people as data, checked and turned into a declaration for converge."""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.utils.display import Display

Account = Mapping[str, Any]

NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
KEY_TYPE = re.compile(r"(sk-)?(ssh|ecdsa)-[a-z0-9@.-]+")
# crypt(5): a hash begins with its method; * and ! stand for "no password".
PASSWORD_HASH = re.compile(r"\$[A-Za-z0-9]+\$\S+|[*!]")
# systemd gives these away to dynamic users (systemd.io/UIDS-GIDS); the last two are "nobody" and "none".
TAKEN_IDS = (range(61184, 65520), range(65534, 65536))
# Accounts that packages of a cluster make on their own, with numbers of their own.
TAKEN_NAMES = frozenset({"root", "daemon", "nobody", "munge", "slurm", "mysql", "dnsmasq", "_chrony", "sshd"})


def repeated(values: Iterable[Any]) -> list[Any]:
    """Return the values that occur more than once, each once, in order."""
    return [value for value, count in Counter(values).items() if count > 1]


def key_problem(key: str) -> str | None:
    """Say what is wrong with one line of authorized_keys; None if nothing is.

    Options before the key, as sshd(8) allows them, are taken as they are.
    """
    if "PRIVATE KEY" in key:
        return "is a private key: take it out, make a new pair, and write the .pub file's line here"
    if "\n" in key.strip():
        return "has more than one line: write one key an entry"
    words = key.split()
    for kind, blob in itertools.pairwise(words):
        if KEY_TYPE.fullmatch(kind):
            try:
                data = base64.b64decode(blob, validate=True)
            except binascii.Error:
                return "is cut off or damaged: copy the whole line of the .pub file"
            # RFC 4253: the blob begins with the key type's name, length first.
            if data[4 : 4 + int.from_bytes(data[:4], "big")] != kind.encode():
                return f"says {kind} but holds another kind of key: copy the whole line of the .pub file"
            return None
    return "is no public key: write the .pub file's line, like 'ssh-ed25519 AAAA… name'"


def id_problem(number: int, least: int) -> str | None:
    """Say why a uid or gid cannot be given to a person; None if it can."""
    if number < least:
        return f"{number} is below {least}, where the system has its own: choose a greater one"
    if any(number in taken for taken in TAKEN_IDS):
        return f"{number} belongs to systemd or to nobody: choose another one"
    return None


def primary_gid(account: Account) -> int:
    """Return the number of the account's primary group."""
    gid = account.get("gid")
    return int(account["uid"] if gid is None else gid)


def one_account(account: Account, least: int) -> list[str]:
    """Return what is wrong with one account taken alone."""
    name = account["name"]
    found = []
    if not NAME.fullmatch(name):
        found.append(f"name {name!r}: write lower-case letters, digits, - and _, at most 32, a letter first")
    if name in TAKEN_NAMES:
        found.append(f"{name}: a package makes an account of this name: choose another one")
    for word in ("uid", "gid"):
        number = account.get(word)
        if number is not None and (problem := id_problem(int(number), least)):
            found.append(f"{name}: {word} {problem}")
    for number, key in enumerate(account.get("ssh_keys") or [], 1):
        if problem := key_problem(key):
            found.append(f"{name}: ssh_keys entry {number} {problem}")
    if re.search(r"[:\n]", account.get("comment") or ""):
        found.append(f"{name}: comment holds a colon or a line break, which /etc/passwd cannot")
    if not (account.get("shell") or "/").startswith("/"):
        found.append(f"{name}: shell {account['shell']!r}: write its whole path, like /bin/bash")
    password = account.get("password")
    if password and not PASSWORD_HASH.fullmatch(password):
        found.append(f"{name}: password is no hash: write the output of 'openssl passwd -6' into the vault")
    sudo = account.get("sudo") or "none"
    if sudo == "password" and not password:
        found.append(f"{name}: sudo asks for a password and there is none: give its hash, or sudo: nopasswd")
    if sudo not in ("none", "password", "nopasswd") and ("=" not in sudo or "\n" in sudo):
        found.append(
            f"{name}: sudo {sudo!r}: write none, password, nopasswd, or a rule like 'ALL=(root) /bin/ls'"
        )
    return found


def account_problems(accounts: Sequence[Account], groups: Sequence[Account], least: int = 1000) -> list[str]:
    """Return every clash and mistake in the data, one sentence each; an empty list if it can be used.

    ``accounts`` and ``groups`` are users_accounts and users_groups as their argument spec lets them through;
    ``least`` is the least number for people. Accounts that are locked or gone count too: a number given to
    somebody else would hand over the files that are left.
    """
    found = [problem for account in accounts for problem in one_account(account, least)]
    shared = {group["name"]: int(group["gid"]) for group in groups}
    for group in groups:
        if problem := id_problem(int(group["gid"]), least):
            found.append(f"group {group['name']}: gid {problem}")
    own = {
        account["name"]: primary_gid(account)
        for account in accounts
        if primary_gid(account) not in shared.values()
    }
    for name in repeated(account["name"] for account in accounts):
        found.append(f"two accounts are named {name}: merge them")
    for name in repeated(group["name"] for group in groups):
        found.append(f"two groups are named {name}: merge them")
    shared_uids = repeated(int(account["uid"]) for account in accounts)
    for uid in shared_uids:
        names = [account["name"] for account in accounts if int(account["uid"]) == uid]
        found.append(f"{' and '.join(names)} share uid {uid}: each would own the other's files")
    for gid in repeated(shared.values()):
        found.append(f"{' and '.join(name for name, n in shared.items() if n == gid)} share gid {gid}")
    # By default the gid is the uid: what is said already is not said again.
    for gid in [gid for gid in repeated(own.values()) if gid not in shared_uids]:
        names = [name for name, number in own.items() if number == gid]
        found.append(f"{' and '.join(names)} share gid {gid}: declare it as a group in users_groups")
    for name in sorted(shared.keys() & own.keys()):
        found.append(f"{name} is a shared group and a user with a group of that name: rename the group")
    gone = {group["name"] for group in groups if group.get("state") == "absent"}
    for account in accounts:
        for name in sorted(gone & set(account.get("groups") or [])):
            found.append(f"{account['name']} is in group {name}, which users_groups declares absent")
    return [f"users_accounts/users_groups: {problem}." for problem in found]


def shared_keys(accounts: Sequence[Account]) -> list[str]:
    """Return one sentence for each key that several people use; allowed, but nobody can say who it was."""
    owners: dict[str, list[str]] = {}
    for account in accounts:
        for key in account.get("ssh_keys") or []:
            blob = max(key.split(), key=len, default="")
            owners.setdefault(blob, []).append(account["name"])
    return [
        f"users_accounts: {' and '.join(names)} log in with the same key; give each person a key"
        for names in owners.values()
        if len(set(names)) > 1
    ]


def sudo_rule(account: Account) -> str | None:
    """Return the account's line of sudoers, if it has one."""
    sudo = account.get("sudo") or "none"
    if sudo == "none" or account.get("state", "present") != "present":
        return None
    rules = {"password": "ALL=(ALL:ALL) ALL", "nopasswd": "ALL=(ALL:ALL) NOPASSWD: ALL"}
    return f"{account['name']} {rules.get(sudo, sudo)}"


def accounts(
    people: Sequence[Account],
    groups: Sequence[Account],
    shell: str,
    nologin: str,
    home_root: str,
    home_mode: str,
    create_homes: bool,
) -> dict[str, list[Any]]:
    """Turn users_accounts and users_groups into lists for converge.

    Returns ``groups``, ``users``, ``directories`` and ``files`` (homes' keys, only where ``create_homes``)
    in converge's words, and ``sudo``, the lines of sudoers.
    """
    for advice in shared_keys(people):
        Display().warning(advice)
    shared = {int(group["gid"]): group["name"] for group in groups}
    declared: dict[str, list[Any]] = {
        "groups": [
            {"name": g["name"], "gid": int(g["gid"]), "state": g.get("state", "present")} for g in groups
        ],
        "users": [],
        "directories": [],
        "files": [],
        "sudo": [rule for rule in map(sudo_rule, people) if rule],
    }
    for person in people:
        name = person["name"]
        state = person.get("state", "present")
        if state == "absent":
            declared["users"].append({"name": name, "state": "absent", "remove": False})
            continue
        home = f"{home_root.rstrip('/')}/{name}"
        group = shared.get(primary_gid(person), name)
        if group == name:
            declared["groups"].append({"name": name, "gid": primary_gid(person), "state": "present"})
        locked = state == "locked"
        declared["users"].append(
            {
                "name": name,
                "uid": int(person["uid"]),
                "group": group,
                "groups": list(person.get("groups") or []),
                "append": False,
                "home": home,
                "create_home": create_homes,
                "shell": nologin if locked else person.get("shell") or shell,
                "comment": person.get("comment") or "",
                # "*" leaves keys usable where sshd looks at the password field; "!" does not.
                "password": "!" if locked else person.get("password") or "*",
                "state": "present",
            }
        )
        if create_homes:
            owned = {"owner": name, "group": group}
            keys = [] if locked else [key.strip() for key in person.get("ssh_keys") or []]
            declared["directories"] += [
                {"path": home, "mode": home_mode, **owned},
                {"path": f"{home}/.ssh", "mode": "0700", **owned},
            ]
            declared["files"].append(
                {
                    "dest": f"{home}/.ssh/authorized_keys",
                    "content": "".join(f"{key}\n" for key in ["# Ansible managed", *keys]),
                    "mode": "0600",
                    **owned,
                }
            )
    return declared


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"accounts": accounts, "account_problems": account_problems}
