"""Filters of the container roles: subordinate ids out of the user data, registries and daemon.json out of options."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

Account = Mapping[str, Any]

# systemd gives these to containers (systemd.io/UIDS-GIDS); newer ones keep the numbers above for their own use.
LEAST_SUBID = 524288
MOST_SUBID = 1879048191
# Ranges below those of people, for daemons that remap.
SERVICE_SLOTS = 16


def people(accounts: Sequence[Account]) -> list[str]:
    """Return the names of the accounts that can log in."""
    return [account["name"] for account in accounts if account.get("state", "present") == "present"]


def subids(
    accounts: Sequence[Account], services: Sequence[str], extra: Sequence[Account], count: int, least_uid: int
) -> list[dict[str, Any]]:
    """Return who may use which subordinate ids: ``name``, ``start`` and ``count``.

    A person's range follows from the uid alone, so that it is the same on every node and stays when others come and
    go. Accounts that are gone have none; locked ones keep theirs, as they keep their files.
    """
    named = {item["name"] for item in extra}
    found = [
        {"name": name, "start": LEAST_SUBID + slot * count, "count": count}
        for slot, name in enumerate(services)
    ]
    for account in accounts:
        if account.get("state", "present") != "absent" and account["name"] not in named:
            slot = SERVICE_SLOTS + int(account["uid"]) - least_uid
            found.append({"name": account["name"], "start": LEAST_SUBID + slot * count, "count": count})
    found += [
        {"name": item["name"], "start": int(item["start"]), "count": int(item.get("count") or count)}
        for item in extra
    ]
    return found


def subid_problems(
    ranges: Sequence[Mapping[str, Any]], accounts: Sequence[Account], services: Sequence[str], count: int
) -> list[str]:
    """Return why ``ranges`` cannot be given away, one sentence each; an empty list if they can."""
    found = []
    if len(services) > SERVICE_SLOTS:
        found.append(f"subids_services: {len(services)} names, there is room for {SERVICE_SLOTS}.")
    room = (MOST_SUBID + 1 - LEAST_SUBID) // count - SERVICE_SLOTS
    for item in ranges:
        last = item["start"] + item["count"] - 1
        if item["start"] < LEAST_SUBID or last > MOST_SUBID:
            found.append(
                f"subids: {item['name']} would have {item['start']} to {last}, outside of {LEAST_SUBID} to "
                f"{MOST_SUBID}: write the least uid of people to subids_least_uid (it has room for {room} uids), or "
                f"the range of {item['name']} to subids_extra."
            )
    ordered = sorted(ranges, key=lambda item: (item["start"], item["name"]))
    for one, next_one in itertools.pairwise(ordered):
        if one["start"] + one["count"] > next_one["start"]:
            found.append(
                f"subids: the ranges of {one['name']} and {next_one['name']} meet at {next_one['start']}: whoever has "
                "both reads the other's files; write another start to subids_extra."
            )
    for account in accounts:
        for item in ranges:
            if item["start"] <= int(account["uid"]) < item["start"] + item["count"]:
                found.append(
                    f"subids: uid {account['uid']} of {account['name']} is in the range of {item['name']}: a container "
                    "would own that person's files; write another start to subids_extra."
                )
    return found


def registry_host(location: str) -> str:
    """Return the host, with its port, of a registry's ``location``."""
    return location.split("/", 1)[0]


def registry_certificates(registries: Sequence[Mapping[str, Any]], folder: str) -> list[dict[str, Any]]:
    """Return the files, in converge's words, that make the registries' own authorities trusted."""
    hosts: dict[str, str] = {}
    for registry in registries:
        for item in (registry, *(registry.get("mirrors") or [])):
            if item.get("ca"):
                hosts[registry_host(item["location"])] = str(item["ca"]).strip() + "\n"
    return [{"dest": f"{folder}/{host}/ca.crt", "content": text} for host, text in hosts.items()]


def private_directories(
    names: Sequence[str], root: str, below: Sequence[str] = ("",)
) -> list[dict[str, Any]]:
    """Return a directory below ``root`` for each of ``names``, its own and nobody else's, in converge's words.

    ``below`` names directories in each of them; the directories themselves if it is not given.
    """
    paths = [(name, f"{root.rstrip('/')}/{name}/{part}".rstrip("/")) for name in names for part in below]
    return [{"path": path, "owner": name, "mode": "0700"} for name, path in paths]


def apptainer_lines(words: Mapping[str, Any]) -> list[str]:
    """Return ``words`` as lines of apptainer.conf: yes and no for truth, one line for each value of a list."""
    spelt = {True: "yes", False: "no"}
    return [
        f"{word} = {spelt[value] if isinstance(value, bool) else value}"
        for word, values in words.items()
        for value in (values if isinstance(values, list) else [values])
    ]


def packages_at(names: Sequence[str], version: str) -> list[dict[str, Any]]:
    """Return packages in converge's words: held at ``version`` where there is one, else as they are offered."""
    pin = {"version": version, "hold": True} if version else {}
    return [{"name": name, **pin} for name in names]


def proxy_environment(proxy: Mapping[str, Any]) -> list[str]:
    """Return ``proxy`` (http, https, no_proxy) as the variables that programs look at, NAME=value each."""
    found = [f"{word.upper()}_PROXY={proxy[word]}" for word in ("http", "https") if proxy.get(word)]
    return found + ([f"NO_PROXY={','.join(proxy['no_proxy'])}"] if proxy.get("no_proxy") else [])


def without_empty(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``words`` without those that say nothing: None, "", [] and {}. False and 0 say something."""
    return {word: value for word, value in words.items() if value is not None and value not in ("", [], {})}


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "apptainer_lines": apptainer_lines,
            "packages_at": packages_at,
            "people": people,
            "private_directories": private_directories,
            "proxy_environment": proxy_environment,
            "registry_certificates": registry_certificates,
            "subid_problems": subid_problems,
            "subids": subids,
            "without_empty": without_empty,
        }
