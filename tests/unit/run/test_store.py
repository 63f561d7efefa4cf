"""Recorded runs on disk, locks, masks."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.run import lock
from coldiron.run.events import START, EventWriter
from coldiron.run.lock import Holder
from coldiron.run.mask import MASK, Mask
from coldiron.run.state import Outcome
from coldiron.run.store import Runs, base_of, new_name, retention
from tests.unit.run.samples import keep

NOW = 1795280000.0
DAY = 86400.0


def test_runs_are_found_by_what_a_person_types(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    with pytest.raises(ColdironError, match="has no recorded run; `coldiron apply"):
        runs.open("last")
    first, second = keep(runs, NOW), keep(runs, NOW + 60, "failed", "node add")
    assert runs.ids() == [second.id, first.id]
    assert second.id.startswith("20261121T")
    assert "-node-add-" in second.id
    assert runs.open("last").id == second.id
    assert runs.open("last-1").id == runs.open("last~1").id == first.id
    assert runs.open(first.id[:20]).id == first.id
    assert runs.open(second.id[-4:]).id == second.id
    assert [summary.outcome for summary in runs.list()] == ["failed", "ok"]
    with pytest.raises(ColdironError, match="fits 2 runs"):
        runs.open("2026")
    with pytest.raises(ColdironError, match="has no run `lost`; did you mean `last`"):
        runs.open("lost")
    with pytest.raises(ColdironError, match="has only 2 recorded runs"):
        runs.open("last-7")
    with pytest.raises(ColdironError, match="has no run"):
        runs.open("")
    assert (tmp_path / ".coldiron" / ".gitignore").read_text() == "*\n"


def test_a_run_without_an_end_is_killed_or_on(tmp_path: Path) -> None:
    stored = keep(Runs(tmp_path), NOW, "killed")
    assert stored.state().outcome is Outcome.KILLED
    with stored.events.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert stored.is_on()
        assert stored.state().outcome is Outcome.RUNNING
        assert Runs(tmp_path).current() == stored
    assert not stored.is_on()


def test_the_run_that_is_on_is_the_current_one(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    assert runs.current() is None
    first, second = keep(runs, NOW, "killed"), keep(runs, NOW + 5)
    assert runs.current() == second
    with first.events.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert runs.current() == first


def test_a_run_is_found_with_its_header_or_not_at_all(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    earlier = keep(runs, NOW)
    name = new_name("apply", NOW + 60)
    with runs.create(name) as begun:
        writer = EventWriter(begun.events)
        assert runs.ids() == [earlier.id]
        assert runs.open("last").state().header.id == earlier.state().header.id
        writer.write(NOW + 60, START, {"header": {"id": name}})
    assert runs.ids() == [name, earlier.id]
    state = runs.open("last").state()
    assert (state.header.id, state.outcome) == (name, Outcome.RUNNING)
    writer.close()


def test_a_run_that_could_not_begin_leaves_nothing(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    keep(runs, NOW)
    before = sorted(runs.directory.iterdir())

    def on_a_full_disk() -> None:
        with runs.create(new_name("apply", NOW + 60)) as begun:
            begun.events.write_text("half a li")
            raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        on_a_full_disk()
    assert sorted(runs.directory.iterdir()) == before
    # One that was killed then is swept away a day later.
    left = runs.directory / f".{new_name('apply', NOW)}"
    left.mkdir()
    runs.prune(100, 30, NOW + DAY / 2)
    assert left.exists()
    runs.prune(100, 30, NOW + 2 * DAY)
    assert sorted(runs.directory.iterdir()) == before


def test_a_summary_saves_reading_the_events(tmp_path: Path) -> None:
    stored = keep(Runs(tmp_path), NOW)
    stored.keep_summary(stored.state())
    assert stat.S_IMODE((stored.directory / "summary.json").stat().st_mode) == 0o600
    whole = stored.summary()
    stored.events.unlink()
    assert stored.summary() == whole
    (stored.directory / "summary.json").write_text('{"id": 3}')
    with pytest.raises(ColdironError):
        stored.summary()
    assert Runs(tmp_path).list() == []


def test_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(tmp_path)
    old = [keep(runs, NOW - days * DAY).id for days in (50, 40, 3, 1)]
    assert runs.prune(3, 30, NOW) == [old[0]]
    with (runs.directory / old[1] / "events.jsonl").open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert runs.prune(0, 30, NOW) == []
    assert runs.prune(0, 30, NOW) == [old[1]]
    assert sorted(runs.prune(0, 0, NOW)) == sorted(old[2:])
    assert retention() == (100, 30.0)
    monkeypatch.setenv("COLDIRON_KEEP_RUNS", "7")
    assert retention() == (7, 30.0)
    monkeypatch.setenv("COLDIRON_KEEP_DAYS", "-1")
    with pytest.raises(ColdironError, match="COLDIRON_KEEP_DAYS is `-1`; write a whole number"):
        retention()


def test_where_the_inventory_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert base_of(tmp_path) == tmp_path / ".coldiron"
    monkeypatch.setattr(os, "access", lambda path, mode: str(path).endswith("state"))
    fallback = base_of(tmp_path / "hopper")
    assert fallback.parent == tmp_path / "state" / "coldiron"
    assert fallback.name.startswith("hopper-")


def test_what_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / ".coldiron").write_text("a file in the way")
    runs = Runs(tmp_path)
    with pytest.raises(ColdironError, match="cannot be recorded") as caught:
        runs.prepare()
    assert caught.value.exit_code == ExitCode.ENVIRONMENT


# Locks.


def me(run: str = "r1", **more: object) -> Holder:
    return Holder(**{**vars(lock.holder(run, "coldiron apply", NOW)), **more})  # type: ignore[arg-type]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [tmp_path / "lock", tmp_path / "machine.lock"]


@pytest.fixture
def other(files: list[Path]) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the locks."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom coldiron.run import lock\n"
        f"files = [Path(name) for name in {[str(file) for file in files]!r}]\n"
        f"held = lock.take(files, lock.Holder('r0', 'ada', 'head01', 7, 'coldiron apply base', {NOW}), {NOW})\n"
        "print('held', flush=True)\ntime.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_two_runs_do_not_meet(files: list[Path], other: subprocess.Popen[str]) -> None:
    with pytest.raises(ColdironError) as caught:
        lock.take(files, me(), NOW + 240)
    assert caught.value.exit_code == ExitCode.REFUSED
    for word in ("ada on head01 (pid 7)", "4 min ago", "coldiron apply base", "coldiron status"):
        assert word in caught.value.message
    assert "\n" not in caught.value.message
    found = lock.held_by(files)
    assert found is not None
    assert found.run == "r0"
    # The second of the files is enough: clones of the inventory share it.
    with pytest.raises(ColdironError, match="a run is on"):
        lock.take([files[0].with_name("clone"), files[1]], me(), NOW)
    other.kill()
    other.wait()
    assert lock.held_by(files) is None
    with lock.holding(files, me(), NOW) as held:
        assert held.died is not None
        assert (held.died.run, held.died.user) == ("r0", "ada")
    with lock.holding(files, me(), NOW) as held:
        assert held.died is None


def died_beside(files: list[Path], process: subprocess.Popen[bytes]) -> None:
    """Leave the locks as a coldiron that was killed does whose ansible-playbook is ``process``."""
    held = lock.take(files, me("r0"), NOW)
    held.runs_as(process.pid)
    left_behind = files[0].read_text()
    held.release()
    files[0].write_text(left_behind)


def test_ansible_that_outlives_its_coldiron(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_ENDING_SECONDS", 0.3)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        try:
            died_beside(files, process)
            with pytest.raises(ColdironError, match=rf"run r0 lost its coldiron.*kill -- -{process.pid}"):
                lock.take(files, me(), NOW)
            # It has ended, and nobody has asked how: this test is its parent, and has not.
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with lock.holding(files, me(), NOW) as again:
                assert again.died is not None
            assert process.returncode is None
        finally:
            process.kill()


def test_ansible_that_is_about_to_end_is_waited_for(files: list[Path]) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        died_beside(files, process)
        later = threading.Timer(0.5, process.kill)
        later.start()
        with lock.holding(files, me(), NOW) as again:
            assert again.died is not None
        later.join()


def test_a_link_in_place_of_the_lock(tmp_path: Path, files: list[Path]) -> None:
    (tmp_path / "victim").write_text("precious")
    files[1].symlink_to(tmp_path / "victim")
    with pytest.raises(ColdironError, match="is a link; remove it"):
        lock.take(files, me(), NOW)
    assert (tmp_path / "victim").read_text() == "precious"
    files[1].unlink()
    files[1].mkdir()
    with pytest.raises(ColdironError, match=r"cannot be locked|no plain file"):
        lock.take(files, me(), NOW)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"run": 1}', '{"run": "r"}', "\x00" * 5000])
def test_a_lock_file_with_any_text(files: list[Path], text: str) -> None:
    files[0].write_text(text)
    with lock.holding(files, me(), NOW) as held:
        assert held.died is None
        assert json.loads(files[0].read_text())["run"] == "r1"
    assert files[0].read_text() == ""


def test_the_machines_lock_is_the_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "MACHINE_DIRECTORIES", (tmp_path / "none", tmp_path))
    one = lock.paths(tmp_path / "a", "hopper", "10.0.0.1")
    two = lock.paths(tmp_path / "b", "hopper", "10.0.0.1")
    assert one[0] != two[0]
    assert one[1] == two[1]
    assert one[1].parent == tmp_path
    assert lock.paths(tmp_path, "hopper", "10.0.0.2")[1] != one[1]
    assert "/" not in lock.paths(tmp_path, "../../x", "")[1].name
    monkeypatch.setattr(lock, "MACHINE_DIRECTORIES", (tmp_path / "none",))
    assert len(lock.paths(tmp_path, "hopper", "")) == 1


def test_a_span() -> None:
    assert [lock.span(seconds) for seconds in (-3, 5, 61, 7300)] == ["0 s", "5 s", "1 min", "2 h"]


def test_whoever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ada")
    assert lock.user() == "ada"


# Masks.


def test_a_mask_finds_every_form() -> None:
    mask = Mask(["hunter2-hunter2", 'with "quotes" and\nlines-of-it', "yes", "naïve-naïve"])
    assert mask.text("x hunter2-hunter2 y") == f"x {MASK} y"
    assert mask.text('{"a": "with \\"quotes\\" and\\nlines-of-it"}') == f'{{"a": "{MASK}"}}'
    assert mask.text("lines-of-it") == MASK
    assert mask.text(json.dumps("naïve-naïve")) == f'"{MASK}"'
    assert mask.text("yes") == "yes"
    assert mask.data({"hunter2-hunter2": ["hunter2-hunter2", 1, None, ("hunter2-hunter2",)]}) == {
        MASK: [MASK, 1, None, [MASK]]
    }
    assert Mask([]).text("anything") == "anything"


def test_the_longer_secret_goes_first() -> None:
    assert Mask(["secret", "secret-longer"]).text("secret-longer") == MASK


def test_time_is_only_read_where_it_is_needed() -> None:
    assert new_name("apply", time.time())[:4].isdigit()
