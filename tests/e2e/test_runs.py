"""Recorded runs on a real site: apply, stop, kill, meet, and the road over a bare ansible-runner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from coldiron.run.state import Outcome, RunState
from coldiron.run.store import Runs
from coldiron.secrets.password import find_password
from coldiron.secrets.store import Store
from coldiron.testing.steps import command, environment
from tests.e2e.siterun import RUN_SECONDS, SiteRun

pytestmark = pytest.mark.site


def words(run: SiteRun, *arguments: str) -> list[str]:
    return [command("coldiron"), *arguments, "-i", str(run.inventory)]


def coldiron(run: SiteRun, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words(run, *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        cwd=cwd,
        timeout=RUN_SECONDS,
    )


def newest(run: SiteRun) -> RunState:
    return Runs(run.inventory).open("last").state()


@contextmanager
def running(run: SiteRun, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A run that has begun to work on the nodes."""
    before = Runs(run.inventory).ids()
    process = subprocess.Popen(
        words(run, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()[0]
            if Runs(run.inventory).ids() != before and newest(run).stage not in ("", "check"):
                break
            time.sleep(0.2)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextmanager
def held_up(run: SiteRun) -> Iterator[None]:
    """While inside, no run comes to its end: somebody else has converge's lock on a worker."""
    run.on(run.workers[0], "systemd-run -q --collect --unit=in-the-way flock /var/lib sleep 280")
    try:
        yield
    finally:
        run.on(run.workers[0], "systemctl stop in-the-way")


def test_a_run_that_changes_nothing(converged: SiteRun, tmp_path: Path) -> None:
    # From any directory: what the checkout's ansible.cfg says is not there.
    done = coldiron(converged, "apply", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    state = newest(converged)
    assert state.outcome is Outcome.OK
    assert list(state.hosts) == converged.site.hosts("cluster")
    assert not state.changes
    assert all(stage.seconds for stage in state.stages.values())
    told = json.loads(coldiron(converged, "status", "--json").stdout)
    assert told["header"]["id"] == state.header.id


def test_nothing_of_the_vault_is_in_a_record(converged: SiteRun) -> None:
    directory = converged.inventory
    password = find_password(directory, None, {}, may_generate=False, new=False)
    secrets = [str(value) for value in Store(directory, password).values().values()]
    assert secrets
    done = coldiron(converged, "apply", "scheduler", "-vvv", "--diff")
    assert done.returncode == 0
    for path in Runs(directory).open("last").directory.iterdir():
        text = path.read_text(errors="replace")
        assert not [True for secret in secrets if secret in text], path.name
    assert not [True for secret in secrets if secret in done.stdout + done.stderr]


def test_drift_is_seen_and_mended(converged: SiteRun) -> None:
    worker = converged.workers[0]
    path = "/etc/chrony/chrony.conf"
    converged.on(worker, f"echo '# by hand' >> {path}")
    look = coldiron(converged, "apply", "base", "--check", "--fail-on-drift", "--limit", worker)
    assert look.returncode == 1, look.stdout
    (change,) = [change for change in newest(converged).changes if change.what == path]
    assert "-# by hand" in change.diff.splitlines()
    mended = coldiron(converged, "apply", "base", "--limit", worker, "--tags", "time")
    assert mended.returncode == 0, mended.stdout
    assert path in [change.what for change in newest(converged).changes]
    again = coldiron(converged, "apply", "base", "--check", "--fail-on-drift", "--limit", worker)
    assert again.returncode == 0, again.stdout


def test_an_interrupted_run_says_how_to_go_on(converged: SiteRun) -> None:
    with held_up(converged), running(converged, "apply") as process:
        refused = coldiron(converged, "apply", "base")
        assert refused.returncode == 3
        assert refused.stderr.startswith("coldiron: a run is on: ")
        assert f"(pid {process.pid})" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 4, output
    assert "go on from there" in output
    assert newest(converged).outcome is Outcome.INTERRUPTED
    assert coldiron(converged, "apply").returncode == 0


def test_a_killed_run_is_taken_over(converged: SiteRun) -> None:
    with running(converged, "apply") as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    killed = newest(converged)
    assert killed.outcome is Outcome.KILLED
    # Its ansible-playbook may live on for a moment: nobody works beside it, it is waited for.
    done = coldiron(converged, "apply")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"run {killed.header.id} of" in done.stdout


def test_the_road_over_ansible_runner(converged: SiteRun, tmp_path: Path) -> None:
    private = tmp_path / "ci"
    exported = coldiron(converged, "export-runner", str(private))
    assert exported.returncode == 0, exported.stderr
    runner = subprocess.run(
        [command("ansible-runner"), "run", str(private), "-p", "site.yml"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={name: text for name, text in environment().items() if not name.startswith("ANSIBLE_")},
        cwd=tmp_path,
        timeout=RUN_SECONDS,
    )
    assert runner.returncode == 0, runner.stdout[-3000:]
    reported = coldiron(converged, "report", str(private), "-o", str(tmp_path / "report"), "--json")
    assert reported.returncode == 0, reported.stderr
    told: dict[str, Any] = json.loads(reported.stdout)["run"]
    assert told["outcome"] == "ok"
    own = coldiron(converged, "apply")
    assert own.returncode == 0
    state = newest(converged)
    assert list(told["stages"]) == list(state.stages)
    for name, host in state.hosts.items():
        assert told["hosts"][name]["counts"]["ok"] == host.counts.ok, name
        assert set(told["hosts"][name]["cells"]) == set(host.cells)
    suites = ElementTree.parse(tmp_path / "report" / "junit.xml").getroot()
    assert not list(suites.iter("failure"))
    assert len(list(suites.iter("testcase"))) > 0
