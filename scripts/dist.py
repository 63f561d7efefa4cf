"""Build the wheel, the sdist and the Galaxy tarball, byte for byte the same wherever and whenever it is done.

    python scripts/dist.py [--out DIR] [--dirty]

They are built from a copy of the files that git tracks, so nothing else that lies in the checkout gets in, and
nothing follows the virtual environment's links back into it. The wheel is built from the sdist, which proves that
the sdist is whole. SHA256SUMS names all three. Without --dirty, a checkout with changes is refused.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent


def die(sentence: str) -> NoReturn:
    """End with one line."""
    sys.exit(f"coldiron: {sentence}")


def git(*words: str) -> str:
    """What git says about the checkout."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        die(f"git {words[0]}: {done.stderr.strip() or 'failed'}; `make dist` needs a git checkout")
    return done.stdout


def export(target: Path) -> None:
    """Copy the files that git tracks, as they are in the checkout."""
    for name in git("ls-files", "-z").split("\0"):
        source = ROOT / name
        if name and source.is_file() and not source.is_symlink():
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
            place.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def run(words: list[str], cwd: Path, epoch: int) -> None:
    """Run a build; one that fails shows its output and ends this."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(
        words,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        die(f"{' '.join(words)} failed, see above")


def settle(tarball: Path, epoch: int) -> None:
    """Write a .tar.gz again with one time for all that is in it: ansible-galaxy puts the clock's into it."""
    settled = io.BytesIO()
    with (
        tarfile.open(tarball) as old,
        gzip.GzipFile(fileobj=settled, mode="wb", filename="", mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as new,
    ):
        for member in old.getmembers():
            member.mtime = epoch
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member))
    tarball.write_bytes(settled.getvalue())


def build(out: Path, epoch: int) -> list[Path]:
    """Build all three into ``out`` and return their paths, with SHA256SUMS as the last one."""
    commands = Path(sys.executable).parent
    with tempfile.TemporaryDirectory(prefix="coldiron-dist-") as scratch:
        source, built = Path(scratch, "source"), Path(scratch, "built")
        export(source)
        built.mkdir()
        run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(built)], source, epoch)
        galaxy = str(commands / "ansible-galaxy")
        run([galaxy, "collection", "build", "--output-path", str(built)], source, epoch)
        for tarball in built.glob("coldiron-cluster-*.tar.gz"):
            settle(tarball, epoch)
        out.mkdir(parents=True, exist_ok=True)
        # What an earlier version left would be taken for this one's.
        for old in [*out.glob("coldiron-*"), *out.glob("SHA256SUMS")]:
            old.unlink()
        artifacts = [Path(shutil.copy(path, out)) for path in sorted(built.iterdir())]
    sums = out / "SHA256SUMS"
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in artifacts]
    sums.write_text("".join(lines), encoding="utf-8")
    return [*artifacts, sums]


def main() -> None:
    """Build, and say what came of it."""
    parser = argparse.ArgumentParser(description="Build the wheel, the sdist and the Galaxy tarball.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where to (default: dist)")
    parser.add_argument("--dirty", action="store_true", help="build a checkout with uncommitted changes")
    options = parser.parse_args()
    changed = git("status", "--porcelain", "--untracked-files=no").splitlines()
    if changed and not options.dirty:
        die(f"{len(changed)} tracked files have uncommitted changes: commit them, or say --dirty")
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct"))
    for path in build(options.out.resolve(), epoch):
        print(f"{path.stat().st_size // 1024 + 1:6} KiB  {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
