"""Base images: one Debian root a distribution, baked once, shared read-only by all nodes of all racks."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_path
from coldiron.rack.aptsource import KEYRING, AptSource, codename_of
from coldiron.rack.cgroup import Cgroup
from coldiron.rack.host import CommandError, Host
from coldiron.rack.layout import Machine
from coldiron.rack.state import VERSION, read_json, write_atomically

# What a freshly installed Debian server has and a minimal root lacks, as far as a node needs it.
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "openssh-server", "python3", "python3-apt", "sudo", "iproute2",
    "procps", "ca-certificates",
)  # fmt: skip
# A base is about 320 MB with its package lists; mmdebstrap needs room for the packages too.
_ROOM_MIB = 1200
_BAKE_SECONDS = 1800.0


@dataclass(frozen=True)
class Recipe:
    """All that a base image is made of. Two equal recipes make one image."""

    distribution: str
    sources: str
    keyring: str
    apt_options: str
    architecture: str
    script: str
    packages: tuple[str, ...] = PACKAGES

    @property
    def digest(self) -> str:
        text = json.dumps([VERSION, *(getattr(self, name) for name in self.__dataclass_fields__)])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        return f"{self.distribution}-{self.digest}"

    def mmdebstrap(self, target: Path, sources: Path, script: Path, proxy: str) -> list[str]:
        """The command that bakes the image into ``target``."""
        keyrings = dict.fromkeys((KEYRING, self.keyring))
        return [
            # A mount name space of its own: whatever ends mmdebstrap, the host keeps none of its mounts.
            "unshare", "--mount", "--propagation", "private", "--",
            "mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory",
            *(f"--keyring={keyring}" for keyring in keyrings),
            f"--include={','.join(self.packages)}",
            f'--aptopt=Acquire::http::Proxy "{proxy}"',
            '--aptopt=Acquire::Retries "3"',
            *(f"--aptopt={line.rstrip(';')}" for line in self.apt_options.splitlines() if line),
            "--dpkgopt=force-unsafe-io",
            "--skip=cleanup/apt/lists",
            f'--customize-hook=sh {script} "$1"',
            codename_of(self.distribution), str(target), str(sources),
        ]  # fmt: skip


def recipe(distribution: str, apt: AptSource, architecture: str) -> Recipe:
    """The recipe of ``distribution``'s base on this machine."""
    options = {"Acquire::Languages": "none", "Acquire::Retries": "3", **apt.options}
    return Recipe(
        distribution,
        apt.sources(distribution),
        apt.keyring,
        "".join(f'{key} "{value}";\n' for key, value in sorted(options.items())),
        architecture,
        files("coldiron.rack").joinpath("files/prepare-base.sh").read_text(encoding="utf-8"),
    )


def newest(bases: Path, name: str) -> Path | None:
    """The root of the newest finished image called ``name``."""
    found = [base for base in bases.glob(f"{name}-*") if (base / "root").is_dir()]
    return max(found, key=_age) / "root" if found else None


def _age(base: Path) -> int:
    """When an image was baked, in seconds since 1970: its name says so."""
    return int(base.name.rsplit("-", 1)[1])


def baked_for(root: str) -> str:
    """The digest-carrying name of the image at ``root``, for people."""
    return Path(root).parent.name.rsplit("-", 1)[0]


class Bakery:
    """Bakes base images and throws unused ones away."""

    def __init__(self, host: Host, machine: Machine) -> None:
        self.host = host
        self.machine = machine

    def bake(
        self, wanted: Recipe, *, rack: str, cgroup: Cgroup, proxy: str, say: Callable[[str], None]
    ) -> Path:
        """Bake ``wanted`` and return its root. It appears whole or not at all. Raises CommandError."""
        bases = self.machine.bases
        bases.mkdir(parents=True, exist_ok=True)
        refuse_little_room(bases, _ROOM_MIB, f"a base image of {wanted.distribution}")
        say(f"baking the base image of {wanted.distribution}, once: half a minute, some 100 MB of packages")
        work = bases / f".baking.{rack}.{wanted.name}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        (work / "sources.list").write_text(wanted.sources)
        (work / "prepare-base.sh").write_text(wanted.script)
        log = work / "log"
        cgroup.make()
        command = wanted.mmdebstrap(work / "root", work / "sources.list", work / "prepare-base.sh", proxy)
        process = self.host.spawn(
            command,
            cgroup=cgroup.path,
            log=log,
            env={
                "COLDIRON_DISTRIBUTION": wanted.distribution,
                "COLDIRON_APT_OPTIONS": wanted.apt_options,
                "DEBIAN_FRONTEND": "noninteractive",
                "TMPDIR": str(work),
            },
        )
        try:
            code = process.wait(_BAKE_SECONDS)
        finally:
            cgroup.kill()
        if code != 0:
            output = log.read_text(errors="replace")
            shutil.rmtree(work, ignore_errors=True)
            raise CommandError(explain(wanted.distribution, wanted.sources), why(output))
        for leftover in ("sources.list", "prepare-base.sh"):
            (work / leftover).unlink()
        return self.keep(work, wanted.name, wanted.distribution)

    def keep(self, work: Path, name: str, of: str) -> Path:
        """Give a finished base in ``work`` its name, and return its root. The newest one ``of`` something is kept."""
        write_atomically(work / "base.json", json.dumps({"version": VERSION, "distribution": of}) + "\n")
        # Later than what it takes the place of, be that of the same second or of a clock that went back since.
        ages = [_age(older) for older in self._by_distribution().get(of, [])]
        final = self.machine.bases / f"{name}-{max(int(time.time()), *(age + 1 for age in ages), 0)}"
        # All of it on the disk before it gets its name: after a power cut it is whole or not there.
        self.host.run(["sync", "-f", str(work)])
        os.rename(work, final)
        return final / "root"

    def clear_unfinished(self, rack: str) -> None:
        """Remove what a killed bake of ``rack`` left."""
        for work in self.machine.bases.glob(f".baking.{rack}.*"):
            shutil.rmtree(work, ignore_errors=True)

    def clear_unused(self, used: Iterable[str]) -> None:
        """Remove images that a newer one of the same recipe's distribution replaces and no rack stands on."""
        in_use = {Path(root).parent for root in used}
        for bases in self._by_distribution().values():
            for base in sorted(bases, key=_age)[:-1]:
                if base not in in_use:
                    shutil.rmtree(base, ignore_errors=True)

    def _by_distribution(self) -> dict[str, list[Path]]:
        """The finished bases, by what they are of."""
        found: dict[str, list[Path]] = {}
        for base in self.machine.bases.glob("[!.]*/base.json"):
            data = read_json(base) or {}
            found.setdefault(str(data.get("distribution")), []).append(base.parent)
        return found


def explain(distribution: str, sources: str) -> str:
    """What could not be done, with the archive that was asked."""
    return f"baking {distribution} from {sources.split()[1]}"


def why(log: str) -> str:
    """The lines of mmdebstrap's log that say why it failed."""
    lines = [line.strip() for line in log.splitlines()]
    telling = [
        line
        for line in lines
        if line.startswith(("E:", "Err:", "W: Failed")) and "apt-get update" not in line
    ]
    text = "\n".join(dict.fromkeys(telling)) or "\n".join(lines[-3:])
    if "No space left" in log:
        return "No space left on device"
    signs = (
        "Could not resolve",
        "Temporary failure",
        "Could not connect",
        "Connection timed out",
        "503",
        "502",
        "500",
    )
    if any(sign in log for sign in signs):
        first = next((line for line in telling if any(sign in line for sign in signs)), "")
        return f"the mirror does not answer ({first or 'no connection'}); is there a network?"
    return text


def refuse_little_room(path: Path, needed_mib: int, what: str, how: str = "free some") -> None:
    """Raise ColdironError where fewer than ``needed_mib`` MiB are free at ``path``; ``how`` says what to do."""
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free // (1024 * 1024)
    if free < needed_mib:
        raise ColdironError(
            f"{shown_path(path)}: {free} MiB are free, {what} needs {needed_mib}; {how}, then type the same again",
            ExitCode.ENVIRONMENT,
        )
