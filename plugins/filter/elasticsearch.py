"""Filters of the roles that keep and ship logs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

ROUNDS = 10000
_SIZE = 32


def elasticsearch_hash(password: str, name: str, cluster: str) -> str:
    """Return what the server's file realm keeps of a password: PBKDF2 with HMAC-SHA512.

    The salt follows from user, cluster and password, so that the file is the same at every run, and another one in
    every cluster and for every password.
    """
    salt = hashlib.sha256(f"{cluster}\0{name}\0{password}".encode()).digest()
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ROUNDS, _SIZE)
    return "$".join((f"{{PBKDF2}}{ROUNDS}", *(base64.b64encode(part).decode() for part in (salt, key))))


def elasticsearch_users(users: Sequence[Mapping[str, Any]], cluster: str) -> str:
    """Return the file ``users`` of ``users`` (name, password): a line each."""
    return "".join(
        f"{user['name']}:{elasticsearch_hash(str(user['password']), str(user['name']), cluster)}\n"
        for user in users
    )


def elasticsearch_users_roles(users: Sequence[Mapping[str, Any]]) -> str:
    """Return the file ``users_roles`` of ``users`` (name, roles): a line for each role."""
    having: dict[str, list[str]] = {}
    for user in users:
        for role in user["roles"]:
            having.setdefault(str(role), []).append(str(user["name"]))
    return "".join(f"{role}:{','.join(names)}\n" for role, names in having.items())


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "elasticsearch_hash": elasticsearch_hash,
            "elasticsearch_users": elasticsearch_users,
            "elasticsearch_users_roles": elasticsearch_users_roles,
        }
