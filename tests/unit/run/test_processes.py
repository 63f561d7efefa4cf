"""Killing a process with all that it started, sessions of their own included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from coldiron.rack.host import wait_until
from coldiron.run.processes import descendants, kill_marked, kill_tree, marked

FAMILY = """\
import subprocess, time
print(subprocess.Popen(["setsid", "sleep", "60"]).pid, flush=True)
time.sleep(60)
"""


def lives(pid: int) -> bool:
    """Whether the process is there, and no zombie that nobody has fetched."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


def test_a_child_in_a_session_of_its_own_is_killed_as_well() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert child in descendants(parent.pid)
        kill_tree(parent.pid)
        assert parent.wait(10) == -9
    assert wait_until(lambda: not lives(child), 10)
    kill_tree(parent.pid)


def test_names_cannot_mislead(tmp_path: Path) -> None:
    for pid, text in ((7, "7 (a) 1 (b) S 5 0 0"), (8, "8 (x y) R 7 0"), (9, "9"), (5, "5 (sh) S 1 0")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(text)
    assert sorted(descendants(5, tmp_path)) == [7, 8]
    assert descendants(os.getpid(), tmp_path) == []


def test_an_orphan_is_found_by_its_mark() -> None:
    mark = f"COLDIRON_TEST_ORPHAN={os.getpid()}-orphan"
    name, _, value = mark.partition("=")
    # The shell ends at once: nothing leads from here to what it leaves behind.
    left = subprocess.run(
        ["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!"],
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        check=True,
    )
    with subprocess.Popen(["sleep", "60"], env={**os.environ, name: value + "-other"}) as other:
        # It has no environment for a moment, while one program takes another's place.
        assert wait_until(lambda: marked(mark) == [int(left.stdout)], 10)
        kill_marked(mark)
        assert marked(mark) == []
        assert other.poll() is None
        other.kill()
    kill_marked(mark)
