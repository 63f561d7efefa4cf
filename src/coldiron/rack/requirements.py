"""The Debian packages that the rack needs on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.host import Host


@dataclass(frozen=True)
class Requirement:
    """A Debian package, recognised by a command on PATH or by a file."""

    package: str
    command: str = ""
    file: str = ""


REQUIREMENTS = (
    Requirement("systemd-container", command="systemd-nspawn"),
    Requirement("systemd", command="systemd-socket-activate", file="/lib/systemd/systemd-socket-proxyd"),
    Requirement("mmdebstrap", command="mmdebstrap"),
    Requirement("debian-archive-keyring", file="/usr/share/keyrings/debian-archive-keyring.gpg"),
    Requirement("apt-cacher-ng", command="apt-cacher-ng"),
    Requirement("iproute2", command="ip"),
    Requirement("openssh-client", command="ssh"),
    Requirement("util-linux", command="setpriv"),
    Requirement("mount", command="mount"),
)


def missing(host: Host, requirements: tuple[Requirement, ...] = REQUIREMENTS) -> list[str]:
    """The packages that are not here, in the table's order."""
    return [
        requirement.package
        for requirement in requirements
        if (requirement.command and host.which(requirement.command) is None)
        or (requirement.file and not Path(requirement.file).exists())
    ]


def refuse_missing(host: Host) -> None:
    """Raise ColdironError, with the line to type, where a package is missing."""
    if packages := missing(host):
        raise ColdironError(
            f"the virtual rack needs packages that are not here; type: apt-get install {' '.join(packages)}",
            ExitCode.ENVIRONMENT,
        )
