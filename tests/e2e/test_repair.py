"""A worker is repaired while a job runs elsewhere: nobody else is disturbed, and a repair that is killed goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coldiron.repair.bundle import place
from coldiron.repair.journal import path_of, read
from coldiron.repair.keep import directory
from coldiron.repair.machine import ROWS, State
from coldiron.repair.view import last_repair
from coldiron.run.events import Event
from coldiron.testing.steps import command, environment
from tests.e2e.siterun import SiteRun, receiver
from tests.unit.webhook.samples import alert, message

pytestmark = pytest.mark.site

NODE = "cpu01"
REPAIR_SECONDS = 400
TOKEN = "0123456789abcdef0123456789abcdef"


def words(run: SiteRun) -> list[str]:
    """The command that repairs the node; its container's own name stands for a disk's serial."""
    return [command("coldiron"), "node", "repair", NODE, "-i", str(run.inventory), "--yes", NODE]


def repair(run: SiteRun) -> str:
    """Repair the node and return what was said; a failure fails the test."""
    return run.verb("node", "repair", NODE, "--yes", NODE, seconds=REPAIR_SECONDS)


def journal(run: SiteRun) -> tuple[Event, ...]:
    """All that the node's journal says."""
    return read(path_of(directory(run.inventory), NODE))


def killed_in(run: SiteRun, state: State) -> None:
    """Begin to repair the node, and kill -9 the command as soon as the journal says that ``state`` has begun."""
    before = len(journal(run))
    with subprocess.Popen(
        words(run),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    ) as process:
        try:
            end = time.monotonic() + REPAIR_SECONDS
            while not any(
                event.kind == "repair_begin" and event.data["state"] == state
                for event in journal(run)[before:]
            ):
                assert process.poll() is None, "it ended before"
                assert time.monotonic() < end
                time.sleep(0.2)
        finally:
            os.kill(process.pid, signal.SIGKILL)


def answered(run: SiteRun) -> None:
    """Wait until what a killed command had started is gone: it is told, and takes a moment."""
    end = time.monotonic() + 60
    mark = f"--limit {NODE},"
    while (
        subprocess.run(["pgrep", "-f", f"ansible-playbook.*{run.inventory} .*{mark}"], check=False).returncode
        == 0
    ):
        assert time.monotonic() < end
        time.sleep(0.5)


@pytest.fixture
def job(converged: SiteRun) -> Iterator[str]:
    """A long job on another node."""
    elsewhere = next(worker for worker in converged.workers if worker != NODE)
    with converged.job_on(elsewhere) as number:
        yield number


def boots(run: SiteRun) -> dict[str, str]:
    """The boot of every node but the one that is repaired."""
    return {host: found["boot"] for host, found in run.identities(f"cluster:!{NODE}").items()}


def mark(run: SiteRun) -> Path:
    """Leave a file on the node's system disk."""
    path = Path("/var/lib/was-here")
    run.on(NODE, f"touch {path}")
    return path


def post(url: str, body: bytes) -> dict[str, Any]:
    """Post as Alertmanager does."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, body, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return dict(json.load(answer))


def test_an_alert_drains_and_diagnoses_its_node_and_no_more(converged: SiteRun) -> None:
    before, written = boots(converged), mark(converged)
    events = converged.inventory / ".coldiron" / "webhook.jsonl"
    # What a test left that was cut off would be taken up first.
    events.unlink(missing_ok=True)
    fired = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with converged.job_on(NODE) as job, receiver(converged, TOKEN) as url:
        body = message(alert(f"{NODE}:9100", startsAt=fired), alert("cpu99", fingerprint="02"))
        assert post(url, body)["alerts"] == {"accepted": 1, "refused": 1}
        # Sent once more, as Alertmanager does: it has been heard.
        assert post(url, body)["alerts"] == {"duplicate": 1, "refused": 1}
        end = time.monotonic() + REPAIR_SECONDS
        while "webhook_end" not in events.read_text():
            assert time.monotonic() < end
            time.sleep(0.5)
        found = last_repair(journal(converged))
        states = [event.data["state"] for event in found if "state" in event.data]
        assert list(dict.fromkeys(states)) == [State.DRAIN, State.DIAGNOSE]
        assert found[-1].data["next"] == State.HELD
        assert (
            place(directory(converged.inventory), NODE, found[0].time) / "evidence/journal-0.txt"
        ).exists()
        assert converged.node_state(NODE) == "draining"
        assert converged.job_state(job) == "RUNNING"
        assert "held: alert GpuFellOff; " in converged.on(converged.head, "sinfo -h -R -o '%E %N'")
    converged.on(NODE, f"test -e {written}")
    assert boots(converged) == before
    # Its job has been cancelled. Nobody else takes the node back from where an alert has left it.
    # Where the word of the job's end is lost, slurmctld asks again minutes later.
    assert converged.wait_for_state(NODE, ("drained",), seconds=400) == "drained"
    converged.on(converged.head, f"scontrol update nodename={NODE} state=resume")
    assert converged.wait_for_state(NODE, ("idle",)) == "idle"


def test_a_killed_repair_goes_on_and_nobody_else_is_disturbed(converged: SiteRun, job: str) -> None:
    before, daemons, written = boots(converged), converged.identities(f"cluster:!{NODE}"), mark(converged)
    killed_in(converged, State.DEPLOY)
    answered(converged)
    said = repair(converged)
    assert f"{NODE}: done; it takes jobs again" in said
    converged.site.connections.forget()
    ended = [event.data["state"] for event in last_repair(journal(converged)) if event.kind == "repair_end"]
    # What was cut off in the deploy is entered by the power again.
    assert list(dict.fromkeys(ended)) == [row.state for row in ROWS]
    assert ended.count(State.POWER) == 2
    # It is another system, and it takes jobs; nothing else has been touched.
    assert converged.site.connections.run(NODE, f"test -e {written}").returncode == 1
    assert converged.wait_for_state(NODE, ("idle",)) == "idle"
    assert converged.as_user(f"srun -w {NODE} hostname").strip() == NODE
    assert boots(converged) == before
    assert converged.identities(f"cluster:!{NODE}") == daemons
    assert converged.job_state(job) == "RUNNING"


def test_nothing_is_left_to_do_on_it(converged: SiteRun) -> None:
    record = converged.run("--limit", NODE)
    assert record.status == 0, record.told()
    assert record.changed == []


@pytest.mark.slow
@pytest.mark.parametrize("state", [row.state for row in ROWS])
def test_a_repair_that_is_killed_in_any_state_comes_to_its_end(converged: SiteRun, state: State) -> None:
    killed_in(converged, state)
    answered(converged)
    assert f"{NODE}: done" in repair(converged)
    converged.site.connections.forget()
    assert converged.wait_for_state(NODE, ("idle",)) == "idle"
