"""Whole recorded runs over hosts that are this machine, as a user begins them."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.host import wait_until
from coldiron.run import lock, session
from coldiron.run.catalog import PlayOf
from coldiron.run.events import Event, EventWriter
from coldiron.run.reducer import header_from, no_header
from coldiron.run.session import Request, Watcher, go_on, left, outcome_of, run, shorten
from coldiron.run.state import Outcome, RunState
from coldiron.run.store import Runs, StoredRun
from tests.unit.run.samples import recorded, write_play

SECRET = "hunter2-hunter2"
TELLING = """\
- name: Tell too much
  hosts: here
  gather_facts: false
  tasks:
    - name: Say it
      ansible.builtin.debug: {msg: "the password is {{ db_password }}"}
    - name: Write it
      ansible.builtin.copy: {content: "{{ db_password }}\\n", dest: "{{ playbook_dir }}/{{ inventory_hostname }}"}
    - name: Fail with it
      ansible.builtin.command: "false {{ db_password }}"
      when: inventory_hostname == 'two'
"""
PLAYS = [PlayOf("Say what arrived", "base", "here")]


class Ears(Watcher):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.printed: list[str] = []
        self.updates = 0
        self.ended = False

    def update(self, _state: RunState) -> None:
        self.updates += 1

    def output(self, text: str) -> None:
        self.printed.append(text)

    def say(self, text: str) -> None:
        self.said.append(text)

    def end(self) -> None:
        self.ended = True


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_play(tmp_path)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text(f"db_password: {SECRET}\ngiven: []\n")
    (tmp_path / "telling.yml").write_text(TELLING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lock, "MACHINE_DIRECTORIES", (tmp_path,))
    for name in list(os.environ):
        if name.startswith("ANSIBLE_"):
            monkeypatch.delenv(name)
    return tmp_path


def request(playbook: str = "play.yml", **more: object) -> Request:
    fields: dict[str, object] = {
        "verb": "apply",
        "inventory": Path("hosts.yml"),
        "playbooks": [playbook],
        "plays": PLAYS,
        "command": ["coldiron", "apply", "-i", "hosts.yml"],
        "plain": f"ansible-playbook {playbook} -i hosts.yml",
    }
    return Request(**{**fields, **more})  # type: ignore[arg-type]


def test_a_run_is_recorded(place: Path) -> None:
    ears = Ears()
    state, stored = run(request(extravars={"given": ["x"]}, limit=["one"], check=False), ears)
    assert state.outcome is Outcome.OK
    assert list(state.hosts) == ["one"]
    assert state.header.hosts == ["one"]
    assert state.header.cluster == place.name
    assert state.header.versions["ansible-core"]
    assert state.stages["base"].plays == ["Say what arrived"]
    assert stored.state() == state
    assert "TASK [Write it down]" in stored.log.read_text()
    assert "\x1b[" not in stored.log.read_text()
    assert ears.updates > 5
    assert ears.ended
    assert Runs(place).list()[0].changed == 1
    assert not list(Path(tempfile.gettempdir()).glob(f"coldiron-run-{stored.id}"))
    assert (place / ".coldiron" / "lock").read_text() == ""
    for path in (stored.events, stored.log, stored.directory / "summary.json"):
        assert path.stat().st_mode & 0o077 == 0


def test_no_secret_is_recorded_or_shown(place: Path) -> None:
    ears = Ears()
    plays = [PlayOf("Tell too much", "base", "here")]
    state, stored = run(request("telling.yml", plays=plays, verbosity=4), ears)
    assert (place / "one").read_text() == f"{SECRET}\n"
    assert state.outcome is Outcome.FAILED
    for path in stored.directory.iterdir():
        assert SECRET not in path.read_text(), path
    assert "the password is ********" in stored.log.read_text()
    assert SECRET not in "\n".join(ears.printed)
    (failure,) = [one for one in state.failures if one.host == "two"]
    assert failure.sentence == "`false ********` ended with 1"
    assert any("+********" in change.diff for change in state.changes)
    assert go_on(state) == "coldiron apply -i hosts.yml --limit two"


def test_who_is_locked_out(place: Path) -> None:
    runs = Runs(place)
    runs.prepare()
    files = lock.paths(runs.base, place.name, "")
    with lock.holding(files, lock.holder("r0", "coldiron apply base", time.time()), time.time()):
        pass
    # flock knows no process, only open files: another one in this process is locked out as well.
    held = lock.take(files, lock.holder("r0", "coldiron apply base", time.time()), time.time())
    try:
        with pytest.raises(ColdironError, match=r"a run is on: .* coldiron apply base") as caught:
            run(request(), Ears())
        assert caught.value.exit_code == ExitCode.REFUSED
        assert runs.ids() == []
        ears = Ears()
        state, _ = run(request(check=True, extravars={"given": []}), ears)
        assert state.outcome is Outcome.OK
        assert "a run is on" in ears.said[0]
    finally:
        held.release()


def test_a_dead_run_is_replaced(place: Path) -> None:
    (place / ".coldiron").mkdir()
    dead = vars(lock.holder("r0", "coldiron apply", time.time() - 60)) | {"user": "ada", "group": 0}
    (place / ".coldiron" / "lock").write_text(json.dumps(dead))
    ears = Ears()
    run(request(check=False, extravars={"given": []}), ears)
    assert ears.said == ["run r0 of ada ended without a word; this run takes its place"]


def test_a_playbook_that_is_wrong(place: Path) -> None:
    (place / "play.yml").write_text("- name: Base\n  hosts: all\n  taks: []\n")
    state, _ = run(request(), Ears())
    assert state.outcome is Outcome.ERROR
    assert state.exit_code == 5
    assert "taks" in " ".join(state.messages)


def test_a_text_in_place_of_playbooks(place: Path) -> None:
    text = f"- ansible.builtin.import_playbook: {place}/play.yml\n"
    state, stored = run(request("coldiron.cluster.base", playbook_text=text), Ears())
    assert state.outcome is Outcome.OK
    assert (stored.directory / "playbook.yml").read_text() == text
    assert state.header.playbooks == ["coldiron.cluster.base"]


def test_a_view_that_fails_ends_the_run(place: Path) -> None:
    class Closed(Ears):
        def output(self, text: str) -> None:
            if "TASK" in text:
                raise BrokenPipeError(errno.EPIPE, "nobody reads")

    with pytest.raises(BrokenPipeError):
        run(request(extravars={"given": [], "wait": 50}), Closed())
    (name,) = Runs(place).ids()
    assert StoredRun(Runs(place).directory / name).state().outcome is Outcome.INTERRUPTED


SCRIPT = """\
import resource, signal, sys
from pathlib import Path
from coldiron.errors import ColdironError
from coldiron.run import lock
from coldiron.run.catalog import PlayOf
from coldiron.run.session import Request, Watcher, run, left, go_on
lock.MACHINE_DIRECTORIES = (Path.cwd(),)
class Ears(Watcher):
    def say(self, text): print(text, flush=True)
if len(sys.argv) > 1:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
request = Request("apply", Path("hosts.yml"), ["play.yml"], [PlayOf("Say what arrived", "base", "here")],
                  ["coldiron", "apply"], "", extravars={"given": [], "wait": 50})
try:
    state, stored = run(request, Ears())
except ColdironError as error:
    print(int(error.exit_code), error.message)
else:
    print(state.outcome, state.exit_code, left(state), go_on(state))
"""


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert path.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_run_and_says_what_is_left(place: Path, number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    _wait_for(place / "seen.json")
    process.send_signal(number)
    output, _ = process.communicate(timeout=50)
    *said, last = output.splitlines()
    assert "stopping: what runs now may end; Ctrl-C again kills it" in said
    assert last.startswith("interrupted 4 [")
    assert last.endswith("coldiron apply")
    runs = Runs(place)
    state = runs.open("last").state()
    assert state.outcome is Outcome.INTERRUPTED
    assert state.stopping
    assert (place / ".coldiron" / "lock").read_text() == ""


def all_wait(state: RunState) -> bool:
    """Whether each host is in the play's task that waits."""
    return bool(state.hosts) and all(
        host.running is not None and host.running.task == "Wait" for host in state.hosts.values()
    )


def test_a_killed_run_is_seen_as_killed(place: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.DEVNULL)
    _wait_for(place / "seen.json")
    runs = Runs(place)
    assert wait_until(lambda: all_wait(runs.open("last").state()), 60, 0.1)
    assert runs.open("last").state().outcome is Outcome.RUNNING
    process.kill()
    process.wait()
    stored = runs.open("last")
    state = stored.state()
    assert state.outcome is Outcome.KILLED
    assert left(state)[0] == "cut off in base: one, two"
    remains = Path(tempfile.gettempdir()) / f"coldiron-run-{stored.id}"
    # Without setpriv its ansible-playbook lives until it next says something, and is waited for.
    # One that hangs in its own end, as Ansible's threads may when they are interrupted, is ended as the message says.
    began = time.monotonic()
    ears = Ears()
    while time.monotonic() < began + 90:
        try:
            run(request(extravars={"given": []}), ears)
            break
        except ColdironError as error:
            if "lost its coldiron" not in error.message:
                raise
            if time.monotonic() > began + 30:
                os.killpg(int(error.message.rpartition("kill -- -")[2]), signal.SIGKILL)
            time.sleep(0.5)
    assert ears.said == [f"run {stored.id} of {lock.user()} ended without a word; this run takes its place"]
    assert not remains.exists()


def test_a_disk_that_is_full_already(place: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, "300"], capture_output=True, text=True, timeout=60)
    (line,) = done.stdout.splitlines()
    assert line.startswith("5 ")
    assert "the run cannot be recorded: File too large; make room" in line


def test_a_disk_that_fills_up_stops_the_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = EventWriter.write

    def full(self: EventWriter, moment: float, kind: str, data: Mapping[str, Any]) -> Event:
        if self.number > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, moment, kind, data)

    monkeypatch.setattr(EventWriter, "write", full)
    with pytest.raises(
        ColdironError, match="No space left on device; make room; ansible-playbook was stop"
    ) as caught:
        run(request(extravars={"given": [], "wait": 50}), Ears())
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    assert "\n" not in caught.value.message
    assert Runs(place).list()[0].outcome == "killed"


def test_how_a_run_ended() -> None:
    nothing = RunState(no_header())
    assert outcome_of(0, nothing, stopped=False) is Outcome.OK
    assert outcome_of(0, nothing, stopped=True) is Outcome.INTERRUPTED
    assert outcome_of(4, nothing, stopped=False) is Outcome.ERROR
    assert outcome_of(-9, nothing, stopped=False) is Outcome.ERROR
    assert outcome_of(4, recorded("unreachable"), stopped=False) is Outcome.UNREACHABLE
    assert outcome_of(2, recorded("failed"), stopped=False) is Outcome.FAILED
    looked = recorded("failed")
    looked.changes.clear()
    for name in ("base", "storage", "scheduler"):
        looked.stages[name].started = None
    assert outcome_of(2, looked, stopped=False) is Outcome.REFUSED


def test_how_to_go_on() -> None:
    assert go_on(recorded("ok")) == ""
    state = recorded("failed")
    state.header.command = [
        "coldiron",
        "apply",
        "base",
        "--limit",
        "gpu*,head01",
        "-lx",
        "--limit=y",
        "-i",
        "inv",
    ]
    assert go_on(state) == "coldiron apply base -i inv --limit gpu01"
    # Ansible gave up on all hosts: all of them have something left.
    given_up = recorded("loop")
    assert go_on(given_up) == "coldiron apply -i inventories/hopper"
    state.header.verb = "node add"
    state.header.command = ["coldiron", "node", "add", "gpu[01-02]"]
    assert go_on(state) == "coldiron node add 'gpu[01-02]'"
    assert left(recorded("interrupted")) == [
        "cut off in base: head01, storage01, gpu01, gpu02, gpu03",
        "not begun: storage, scheduler",
    ]
    between = recorded("interrupted")
    for host in between.hosts.values():
        host.running = None
    assert left(between) == ["cut off in base", "not begun: storage, scheduler"]
    assert left(recorded("ok")) == left(recorded("failed")) == []
    many = recorded("interrupted")
    for number in range(10):
        many.hosts[f"n{number}"] = many.hosts["gpu01"]
    assert "and 7 more" in left(many)[0]


def test_paths_are_short() -> None:
    inside = "/opt/venv/ansible_collections/coldiron/cluster/roles/time/tasks/configure.yml:4"
    assert shorten(inside, []) == "roles/time/tasks/configure.yml:4"
    assert shorten("/home/ada/site/play.yml:1", ["/home/ada/site/"]) == "play.yml:1"
    assert shorten("/elsewhere/x.yml:1", ["/home/"]) == "/elsewhere/x.yml:1"


def test_the_revision_of_an_inventory(tmp_path: Path) -> None:
    assert session.revision(tmp_path) == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "cluster.yml").write_text("x")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "m"], check=True)
    clean = session.revision(tmp_path)
    assert len(clean) == 12
    (tmp_path / "cluster.yml").write_text("y")
    assert session.revision(tmp_path) == f"{clean}+"


def test_a_header_survives_its_file() -> None:
    header = recorded("ok").header
    assert header_from(json.loads(json.dumps(vars(header)))) == header
