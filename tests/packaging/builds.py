"""Clean checkouts, what is built from them, and empty environments that it is installed into."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
COLLECTION = "ansible_collections/coldiron/cluster"
BUILD_SECONDS = 300
COMMAND_SECONDS = 120
# One moment for every checkout, so that what is built from them can be compared.
MOMENT = "2026-01-01T00:00:00+0000"


def beside(name: str) -> str:
    """The path of a command of the environment that runs the tests."""
    return str(Path(sys.executable).with_name(name))


def call(words: list[str], cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; the caller looks at what came of it."""
    return subprocess.run(
        words,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )


def must(words: list[str], cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command that has to succeed and return its standard output."""
    done = call(words, cwd, env)
    assert done.returncode == 0, f"{' '.join(words)}: rc {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, as nobody in particular."""
    who = {"GIT_AUTHOR_DATE": MOMENT, "GIT_COMMITTER_DATE": MOMENT, "GIT_CONFIG_GLOBAL": os.devnull}
    name = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid", "-c", "safe.directory=*"]
    return must(["git", *name, *words], folder, os.environ | who)


def clean_clone(folder: Path, origin: Path = ROOT) -> Path:
    """Put the files that git tracks in ``origin``, as they are now, into a checkout of its own at ``folder``."""
    for name in git(origin, "ls-files", "-z").split("\0"):
        source = origin / name
        if name and source.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "As it is")
    return folder


@dataclass(frozen=True)
class Dist:
    """What ``make dist`` built."""

    folder: Path

    def one(self, pattern: str) -> Path:
        """The one artifact that the pattern names."""
        (found,) = self.folder.glob(pattern)
        return found

    @property
    def wheel(self) -> Path:
        return self.one("*.whl")

    @property
    def sdist(self) -> Path:
        return self.one("coldiron-[0-9]*.tar.gz")

    @property
    def tarball(self) -> Path:
        return self.one("coldiron-cluster-*.tar.gz")

    def contents(self) -> dict[str, bytes]:
        """All artifacts by name."""
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}


def dist(checkout: Path, out: Path) -> Dist:
    """Build all artifacts of a checkout."""
    must([sys.executable, "scripts/dist.py", "--out", str(out)], checkout)
    return Dist(out)


def in_tar(path: Path) -> dict[str, bytes]:
    """The files in a tarball."""
    with tarfile.open(path) as tar:
        members = [member for member in tar.getmembers() if not member.isdir()]
        assert all(member.isfile() for member in members), "only files and folders are packed"
        files = {member.name: tar.extractfile(member) for member in members}
        return {name: file.read() for name, file in files.items() if file is not None}


def in_wheel(path: Path) -> dict[str, bytes]:
    """The files in a wheel."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


@dataclass(frozen=True)
class Environment:
    """An empty virtual environment with a home and a working directory that nobody else has."""

    folder: Path

    @property
    def packages(self) -> Path:
        (found,) = self.folder.glob("venv/lib/python3*/site-packages")
        return found

    @property
    def elsewhere(self) -> Path:
        """A directory that has nothing to do with a checkout."""
        return self.folder / "elsewhere"

    def make(self, constraints: Path, *packages: str) -> None:
        """Install packages at the lock's versions."""
        for name in ("home", "elsewhere"):
            (self.folder / name).mkdir(parents=True)
        must([sys.executable, "-m", "venv", "--without-pip", "venv"], self.folder)
        python = self.folder / "venv" / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
        must([*pip, "--constraint", str(constraints), *packages], self.folder)

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run one of its commands elsewhere, with nothing of this process's environment."""
        own = {
            "HOME": str(self.folder / "home"),
            "PATH": f"{self.folder}/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = str(self.folder / "venv" / "bin" / words[0])
        return call([command, *words[1:]], self.elsewhere, own | env)

    def output(self, *words: str, **env: str) -> str:
        """Run a command that has to succeed and return its standard output."""
        done = self.run(*words, **env)
        assert done.returncode == 0, f"{words}: rc {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def constraints(lock: Path) -> str:
    """The versions of a lock without its hashes, which pip would then ask of what was just built, too."""
    pins = re.findall(
        r"^([\w.-]+==[^\s;]+)( ; [^\\\n]+?)? *\\?$", lock.read_text(encoding="utf-8"), re.MULTILINE
    )
    return "".join(f"{pin}{marker}\n" for pin, marker in pins)


def example_inventory(target: Path) -> Path:
    """The virtual inventory as a newcomer has it, without secrets."""
    source = ROOT / "inventories" / "virtual"
    for name in git(ROOT, "ls-files", "-z", "inventories/virtual").split("\0"):
        if name:
            place = target / (ROOT / name).relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place)
    return target
