#!/usr/bin/python
# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Bring one node to one declaration. This text is what the node runs: standard library only, Python >= 3.9.

Documented in converge.yml beside it, which stays on the controller.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import fnmatch
import json
import os
import re
import signal
import stat
import sys
import time
import zlib

TYPE_CHECKING = False  # importing typing would cost each call some four milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Mapping = dict[str, Any]
    Rows = dict[str, list[str]]
    Steps = list[tuple[str, list[str], str]]  # account, argv, standard input
    Change = tuple[Mapping, str, bytes, bytes]  # entry, what to do, contents before and after

# At the root of a file system: no daemon reads it, a rename out of it is atomic, and nodes may share the file system.
STAGE = f".coldiron-converge.{os.uname().nodename}"
RECORDS = "/var/lib/coldiron/converge"
LOCK_SECONDS = 300
POLICY = "/usr/sbin/policy-rc.d"
POLICY_KEPT = POLICY + ".before-converge"
POLICY_TEXT = f"""#!/bin/sh
# Made by coldiron.cluster.converge while it installs packages, and removed by it afterwards: a daemon that runs
# may be restarted by its upgrade, no other is started before its configuration is there.
[ ! -x {POLICY_KEPT} ] || {POLICY_KEPT} "$@" || exit $?
systemctl is-active --quiet "$1" || exit 101
"""
APT = "apt-get -y -q --no-install-recommends --allow-downgrades -o Dpkg::Use-Pty=0 -o Acquire::Retries=2"
APT += " -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
APT += f" -o DPkg::Lock::Timeout={LOCK_SECONDS} install"
FINISH_DPKG = ["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"]
STALE_LISTS = "Unable to locate package|no installation candidate|Version '.*' for '.*' was not found"
STALE_LISTS += "|404 +Not Found|Couldn't find any package|Unable to fetch some archives|Hash Sum mismatch"
TELLING = "(?i)(?!E: Sub-process|Errors were).*(^E: |error|fatal|invalid|could not|cannot|no match|no space|read-only)"
# A mount namespace in which a validator finds the staged files in their final places, over the live ones.
SHOW_STAGED = 'n=$1; shift; while [ $n -gt 0 ]; do mount -t overlay -o "ro,lowerdir=$1:$2" converge "$2" '
SHOW_STAGED += '|| exit 99; shift 2; n=$((n - 1)); done; exec "$@"'
UNIT_FACTS = "LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload,CanReload"
UNIT_PLACES = ("/etc", "/usr/lib", "/lib", "/run", "/usr/local/lib")
UNIT_PATHS = (*(f"{place}/systemd/system/" for place in UNIT_PLACES), "/etc/fstab", "/etc/crypttab")
ENABLED = ("enabled", "enabled-runtime", "static", "alias", "indirect", "generated", "transient")
RUNNING = ("active", "reloading", "activating", "refreshing")
VERBS = (("mask", "unmask"), ("enable", "disable"), ("start", "stop"), ("restart", "reload"))
PAST = {verb: (verb + "ed").replace("ee", "e").replace("oped", "opped") for pair in VERBS for verb in pair}


class Refusal(Exception):
    """Why the declaration cannot be met: one sentence for a person."""


class Done:
    """A command that ended: its status and what it said."""

    def __init__(self, rc: int, out: str) -> None:
        self.rc, self.out = rc, out

    def why(self) -> str:
        """The lines that tell the reason, out of many; else the last ones."""
        lines = [line.strip() for line in self.out.splitlines() if line.strip()]
        telling = [number for number, line in enumerate(lines) if re.match(TELLING, line)]
        telling += [number + 1 for number in telling if lines[number].startswith("dpkg: error")]
        said = [lines[number] for number in sorted(set(telling)) if number < len(lines)][:6] or lines[-6:]
        return " | ".join(dict.fromkeys(said)) or f"exit status {self.rc}, without a word"


def spawn(argv: list[str], data: str = "", errors: bool = True) -> Done:
    """Run a command to its end, argv as it is, no shell.

    It talks to memory files, not to pipes: a daemon that it leaves behind cannot hold us up. And importing
    subprocess would cost five milliseconds a call.
    """
    said, told = os.memfd_create("said"), os.memfd_create("told")
    try:
        os.write(told, data.encode())
        os.lseek(told, 0, os.SEEK_SET)
        actions: Any = [(os.POSIX_SPAWN_DUP2, told, 0), (os.POSIX_SPAWN_DUP2, said, 1)]
        silent = (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)
        actions.append((os.POSIX_SPAWN_DUP2, said, 2) if errors else silent)
        environment = dict(os.environ, LC_ALL="C.UTF-8", LANGUAGE="", DEBIAN_FRONTEND="noninteractive")
        environment["NEEDRESTART_SUSPEND"] = "1"  # it would restart daemons of its own accord
        environment["SYSTEMCTL_SKIP_SYSV"] = "1"  # a unit's init script costs two reloads
        try:
            options: Any = {"file_actions": actions, "setsigdef": [signal.SIGPIPE]}
            pid = os.posix_spawnp(argv[0], argv, environment, **options)
        except FileNotFoundError:
            return Done(127, f"{argv[0]}: command not found")
        rc = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.lseek(said, 0, os.SEEK_SET)
        with open(said, "rb", closefd=False) as stream:
            return Done(rc, stream.read().decode(errors="replace"))
    finally:
        os.close(said)
        os.close(told)


# Plans: pure functions from what is and what is wanted to what there is to do.


def plan_packages(wanted: list[Mapping], installed: dict[str, tuple[str, bool]]) -> Rows:
    """installed: {name: (version, held)}. Returns what to install (apt's name=version), remove, hold and unhold."""
    plan: Rows = {"install": [], "remove": [], "hold": [], "unhold": []}
    for want in wanted:
        name, pin, hold = want["name"], want["version"], want["hold"]
        version, held = installed.get(name, ("", False))
        if want["state"] == "absent":
            plan["remove"] += [name] if version else []
            plan["unhold"] += [name] if version and held else []
        elif not version or (pin and not fnmatch.fnmatchcase(version, pin)):
            plan["install"].append(f"{name}={pin}" if pin else name)
            plan["unhold"] += [name] if held else []  # else the package manager would not move it
            plan["hold"] += [name] if hold or (held and hold is None) else []
        elif hold is not None and hold != held:
            plan["hold" if hold else "unhold"].append(name)
    return plan


def table(text: str) -> Rows:
    """The rows of passwd, group or shadow, by name."""
    return {line.split(":", 1)[0]: line.split(":") for line in text.splitlines() if line.count(":") >= 2}


def plan_accounts(
    passwd: Rows, group: Rows, shadow: Rows, groups: list[Mapping], users: list[Mapping]
) -> Steps:
    """What to run, in order; no argument holds a password's hash."""
    steps = []
    for want in groups:
        name, have, gid = want["name"], group.get(want["name"]), ["-g", want["gid"]] if want["gid"] else []
        if want["state"] == "present" and not have:
            steps.append((name, ["groupadd", *(["-r"] if want["system"] else []), *gid, name], ""))
        elif want["state"] == "present" and have and gid and have[2] != want["gid"]:
            steps.append((name, ["groupmod", *gid, name], ""))
    names = {row[2]: row[0] for row in group.values()}
    names.update({want["gid"]: want["name"] for want in groups if want["gid"]})
    for want in users:
        name, have = want["name"], passwd.get(want["name"])
        if want["state"] == "absent":
            steps += [(name, ["userdel", *(["-r"] if want["remove"] else []), name], "")] if have else []
            continue
        primary = want["group"] or (name if not have and name in names.values() else None)
        keys = {"-c": "comment", "-d": "home", "-g": "group", "-s": "shell", "-u": "uid"}
        options = {flag: want[key] for flag, key in keys.items()} | {"-g": primary}
        if have:
            now = {"-c": have[4], "-d": have[5], "-g": have[3], "-s": have[6], "-u": have[2]}
            options["-g"] = have[3] if primary == names.get(have[3]) else primary
            options = {flag: value for flag, value in options.items() if value != now[flag]}
        change = [part for flag, value in options.items() if value is not None for part in (flag, value)]
        if want["groups"] is not None:
            member = {row[0] for row in group.values() if name in row[3].split(",")}
            others = {names.get(entry, entry) for entry in want["groups"] if entry != primary}
            others |= member if want["append"] else set()
            change += ["-G", ",".join(sorted(others))] if others != member else []
        if not have:
            flags = (["-r"] if want["system"] else []) + ["-m" if want["create_home"] else "-M"]
            steps.append((name, ["useradd", *flags, *change, name], ""))
        elif change:
            steps.append((name, ["usermod", *change, name], ""))
        if want["password"] is not None and shadow.get(name, ["", ""])[1] != want["password"]:
            steps.append((name, ["chpasswd", "-e"], f"{name}:{want['password']}\n"))
    gone = [want["name"] for want in groups if want["state"] == "absent" and want["name"] in group]
    return steps + [(name, ["groupdel", name], "") for name in gone]


def matches(path: str, globs: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, glob) for glob in globs)


def due(unit: Mapping, stamps: dict[str, str], loaded: dict[str, str]) -> str:
    """What the unit needs to have loaded its files: restart, reload or nothing.

    stamps: {path: digest of what is declared}; loaded: {path: digest that the unit loaded last, "" for one that
    was about to be swapped}. A path without a record has not been touched since the unit started.
    """

    def stale(globs: list[str]) -> bool:
        known = {path: seen for path, seen in loaded.items() if matches(path, globs)}
        return any(not seen or stamps.get(path, seen) != seen for path, seen in known.items())

    return "restart" if stale(unit["restart_on"]) else "reload" if stale(unit["reload_on"]) else ""


def plan_unit(unit: Mapping, facts: dict[str, str], need: str, offline: bool) -> list[str]:
    """The verbs to say to systemctl, in order. facts: the unit's properties; need: due()'s answer."""
    file_state, verbs = facts["UnitFileState"], []
    if unit["masked"] is not None and unit["masked"] != file_state.startswith("masked"):
        verbs.append("mask" if unit["masked"] else "unmask")
    if unit["enabled"] is True and file_state not in ENABLED:
        verbs.append("enable")
    elif unit["enabled"] is False and file_state in ENABLED[:2]:
        verbs.append("disable")
    running = facts["ActiveState"] in RUNNING and facts["SubState"] != "auto-restart"
    if offline:
        return verbs
    if unit["state"] == "started" and not running:
        verbs.append("start")
    elif unit["state"] == "stopped":
        verbs += ["stop"] if facts["ActiveState"] in RUNNING else []
    elif running and need:
        cannot = facts["CanReload"] != "yes" and not unit["reload_command"]
        verbs.append("restart" if need == "restart" or cannot else "reload")
    return verbs


class Converge:
    """One declaration applied to the node whose file system begins at root."""

    def __init__(self, wanted: Mapping, root: str = "/", run: Callable[..., Done] = spawn) -> None:
        self.wanted, self.root, self.run = wanted, root.rstrip("/"), run
        self.check = wanted["check"]
        self.done: Rows = {word: [] for word in ("packages", "users", "paths", "sysctl", "warnings")}
        self.units: Rows = {word: [] for word in PAST.values()}
        self.diff: list[dict[str, str]] = []
        self.stamps = {entry["path"]: entry["stamp"] for entry in wanted["paths"]}
        self.loaded: dict[str, dict[str, str]] = {}  # by unit
        self.tables: dict[str, Rows] = {}
        self.mounts = {line.split(" ")[4] for line in self.read("/proc/self/mountinfo").splitlines()}
        self.stages = {f"{self.place(path + below)}/{STAGE}" for path in self.stamps for below in ("", "/x")}
        # No systemd to talk to: a chroot, an image that is being made.
        booted = os.path.isdir(self.at("/run/systemd/system")) and os.environ.get("SYSTEMD_OFFLINE") != "1"
        own = self.root or (booted and os.path.samestat(os.stat("/proc/1/root"), os.stat("/")))
        self.offline = not (booted and own)

    def apply(self) -> None:
        lock = None if self.check else self.lock()
        try:
            if lock is not None:
                self.tidy()  # after a call that was killed
            self.do_packages()
            self.do_accounts()
            self.do_paths()
            self.do_sysctl()
            self.do_units()
        finally:
            if lock is not None:
                self.tidy()
                os.close(lock)

    def result(self) -> Mapping:
        changed = any(names for word, names in {**self.done, **self.units}.items() if word != "warnings")
        return dict(self.done, units=self.units, changed=changed, diff=self.diff)

    def lock(self) -> int:
        """One call a node at a time: one whose connection broke may still be at work."""
        fd = os.open(self.at("/var/lib"), os.O_RDONLY)
        for _ in range(LOCK_SECONDS * 5):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                time.sleep(0.2)
        raise Refusal(f"another converge call has been at work here for {LOCK_SECONDS} s: wait or end it")

    def tidy(self) -> None:
        for stage in self.stages:
            self.erase(stage)
        policy, kept = self.at(POLICY), self.at(POLICY_KEPT)
        if os.path.lexists(kept):
            os.rename(kept, policy)
        elif os.path.lexists(policy) and "coldiron.cluster.converge" in self.read(POLICY):
            os.unlink(policy)

    def at(self, path: str) -> str:
        return self.root + path

    def read(self, path: str) -> str:
        """A file's text, empty if there is none."""
        return self.read_bytes(path).decode(errors="replace")

    def read_bytes(self, path: str) -> bytes:
        try:
            with open(self.at(path), "rb") as stream:
                return stream.read()
        except (FileNotFoundError, NotADirectoryError):
            return b""

    def listing(self, path: str) -> list[str]:
        return sorted(os.listdir(self.at(path))) if os.path.isdir(self.at(path)) else []

    def write(self, real: str, content: bytes, mode: int = 0o600) -> None:
        self.erase(real)
        with open(os.open(real, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(content)
            os.fchmod(stream.fileno(), mode)
            stream.flush()
            os.fsync(stream.fileno())

    def erase(self, real: str) -> None:
        """Remove a tree, if there; symbolic links are removed, never followed."""
        if os.path.isdir(real) and not os.path.islink(real):
            for name in os.listdir(real):
                self.erase(f"{real}/{name}")
            os.rmdir(real)
        elif os.path.lexists(real):
            os.unlink(real)

    def must(self, what: str, argv: list[str], data: str = "") -> None:
        done = self.run(argv, data)
        if done.rc:
            raise Refusal(f"{what}: {argv[0]}: {done.why()}")

    # Packages.

    def do_packages(self) -> None:
        wanted = self.wanted["packages"]
        if not wanted:
            return
        apt = os.path.exists(self.at("/usr/bin/dpkg-query"))
        if not apt and not os.path.exists(self.at("/usr/bin/rpm")):
            raise Refusal("this node has neither apt nor dnf: packages cannot be managed here")
        names = [want["name"] for want in wanted]
        # What another package provides need not be installed; but it cannot be removed by that name.
        wished = {want["name"] for want in wanted if want["state"] != "absent"}
        plan = plan_packages(wanted, self.installed_deb(names, wished) if apt else self.installed_rpm(names))
        if not self.check:
            hold = ["apt-mark", "hold"] if apt else ["dnf", "-y", "versionlock", "add"]
            unhold = ["apt-mark", "unhold"] if apt else ["dnf", "-y", "versionlock", "delete"]
            if plan["unhold"]:
                self.must("packages", [*unhold, *plan["unhold"]])
            if plan["install"] or plan["remove"]:
                self.install_deb(plan) if apt else self.install_rpm(plan)
            if plan["hold"]:
                self.must("packages", [*hold, *plan["hold"]])
        self.done["packages"] = list(dict.fromkeys(name for names in plan.values() for name in names))

    def installed_deb(self, names: list[str], wished: set[str]) -> dict[str, tuple[str, bool]]:
        query = ["dpkg-query", "-W", "-f"]
        query.append("${db:Status-Abbrev}\t${Package}\t${Architecture}\t${Version}\t${Provides}\n")
        found: dict[str, tuple[str, bool]] = {}
        for line in self.run([*query, "--", *names], errors=False).out.splitlines():
            status, name, arch, version, _ = line.split("\t")
            if status[1:] == "i ":
                found[name] = found[f"{name}:{arch}"] = (version, status[0] == "h")
        if wished - set(found):  # perhaps a virtual package such as awk, which another one provides
            for line in self.run(query, errors=False).out.splitlines():
                status, _, _, version, provides = line.split("\t")
                for word in provides.split(",") if status[1:] == "i " else ():
                    name = word.split("(")[0].strip()
                    if name in wished:
                        found.setdefault(name, (version, False))
        return found

    def installed_rpm(self, names: list[str]) -> dict[str, tuple[str, bool]]:
        locks = self.read("/etc/dnf/plugins/versionlock.list") + self.read("/etc/dnf/versionlock.toml")
        held = {line.rsplit("-", 2)[0] for line in locks.splitlines() if line and line[0] not in "#!"}
        held |= set(re.findall(r'^name *= *"(.*)"', locks, re.M))
        said = self.run(["rpm", "-q", "--qf", "%{NAME}\\t%{VERSION}-%{RELEASE}\\n", "--", *names]).out
        rows = [line.split("\t") for line in said.splitlines() if "\t" in line]
        return {name: (version, name in held) for name, version in rows}

    def install_deb(self, plan: Rows) -> None:
        names = plan["install"] + [name + "-" for name in plan["remove"]]
        policy = self.at(POLICY)
        if os.path.lexists(policy):
            os.link(policy, self.at(POLICY_KEPT), follow_symlinks=False)
        self.write(policy + ".new", POLICY_TEXT.encode(), 0o755)
        os.rename(policy + ".new", policy)
        refreshed = not any(entry.endswith("_Packages") for entry in self.listing("/var/lib/apt/lists"))
        if refreshed:
            self.refresh_lists()
        for _ in range(3):
            done = self.run([*APT.split(), *names])
            if done.rc and "dpkg --configure -a" in done.out:
                self.must("dpkg was cut off and cannot finish", FINISH_DPKG)
            elif done.rc and not refreshed and re.search(STALE_LISTS, done.out):
                self.refresh_lists()
                refreshed = True
            else:
                break
        self.tidy()
        if done.rc:
            raise Refusal(f"apt cannot install {', '.join(names)}: {done.why()}")

    def refresh_lists(self) -> None:
        for _ in range(LOCK_SECONDS // 5):
            done = self.run(["apt-get", "-q", "-o", "Acquire::Retries=2", "update"])
            if "Could not get lock" not in done.out:
                break
            time.sleep(5)
        if done.rc:
            raise Refusal(f"apt cannot read its package lists: {done.why()}")

    def install_rpm(self, plan: Rows) -> None:
        names = [name.replace("=", "-", 1) for name in plan["install"]]
        for verb, some in (("install", names), ("remove", plan["remove"])):
            if some:
                self.must("packages", ["dnf", "-y", "--setopt=install_weak_deps=False", verb, *some])

    # Accounts.

    def rows(self, name: str) -> Rows:
        if name not in self.tables:
            self.tables[name] = table(self.read(f"/etc/{name}"))
        return self.tables[name]

    def do_accounts(self) -> None:
        groups, users = self.wanted["groups"], self.wanted["users"]
        if not groups and not users:
            return
        passwd = self.rows("passwd")
        steps = plan_accounts(passwd, self.rows("group"), self.rows("shadow"), groups, users)
        for name in (want["name"] for want in users if want["create_home"] and want["state"] == "present"):
            if name in passwd and not os.path.isdir(self.at(passwd[name][5])):
                steps.append((name, ["mkhomedir_helper", name, "0077"], ""))
        for name, argv, data in steps:
            if not self.check:
                self.must(f"account {name}", argv, data)
            self.done["users"] += [] if name in self.done["users"] else [name]
        self.tables.clear()

    def id_of(self, name: str, kind: str) -> int:
        """uid or gid; -1 where a --check meets a name that is still to come."""
        if name.isdigit():
            return int(name)
        if name in self.rows(kind):
            return int(self.rows(kind)[name][2])
        try:  # a directory service may know it
            import grp
            import pwd

            return pwd.getpwnam(name).pw_uid if kind == "passwd" else grp.getgrnam(name).gr_gid
        except KeyError:
            if self.check:
                return -1
        word = "user" if kind == "passwd" else "group"
        raise Refusal(f"{word} {name} does not exist on this node; declare it in {word}s")

    # Directories, files, links.

    def do_paths(self) -> None:
        entries = self.wanted["paths"]
        gone = [{"path": path, "state": "absent", "label": path} for path in self.unnamed(entries)]
        changes = [change for change in map(self.compare, entries + gone) if change]
        self.read_records([entry["path"] for entry, _, _, _ in changes])
        diff = [self.diff_of(*change) for change in changes] if self.wanted["diff"] else []
        if changes and not self.check:
            self.put([(entry, what) for entry, what, _, _ in changes])
        self.done["paths"], self.diff = [entry["path"] for entry, _, _, _ in changes], diff

    def put(self, changes: list[tuple[Mapping, str]]) -> None:
        """Stage and validate all, then swap one by one: until the first swap no file has changed."""
        staged = [entry for entry, what in changes if what == "stage"]
        for entry in (entry for entry, what in changes if what == "make"):
            os.makedirs(os.path.dirname(self.at(entry["path"])), exist_ok=True)
            os.mkdir(self.at(entry["path"]), 0o700)
            self.give(self.at(entry["path"]), entry)
        for entry in staged:
            os.makedirs(os.path.dirname(self.at(entry["path"])), exist_ok=True)
            self.build(entry)
        self.validate(staged, [entry["path"] for entry, what in changes if what == "remove"])
        self.done["paths"] = [entry["path"] for entry, _ in changes]
        for unit in self.wanted["units"]:
            self.keep(unit, self.loaded[unit["name"]])
        for entry, what in changes:
            path, real = entry["path"], self.at(entry["path"])
            if what == "attributes":
                self.give(real, entry)
            elif what == "stage":
                os.rename(self.staged(path), real)
            elif what == "remove" and os.path.isdir(real) and self.mounted_in(path):
                raise Refusal(f"{entry['label']} holds a mount point and is not removed")
            elif what == "remove":
                self.erase(real)
        if os.path.exists(self.at("/sys/fs/selinux/enforce")):
            self.run(["restorecon", "-F", *(self.at(path) for path in self.done["paths"])])

    def compare(self, entry: Mapping) -> Change | None:
        """What to do about one path; None where the node is as declared."""
        real, kind = self.at(entry["path"]), entry.get("kind")
        self.refuse_foreign_links(entry)
        try:
            status = os.stat(real) if kind == "directory" and os.path.exists(real) else os.lstat(real)
            form = stat.S_IFMT(status.st_mode)
        except (FileNotFoundError, NotADirectoryError):
            status, form = None, 0
        if entry["state"] == "absent":
            return (entry, "remove", b"present\n", b"") if form else None
        if form and (form == stat.S_IFDIR) != (kind == "directory"):
            kind = "a" if form == stat.S_IFDIR else "not a"
            raise Refusal(f"{entry['label']} is {kind} directory on this node")
        if kind == "link":
            old, new = os.readlink(real) if form == stat.S_IFLNK else "", entry["src"]
            return None if old == new else (entry, "stage", f"{old}\n".encode(), f"{new}\n".encode())
        owner = (entry["mode"], self.id_of(entry["owner"], "passwd"), self.id_of(entry["group"], "group"))
        have = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) if status else None
        if kind == "file":
            content = entry["content"].encode("latin-1")
            may_be_same = status and status.st_size == len(content)
            look = form == stat.S_IFREG and (may_be_same or self.wanted["diff"])
            before = self.read_bytes(entry["path"]) if look else b""
            if before != content or form != stat.S_IFREG:
                return entry, "stage", before, content
        texts = [b"mode %04o owner %d group %d\n" % which if which else b"" for which in (have, owner)]
        return None if have == owner else (entry, "attributes" if form else "make", texts[0], texts[1])

    def refuse_foreign_links(self, entry: Mapping) -> None:
        """A link that a user made in a directory of his own must not lead root elsewhere."""
        walked = self.at("/")
        for part in os.path.dirname(entry["path"]).split("/")[1:]:
            holder, walked = walked, os.path.join(walked, part)
            if os.path.islink(walked) and os.stat(holder).st_uid != 0:
                raise Refusal(f"{entry['label']}: {walked} is a link made by another user than root")

    def diff_of(self, entry: Mapping, what: str, before: bytes, after: bytes) -> dict[str, str]:
        """One diff a path; what is secret is shown nowhere."""
        path, texts = entry["path"], [text.decode(errors="replace") for text in (before, after)]
        if entry.get("secret"):
            texts = ["[secret: not shown]\n", "[secret: not shown, but other]\n"]
        elif b"\0" in before + after or len(before + after) > 200_000:
            texts = [f"[{len(text)} bytes: not shown]\n" for text in (before, after)]
        owner = f" ({entry['mode']:04o} {entry['owner']}:{entry['group']})" if "mode" in entry else ""
        return {"before_header": path, "after_header": path + owner, "before": texts[0], "after": texts[1]}

    def unnamed(self, entries: list[Mapping]) -> list[str]:
        """What lies in a directory that the declaration has to itself, and is not named by it."""
        named: set[str] = set()
        for path in self.stamps:
            above = path
            while above not in named and above != "/":
                named.add(above)
                above = os.path.dirname(above)
        own = [entry["path"] for entry in entries if entry.get("exclusive") and entry["state"] != "absent"]
        there = [f"{path}/{name}" for path in own for name in self.listing(path)]
        return [path for path in there if path not in named and not self.mounted_in(path)]

    def mounted_in(self, path: str) -> bool:
        return any((mount + "/").startswith(path + "/") for mount in self.mounts)

    def give(self, real: str, entry: Mapping) -> None:
        """Owner first: changing it drops set-uid bits."""
        os.chown(real, self.id_of(entry["owner"], "passwd"), self.id_of(entry["group"], "group"))
        os.chmod(real, entry["mode"])

    def place(self, path: str) -> str:
        """The root of the file system that the path is on, without a / at its end."""
        path = os.path.dirname(path)
        while path != "/" and (path not in self.mounts or not os.path.isdir(self.at(path))):
            path = os.path.dirname(path)
        return self.at(path).rstrip("/")

    def staged(self, path: str) -> str:
        """Where a path is staged: below its file system's staging directory as it is below that file system's root."""
        place = self.place(path)
        return f"{place}/{STAGE}{self.at(path)[len(place) :]}"

    def build(self, entry: Mapping) -> None:
        """Make the file or link that will be swapped in; directories above it look like the live ones."""
        target, live = self.staged(entry["path"]), self.at(entry["path"])
        place = self.place(entry["path"])
        made = f"{place}/{STAGE}"
        if not os.path.isdir(made):
            os.mkdir(made, 0o700)
        for part in os.path.dirname(live[len(place) + 1 :]).split("/"):
            made, place = os.path.join(made, part), os.path.join(place or "/", part)
            if not os.path.isdir(made):
                os.mkdir(made, 0o700)
                os.chown(made, os.stat(place).st_uid, os.stat(place).st_gid)
                os.chmod(made, stat.S_IMODE(os.stat(place).st_mode))
        if entry["kind"] == "link":
            os.symlink(entry["src"], target)
            return
        self.write(target, entry["content"].encode("latin-1"))
        for name in ("security.selinux", "system.posix_acl_access"):
            try:  # label and access list of the file that will be replaced
                os.setxattr(target, name, os.getxattr(live, name, follow_symlinks=False))
            except OSError:
                continue  # no such file, or no such attribute here
        self.give(target, entry)

    def validate(self, staged: list[Mapping], gone: list[str]) -> None:
        checks = [(entry, entry["validate"]) for entry in staged if entry.get("validate")]
        inside = ["unshare", "--mount", "sh", "-c", SHOW_STAGED, "sh"]
        together = False
        if checks and not self.root and not self.offline:
            for path in (path for path in gone if not os.path.isdir(path)):  # what goes away is seen as empty
                empty = {"content": "", "owner": "root", "group": "root", "mode": 0o644}
                self.build(dict(empty, path=path, kind="file"))
            stages = [stage for stage in self.stages if os.path.isdir(stage)]
            layers = [(os.path.dirname(stage), top) for stage in stages for top in os.listdir(stage)]
            inside.append(str(len(layers)))
            inside += [f"{place}/{part}" for place, top in layers for part in (f"{STAGE}/{top}", top)]
            together = self.run([*inside, "true"]).rc == 0
        for entry, argv in checks:
            if not together and "%s" not in " ".join(argv):
                lost = f"{entry['path']} is not validated: files cannot be shown in place here"
                self.done["warnings"].append(lost)
                continue
            path = entry["path"] if together else self.staged(entry["path"])
            command = ["timeout", "60", *(part.replace("%s", path) for part in argv)]
            done = self.run(inside + command if together else command)
            if done.rc:
                raise Refusal(f"{entry['label']} is not valid, nothing was changed: {argv[0]}: {done.why()}")

    # What each unit has loaded.

    def read_records(self, changing: list[str]) -> None:
        """What is about to be changed counts as not loaded from here on."""
        for unit in self.wanted["units"]:
            try:
                loaded = json.loads(self.read(f"{RECORDS}/{unit['name']}.json") or "{}")
            except ValueError:
                loaded = {}  # cut off by a power failure: the unit has started anew since
            pending = {path: "" for path in changing if matches(path, unit["restart_on"] + unit["reload_on"])}
            self.loaded[unit["name"]] = {**loaded, **pending}

    def keep(self, unit: Mapping, loaded: dict[str, str]) -> None:
        record, text = f"{RECORDS}/{unit['name']}.json", json.dumps(loaded, sort_keys=True)
        if text != (self.read(record) or "{}"):
            os.makedirs(self.at(RECORDS), 0o700, exist_ok=True)
            self.write(self.at(record + ".new"), text.encode())
            os.rename(self.at(record + ".new"), self.at(record))

    def has_loaded(self, unit: Mapping) -> None:
        globs = unit["restart_on"] + unit["reload_on"]
        stamps = {path: stamp for path, stamp in self.stamps.items() if matches(path, globs)}
        known = self.loaded[unit["name"]].items()
        others = {path: seen for path, seen in known if seen or not matches(path, globs)}
        self.keep(unit, {**others, **stamps})

    # Kernel settings.

    def do_sysctl(self) -> None:
        for name, value in {} if self.offline else self.wanted["sysctl"].items():
            swapped = name.translate(str.maketrans("./", "/."))
            path = f"/proc/sys/{name if re.match('[^.]*/', name) else swapped}"
            if not os.path.exists(self.at(path)) and not self.check:
                raise Refusal(f"sysctl {name}: this kernel does not know it (is its module loaded?)")
            if self.read(path).split() == value.split():
                continue
            try:
                if not self.check:
                    with open(self.at(path), "w") as stream:
                        stream.write(value)
            except OSError as error:
                raise Refusal(f"sysctl {name} cannot be set to {value}: {error.strerror}") from None
            self.done["sysctl"].append(name)

    # Units.

    def show(self, names: list[str]) -> dict[str, dict[str, str]]:
        facts = {name: {"ActiveState": "inactive", "SubState": "dead"} for name in names}
        for name in names if self.offline else ():
            word = self.run(["systemctl", "is-enabled", name], errors=False).out.strip() or "not-found"
            facts[name].update(UnitFileState=word, LoadState=word)
        if names and not self.offline:
            done = self.run(["systemctl", "show", "-p", UNIT_FACTS, "--", *names], errors=False)
            blocks = done.out.strip().split("\n\n")
            if done.rc or len(blocks) != len(names):
                raise Refusal(f"systemctl does not answer: {done.why()}")
            for name, block in zip(names, blocks):
                facts[name].update(dict(line.split("=", 1) for line in block.splitlines()))
        return facts

    def do_units(self) -> None:
        units, plans = self.wanted["units"], {}
        stale = not self.offline and any(path.startswith(UNIT_PATHS) for path in self.done["paths"])
        if stale and not self.check:
            self.must("systemd cannot read its units", ["systemctl", "daemon-reload"])
        facts = self.show([unit["name"] for unit in units])
        if not self.check and any(fact.get("NeedDaemonReload") == "yes" for fact in facts.values()):
            self.must("systemd cannot read its units", ["systemctl", "daemon-reload"])
        for unit in units:
            name, fact = unit["name"], facts[unit["name"]]
            if (
                fact["LoadState"] == "not-found"
                and (unit["state"] == "started" or unit["enabled"])
                and not self.check
            ):
                raise Refusal(f"unit {name} does not exist on this node: is its package among packages?")
            plans[name] = plan_unit(unit, fact, due(unit, self.stamps, self.loaded[name]), self.offline)
        for pair in VERBS:
            for unit in units:
                for verb in set(pair) & set(plans[unit["name"]]):
                    self.say(verb, unit, facts[unit["name"]])
        for unit in () if self.check else units:
            stopped = facts[unit["name"]]["ActiveState"] not in RUNNING or "stop" in plans[unit["name"]]
            if stopped and "" in self.loaded[unit["name"]].values():
                self.has_loaded(unit)  # whoever starts it next has it load what is there
        begun = [name for name, verbs in plans.items() if {"start", "restart"} & set(verbs)]
        for name, fact in {} if self.check else self.show(begun).items():
            if fact["ActiveState"] == "failed" or fact["SubState"] == "auto-restart":
                raise Refusal(f"{name} started and failed; {self.last_words(name)}")

    def say(self, verb: str, unit: Mapping, fact: dict[str, str]) -> None:
        name = unit["name"]
        if not self.check:
            if verb == "start" and (fact["ActiveState"] == "failed" or fact["SubState"] == "auto-restart"):
                self.run(["systemctl", "reset-failed", name])  # also forgets that it was started too often
            special = unit["reload_command"] if verb == "reload" else []
            done = self.run(["timeout", "120", *special] if special else ["systemctl", verb, name])
            if done.rc:
                words = " ".join(special) or f"systemctl {verb} {name}"
                raise Refusal(f"{words} failed: {done.why()}; {self.last_words(name)}")
            if verb in ("start", "restart", "reload"):
                self.has_loaded(unit)
        self.units[PAST[verb]].append(name)

    def last_words(self, name: str) -> str:
        said = self.run(["journalctl", "-u", name, "-n", "6", "-o", "cat", "--no-pager", "-q"]).out
        words = " | ".join(line.strip() for line in said.splitlines() if line.strip())
        return f"the last words of {name}: {words or 'none'}"


def explain(error: OSError) -> str:
    """One sentence for what the operating system refused."""
    advice = {errno.EDQUOT: "the quota is used up", errno.EROFS: "the file system is mounted read-only"}
    advice[errno.ENOSPC] = "the file system is full; make room and run again"
    advice[errno.EBUSY] = "it is a mount point and cannot be replaced"
    where = " -> ".join(str(name) for name in (error.filename, error.filename2) if name)
    return f"{where or 'node'}: {advice.get(error.errno or 0, error.strerror or str(error))}"


def censor(text: str, wanted: Mapping) -> str:
    """Without any word of a secret: a validator or a daemon may quote what it has read."""
    secrets = [entry["content"] for entry in wanted["paths"] if entry.get("secret")]
    secrets = [secret.encode("latin-1").decode(errors="replace") for secret in secrets]
    secrets += [user["password"] for user in wanted["users"] if user["password"]]
    words = {word for secret in secrets for word in [*re.split(r"[\s=:,;\"']+", secret), *secret.split("\n")]}
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, "********") if len(word) >= 6 else text
    return text


def main(arguments: str, root: str = "/", run: Callable[..., Done] = spawn) -> int:
    wanted = json.loads(zlib.decompress(base64.b64decode(json.loads(arguments)["payload"])))
    work, why = None, ""
    os.umask(0o022)
    try:
        if os.geteuid() != 0 and root == "/":
            raise Refusal("converge works as root only: say become: true")
        work = Converge(wanted, root, run)
        work.apply()
    except Refusal as refusal:
        why = str(refusal)
    except OSError as error:
        why = explain(error)
    except Exception as error:  # a traceback could quote the payload, and with it secrets
        while error.__traceback__ and error.__traceback__.tb_next:
            error.__traceback__ = error.__traceback__.tb_next
        line = error.__traceback__.tb_lineno if error.__traceback__ else 0
        why = f"converge itself is at fault (line {line}): {type(error).__name__}: {error}"
    result: Mapping = work.result() if work else {"changed": False}
    if why:
        result.update(failed=True, msg=censor(why, wanted))
    print(json.dumps(result))
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main(r"""<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>"""))
