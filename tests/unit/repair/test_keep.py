"""One repair a node over all the processes of a run. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.repair import journal, keep
from coldiron.run import lock

HOLD = """
import os, sys, time
from pathlib import Path
from coldiron.repair import keep
# A task's own process, as ansible-playbook forks it: it ends at once, and the lock outlasts it.
owner = os.getpid()
if os.fork() == 0:
    keep.hold(Path(sys.argv[1]), "gpu02", "ansible-playbook", owner, time.time())
    os._exit(0)
os.wait()
if os.fork() == 0:
    print("ours" if keep.ours(Path(sys.argv[1]), "gpu02") else "not ours", flush=True)
    keep.hold(Path(sys.argv[1]), "gpu02", "again", owner, time.time())
    os._exit(0)
os.wait()
time.sleep(60)
"""


def holder(folder: Path) -> lock.Holder | None:
    return lock.held_by([journal.lock_file(folder, "gpu02")])


def wait_until_free(folder: Path) -> None:
    end = time.monotonic() + 10
    while holder(folder) is not None:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_lock_lasts_with_the_process_that_the_repair_belongs_to(tmp_path: Path, number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ours"
            who = holder(tmp_path)
            assert who is not None
            assert (who.pid, who.command) == (process.pid, "ansible-playbook")
            assert not keep.ours(tmp_path, "gpu02")
            with pytest.raises(ColdironError, match=f"gpu02 is being repaired: .*{process.pid}") as refused:
                keep.hold(tmp_path, "gpu02", "me", os.getpid(), time.time())
            assert refused.value.exit_code is ExitCode.REFUSED
            with pytest.raises(ColdironError, match="has ended"):
                keep.check_ours(tmp_path, "gpu02")
        finally:
            process.send_signal(number)
    wait_until_free(tmp_path)
    # Whoever held it has said goodbye: nobody is told that it died.
    held = journal.take(tmp_path, "gpu02", "me", time.time())
    assert held.died is None
    held.release()


def test_a_process_above_holds_it_for_those_below(tmp_path: Path) -> None:
    held = journal.take(tmp_path, "gpu02", "coldiron node repair gpu02", time.time())
    assert keep.ours(tmp_path, "gpu02")
    keep.hold(tmp_path, "gpu02", "ansible-playbook", os.getpid(), time.time())
    keep.check_ours(tmp_path, "gpu02")
    held.release()
    assert not keep.ours(tmp_path, "gpu02")


def test_the_line_of_ancestors_begins_with_the_process_itself() -> None:
    line = keep.ancestors(os.getpid())
    assert line[:2] == [os.getpid(), os.getppid()]
    assert keep.ancestors(2**22 + 1) == [2**22 + 1]


def test_repairs_lie_beside_the_runs_out_of_gits_sight(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yml"
    file.write_text("")
    assert keep.prepare(file) == keep.directory(tmp_path) == tmp_path / ".coldiron" / "repairs"
    assert (tmp_path / ".coldiron" / ".gitignore").read_text() == "*\n"
