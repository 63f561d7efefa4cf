"""The read-only view of a node, on this machine: what the kernel refuses inside it. Needs root, and no rack."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from coldiron.testing import onlooker
from coldiron.testing.backend import read_only

pytestmark = pytest.mark.rack


@pytest.fixture
def look():
    """Run a command in the read-only view, on this machine."""

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            read_only(command), shell=True, capture_output=True, text=True, check=False, timeout=60
        )

    return run


def test_nothing_can_be_written(look):
    # Not below a folder for temporary files: there the view has scratch of its own.
    place = Path("/var/lib", f"coldiron-test-{os.getpid()}")
    try:
        answer = look(f"touch {place}; echo x > {place}; exit 3")
        assert answer.returncode == 3
        assert answer.stderr.count("Read-only file system") == 2
        assert not place.exists()
    finally:
        place.unlink(missing_ok=True)


def test_scratch_is_there_and_vanishes(look):
    answer = look("file=$(mktemp) && echo kept > $file && cat $file && echo $file")
    kept, path = answer.stdout.split()
    assert kept == "kept"
    assert not Path(path).exists()


def test_the_view_cannot_be_opened_again(look):
    answer = look("mount -o remount,rw / || mount -t tmpfs none /mnt || umount /tmp || echo shut")
    assert answer.stdout.strip() == "shut"
    status = look("grep Cap /proc/self/status").stdout
    held = {line.split(":")[0]: int(line.split()[1], 16) for line in status.splitlines()}
    kept = sum(1 << number for number in onlooker.KEPT.values())
    # Inheritable ones would come back with the next program of root's.
    assert held["CapInh"] == held["CapAmb"] == 0
    assert held["CapEff"] | held["CapPrm"] | held["CapBnd"] <= kept


def test_other_processes_are_seen_and_out_of_reach(look):
    with subprocess.Popen(["sleep", "60"]) as process:
        answer = look(f"cat /proc/{process.pid}/comm; kill -9 {process.pid}")
        assert answer.stdout.strip() == "sleep"
        assert answer.returncode != 0
        assert process.poll() is None
        process.kill()


def test_what_it_starts_dies_with_it(look):
    mark = f"8{os.getpid()}"
    look(f"setsid sleep {mark} >/dev/null 2>&1 & sleep 0.2")
    running = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # Others come and go.
        with contextlib.suppress(OSError):
            running.append(path.read_bytes())
    assert f"sleep\0{mark}\0".encode() not in running


def test_the_standard_streams_and_the_end_are_the_commands_own(look):
    answer = look("echo out; echo err >&2; kill -9 $$; exit 5")
    assert (answer.stdout, answer.stderr) == ("out\n", "err\n")
    assert answer.returncode in (5, 137)


def test_where_it_cannot_be_done_nothing_is_run(tmp_path):
    """Fails closed: whoever is not root gets no view, and so no command."""
    tmp_path.chmod(0o777)
    words = ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", read_only(f"touch {tmp_path}/run")]
    answer = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")
    assert answer.returncode == onlooker.UNABLE
    assert "this node cannot be looked at read-only: unshare: Operation not permitted" in answer.stderr
    assert not (tmp_path / "run").exists()
