#!/usr/bin/python3
# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Bring one node to one declaration. Standard library only: this text itself is what the node runs (Python >= 3.9)."""

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

DOCUMENTATION = r"""
"""

EXAMPLES = r"""
"""

RETURN = r"""
"""

STAGE = ".coldiron-converge"  # a directory at the root of a file system: no daemon reads it, a rename out of it is atomic
RECORDS = "/var/lib/coldiron/converge"
LOCK_SECONDS = 300
POLICY = "/usr/sbin/policy-rc.d"
POLICY_KEPT = POLICY + ".before-converge"
POLICY_TEXT = """#!/bin/sh
# Made by coldiron.cluster.converge while it installs packages, removed by it afterwards: a daemon that runs already
# may be restarted by its upgrade, no other is started before its configuration is there.
[ ! -x {kept} ] || {kept} "$@" || exit $?
systemctl is-active --quiet "$1" || exit 101
""".format(kept=POLICY_KEPT)
APT = ["apt-get", "-y", "-q", "--no-install-recommends", "--allow-downgrades", "-o", "Dpkg::Options::=--force-confdef",
       "-o", "Dpkg::Options::=--force-confold", "-o", "Dpkg::Use-Pty=0", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}",
       "-o", "Acquire::Retries=2"]  # fmt: skip
STALE_LISTS = re.compile(
    r"Unable to locate package|has no installation candidate|Version '.*' for '.*' was not found|404 +Not Found"
    r"|Couldn't find any package|Unable to fetch some archives|Hash Sum mismatch"
)
# What a mount namespace of its own gives a validator: the staged files in their final places, over the live ones.
SHOW_STAGED = (
    "n=$1; shift; while [ $n -gt 0 ]; do mount -t overlay -o ro,lowerdir=$1:$2 converge $2 || exit 99;"
    ' shift 2; n=$((n - 1)); done; exec "$@"'
)
UNIT_FACTS = "Id,LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload,CanReload"
UNIT_PATHS = ("/etc/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/", "/run/systemd/system/",
              "/usr/local/lib/systemd/system/", "/etc/fstab", "/etc/crypttab")  # fmt: skip
ENABLED = ("enabled", "enabled-runtime", "static", "alias", "indirect", "generated", "transient")
RUNNING = ("active", "reloading", "activating", "refreshing")


class Refusal(Exception):
    """Why the declaration cannot be met: one sentence for a person."""


class Done:
    """A command that ended: its status and what it said."""

    def __init__(self, rc, out):
        self.rc, self.out = rc, out

    def tail(self, lines=3):
        said = [line.strip() for line in self.out.splitlines() if line.strip()]
        return " | ".join(said[-lines:]) or f"exit status {self.rc}, without a word"


def spawn(argv, data="", errors=True, env=None):
    """Run a command to its end, argv as it is, no shell.

    It talks to memory files, not to pipes: a daemon that it leaves behind cannot hold us up. This is also five
    milliseconds less than importing subprocess, at every call on every node.
    """
    said, told = os.memfd_create("said"), os.memfd_create("told")
    try:
        os.write(told, data.encode())
        os.lseek(told, 0, os.SEEK_SET)
        quiet = (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)
        actions = [(os.POSIX_SPAWN_DUP2, told, 0), (os.POSIX_SPAWN_DUP2, said, 1)]
        actions.append((os.POSIX_SPAWN_DUP2, said, 2) if errors else quiet)
        environment = dict(os.environ, LC_ALL="C.UTF-8", LANGUAGE="", **(env or {}))
        try:
            pid = os.posix_spawnp(argv[0], argv, environment, file_actions=actions, setsigdef=[signal.SIGPIPE])
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


def plan_packages(wanted, installed):
    """installed: {name: (version, held)}. Returns names to install (apt's name=version), remove, hold and unhold."""
    plan = {"install": [], "remove": [], "hold": [], "unhold": []}
    for want in wanted:
        name, pin, hold = want["name"], want.get("version"), want.get("hold")
        version, held = installed.get(name, ("", False))
        if want["state"] == "absent":
            plan["remove"] += [name] if version else []
            continue
        if not version or (pin and not fnmatch.fnmatchcase(version, pin)):
            plan["install"].append(f"{name}={pin}" if pin else name)
            plan["unhold"] += [name] if held else []  # a held package is not moved to another version otherwise
            plan["hold"] += [name] if hold or (held and hold is None) else []
        elif hold is not None and hold != held:
            plan["hold" if hold else "unhold"].append(name)
    return plan


def table(text):
    """The rows of passwd, group or shadow, by name."""
    return {line.split(":", 1)[0]: line.split(":") for line in text.splitlines() if line.count(":") >= 2}


def plan_accounts(passwd, group, shadow, groups, users):
    """Returns [(account, argv, standard input)], in order: no argv holds a password's hash."""
    steps = []
    for want in groups:
        name, have = want["name"], group.get(want["name"])
        gid = ["-g", want["gid"]] if want.get("gid") is not None else []
        if want["state"] == "present" and not have:
            steps.append((name, ["groupadd"] + (["-r"] if want["system"] else []) + gid + [name], ""))
        elif want["state"] == "present" and gid and have[2] != gid[1]:
            steps.append((name, ["groupmod", *gid, name], ""))
    names = {row[2]: row[0] for row in group.values()}
    names.update({want["gid"]: want["name"] for want in groups if want.get("gid") is not None})
    for want in users:
        name, have = want["name"], passwd.get(want["name"])
        if want["state"] == "absent":
            steps += [(name, ["userdel"] + (["-r"] if want["remove"] else []) + [name], "")] if have else []
            continue
        options = {"-u": want.get("uid"), "-d": want.get("home"), "-s": want.get("shell"), "-c": want.get("comment")}
        primary = want.get("group") or (None if have or name not in names.values() else name)
        options["-g"] = primary
        if have:
            now = {"-u": have[2], "-d": have[5], "-s": have[6], "-c": have[4], "-g": have[3]}
            if primary and names.get(have[3]) == primary:
                options["-g"] = have[3]
            options = {flag: value for flag, value in options.items() if value is not None and value != now[flag]}
        change = [part for flag, value in sorted(options.items()) if value is not None for part in (flag, value)]
        if want.get("groups") is not None:
            member = {row[0] for row in group.values() if name in row[3].split(",")}
            others = {names.get(entry, entry) for entry in want["groups"]} - {names.get(primary, primary)}
            if others - member or (member - others and not want["append"]):
                change += ["-G", ",".join(sorted(others | member if want["append"] else others))]
        if not have:
            flags = (["-r"] if want["system"] else []) + ["-m" if want["create_home"] else "-M"]
            steps.append((name, ["useradd", *flags, *change, name], ""))
        elif change:
            steps.append((name, ["usermod", *change, name], ""))
        password = want.get("password")
        if password is not None and shadow.get(name, ["", ""])[1] != password:
            steps.append((name, ["chpasswd", "-e"], f"{name}:{password}\n"))
    for want in groups:
        if want["state"] == "absent" and want["name"] in group:
            steps.append((want["name"], ["groupdel", want["name"]], ""))
    return steps


def matches(path, globs):
    return any(fnmatch.fnmatchcase(path, glob) for glob in globs)


def due(unit, stamps, loaded):
    """"restart", "reload" or "": what the unit needs to have loaded its files.

    stamps: {path: digest of what is declared}; loaded: {path: digest that the unit loaded last, "" for one that was
    about to be swapped}. A path without a record has not been touched since the unit started.
    """

    def stale(globs):
        return any(not seen or stamps.get(path, seen) != seen for path, seen in loaded.items() if matches(path, globs))

    return "restart" if stale(unit["restart_on"]) else "reload" if stale(unit["reload_on"]) else ""


def plan_unit(unit, facts, need, offline):
    """Returns the verbs to say to systemctl, in order. facts: the unit's properties; need: due()'s answer."""
    file_state, verbs = facts["UnitFileState"], []
    masked = file_state.startswith("masked")
    if unit.get("masked") is not None and unit["masked"] != masked:
        verbs.append("mask" if unit["masked"] else "unmask")
    if unit.get("enabled") is not None and not unit.get("masked") and facts["LoadState"] != "not-found":
        if unit["enabled"] != (file_state in ENABLED):
            verbs += ["enable"] if unit["enabled"] else ["disable"] if file_state in ENABLED[:2] else []
    if offline:
        return verbs
    running = facts["ActiveState"] in RUNNING and facts["SubState"] != "auto-restart"
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

    def __init__(self, wanted, root="/", run=spawn):
        self.wanted, self.root, self.run = wanted, root.rstrip("/"), run
        self.check, self.want_diff = wanted["check"], wanted["diff"]
        self.paths, self.diff, self.warnings = [], [], []
        self.packages, self.users, self.sysctl = [], [], []
        self.units = {word: [] for word in
                      ("enabled", "disabled", "masked", "unmasked", "started", "stopped", "restarted", "reloaded")}  # fmt: skip
        self.offline = self.not_booted()
        self.stages, self.loaded, self.ids = set(), {}, {}
        self.stamps = {entry["path"]: entry["stamp"] for entry in wanted["paths"]}

    def at(self, path):
        return self.root + path

    def read(self, path):
        try:
            with open(self.at(path), "rb") as stream:
                return stream.read()
        except (FileNotFoundError, NotADirectoryError):
            return b""

    def must(self, what, argv, data=""):
        done = self.run(argv, data)
        if done.rc:
            raise Refusal(f"{what}: {argv[0]}: {done.tail()}")
        return done

    def not_booted(self):
        """No systemd to talk to: a chroot, an image that is being made."""
        if os.environ.get("SYSTEMD_OFFLINE") == "1" or not os.path.isdir(self.at("/run/systemd/system")):
            return True
        try:
            return not os.path.samestat(os.stat("/proc/1/root"), os.stat("/")) if not self.root else False
        except OSError:
            return True

    def apply(self):
        with_lock = None if self.check else self.lock()
        try:
            if not self.check:
                self.restore_policy()
            self.do_packages()
            self.do_accounts()
            self.do_paths()
            self.do_sysctl()
            self.do_units()
        finally:
            for stage in self.stages:
                self.erase(stage)
            if with_lock is not None:
                os.close(with_lock)

    def result(self):
        units = {word: names for word, names in self.units.items()}
        happened = self.packages or self.users or self.paths or self.sysctl or any(units.values())
        return {"changed": bool(happened), "packages": self.packages, "users": self.users, "paths": self.paths,
                "sysctl": self.sysctl, "units": units, "diff": self.diff, "warnings": self.warnings}  # fmt: skip

    def lock(self):
        """One call a node at a time: one whose connection broke may still be at work."""
        fd = os.open(self.at("/var/lib"), os.O_RDONLY)
        for _ in range(LOCK_SECONDS * 5):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                time.sleep(0.2)
        raise Refusal(f"another converge call has been at work on this node for {LOCK_SECONDS} s; wait for it or end it")

    # Packages.

    def do_packages(self):
        wanted = self.wanted["packages"]
        if not wanted:
            return
        apt = os.path.exists(self.at("/usr/bin/dpkg-query"))
        if not apt and not os.path.exists(self.at("/usr/bin/rpm")):
            raise Refusal("this node has neither apt nor dnf: packages cannot be managed here")
        plan = plan_packages(wanted, self.installed_deb(wanted) if apt else self.installed_rpm(wanted))
        self.packages = plan["install"] + plan["remove"]
        self.packages += [name for name in plan["hold"] + plan["unhold"] if name not in self.packages]
        if self.packages and not self.check:
            (self.apply_apt if apt else self.apply_dnf)(plan)

    def installed_deb(self, wanted):
        names = [want["name"] for want in wanted]
        form = "${db:Status-Abbrev}\t${Package}\t${Architecture}\t${Version}\t${Provides}\n"
        query = ["dpkg-query", "-W", "-f", form]
        found = {}
        for line in self.run([*query, "--", *names], errors=False).out.splitlines():
            status, name, arch, version, _ = line.split("\t")
            if status[1] == "i" and status[2] == " ":
                found[name] = found[f"{name}:{arch}"] = (version, status[0] == "h")
        missing = {want["name"] for want in wanted if not want.get("version")} - set(found)
        if missing:  # perhaps a virtual package (awk) that another one provides
            for line in self.run(query, errors=False).out.splitlines():
                status, _, _, version, provides = line.split("\t")
                for name in missing & {word.split()[0] for word in provides.split(",") if word.strip()}:
                    found.setdefault(name, (version, False)) if status[1] == "i" else None
        return found

    def installed_rpm(self, wanted):
        found = {}
        form = "%{NAME}\\t%{VERSION}-%{RELEASE}\\n"
        locks = (self.read("/etc/dnf/plugins/versionlock.list") + self.read("/etc/dnf/versionlock.toml")).decode()
        held = {line.rsplit("-", 2)[0] for line in locks.splitlines() if line and line[0] not in "#!"}
        held |= set(re.findall(r'^name *= *"(.*)"', locks, re.M))
        for line in self.run(["rpm", "-q", "--qf", form, "--", *[want["name"] for want in wanted]]).out.splitlines():
            name, tab, version = line.partition("\t")
            found.update({name: (version, name in held)} if tab else {})
        return found

    def apply_apt(self, plan):
        names = plan["install"] + [name + "-" for name in plan["remove"]]
        env = {"DEBIAN_FRONTEND": "noninteractive", "APT_LISTCHANGES_FRONTEND": "none"}
        for verb in ("unhold",) if plan["unhold"] else ():
            self.must("packages", ["apt-mark", verb, *plan["unhold"]])
        if names:
            self.deny_starts()
            try:
                if any(entry.isdigit() for entry in self.listing("/var/lib/dpkg/updates")):
                    self.must("dpkg was cut off and cannot go on", ["dpkg", "--force-confold", "--configure", "-a"])
                refreshed = not any(entry.endswith("_Packages") for entry in self.listing("/var/lib/apt/lists"))
                if refreshed:
                    self.refresh_lists()
                for _ in range(3):
                    done = self.run([*APT, "install", *names], env=env)
                    if done.rc == 0:
                        break
                    if "dpkg --configure -a" in done.out:
                        self.must("dpkg was cut off and cannot go on", ["dpkg", "--force-confold", "--configure", "-a"])
                    elif not refreshed and STALE_LISTS.search(done.out):
                        self.refresh_lists()
                        refreshed = True
                    else:
                        break
                if done.rc:
                    raise Refusal(f"apt cannot install {', '.join(names)}: {package_errors(done)}")
            finally:
                self.restore_policy()
        if plan["hold"]:
            self.must("packages", ["apt-mark", "hold", *plan["hold"]])

    def refresh_lists(self):
        for _ in range(LOCK_SECONDS // 5):
            done = self.run(["apt-get", "-q", "-o", "Acquire::Retries=2", "update"])
            if "Could not get lock" not in done.out:
                break
            time.sleep(5)
        if done.rc:
            raise Refusal(f"apt cannot read its package lists: {package_errors(done)}")

    def deny_starts(self):
        policy = self.at(POLICY)
        if os.path.lexists(policy):
            os.link(policy, self.at(POLICY_KEPT), follow_symlinks=False)
        self.write(policy + ".new", POLICY_TEXT.encode(), 0o755)
        os.rename(policy + ".new", policy)

    def restore_policy(self):
        """Also takes away what a call that was killed left behind."""
        policy, kept = self.at(POLICY), self.at(POLICY_KEPT)
        if os.path.lexists(kept):
            os.rename(kept, policy)
        elif os.path.lexists(policy) and b"coldiron.cluster.converge" in self.read(POLICY):
            os.unlink(policy)

    def apply_dnf(self, plan):
        if plan["unhold"]:
            self.must("packages", ["dnf", "-y", "versionlock", "delete", *plan["unhold"]])
        steps = [("install", [name.replace("=", "-", 1) for name in plan["install"]]), ("remove", plan["remove"])]
        for verb, names in steps:
            done = self.run(["dnf", "-y", "--setopt=install_weak_deps=False", verb, *names]) if names else None
            if done and done.rc:
                raise Refusal(f"dnf cannot {verb} {', '.join(names)}: {package_errors(done)}")
        if plan["hold"]:
            self.must("packages", ["dnf", "-y", "versionlock", "add", *plan["hold"]])

    # Accounts.

    def do_accounts(self):
        groups, users = self.wanted["groups"], self.wanted["users"]
        if not groups and not users:
            return
        tables = [table(self.read(f"/etc/{name}").decode(errors="replace")) for name in ("passwd", "group", "shadow")]
        steps = plan_accounts(*tables, groups, users)
        for name, argv, data in steps:
            self.users += [] if name in self.users else [name]
            if not self.check:
                self.must(f"account {name}", argv, data)
        for want in users:
            have = table(self.read("/etc/passwd").decode(errors="replace")).get(want["name"]) if want["create_home"] else None
            if have and want["state"] == "present" and not os.path.isdir(self.at(have[5])):
                self.users += [] if want["name"] in self.users else [want["name"]]
                if not self.check:
                    self.must(f"home of {want['name']}", ["mkhomedir_helper", want["name"], "0077"])

    def id_of(self, name, kind):
        """uid or gid; None where a --check meets a name that is still to come."""
        if name.isdigit():
            return int(name)
        if (name, kind) not in self.ids:
            self.ids.update({(row[0], kind): int(row[2]) for row in table(self.read(f"/etc/{kind}").decode()).values()})
        if (name, kind) not in self.ids and not self.root:  # one that a directory service knows
            import grp
            import pwd

            try:
                self.ids[name, kind] = pwd.getpwnam(name).pw_uid if kind == "passwd" else grp.getgrnam(name).gr_gid
            except KeyError:
                if not self.check:
                    word = "user" if kind == "passwd" else "group"
                    raise Refusal(f"{word} {name} does not exist on this node; declare it in {word}s") from None
        return self.ids.get((name, kind))

    # Directories, files, links.

    def do_paths(self):
        entries = self.wanted["paths"]
        staged, fixes, gone = [], [], []
        removed = [{"path": path, "state": "absent", "label": path} for path in self.unnamed(entries)]
        changes = []
        for entry in entries + removed:
            change = self.compare(entry)
            if change:
                changes.append((entry, *change))
        if not changes:
            self.loaded_records()
            return
        self.paths = [entry["path"] for entry, _, _, _ in changes]
        for entry, _, before, after in changes if self.want_diff else ():
            self.diff.append(self.diff_of(entry, before, after))
        self.loaded_records()
        if self.check:
            return
        for entry, what, _, _ in changes:
            if what == "directory":
                self.make_directory(entry)
            elif what == "stage":
                self.stage(entry, staged)
            elif what == "attributes":
                fixes.append(entry)
            elif what == "remove":
                gone.append(entry["path"])
        self.validate([entry for entry, what, _, _ in changes if what == "stage"], gone)
        self.intend()
        for entry in fixes:
            self.give(self.at(entry["path"]), entry)
        for entry, target in staged:
            self.swap(entry, target)
        for path in gone:
            self.remove(path)

    def compare(self, entry):
        """(what to do, contents before, contents after), or None where the node is as declared."""
        path = entry["path"]
        try:
            status = os.lstat(self.at(path))
        except (FileNotFoundError, NotADirectoryError):
            status = None
        if entry["state"] == "absent":
            return ("remove", "present\n", "") if status else None
        kind = entry["kind"]
        if kind == "link":
            now = os.readlink(self.at(path)) if status and stat.S_ISLNK(status.st_mode) else None
            if status and stat.S_ISDIR(status.st_mode):
                raise Refusal(f"{entry['label']} is a directory; a link cannot take its place")
            return None if now == entry["src"] else ("stage", now or "", entry["src"])
        if kind == "directory" and status and stat.S_ISLNK(status.st_mode):
            status = os.stat(self.at(path)) if os.path.exists(self.at(path)) else status
        if status and stat.S_ISDIR(status.st_mode) != (kind == "directory"):
            raise Refusal(f"{entry['label']} is {'not ' if kind == 'directory' else ''}a directory on this node")
        owner = (entry["mode"], self.id_of(entry["owner"], "passwd"), self.id_of(entry["group"], "group"))
        same = status and owner == (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
        if kind == "directory":
            return None if same else ("attributes" if status else "directory", "", "")
        wanted, now = entry["content"].encode("latin-1"), None
        if status and stat.S_ISREG(status.st_mode) and (status.st_size == len(wanted) or self.want_diff):
            now = self.read(path)
        if now == wanted:
            return None if same else ("attributes", now, wanted)
        return ("stage", now, wanted)

    def diff_of(self, entry, before, after):
        """One diff a path; attributes stand in the headers, what is secret nowhere."""
        path = entry["path"]
        header = f"{path} ({entry['mode']:04o} {entry['owner']}:{entry['group']})" if "mode" in entry else path
        if entry.get("secret"):
            before, after = "[secret: not shown]\n", "[secret: not shown; contents or attributes differ]\n"
        texts = []
        for text in (before, after):
            text = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
            texts.append(f"[binary or large: {len(text)} characters]\n" if "\0" in text or len(text) > 200000 else text)
        if texts[0] == texts[1]:
            try:
                status = os.stat(self.at(path))
                texts[0] = f"mode {stat.S_IMODE(status.st_mode):04o} owner {status.st_uid} group {status.st_gid}\n"
            except OSError:
                texts[0] = ""
            texts[1] = f"mode {entry['mode']:04o} owner {entry['owner']} group {entry['group']}\n"
        return {"before_header": path, "after_header": header, "before": texts[0], "after": texts[1]}

    def listing(self, path):
        try:
            return sorted(os.listdir(self.at(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def mounts(self):
        return {line.split()[4] for line in self.read("/proc/self/mountinfo").decode(errors="replace").splitlines()}

    def unnamed(self, entries):
        """What lies in a directory that the declaration has to itself and is not named by it."""
        named = set()
        for entry in entries:
            path = entry["path"]
            while path != "/" and path not in named:
                named.add(path)
                path = os.path.dirname(path)
        unnamed = []
        for entry in entries:
            if entry.get("exclusive") and entry["state"] != "absent":
                paths = [f"{entry['path']}/{name}" for name in self.listing(entry["path"]) if name != STAGE]
                unnamed += [path for path in paths if path not in named and not self.mounted_in(path)]
        return unnamed

    def mounted_in(self, path):
        return any((mount + "/").startswith(path + "/") for mount in self.mounts())

    def erase(self, path):
        """Remove a tree; path is the real one. Symbolic links are removed, never followed."""
        if os.path.isdir(path) and not os.path.islink(path):
            with os.scandir(path) as inside:
                for entry in inside:
                    self.erase(entry.path)
            os.rmdir(path)
        elif os.path.lexists(path):
            os.unlink(path)

    def remove(self, path):
        if os.path.isdir(self.at(path)) and self.mounted_in(path):
            raise Refusal(f"{path} holds a mount point; it is not removed")
        self.erase(self.at(path))

    def parents(self, path):
        parent = os.path.dirname(path)
        if not os.path.isdir(self.at(parent)):
            self.parents(parent)
            os.mkdir(self.at(parent), 0o755)

    def give(self, real, entry):
        """Owner first: changing it drops set-uid bits."""
        os.chown(real, self.id_of(entry["owner"], "passwd"), self.id_of(entry["group"], "group"))
        os.chmod(real, entry["mode"])

    def make_directory(self, entry):
        self.parents(entry["path"])
        os.mkdir(self.at(entry["path"]), 0o700)
        self.give(self.at(entry["path"]), entry)

    def write(self, real, content, mode=0o600):
        fd = os.open(real, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as stream:
            stream.write(content)
            os.fchmod(fd, mode)
            stream.flush()
            os.fsync(fd)

    def stage_for(self, path):
        """The staging directory on the path's own file system: at its root, or beside the path where that is closed."""
        parent = top = os.path.dirname(self.at(path))
        device = os.stat(parent).st_dev
        while top not in ("/", self.root) and os.stat(os.path.dirname(top)).st_dev == device:
            top = os.path.dirname(top)
        for place in (top, parent):
            stage = os.path.join(place, STAGE)
            if stage in self.stages:
                return stage, place
            try:
                self.erase(stage)  # a call that was killed may have left it
                os.mkdir(stage, 0o700)
            except OSError:
                if place == parent:
                    raise
            else:
                self.stages.add(stage)
                return stage, place
        raise AssertionError

    def stage(self, entry, staged):
        path, real = entry["path"], self.at(entry["path"])
        self.parents(path)
        stage, place = self.stage_for(path)
        target = os.path.join(stage, os.path.relpath(real, place))
        self.mirror(os.path.dirname(target), os.path.dirname(real), stage)
        if entry["kind"] == "link":
            os.symlink(entry["src"], target)
        else:
            self.write(target, entry["content"].encode("latin-1"))
            self.give_labels(real, target)
            self.give(target, entry)
        staged.append((entry, target))

    def mirror(self, target, live, stage):
        """Directories in the stage look like the live ones, which a validator sees through them."""
        if target != stage and not os.path.isdir(target):
            self.mirror(os.path.dirname(target), os.path.dirname(live), stage)
            os.mkdir(target, 0o700)
            status = os.stat(live)
            os.chown(target, status.st_uid, status.st_gid)
            os.chmod(target, stat.S_IMODE(status.st_mode))

    def give_labels(self, live, target):
        """SELinux label and access list of the file that will be replaced."""
        for name in ("security.selinux", "system.posix_acl_access"):
            try:
                os.setxattr(target, name, os.getxattr(live, name, follow_symlinks=False))
            except OSError:
                continue  # no such file, no label, no such attribute here

    def validate(self, entries, gone):
        checks = [(entry, entry["validate"]) for entry in entries if entry.get("validate")]
        if not checks:
            return
        layers = {}
        for stage in self.stages if not self.root else ():
            place = os.path.dirname(stage)
            layers.update({os.path.join(stage, top): os.path.join(place, top) for top in os.listdir(stage)})
        for path in gone:  # a whiteout hides the file that goes away
            for stage in self.stages if not self.root else ():
                target = os.path.join(stage, os.path.relpath(path, os.path.dirname(stage)))
                if os.path.isdir(os.path.dirname(target)) and not os.path.isdir(path):
                    try:
                        os.mknod(target, stat.S_IFCHR, 0)
                    except OSError:
                        continue
        inside = ["unshare", "--mount", "sh", "-c", SHOW_STAGED, "sh", str(len(layers))]
        inside += [part for pair in layers.items() for part in pair]
        together = bool(layers) and not self.offline and self.run([*inside, "true"]).rc == 0
        for entry, argv in checks:
            if not together and "%s" not in " ".join(argv):
                self.warnings.append(f"{entry['path']} is not validated: this node cannot show staged files in place")
                continue
            stage, place = self.stage_for(entry["path"])
            alone = os.path.join(stage, os.path.relpath(self.at(entry["path"]), place))
            argv = [part.replace("%s", entry["path"] if together else alone) for part in argv]
            done = self.run((inside if together else []) + ["timeout", "60", *argv])
            if done.rc:
                raise Refusal(f"{entry['label']} is not valid, nothing was changed: {argv[0]}: {done.tail(4)}")

    def swap(self, entry, target):
        real = self.at(entry["path"])
        try:
            os.rename(target, real)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            near = os.path.join(os.path.dirname(real), STAGE)  # a bind mount of the same file system
            self.erase(near)
            os.mkdir(near, 0o700)
            self.stages.add(near)
            target = os.path.join(near, os.path.basename(real))
            if entry["kind"] == "link":
                os.symlink(entry["src"], target)
            else:
                self.write(target, entry["content"].encode("latin-1"))
                self.give_labels(real, target)
                self.give(target, entry)
            os.rename(target, real)
        if os.path.exists(self.at("/sys/fs/selinux/enforce")):
            self.run(["restorecon", "-F", real])

    # What each unit has loaded.

    def record_of(self, unit):
        return f"{RECORDS}/{unit['name'].replace('/', '-')}.json"

    def loaded_records(self):
        """Read the records; what is about to be swapped counts as not loaded from here on."""
        for unit in self.wanted["units"]:
            try:
                loaded = json.loads(self.read(self.record_of(unit)) or b"{}")
            except ValueError:
                loaded = {}  # cut off by a power failure: the unit has started anew since
            globs = unit["restart_on"] + unit["reload_on"]
            loaded.update({path: "" for path in self.paths if matches(path, globs)})
            self.loaded[unit["name"]] = loaded

    def intend(self):
        for unit in self.wanted["units"]:
            self.keep(unit, self.loaded[unit["name"]])

    def keep(self, unit, loaded):
        record = self.record_of(unit)
        text = json.dumps(loaded, sort_keys=True).encode()
        if text != (self.read(record) or b"{}"):
            os.makedirs(self.at(RECORDS), 0o700, exist_ok=True)
            if os.path.lexists(self.at(record + ".new")):
                os.unlink(self.at(record + ".new"))
            self.write(self.at(record + ".new"), text)
            os.rename(self.at(record + ".new"), self.at(record))

    def has_loaded(self, unit):
        globs = unit["restart_on"] + unit["reload_on"]
        loaded = {path: seen for path, seen in self.loaded[unit["name"]].items() if seen or not matches(path, globs)}
        loaded.update({path: stamp for path, stamp in self.stamps.items() if matches(path, globs)})
        self.keep(unit, loaded)

    # Kernel settings.

    def do_sysctl(self):
        for name, value in {} if self.offline else self.wanted["sysctl"].items():
            first = re.search(r"[./]", name)
            key = name if first and first.group() == "/" else name.translate(str.maketrans("./", "/."))
            path = f"/proc/sys/{key}"
            if not os.path.exists(self.at(path)):
                if not self.check:
                    raise Refusal(f"sysctl {name}: this kernel does not know it (is its module loaded?)")
            elif self.read(path).decode().split() != value.split():
                self.sysctl.append(name)
                if not self.check:
                    try:
                        with open(self.at(path), "w") as stream:
                            stream.write(value)
                    except OSError as error:
                        raise Refusal(f"sysctl {name} cannot be set to {value}: {error.strerror}") from None

    # Units.

    def show(self, names):
        done = self.run(["systemctl", "show", "-p", UNIT_FACTS, "--", *names], errors=False)
        blocks = [dict(line.split("=", 1) for line in block.splitlines()) for block in done.out.strip().split("\n\n")]
        if done.rc or len(blocks) != len(names):
            raise Refusal(f"systemctl does not answer: {done.tail()}")
        return dict(zip(names, blocks))

    def facts_offline(self, names):
        facts = {}
        for name in names:
            word = self.run(["systemctl", "is-enabled", name], errors=False).out.strip()
            load = "loaded" if word and word != "not-found" else "not-found"
            facts[name] = {"LoadState": load, "UnitFileState": word, "ActiveState": "inactive", "SubState": "dead"}
        return facts

    def do_units(self):
        units = self.wanted["units"]
        names = [unit["name"] for unit in units]
        reload_first = any(path.startswith(UNIT_PATHS) for path in self.paths) and not self.offline
        if reload_first and not self.check:
            self.must("systemd cannot read its units", ["systemctl", "daemon-reload"])
        if not units:
            return
        facts = self.facts_offline(names) if self.offline else self.show(names)
        if not self.offline and not self.check and any(fact["NeedDaemonReload"] == "yes" for fact in facts.values()):
            self.must("systemd cannot read its units", ["systemctl", "daemon-reload"])
        plans = {}
        for unit in units:
            name = unit["name"]
            unknown = facts[name]["LoadState"] == "not-found"
            if unknown and (unit["state"] == "started" or unit.get("enabled")):
                if not self.check:
                    raise Refusal(f"unit {name} does not exist on this node: is its package among packages?")
                facts[name] = dict(facts[name], LoadState="loaded", UnitFileState="disabled")
            plans[name] = plan_unit(unit, facts[name], due(unit, self.stamps, self.loaded[name]), self.offline)
        for group in (("mask", "unmask"), ("enable", "disable"), ("start", "stop"), ("restart", "reload")):
            for unit in units:
                for verb in plans[unit["name"]]:
                    if verb in group:
                        self.say(verb, unit, facts[unit["name"]])
        for unit in units:
            active = facts[unit["name"]]["ActiveState"] in RUNNING
            if not self.check and (not active or "stop" in plans[unit["name"]]):
                if "" in self.loaded[unit["name"]].values():
                    self.has_loaded(unit)  # whoever starts it next has it load what is there
        begun = [unit["name"] for unit in units if set(plans[unit["name"]]) & {"start", "restart"}]
        if begun and not self.check:
            for name, fact in self.show(begun).items():
                if fact["ActiveState"] == "failed" or fact["SubState"] == "auto-restart":
                    raise Refusal(f"{name} started and failed; {self.last_words(name)}")

    def say(self, verb, unit, facts):
        name = unit["name"]
        past = {"stop": "stopped"}.get(verb, verb + ("d" if verb.endswith("e") else "ed"))
        self.units[past].append(name)
        if self.check:
            return
        if verb == "start" and (facts["ActiveState"] == "failed" or facts["SubState"] == "auto-restart"):
            self.run(["systemctl", "reset-failed", name])  # also forgets that it was started too often
        argv = ["systemctl", verb, name]
        if verb == "reload" and unit["reload_command"]:
            argv = ["timeout", "120", *unit["reload_command"]]
        done = self.run(argv)
        if done.rc:
            self.units[past].remove(name)
            raise Refusal(f"{name}: {' '.join(argv[:3])} failed: {done.tail(1)}; {self.last_words(name)}")
        if verb in ("start", "restart", "reload"):
            self.has_loaded(unit)

    def last_words(self, name):
        done = self.run(["journalctl", "-u", name, "-n", "6", "-o", "cat", "--no-pager", "-q"])
        return f"its last words: {done.tail(6)}" if done.rc == 0 and done.out.strip() else "its journal is empty"


def package_errors(done):
    """The lines that say why, out of a package manager's many."""
    lines = done.out.splitlines()
    telling = r"E: (?!Sub-process)|dpkg: error|Error:|error:| Problem|No match for|.*No space left|.*Read-only file system"
    why = []
    for number, line in enumerate(lines):
        if re.match(telling, line):
            why.append(line.strip())
            why += [lines[number + 1].strip()] if line.startswith("dpkg: error") and number + 1 < len(lines) else []
    return " | ".join(dict.fromkeys(why[:5])) or done.tail()


def explain(error):
    """One sentence for an error of the operating system."""
    where = f" ({error.filename})" if error.filename else ""
    advice = {errno.ENOSPC: "the file system is full; make room and run again", errno.EDQUOT: "the quota is used up",
              errno.EROFS: "the file system is mounted read-only", errno.EBUSY: "it is a mount point and cannot be replaced"}  # fmt: skip
    return f"{advice.get(error.errno, error.strerror)}{where}"


def secret_words(wanted):
    """Every word of the secrets: a validator or a daemon may quote them in what it says."""
    texts = [entry["content"].encode("latin-1").decode(errors="replace") for entry in wanted["paths"] if entry.get("secret")]
    texts += [user["password"] for user in wanted["users"] if user.get("password")]
    words = {word for text in texts for word in re.split(r"[\s=:,;\"']+", text) + text.splitlines() if len(word) >= 6}
    return sorted(words, key=len, reverse=True)


def main(arguments, root="/", run=spawn):
    result = {"changed": False}
    work = None
    wanted = json.loads(zlib.decompress(base64.b64decode(json.loads(arguments)["payload"])))
    try:
        if not root.strip("/") and os.geteuid() != 0:
            raise Refusal("converge works as root only: say become: true")
        work = Converge(wanted, root, run)
        work.apply()
        result = work.result()
    except (Refusal, OSError) as error:
        why = explain(error) if isinstance(error, OSError) else str(error)
        for word in secret_words(wanted):
            why = why.replace(word, "********")
        result = dict(work.result() if work else result, failed=True, msg=why)
    print(json.dumps(result))
    return 1 if result.get("failed") else 0


if __name__ == "__main__":
    sys.exit(main(r"""<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>"""))
