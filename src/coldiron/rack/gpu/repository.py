"""What nodes with simulated GPUs install from: the makers' packages as fixtures, the simulated driver among them."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from coldiron.rack.aptsource import AptSource, codename_of
from coldiron.rack.gpu.package import build as build_driver
from coldiron.rack.gpu.package import digest, sources
from coldiron.rack.gpu.toolkit import build as build_toolkit
from coldiron.rack.host import CommandError, Host
from coldiron.rack.layout import Layout
from coldiron.rack.state import write_atomically
from coldiron.testing.aptrepo import Deb, Package, SigningKey, build
from coldiron.testing.aptrepo.fixtures import driver_versions, fixtures
from coldiron.testing.aptrepo.sources import pyxis
from coldiron.testing.stages import find_collection

# Where the nodes have it.
MOUNTED = "/srv/coldiron-fixtures"
# A directory in it for packages of Python, of which role gpu_exporter says the hashes; and what nodes take.
WHEELS = "wheels"
REQUIREMENTS = Path("roles/gpu_exporter/files/nvitop-requirements.txt")
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_28_x86_64")
# Programs of Debian's that talk to the driver, and lie in components that a node need not have.
PROGRAMS = ("nvidia-smi", "slurm-wlm-nvml-plugin")
# The release whose programs these are: their packages pin the library in its version.
DISTRIBUTION = "debian-13"
_SECONDS = 300.0


def place(layout: Layout) -> Path:
    """The repository's directory on this machine."""
    return layout.data / "fixtures"


def described(layout: Layout) -> Path:
    """The file beside the inventory that says how nodes reach the repository."""
    return layout.own / "fixtures.json"


def making() -> str:
    """What tells one making of the repository from another: all that goes into it."""
    recipe = resources.files("coldiron.testing.aptrepo")
    texts = [
        entry.read_text(encoding="utf-8")
        for entry in recipe.iterdir()
        if entry.name.endswith((".py", ".yml"))
    ]
    own = resources.files("coldiron.rack.gpu")
    parts = [
        *sorted(texts),
        *(own.joinpath(name).read_text(encoding="utf-8") for name in ("repository.py", "toolkit.py")),
        (find_collection() / REQUIREMENTS).read_text(encoding="utf-8"),
    ]
    return f"{digest(sources())}-{hashlib.sha256(''.join(parts).encode()).hexdigest()[:12]}"


def apt_command(work: Path, proxy: str, *words: str) -> list[str]:
    """apt-get that knows this one archive and touches nothing of the machine's own."""
    settings = {
        "Dir::State": work / "state",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": work / "cache",
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": "-",
        "Dir::Etc::preferencesparts": "-",
        "Acquire::http::Proxy": proxy,
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
    }
    return [
        "apt-get",
        "-q",
        *(word for key, value in settings.items() for word in ("-o", f"{key}={value}")),
        *words,
    ]


def programs(host: Host, store: Path, apt: AptSource, proxy: str) -> list[Path]:
    """Debian's packages of the programs, fetched if ``store`` has none. Raises CommandError."""
    if not store.is_dir():
        work = store.with_name(f".{store.name}")
        shutil.rmtree(work, ignore_errors=True)
        for directory in ("state/lists/partial", "cache/archives/partial", "debs"):
            (work / directory).mkdir(parents=True)
        codename = codename_of(DISTRIBUTION)
        text = "".join(
            f"deb [signed-by={apt.keyring}] {line.split()[1]} {line.split()[2]} contrib non-free\n"
            for line in apt.sources(DISTRIBUTION).splitlines()
            if line.split()[2] == codename
        )
        (work / "sources.list").write_text(text)
        for words in (("update",), ("download", *PROGRAMS)):
            command = ["env", "-C", str(work / "debs"), *apt_command(work, proxy, *words)]
            host.run(command, what="fetching Debian's NVML programs", timeout_seconds=_SECONDS)
        (work / "debs").rename(store)
        shutil.rmtree(work)
    return sorted(store.glob("*.deb"))


def wheels(host: Host, store: Path, requirements: Path, target: Path) -> None:
    """Python packages that ``requirements`` names by their hashes, in ``target``, fetched if ``store`` has none of it.

    Raises CommandError.
    """
    kept = store / hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    if not kept.is_dir():
        work = store / f".{kept.name}"
        shutil.rmtree(work, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
        command += ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--python-version", "3.11"]
        command += [word for platform in PLATFORMS for word in ("--platform", platform)]
        command += ["--requirement", str(requirements), "--dest", str(work)]
        host.run(command, what="fetching nvitop-exporter", timeout_seconds=_SECONDS)
        work.rename(kept)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(kept, target)


def make(host: Host, layout: Layout, apt: AptSource, proxy: str, say: Callable[[str], None]) -> None:
    """Make the repository of a rack, if it has none of this making yet."""
    mark = making()
    description = described(layout)
    if description.exists() and json.loads(description.read_text())["made"] == mark:
        return
    say("making the fixture packages and the simulated GPUs' driver, once")
    drivers = build_driver(host, layout.machine, driver_versions())
    fetched = programs(host, layout.machine.cache / "gpu-programs", apt, proxy)
    key = SigningKey.make(layout.data / "fixtures-key")
    packages: list[Package | Deb] = [*fixtures(simulated=True)]
    packages += [Deb(path) for path in (*drivers, *fetched)]
    # Without Go the container toolkit stays a fixture, which describes no GPU.
    packages += [Deb(path) for path in [build_toolkit(host, layout.machine)] if path]
    build(place(layout), packages, key)
    requirements = find_collection() / REQUIREMENTS
    try:
        wheels(host, layout.machine.cache / "gpu-wheels", requirements, place(layout) / WHEELS)
    except CommandError as error:
        # Only role gpu_exporter misses them, and says so.
        say(f"without nvitop-exporter: {error}")
    name, source = pyxis()
    (place(layout) / name).write_bytes(source)
    public = layout.own / "fixtures.asc"
    write_atomically(public, key.public)
    repository = {
        "uris": [f"file:{MOUNTED}"],
        "suites": ["./"],
        "key": str(public),
        "fingerprints": [key.fingerprint],
    }
    write_atomically(description, json.dumps({"made": mark, "repository": repository}, indent=2) + "\n")
