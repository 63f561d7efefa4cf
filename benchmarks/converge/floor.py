"""The floor: what a competent administrator's shell scripts would do, derived from nodes that site.yml has converged.

One ssh a node and run. The first run installs, writes and starts; the second only looks.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.converge.scratch import HEAD, Scratch

State = dict[str, Any]
PROBE = Path(__file__).with_name("node_state.py")
# Slurm wants its order; these start one after the other, everything else at once.
IN_ORDER = ("mariadb.service", "slurmdbd.service", "slurmctld.service", "slurmd.service", "sackd.service")
CONTROLLER_PORT = 6817


@dataclass
class Touched:
    """What a site run says that it has changed on one node."""

    paths: dict[str, None] = field(default_factory=dict)
    users: dict[str, None] = field(default_factory=dict)
    units: dict[str, None] = field(default_factory=dict)


def touched(results: Mapping[str, Any]) -> dict[str, Touched]:
    """Read what each node says of itself out of the callback ansible.posix.json's document."""
    found: dict[str, Touched] = {}
    for play in results["plays"]:
        for task in play["tasks"]:
            for node, result in task["hosts"].items():
                here = found.setdefault(node, Touched())
                here.paths.update(dict.fromkeys(result.get("paths", [])))
                here.users.update(dict.fromkeys(result.get("users", [])))
                units = result.get("units", {})
                for names in units.values() if isinstance(units, dict) else ():
                    here.units.update(dict.fromkeys(names))
    return {node: found.get(node, Touched()) for node in found if node != "localhost"}


def look(rack: Scratch, seen: Mapping[str, Touched] | None = None) -> dict[str, State]:
    """What stands on every node; the paths and units of ``seen`` more closely."""
    scripts = {}
    for node in rack.nodes:
        about = seen[node] if seen else Touched()
        asked = {"paths": list(about.paths), "units": list(about.units), "head": bool(seen) and node == HEAD}
        scripts[node] = f"python3 - {shlex.quote(json.dumps(asked))} <<'PROBE'\n{PROBE.read_text()}\nPROBE\n"
    return {node: json.loads(said) for node, said in rack.everywhere(scripts).items()}


def archives(rack: Scratch, seen: Mapping[str, Touched]) -> dict[str, str]:
    """The files that each node was given, as one base64 tar a node."""
    scripts = {}
    for node, about in seen.items():
        names = " ".join(shlex.quote(path.lstrip("/")) for path in about.paths)
        there = f"cd /; for f in {names}; do if [ -e $f ] || [ -L $f ]; then echo $f; fi; done"
        scripts[node] = f"{there} | tar -cz --no-recursion -T - | base64"
    return rack.everywhere(scripts)


def account_lines(about: Touched, state: State) -> list[str]:
    """groupadd and useradd for the accounts that the run has made."""
    rows: dict[str, list[list[str]]] = {"passwd": [], "group": []}
    for line in state["accounts"]:
        table, *row = line.split(":")
        rows[table].append(row)
    lines = []
    names = {row[2]: row[0] for row in rows["group"]}
    for row in rows["group"]:
        if row[0] in about.users or row[2] in {user[3] for user in rows["passwd"] if user[0] in about.users}:
            lines.append(f"getent group {row[0]} >/dev/null || groupadd -g {row[2]} {row[0]}")
    for row in rows["passwd"]:
        if row[0] in about.users:
            other = ",".join(group[0] for group in rows["group"] if row[0] in group[3].split(","))
            options = shlex.join(
                ["-u", row[2], "-g", names[row[3]], "-c", row[4], "-d", row[5], "-s", row[6]]
            )
            groups = f" -G {other}" if other else ""
            lines.append(f"getent passwd {row[0]} >/dev/null || useradd -M {options}{groups} {row[0]}")
    return lines


def head_lines(state: State) -> dict[str, list[str]]:
    """What follows the start of the head's daemons: the database's users, the cluster and its accounts."""
    sql = ";\n".join([*state["database"], "FLUSH PRIVILEGES"]) + ";"
    return {
        "mariadb.service": [f"mariadb --no-defaults <<'SQL'\n{sql}\nSQL"],
        "slurmdbd.service": [
            "until sacctmgr -n show cluster >/dev/null 2>&1; do sleep 0.1; done",
            f"cat >/run/bench.dump <<'DUMP'\n{state['accounting']}DUMP",
            "sacctmgr -i load file=/run/bench.dump >/dev/null",
        ],
    }


def first_script(node: str, bare: State, state: State, about: Touched, archive: str, head: str) -> str:
    """Everything that makes a bare node the converged one."""
    packages = sorted(set(state["manual"]) - set(bare["manual"]))
    held = sorted(set(state["held"]) - set(bare["held"]))
    gone = [path for path in about.paths if state["files"].get(path) == "absent"]
    settings = [path for path in about.paths if path.startswith("/etc/sysctl.d/") and path not in gone]
    at_once = [unit for unit in about.units if unit not in IN_ORDER]
    running = [unit for unit in at_once if state["units"][unit].startswith("active")]
    lines = [
        "set -eu",
        "export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8",
        *account_lines(about, state),
        "printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d",
        "apt-get -y -q --no-install-recommends -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold"
        f" install {' '.join(packages)} >/dev/null",
        "rm /usr/sbin/policy-rc.d",
        *([f"apt-mark hold {' '.join(held)} >/dev/null"] if held else []),
        f"base64 -d <<'FILES' | tar -xz -C /\n{archive}FILES",
        *([f"rm -f {' '.join(gone)}"] if gone else []),
        *(f"sysctl -q -p {path}" for path in settings),
        "systemctl daemon-reload",
        *([f"systemctl restart {' '.join(running)}"] if running else []),
        *enabling(about.units, state),
    ]
    after = head_lines(state) if node == HEAD else {}
    for unit in (unit for unit in IN_ORDER if unit in about.units):
        if node != HEAD:
            # A worker asks the controller for its configuration.
            lines.append(f"until (: </dev/tcp/{head}/{CONTROLLER_PORT}) 2>/dev/null; do sleep 0.1; done")
        lines += [f"systemctl restart {unit}", *after.get(unit, [])]
    return "\n".join(lines) + "\n"


def enabling(units: Iterable[str], state: State) -> list[str]:
    """systemctl's lines for what starts at boot, and what must not."""
    verbs: dict[str, list[str]] = {}
    for unit in units:
        words = state["units"][unit].split()
        verb = {"enabled": "enable", "disabled": "disable --now", "masked": "mask --now"}.get(words[-1])
        verbs.setdefault(verb or "", []).append(unit)
    return [f"systemctl -q {verb} {' '.join(names)}" for verb, names in verbs.items() if verb]


def check_script(node: str, state: State, about: Touched, bare: State) -> str:
    """Only looks: packages, owners, modes and digests, accounts, units; on the head accounts and database too."""
    packages = sorted(set(state["manual"]) - set(bare["manual"]))
    found = {
        path: state["files"][path] for path in about.paths if state["files"].get(path, "absent") != "absent"
    }
    files = {path: about.split() for path, about in found.items() if len(about.split()) == 3}
    sums = "\n".join(f"{words[2]}  {path}" for path, words in files.items())
    metadata = "\n".join(sorted(f"{int(words[0], 8):x} {words[1]} {path}" for path, words in files.items()))
    active = [unit for unit in about.units if state["units"][unit].startswith("active")]
    enabled = [unit for unit in about.units if state["units"][unit].endswith(" enabled")]
    users = " ".join(about.users)
    checks = {
        "packages": f"[ $(dpkg-query -W -f '${{db:Status-Status}}\\n' {' '.join(packages)}"
        f" | grep -cx installed) = {len(packages)} ]",
        "contents": f"sha256sum -c --quiet <<'SUMS'\n{sums}\nSUMS",
        "owners and modes": f"stat -c '%f %U:%G %n' {' '.join(files)} | LC_ALL=C sort"
        f" | diff - /dev/fd/3 3<<'STAT'\n{metadata}\nSTAT",
        "accounts": f"for u in {users}; do getent passwd $u || getent group $u || exit 1; done >/dev/null",
        "running units": f"systemctl is-active -q {' '.join(active)}",
        "enabled units": f"systemctl is-enabled -q {' '.join(enabled)}",
    }
    if node == HEAD:
        asked = "SHOW DATABASES; SELECT User, Host FROM mysql.global_priv"
        checks |= {
            "database": f"mariadb --no-defaults -Ne '{asked}' | grep -q slurm",
            "cluster": "sacctmgr -nP show cluster format=cluster | grep -q .",
            "accounting": "sacctmgr -nP show assoc format=account,user,fairshare,defaultqos,qos | grep -q .",
        }
    lines = [f"if ! {{ {line}\n}}; then echo {name}: differ >&2; exit 1; fi" for name, line in checks.items()]
    return "\n".join(lines) + "\n"


def differences(wanted: Mapping[str, State], found: Mapping[str, State]) -> list[str]:
    """Where two end states differ, one line each."""
    lines = []
    for node, state in wanted.items():
        for section in state:
            want, have = state[section], found[node][section]
            if isinstance(want, str):
                want, have = want.splitlines(), have.splitlines()
            if isinstance(want, dict):
                changed = sorted(key for key in want.keys() | have.keys() if want.get(key) != have.get(key))
                lines += [f"{node} {section} {key}: {want.get(key)} / {have.get(key)}" for key in changed]
            else:
                lines += [f"{node} {section}: only by site.yml: {item}" for item in want if item not in have]
                lines += [f"{node} {section}: only by the floor: {item}" for item in have if item not in want]
    return lines
