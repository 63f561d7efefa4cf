"""What the root of an image is made of: packages, archive, and the files that are there before the first package is."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.aptsource import KEYRING, AptSource, codename_of, through_cache
from coldiron.rack.host import CommandError, Host

# What the bake itself does to a root beside its files and its command, which are told word by word.
_PROGRAM = ("bake_root.py", "files/chroot.sh")
APT_HELPER = "/usr/lib/apt/apt-helper"
NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Options:
    """The options of role `image` that an image is made by, worked out for one distribution."""

    kernel: str
    packages: tuple[str, ...]
    firmware: tuple[str, ...]
    firmware_missing: str
    component: str
    modules: tuple[str, ...]
    initramfs: str
    initramfs_modules: tuple[str, ...]
    apt_sources: tuple[str, ...]
    quiet_units: tuple[str, ...]


def options_from(values: Mapping[str, Any], system: Mapping[str, Any]) -> Options:
    """The options from the role's variables and from what it knows of the distribution. Raises ColdironError."""

    def texts(name: str) -> tuple[str, ...]:
        value = values[name]
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise ColdironError(f"{name} is no list of texts; write one to the inventory's group_vars")
        return tuple(value)

    for name, choices in (
        ("image_kernel", tuple(system["kernels"])),
        ("image_firmware_missing", ("warn", "refuse")),
        ("image_initramfs", ("list", "most")),
    ):
        if values[name] not in choices:
            raise ColdironError(f"{name}: `{values[name]}` is none of {', '.join(choices)}")
    for name in ("image_modules", "image_initramfs_modules"):
        for module in texts(name):
            if not NAME.fullmatch(module):
                raise ColdironError(f"{name}: `{module}` is no name of a kernel module")
    return Options(
        kernel=str(system["kernels"][values["image_kernel"]]),
        packages=(*system["packages"], *texts("image_packages")),
        firmware=texts("image_firmware"),
        firmware_missing=values["image_firmware_missing"],
        component=str(system["component"]),
        modules=texts("image_modules"),
        initramfs=values["image_initramfs"],
        initramfs_modules=texts("image_initramfs_modules"),
        apt_sources=texts("image_apt_sources"),
        quiet_units=tuple(system["quiet_units"]),
    )


@dataclass(frozen=True)
class Archive:
    """The archive that is baked from: sources as apt reads them, and what tells one state of it from another.

    ``dates``: suite to the date of its Release file. ``components``: those that this machine installs from.
    ``direct``: the sources without a package cache between, as a node takes them.
    """

    sources: str
    keyring: str
    apt_options: tuple[str, ...]
    dates: Mapping[str, str]
    components: tuple[str, ...]
    direct: tuple[str, ...] = ()

    @property
    def epoch(self) -> int:
        """The date of the youngest Release file, in seconds since the epoch."""
        return max(int(parsedate_to_datetime(date).timestamp()) for date in self.dates.values())


def archive(distribution: str, apt: AptSource, host: Host, cache_port: int | None) -> Archive:
    """This machine's archive as it stands. Raises ColdironError where it does not answer.

    ``cache_port``: where the rack's package cache listens on the loopback; None where none runs.
    """
    codename = codename_of(distribution)
    dates, lines, components = release_dates(distribution, apt, host), [], tuple(apt.parts[0][2])
    for suffix, uri, parts in apt.parts:
        suite = f"{codename}{suffix}"
        address = through_cache(uri) if cache_port else uri
        lines.append(f"deb {address} {suite} {' '.join(parts)}\n")
    proxy = f"http://127.0.0.1:{cache_port}" if cache_port else apt.proxy
    settings = {"Acquire::Languages": "none", "Acquire::Retries": "3", **apt.options}
    if proxy:
        settings["Acquire::http::Proxy"] = proxy
    return Archive(
        "".join(lines),
        apt.keyring,
        tuple(f'{key} "{value}"' for key, value in sorted(settings.items())),
        dates,
        components,
        tuple(f"deb {uri} {codename}{suffix} {' '.join(parts)}" for suffix, uri, parts in apt.parts),
    )


def release_dates(distribution: str, apt: AptSource, host: Host) -> dict[str, str]:
    """The date of each suite's Release file. Raises ColdironError where the archive does not answer."""
    codename = codename_of(distribution)
    return {
        f"{codename}{suffix}": _release_date(uri, f"{codename}{suffix}", host) for suffix, uri, _ in apt.parts
    }


def _release_date(uri: str, suite: str, host: Host) -> str:
    """The date of a suite's Release file, fetched by apt's own means: its proxies, its certificates."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "InRelease"
        try:
            host.run(
                [APT_HELPER, "download-file", f"{uri.rstrip('/')}/dists/{suite}/InRelease", str(target)],
                what=f"asking the archive for the state of {suite}",
                timeout_seconds=60.0,
            )
            text = target.read_text(encoding="utf-8", errors="replace")
        except (CommandError, OSError) as error:
            why = error.message if isinstance(error, CommandError) else str(error.strerror)
            raise ColdironError(f"{why}; is there a network?", ExitCode.ENVIRONMENT) from None
    found = re.search(r"^Date: (.+)$", text, re.MULTILINE)
    if not found:
        raise ColdironError(
            f"the archive's Release file of {suite} has no date; is a portal between this machine and it?",
            ExitCode.ENVIRONMENT,
        )
    return found[1].strip()


@dataclass(frozen=True)
class Recipe:
    """All that the root is made of, but what the roles install. ``firmware`` is what can be had of it."""

    distribution: str
    options: Options
    archive: Archive

    @property
    def firmware(self) -> tuple[str, ...]:
        """The packages of firmware that the archive has: all, or none."""
        return self.options.firmware if self.options.component in self.archive.components else ()

    @property
    def apt_sources(self) -> tuple[str, ...]:
        """What the image's nodes install from: as the site declares, else as this machine does."""
        return self.options.apt_sources or self.archive.direct

    @property
    def firmware_missing(self) -> str:
        """One line on the firmware that cannot be had; empty where it can, or where none is wanted."""
        if self.firmware or not self.options.firmware:
            return ""
        return (
            f"no firmware: this machine's sources lack the component {self.options.component}, so the image has "
            f"none of {', '.join(self.options.firmware)}; add it to the sources, or write image_firmware: []"
        )

    @property
    def packages(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.options.packages, self.options.kernel, *self.firmware)))

    def inputs(self) -> dict[str, Any]:
        """What the digest of an image's inputs takes of it: not where the archive is, but how it stands."""
        chosen = asdict(self.options)
        chosen.pop("firmware")
        return {
            "program": [
                digest_of_text(files("coldiron.provision").joinpath(name).read_text("utf-8"))
                for name in _PROGRAM
            ],
            "distribution": self.distribution,
            "options": chosen,
            "packages": self.packages,
            "apt_sources": self.apt_sources,
            "archive": dict(self.archive.dates),
            "files": {path: list(file) for path, file in self.files().items()},
            "command": self._command(),
        }

    def files(self) -> dict[str, tuple[str, int]]:
        """The files that are there before the packages come: path to text and mode."""
        hook = files("coldiron.provision").joinpath("files/initramfs-hook.sh").read_text("utf-8")
        hook = hook.replace("@MODULES@", " ".join(self.options.initramfs_modules))
        return {
            "etc/initramfs-tools/hooks/coldiron": (hook, 0o755),
            # A disk that was swap elsewhere is not waited for.
            "etc/initramfs-tools/conf.d/coldiron": (
                f"MODULES={self.options.initramfs}\nCOMPRESS=zstd\nRESUME=none\n",
                0o644,
            ),
            # Without it mdadm's package writes down the arrays of the machine that bakes.
            "etc/mdadm/mdadm.conf": ("HOMEHOST <ignore>\nMAILADDR root\n", 0o644),
            "usr/sbin/policy-rc.d": (
                "#!/bin/sh\n# Nothing starts while the image is made.\nexit 101\n",
                0o755,
            ),
        }

    def mmdebstrap(self, root: Path, sources: Path) -> list[str]:
        """The command that makes the root; ``COLDIRON_FILES`` is the directory that holds ``files()``."""
        keyrings = dict.fromkeys((KEYRING, self.archive.keyring))
        return [
            # A mount name space of its own: whatever ends mmdebstrap, the host keeps none of its mounts.
            "unshare", "--mount", "--propagation", "private", "--",
            *self._command(),
            *(f"--keyring={keyring}" for keyring in keyrings),
            *(f"--aptopt={line}" for line in self.archive.apt_options),
            codename_of(self.distribution), str(root), str(sources),
        ]  # fmt: skip

    def _command(self) -> list[str]:
        """mmdebstrap's words, but for where the archive is and where the root goes."""
        return [
            "mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory",
            f"--include={','.join(self.packages)}",
            "--dpkgopt=force-unsafe-io",
            # Translations of messages that a server's logs are better without.
            "--dpkgopt=path-exclude=/usr/share/locale/*/LC_MESSAGES/*",
            "--skip=cleanup/apt/lists",
            '--essential-hook=cp -rT "$COLDIRON_FILES" "$1"',
        ]  # fmt: skip


def write_files(files: Mapping[str, tuple[str, int]], below: Path) -> None:
    """Write path to (text, mode) below a directory."""
    for path, (text, mode) in files.items():
        target = below / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)
    for directory in below.rglob("*"):
        if directory.is_dir():
            directory.chmod(0o755)


def digest_of_text(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def plain_inputs(value: Any) -> Any:
    """``value`` as the digest takes it: tuples as lists, keys as text."""
    return json.loads(json.dumps(value))


def words_of(lines: Sequence[str]) -> set[str]:
    """The hosts that lines name by an address; one of this machine with its port."""
    found = {
        match
        for line in lines
        for match in re.findall(r"https?:/*(?:HTTPS/*)?([A-Za-z0-9.-]+\.[A-Za-z0-9-]+(?::\d+)?)", line)
    }
    return {word if word.startswith("127.") else word.partition(":")[0] for word in found}
