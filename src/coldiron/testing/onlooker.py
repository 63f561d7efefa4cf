"""Run one shell command on this node so that it can see everything and change nothing.

It travels to the node as text and runs there under the node's own Python (3.9 or newer), as root:

    python3 -I -S -c SOURCE 'command'

What holds for the command and all that it starts, by the kernel's word and not by its own:

- every file system is read-only; /tmp, /var/tmp and /dev/shm are empty ones of its own that vanish with it;
- raw disks and the machine's own registers cannot be opened, not even to read;
- it has none of the capabilities that change a kernel (mounts, modules, networks, clocks, reboots);
- it lives in a process namespace of its own: it can read about other processes, but not signal them, and
  whatever it starts dies with it.

Daemons are asked over sockets, which the kernel cannot tell from orders. So the programs that give orders
are covered, inside this command's own view of the file system, by a guard that lets questions through and
refuses the rest, under whatever path or shell they are called.

Exit code 77: refused by a guard; 78: this node cannot run a command this way, so nothing was run.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

# Every import costs each command milliseconds: what only types need is not loaded on a node.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

UNABLE = 78

#: Programs that take orders as a word: those let through; options that have a value of their own; whether
#: the program may be called without a word.
VERBS = {
    "systemctl": (
        "is-active is-enabled is-failed is-system-running show cat status help get-default show-environment "
        "list-units list-unit-files list-sockets list-timers list-jobs list-dependencies list-automounts "
        "list-paths list-machines",
        "-p -P -t -n -o -M -H --property --type --state --lines --output --machine --host",
        True,
    ),
    "busctl": ("list status tree introspect get-property monitor capture", "-M -H --machine --host", True),
    "hostnamectl": ("status", "", True),
    "timedatectl": ("status show list-timezones timesync-status show-timesync", "-p --property", True),
    "localectl": ("status list-locales list-keymaps", "", True),
    "loginctl": (
        "list-sessions session-status show-session list-users user-status show-user list-seats seat-status "
        "show-seat",
        "-p --property -n -o",
        True,
    ),
    "resolvectl": ("status query service show-cache", "-i -p -t -c", True),
    "networkctl": ("list status lldp label cat", "-n", True),
    "machinectl": ("list status show list-images image-status show-image", "-p -n -o", True),
    "udevadm": ("info verify settle", "", False),
    "systemd-analyze": (
        "time blame critical-chain plot dot dump cat-config unit-files unit-paths exit-status capability "
        "condition calendar timestamp timespan verify security",
        "",
        True,
    ),
    "scontrol": (
        "show ping token version getaddrs hostnames hostlist hostlistsorted listjobs listpids liststeps help",
        "-M -u",
        False,
    ),
    "sacctmgr": ("show list ping version help", "-M", False),
    "chronyc": (
        "accheck activity authdata cmdaccheck dns ntpdata rtcdata selectdata serverstats smoothing "
        "sourcename sources sourcestats tracking waitsync",
        "-h -p",
        False,
    ),
    "mariadb-admin": ("ping status extended-status variables version processlist", "-u -h -P -S", False),
    "ipmitool": ("sdr sensor fru", "-I -H -U -P -f -L", False),
    "docker": ("ps inspect images version info", "", False),
    "podman": ("ps inspect images version info", "", False),
}
VERBS["mysqladmin"] = VERBS["mariadb-admin"]

#: Programs that are questions unless a word of the call is like one of these.
UNLESS = {
    "journalctl": "--rotate --vacuum* --flush --sync --relinquish-var --smart-relinquish-var --setup-keys",
    "dmesg": "-C -c -D -E -n* --clear --read-clear --console*",
    "sdiag": "-r --reset",
    "curl": "-[!-]*[XdTF]* -[XdTF]* --request* --data* --upload-file* --form* --json*",
    "wget": "--post* --method* --body*",
}

#: Programs that are questions only if every word of the call is like one of these.
ONLY = {
    "exportfs": "-s -v",
    "crontab": "-l -u",
    "nvidia-smi": "-L --list-gpus -q --query* --format* -i --id* -x -d --display* [0-9]* GPU-* topo -m "
    "MEMORY UTILIZATION ECC TEMPERATURE POWER CLOCK COMPUTE PIDS PERFORMANCE ROW_REMAPPER",
}

#: Programs that are always orders: to a scheduler, to a manager of services or to another node.
ORDERS = (  # noqa: SIM905 - read as words
    "srun sbatch salloc scancel sattach sbcast scrontab strigger systemd-run systemd-cat dbus-send gdbus "
    "logger ipcrm nfs-cp nfs-io ssh scp sftp mariadb-import mariadb-upgrade mysqlimport mysql_upgrade"
).split()

CLIENTS = ("mariadb", "mysql")
FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

#: Folders in which the client of a daemon must put the socket that it is answered on.
ANSWERED_IN = ("/run/chrony",)
SCRATCH = ("/tmp", "/var/tmp", "/dev/shm")
OWN = "/tmp/.coldiron"

#: Device files besides disks that act on the machine itself.
REGISTERS = ("mem", "kmem", "port", "rtc", "watchdog", "nvram", "nvme", "ng", "sg", "ipmi", "mtd", "cpu")

#: What a command keeps: to read what is root's or another user's, to become a user, to ask the network.
KEPT = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "DAC_READ_SEARCH": 2, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7,
    "NET_BIND_SERVICE": 10, "NET_RAW": 13, "SYS_PTRACE": 19, "SYS_RESOURCE": 24, "AUDIT_WRITE": 29,
    "SYSLOG": 34,
}  # fmt: skip

CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
MS_NODEV, MS_NOSUID, MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 4, 2, 4096, 16384, 1 << 18, 1 << 19
AT_FDCWD, AT_RECURSIVE, SYS_MOUNT_SETATTR = -100, 0x8000, 442
ATTR_RDONLY, ATTR_NODEV = 1, 4
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 1, 24, 47, 4
CAPABILITY_VERSION_3 = 0x20080522
SIGKILL = 9

# systemctl distrusts a manager whose process it cannot see, unless the bus vouches for it.
HEAD = """#!/bin/sh
export SYSTEMCTL_FORCE_BUS=1
name=${0##*/}
refuse() {
    echo "coldiron: refused: '$name $*' would change something, and this run only looks" >&2
    exit 77
}
"""

MARIADB = """sql= given= wanted=
for word; do
    if [ -n "$wanted" ]; then sql=$word given=1 wanted=; continue; fi
    case $word in
        -e | --execute) wanted=1 ;;
        --execute=*) sql=${word#*=} given=1 ;;
        -e*) sql=${word#-e} given=1 ;;
        -V | --version | --help) exec REAL "$@" ;;
    esac
done
case ${sql%;} in *\\;*) refuse "$@" ;; esac
case $(printf %s "$sql" | tr '[:lower:]' '[:upper:]') in
    *INTO*OUTFILE* | *INTO*DUMPFILE*) refuse "$@" ;;
    SELECT* | SHOW* | DESC* | EXPLAIN*) ;;
    *) refuse "$@" ;;
esac
[ -n "$given" ] || refuse "$@"
exec REAL "$@" --init-command='SET SESSION TRANSACTION READ ONLY'
"""


def any_of(words: str) -> str:
    """Return words as a pattern of the shell's ``case``."""
    return " | ".join(words.split())


def guard(names: set[str], real: str) -> str:
    """Return the guard, a shell script, of a program that is called by these names and lies at ``real``."""
    lines = [HEAD, "case $name in\n"]
    for name in sorted(names):
        lines.append(f"{name})\n{rule(name).replace('REAL', real)};;\n")
    return "".join([*lines, '*) refuse "$@" ;;\nesac\n'])


def rule(name: str) -> str:
    """Return the part of a guard that decides about the program of this name."""
    if name in VERBS:
        allowed, valued, alone = VERBS[name]
        skip = f"{any_of(valued)}) skip=1 ;;\n" if valued else ""
        nothing = "exec REAL" if alone else "refuse"
        return (
            'verb= skip= told=\nfor word; do\nif [ -n "$skip" ]; then skip=; continue; fi\ncase $word in\n'
            + skip
            + "--version | -V | --help) told=1 ;;\n-*) ;;\n*) verb=$word; break ;;\nesac\ndone\n"
            + f'case $verb in\n{any_of(allowed)}) exec REAL "$@" ;;\n'
            + f'"") [ -n "$told" ] && exec REAL "$@"; {nothing} "$@" ;;\n*) refuse "$@" ;;\nesac\n'
        )
    if name in UNLESS:
        return (
            f'for word; do case $word in {any_of(UNLESS[name])}) refuse "$@" ;; esac; done\nexec REAL "$@"\n'
        )
    if name in ONLY:
        return f'for word; do case $word in {any_of(ONLY[name])}) ;; *) refuse "$@" ;; esac; done\nexec REAL "$@"\n'
    if name in CLIENTS:
        return MARIADB
    return 'refuse "$@"\n'


def guarded() -> dict[str, set[str]]:
    """Return the programs of this node that get a guard: the file to the names that it is called by."""
    found: dict[str, set[str]] = {}
    for name in (*VERBS, *UNLESS, *ONLY, *ORDERS, *CLIENTS):
        for folder in FOLDERS:
            path = folder + "/" + name
            if os.path.exists(path):
                found.setdefault(os.path.realpath(path), set()).add(name)
    return found


class Unable(Exception):
    """The kernel does not do what read-only looking needs."""


LIBC = ctypes.CDLL(None, use_errno=True)


def must(status: int, what: str) -> None:
    """Raise Unable with the kernel's reason unless a call succeeded."""
    if status != 0:
        raise Unable(f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2) with text arguments."""
    words = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    status = LIBC.mount(*words, ctypes.c_ulong(flags), None if data is None else data.encode())
    must(status, "mount " + target)


def set_attributes(path: str, on: int, off: int = 0, recursive: bool = False) -> None:
    """mount_setattr(2): switch attributes of the mount at ``path``, or of all below it, on and off."""
    attributes = (ctypes.c_uint64 * 4)(on, off, 0, 0)
    flags = AT_RECURSIVE if recursive else 0
    status = LIBC.syscall(
        ctypes.c_long(SYS_MOUNT_SETATTR), ctypes.c_int(AT_FDCWD), os.fsencode(path), ctypes.c_uint(flags),
        attributes, ctypes.c_size_t(32),
    )  # fmt: skip
    must(status, f"make {path} read-only")


def automounts() -> Iterator[str]:
    """Yield the places where something is mounted once it is looked at."""
    with open("/proc/self/mountinfo") as stream:
        for line in stream:
            words = line.split()
            if words[words.index("-") + 1] == "autofs" and not words[4].startswith("/proc"):
                yield words[4]


def dangerous() -> Iterator[str]:
    """Yield the device files that act on disks or on the machine itself."""
    for folder, folders, names in os.walk("/dev"):
        folders[:] = [name for name in folders if name not in ("pts", "shm", "mqueue", "hugepages")]
        for name in names:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and name.rstrip("0123456789") in REGISTERS):
                yield path


def make_read_only() -> None:
    """Turn this process's view of the file system into one that can be read and not written."""
    mount(None, "/", None, MS_REC | MS_SLAVE)
    for path in automounts():
        try:
            os.listdir(path)  # Mounted now, while what is mounted still arrives here.
        except OSError:
            continue
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    programs = guarded()
    for path in SCRATCH:
        if os.path.isdir(path):
            mount("none", path, "tmpfs", MS_NODEV | MS_NOSUID, "mode=1777,size=64m")
    os.mkdir(OWN, 0o755)
    mount("none", OWN, "tmpfs", MS_NODEV, "mode=0755,size=4m")
    for number, (path, names) in enumerate(sorted(programs.items())):
        folder = f"{OWN}/{number}"
        os.mkdir(folder)
        os.chmod(folder, 0o755)
        real, cover = folder + "/" + os.path.basename(path), folder + "/guard"
        with open(real, "w"), open(cover, "w") as stream:
            stream.write(guard(names, real))
        os.chmod(cover, 0o755)
        mount(path, real, None, MS_BIND)
        mount(cover, path, None, MS_BIND)
    for path in dangerous():
        mount(path, path, None, MS_BIND)
        set_attributes(path, ATTR_NODEV)
    answered = [path for path in ANSWERED_IN if os.path.isdir(path)]
    for path in answered:
        mount(path, path, None, MS_BIND)
    set_attributes("/", ATTR_RDONLY, recursive=True)
    for path in (*answered, *(path for path in SCRATCH if os.path.isdir(path))):
        set_attributes(path, 0, ATTR_RDONLY)


def give_up_power() -> None:
    """Drop every capability that is not kept, for this process's programs and all that they start."""
    must(LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "clear ambient capabilities")
    with open("/proc/sys/kernel/cap_last_cap") as stream:
        last = int(stream.read())
    for number in range(last + 1):
        if number not in KEPT.values():
            must(LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0), f"drop capability {number}")
    # What is inheritable comes back with the next program of root's, whatever the bounding set says.
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    must(LIBC.capget(header, sets), "read capabilities")
    sets[2] = sets[5] = 0
    must(LIBC.capset(header, sets), "drop inheritable capabilities")


def main() -> None:
    """Run the command that is this program's argument and end as it ended."""
    try:
        must(LIBC.unshare(CLONE_NEWNS | CLONE_NEWPID), "unshare")
        child = os.fork()
        if child == 0:
            must(LIBC.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl")
            make_read_only()
            give_up_power()
            os.execv("/bin/sh", ["sh", "-c", sys.argv[1]])
        status = os.waitpid(child, 0)[1]
    except (Unable, OSError, AttributeError) as error:
        sys.stderr.write(f"coldiron: this node cannot be looked at read-only: {error}\n")
        sys.stderr.flush()
        os._exit(UNABLE)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    os._exit(code)


if __name__ == "__main__":
    main()
