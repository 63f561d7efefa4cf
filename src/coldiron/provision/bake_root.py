"""The root of an image once its packages are in: nothing of the builder or of one node stays, and it is looked at.

Everything here works on a directory and leaves the machine alone.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_whole
from coldiron.rack.host import Host

# What a node has of its own, or what was true where the image was made. Patterns below the root.
_PRIVATE = (
    "etc/hostname",
    "etc/resolv.conf",
    "etc/ssh/ssh_host_*",
    "etc/munge/munge.key",
    "etc/ssl/private/ssl-cert-snakeoil.key",
    "etc/ssl/certs/ssl-cert-snakeoil.pem",
    "etc/iscsi/initiatorname.iscsi",
    "etc/nvme/hostid",
    "etc/nvme/hostnqn",
    "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/apt/sources.list.d/*",
    "etc/dpkg/dpkg.cfg.d/99mmdebstrap",
    "usr/sbin/policy-rc.d",
    "var/lib/dbus/machine-id",
    "var/lib/systemd/random-seed",
    "var/lib/systemd/credential.secret",
    "var/lib/apt/lists/*",
    "var/lib/dpkg/*-old",
    "var/cache/apt/*",
    "var/cache/debconf/*-old",
    "var/cache/ldconfig/aux-cache",
    "var/cache/man/*",
    "var/tmp/*",
    "tmp/*",
    "run/*",
    "dev/*",
    "root/.ansible",
    "root/.cache",
    "root/.bash_history",
    ".coldiron-converge.*",
)
_HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
# Where a word of the builder could be left. Files of packages are the archive's, not the builder's.
_OF_PACKAGES = ("var/lib/dpkg/info", "etc/apt/trusted.gpg.d")
_SEARCHED = ("etc", "root", "home", "srv", "opt", "var", "boot/grub")
_LONGEST_SEARCHED = 4 * 1024 * 1024
_MODULE_FILE = re.compile(r"(?:^|/)([^/ ]+)\.ko(?:\.\w+)?(?=[:\s]|$)")


def clean(root: Path, apt_sources: Iterable[str]) -> None:
    """Take out what is the builder's or one node's, and give the root the archive that the site declares."""
    for pattern in _PRIVATE:
        for path in root.glob(pattern):
            _erase(path)
    # The directories stay: daemons want theirs to be there.
    for path in [path for path in (root / "var/log").rglob("*") if not path.is_dir() or path.is_symlink()]:
        path.unlink()
    # Empty: systemd makes one at boot, without the questions of a first boot.
    (root / "etc/machine-id").write_text("")
    (root / "etc/hosts").write_text(_HOSTS)
    sources = root / "etc/apt/sources.list"
    sources.parent.mkdir(parents=True, exist_ok=True)
    sources.write_text("".join(f"{line}\n" for line in apt_sources))
    for directory, mode in (("root/.ssh", 0o700), ("var/cache/apt/archives/partial", 0o700)):
        (root / directory).mkdir(parents=True, exist_ok=True)
        (root / directory).chmod(mode)
    # What logs in needs these to be there.
    for name, mode in (("wtmp", 0o664), ("btmp", 0o660), ("lastlog", 0o664)):
        path = root / "var/log" / name
        path.write_bytes(b"")
        path.chmod(mode)
        shutil.chown(path, 0, _group(root, "utmp"))
    (root / "var/log/journal").mkdir(exist_ok=True)


def settle(root: Path, chroot: Path, quiet_units: Iterable[str], host: Host) -> None:
    """Work out once what each node would at its first boot, and keep quiet what has no configuration yet."""
    for command in (["ldconfig"], ["journalctl", "--update-catalog"]):
        host.run([str(chroot), str(root), *command], what=f"{command[0]} in the image")
    there = [unit for unit in quiet_units if _has_unit(root, unit)]
    for verb, units in (("disable", there), ("enable", ["systemd-networkd.service"])):
        if units:
            host.run(
                [str(chroot), str(root), "systemctl", verb, *units], what=f"systemctl {verb} in the image"
            )


def stamp(root: Path) -> None:
    """Say that nothing is left to be updated at the first boot. The last thing that is written."""
    for name in ("etc/.updated", "var/.updated"):
        (root / name).write_text("")


def kernel_of(root: Path) -> str:
    """The version of the one kernel in the root. Raises ColdironError where there is none, or one too many."""
    versions = sorted(
        path.name for path in (root / "usr/lib/modules").glob("*") if (path / "kernel").is_dir()
    )
    if len(versions) != 1:
        raise ColdironError(
            f"the image has {len(versions)} kernels ({', '.join(versions) or 'none'}); it must have one: look at "
            "image_kernel and image_packages",
            ExitCode.REFUSED,
        )
    version = versions[0]
    for name in (f"vmlinuz-{version}", f"initrd.img-{version}"):
        if not (root / "boot" / name).is_file():
            raise ColdironError(f"the image has no /boot/{name}", ExitCode.HOSTS_FAILED)
    return version


def missing_modules(root: Path, version: str, wanted: Iterable[str]) -> list[str]:
    """Those of the drivers ``wanted`` that the kernel has neither as a module nor built in."""
    folder = root / "usr/lib/modules" / version
    known = set()
    for name in ("modules.dep", "modules.builtin"):
        text = (folder / name).read_text(encoding="utf-8", errors="replace")
        known |= {
            match[1].replace("-", "_")
            for line in text.splitlines()
            if (match := _MODULE_FILE.search(line.split(":", 1)[0]))
        }
    return [module for module in wanted if module.replace("-", "_") not in known]


def packages_of(root: Path, host: Host) -> dict[str, str]:
    """Package to version. Raises ColdironError where one is only half installed."""
    done = host.run(
        [
            "dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", "--show",
            "--showformat=${db:Status-Abbrev}\\t${Package}\\t${Version}\\n",
        ],
        what="listing the image's packages",
    )  # fmt: skip
    rows = [line.split("\t") for line in done.stdout.splitlines() if line]
    # Removed, but for its configuration: no package any more.
    rows = [row for row in rows if row[0][1] not in "nc"]
    if broken := [name for status, name, _ in rows if status[1:] != "i "]:
        raise ColdironError(
            f"the image is not whole: {', '.join(broken)} did not install to the end", ExitCode.HOSTS_FAILED
        )
    return {name: version for _, name, version in sorted(rows)}


def leftovers(root: Path, words: Collection[str]) -> dict[str, str]:
    """Files that hold one of ``words``: path below the root to the word, which may be a secret."""
    found: dict[str, str] = {}
    searched = sorted(word.encode() for word in words if word)
    if not searched:
        return found
    pattern = re.compile(b"|".join(map(re.escape, searched)))
    for folder in _SEARCHED:
        for path in sorted((root / folder).rglob("*")):
            if path.is_symlink() or not path.is_file() or path.stat().st_size > _LONGEST_SEARCHED:
                continue
            if str(path.relative_to(root)).startswith(_OF_PACKAGES):
                continue
            if match := pattern.search(path.read_bytes()):
                found[str(path.relative_to(root))] = match[0].decode()
    return found


def refuse_leftovers(root: Path, words: Mapping[str, str]) -> None:
    """Raise ColdironError where a file of the image holds one of ``words``: word to what it is, for people."""
    found = leftovers(root, words.keys())
    if found:
        told = ", ".join(f"/{shown_whole(path)} ({words[word]})" for path, word in list(found.items())[:5])
        raise ColdironError(
            f"the image would carry what belongs to this machine or site: {told}; it was thrown away",
            ExitCode.REFUSED,
        )


def _has_unit(root: Path, unit: str) -> bool:
    return any((root / place / "systemd/system" / unit).exists() for place in ("usr/lib", "etc"))


def _group(root: Path, name: str) -> int:
    for line in (root / "etc/group").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split(":")[2])
    return 0


def _erase(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
