"""Runs on a node, on its own: what stands there, as one JSON document. Standard library only.

The paths and units to look at closely come as the program's arguments, one JSON document.
"""

from __future__ import annotations

import glob
import grp
import hashlib
import json
import os
import pwd
import subprocess
import sys

# Each host's own, or rewritten by whoever comes by: no part of an end state.
OWN = ("machine-id", "ld.so.cache", ".pwd.lock", "passwd", "group", "shadow", "gshadow", "subuid", "subgid")


def said(*argv: str) -> list[str]:
    """Lines of a command's answer; none where it cannot be asked."""
    try:
        return subprocess.run(argv, capture_output=True, text=True).stdout.splitlines()
    except FileNotFoundError:
        return []


def file_state(path: str) -> str:
    """Mode, owner and content of a path, in one comparable line."""
    try:
        found = os.lstat(path)
    except OSError:
        return "absent"
    if os.path.islink(path):
        return f"link {os.readlink(path)}"
    about = f"{found.st_mode:o} {pwd.getpwuid(found.st_uid).pw_name}:{grp.getgrgid(found.st_gid).gr_name}"
    if os.path.isdir(path):
        return about
    with open(path, "rb") as stream:
        return f"{about} {hashlib.sha256(stream.read()).hexdigest()}"


def settings() -> dict[str, str]:
    """Everything under /etc that is not this host's own."""
    found = {}
    for folder, _, names in os.walk("/etc"):
        for name in names:
            if name.rstrip("-") not in OWN and not (folder == "/etc/ssh" and name.startswith("ssh_host")):
                found[os.path.join(folder, name)] = file_state(os.path.join(folder, name))
    return found


def accounts() -> list[str]:
    """Users with their groups, groups with their members; the numbers that packages draw for themselves left out."""
    lines = []
    for table in ("passwd", "group"):
        for line in said("getent", table):
            words = line.split(":")
            for field in (2, 3) if table == "passwd" else (2,):
                words[field] = "-" if 100 <= int(words[field]) < 1000 else words[field]
            lines.append(f"{table}:{':'.join(words)}")
    return sorted(lines)


def unit_states(units: list[str]) -> dict[str, str]:
    """Running and enabled, by unit."""
    return {
        unit: " ".join(said("systemctl", "is-active", unit) + said("systemctl", "is-enabled", unit))
        for unit in units
    }


def database() -> list[str]:
    """Statements that make the database's users and databases as they are here."""
    ask = ("mariadb", "--no-defaults", "--batch", "--skip-column-names", "--raw", "-e")
    statements = []
    skipped = ("information_schema", "performance_schema", "mysql", "sys")
    for name in sorted(set(said(*ask, "SHOW DATABASES")) - set(skipped)):
        statements.append(f"CREATE DATABASE IF NOT EXISTS `{name}`")
    for row in sorted(said(*ask, "SELECT User, Host FROM mysql.global_priv")):
        user, host = row.split("\t")
        if user in ("mariadb.sys", "mysql", "PUBLIC"):
            continue
        created = said(*ask, f"SHOW CREATE USER '{user}'@'{host}'")
        statements += [line.replace("CREATE USER", "CREATE USER IF NOT EXISTS", 1) for line in created]
        statements += [line.replace("CREATE USER", "ALTER USER", 1) for line in created]
        statements += said(*ask, f"SHOW GRANTS FOR '{user}'@'{host}'")
    return statements


def accounting() -> str:
    """Slurm's accounts, as sacctmgr itself writes and reads them."""
    cluster = next(iter(said("sacctmgr", "-nP", "show", "cluster", "format=cluster")), "")
    if not cluster:
        return ""
    target = "/run/coldiron-bench.dump"
    said("sacctmgr", "-i", "dump", cluster, f"file={target}")
    with open(target) as stream:
        text = stream.read()
    os.unlink(target)
    return text


def main() -> None:
    """Print the node's state."""
    asked = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    paths: list[str] = asked.get("paths", [])
    for folder in [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]:
        paths = paths + [name for name in glob.glob(folder + "/*") if folder.startswith("/home")]
    state = {
        "packages": sorted(
            said("dpkg-query", "-W", "-f", "${binary:Package} ${Version} ${db:Status-Abbrev}\n")
        ),
        "manual": sorted(said("apt-mark", "showmanual")),
        "held": sorted(said("apt-mark", "showhold")),
        "files": {**settings(), **{path: file_state(path) for path in paths}},
        "accounts": accounts(),
        "units": unit_states(asked.get("units", [])),
        "database": database() if asked.get("head") else [],
        "accounting": accounting() if asked.get("head") else "",
    }
    print(json.dumps(state))


if __name__ == "__main__":
    main()
