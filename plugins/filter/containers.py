"""Filters of the container roles: subordinate ids out of the user data, registries and daemon.json out of options."""

from __future__ import annotations

import itertools
import json
import re
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


def _toml_value(value: Any) -> str:
    """A value as TOML writes it; text and keys are written as JSON, which TOML reads."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items()) + "}"
    return str(value) if isinstance(value, (int, float)) else json.dumps(str(value), ensure_ascii=False)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def toml(words: Mapping[str, Any], above: tuple[str, ...] = ()) -> str:
    """Return ``words`` as TOML: plain values first, then each mapping as a table of its own."""
    tables = {key: value for key, value in words.items() if isinstance(value, Mapping)}
    lines = [f"{_toml_key(key)} = {_toml_value(words[key])}" for key in words if key not in tables]
    head = f"[{'.'.join(_toml_key(key) for key in above)}]\n" if above and (lines or not tables) else ""
    text = head + "".join(f"{line}\n" for line in lines)
    parts = [text] if text else []
    return "\n".join([*parts, *(toml(value, (*above, key)) for key, value in tables.items())])


def containerd_config_version(declared: str, version: str) -> int:
    """Return how config.toml is written: as ``declared``, else by the release that ``version`` pins.

    Every release since 1.3 reads 2; 3 is the own one of those since 2.0.
    """
    if declared != "auto":
        return int(declared)
    return 3 if version.split(":")[-1].startswith("2.") else 2


def containerd_config(words: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Return config.toml out of what role containerd knows; words that are empty are left out."""
    systemd = {"SystemdCgroup": bool(words["systemd_cgroup"])}
    kind = "io.containerd.runc.v2"
    runtimes: dict[str, Any] = {"runc": {"runtime_type": kind, "options": systemd}}
    for name, about in words["runtimes"].items():
        runtimes[name] = {"runtime_type": kind, "options": {"BinaryName": about["path"], **systemd}}
    running = {"default_runtime_name": words["default_runtime"], "runtimes": runtimes}
    devices = {"enable_cdi": bool(words["cdi"])}
    if words["cdi"]:
        devices["cdi_spec_dirs"] = words["cdi_spec_dirs"]
    registry = {"config_path": words["hosts"]}
    sandbox = words["sandbox_image"]
    plugins: dict[str, Any]
    if version >= 3:
        images = {"snapshotter": words["snapshotter"], "registry": registry}
        if sandbox:
            images["pinned_images"] = {"sandbox": sandbox}
        plugins = {
            "io.containerd.cri.v1.images": images,
            "io.containerd.cri.v1.runtime": {**devices, "containerd": running},
        }
    else:
        pods = {**({"sandbox_image": sandbox} if sandbox else {}), **(devices if words["cdi"] else {})}
        pods["containerd"] = {"snapshotter": words["snapshotter"], **running}
        plugins = {"io.containerd.grpc.v1.cri": {**pods, "registry": registry}}
    return {"version": version, "root": words["root"], "plugins": plugins}


def containerd_hosts(registries: Sequence[Mapping[str, Any]], folder: str) -> list[dict[str, Any]]:
    """Return the files of containerd's certs.d, in converge's words: hosts.toml and authorities of each registry."""
    found = []
    for registry in registries:
        place = f"{folder}/{registry['location']}"
        # What is said above all hosts is of the registry itself.
        words: dict[str, Any] = {"server": registry["server"]} if registry.get("server") else {}
        hosts: dict[str, Any] = {}
        asked = [
            ("server", registry),
            *((f"mirror{at}", one) for at, one in enumerate(registry.get("mirrors") or [])),
        ]
        for name, host in asked:
            about: dict[str, Any] = words if host is registry else {"capabilities": ["pull", "resolve"]}
            if host.get("ca"):
                about["ca"] = f"{place}/{name}.crt"
                found.append({"dest": about["ca"], "content": str(host["ca"]).strip() + "\n"})
            if host.get("insecure"):
                about["skip_verify"] = True
            if host is not registry:
                hosts[host["url"]] = about
        text = toml({**words, "host": hosts} if hosts else words)
        found.append({"dest": f"{place}/hosts.toml", "content": text or "# The registry itself.\n"})
    return found


def enroot_lines(words: Mapping[str, Any]) -> list[str]:
    """Return ``words`` as lines of enroot.conf: yes and no for truth, the value behind the word."""
    spelt = {True: "yes", False: "no"}
    return [f"{word} {spelt[value] if isinstance(value, bool) else value}" for word, value in words.items()]


def enroot_environment(variables: Mapping[str, Any]) -> str:
    """Return ``variables`` as a file of Enroot's environ.d."""
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def enroot_hooks(hooks: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the hooks' files, in converge's words."""
    return [
        {
            "dest": f"/etc/enroot/hooks.d/{hook['name']}.sh",
            "content": hook["content"].rstrip("\n") + "\n",
            "mode": "0755",
        }
        for hook in hooks
    ]


def enroot_credentials(credentials: Sequence[Mapping[str, str]], root: str) -> list[dict[str, Any]]:
    """Return each person's file of passwords at registries, as netrc(5), in converge's words."""
    lines: dict[str, list[str]] = {}
    for one in credentials:
        line = f"machine {one['machine']} login {one['login']} password {one['password']}\n"
        lines.setdefault(one["user"], []).append(line)
    return [
        {
            "dest": f"{root.rstrip('/')}/{user}/config/.credentials",
            "content": "".join(found),
            "owner": user,
            "mode": "0600",
            "secret": True,
        }
        for user, found in lines.items()
    ]


def enroot_problems(
    credentials: Sequence[Mapping[str, str]],
    users: Sequence[str],
    root: str,
    hooks: Sequence[Mapping[str, str]],
    variables: Mapping[str, Any],
) -> list[str]:
    """Return what is wrong with Enroot's options, one sentence each; no sentence holds a password."""
    found = []
    if credentials and not root:
        found.append(
            "enroot_credentials: they lie below enroot_user_root, which is empty: name a directory there."
        )
    for one in credentials:
        if one["user"] not in users:
            found.append(
                f"enroot_credentials: {one['user']} is none of enroot_users: no directory is that person's."
            )
        if any(not one[key] or set(one[key]) & set(" \t\n") for key in ("machine", "login", "password")):
            found.append(
                f"enroot_credentials: {one['user']} at {one['machine']}: machine, login and password are words "
                "without blanks, and none is empty."
            )
    for hook in hooks:
        if not re.fullmatch(r"[\w.+-]+", hook["name"]) or hook["name"] == "98-nvidia":
            found.append(f"enroot_hooks: {hook['name']!r}: write a file name of its own, such as 50-site.")
    for name in variables:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            found.append(f"enroot_environment: {name!r} is no name of a variable.")
    return found


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
            "containerd_config": containerd_config,
            "containerd_config_version": containerd_config_version,
            "containerd_hosts": containerd_hosts,
            "enroot_credentials": enroot_credentials,
            "enroot_environment": enroot_environment,
            "enroot_hooks": enroot_hooks,
            "enroot_lines": enroot_lines,
            "enroot_problems": enroot_problems,
            "packages_at": packages_at,
            "people": people,
            "private_directories": private_directories,
            "proxy_environment": proxy_environment,
            "registry_certificates": registry_certificates,
            "subid_problems": subid_problems,
            "subids": subids,
            "toml": toml,
            "without_empty": without_empty,
        }
