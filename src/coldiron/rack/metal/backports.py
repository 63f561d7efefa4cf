"""``python -m coldiron.rack.metal.backports DIRECTORY``: apt's way to this release's backports, for QEMU.

Writes ``apt.conf`` and ``parts/`` with the machine's own sources and its archive's backports; the machine's own
configuration stays as it is.
"""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

from coldiron.rack.aptsource import backports, read_host
from coldiron.rack.host import Host

APT = Path("/etc/apt")


def write(directory: Path, apt: Path, dump: str, codename: str) -> Path:
    """Write the configuration into ``directory`` and return the file for APT_CONFIG."""
    parts = directory / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    for path in (apt / "sources.list.d").glob("*"):
        if path.suffix in {".list", ".sources"}:
            shutil.copy(path, parts / path.name)
    (parts / "coldiron-backports.list").write_text(backports(read_host(apt, dump), codename))
    config = directory / "apt.conf"
    config.write_text(
        f'Dir::Etc::SourceParts "{parts}";\nAPT::Default-Release "{codename}-backports";\n', encoding="utf-8"
    )
    return config


def main(directory: str) -> None:
    """Write it for this machine, and print the file's path."""
    codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
    print(write(Path(directory), APT, Host().run(["apt-config", "dump"]).stdout, codename))


if __name__ == "__main__":
    main(sys.argv[1])
