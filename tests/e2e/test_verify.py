"""``coldiron verify`` on a converged site: green, touching nothing; red exactly where something is broken."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from coldiron.testing.steps import command, environment
from tests.e2e.siterun import SiteRun

pytestmark = pytest.mark.site

VERIFY_SECONDS = 420

NAUGHTY = """
def test_writes_a_file(host):
    host.check_output("touch /etc/written-by-a-test")


def test_stops_a_daemon(host):
    host.check_output("systemctl stop chrony")


def test_kills_a_daemon(host):
    host.check_output("kill -9 $(cat /run/chrony/chronyd.pid)")


def test_remounts(host):
    host.check_output("mount -o remount,rw /")
"""


def verify(
    run: SiteRun, folder: Path, *words: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the verb; return what it printed and its results.json."""
    finished = subprocess.run(
        [command("coldiron"), "verify", "-i", str(run.inventory), "--output", str(folder), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=VERIFY_SECONDS,
        check=False,
    )
    results = folder / "results.json"
    return finished, json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}


def test_a_converged_site_is_green_and_stays_as_it_is(converged: SiteRun, tmp_path: Path) -> None:
    for host in converged.site.hosts():
        converged.on(host, "touch /run/before-verify; sleep 0.02")
    before = converged.identities()
    finished, results = verify(converged, tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert results["green"]
    assert results["counts"]["passed"] == len(results["tests"]) > 100
    assert {node["name"] for node in results["nodes"]} == set(converged.site.hosts())
    assert any("A job runs here" in name for name in results["left_out"])
    assert int(ET.parse(tmp_path / "junit.xml").getroot().get("tests", "0")) == len(results["tests"])
    assert "is as declared" in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert converged.identities() == before
    for host in converged.site.hosts():
        places = "/etc /usr /opt /root /home /srv /tmp /var/tmp /var/cache /var/spool"
        assert converged.on(host, f"find {places} -newer /run/before-verify 2>/dev/null || true") == "", host


def test_a_stopped_daemon_is_red_there_and_nowhere_else(converged: SiteRun, tmp_path: Path) -> None:
    worker = converged.workers[-1]
    unit = converged.on(
        worker, "systemctl list-units --plain --no-legend 'chrony*.service' | cut -d' ' -f1"
    ).split()[0]
    converged.on(worker, f"systemctl stop {unit}")
    try:
        finished, results = verify(converged, tmp_path, "--role", "base,time,munge")
    finally:
        converged.on(worker, f"systemctl start {unit}")
    assert finished.returncode == 1
    bad = [test for test in results["tests"] if test["result"] != "passed"]
    assert {(test["role"], test["node"]) for test in bad} == {("time", worker)}
    [runs] = [test for test in bad if test["name"] == "test_the_daemon_runs_and_starts_at_boot"]
    [asked] = [one for one in runs["commands"] if "is-active" in one["command"]]
    assert (asked["node"], asked["rc"], asked["stdout"].strip()) == (worker, 3, "inactive")
    assert f"{worker}  time  failed: The daemon runs and starts at boot" in finished.stdout
    suites = {suite.get("name"): suite for suite in ET.parse(tmp_path / "junit.xml").getroot()}
    assert suites["base"].get("failures") == suites["munge"].get("failures") == "0"
    assert int(suites["time"].get("failures", "0")) == len(bad)


def test_a_test_that_acts_is_refused_by_the_node(converged: SiteRun, tmp_path: Path) -> None:
    tests = tmp_path / "roles" / "time" / "tests" / "test_naughty.py"
    tests.parent.mkdir(parents=True)
    tests.write_text(NAUGHTY, encoding="utf-8")
    worker = converged.workers[0]
    before = converged.identities(worker)
    words = ["--read-only", "--inventory", str(converged.inventory), "--limit", worker, "-q", str(tests)]
    finished = subprocess.run(
        [command("pytest"), "-p", "coldiron.testing.plugin", "-o", "addopts=", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        cwd=tmp_path,
        timeout=VERIFY_SECONDS,
        check=False,
    )
    assert "4 failed" in finished.stdout, finished.stdout
    assert "touch: cannot touch '/etc/written-by-a-test': Read-only file system" in finished.stdout
    assert "coldiron: refused: 'systemctl stop chrony' would change something" in finished.stdout
    assert "No such process" in finished.stdout
    assert converged.identities(worker) == before
    assert converged.on(worker, "test ! -e /etc/written-by-a-test && echo gone").strip() == "gone"


def test_those_that_act_run_when_they_are_asked_for(converged: SiteRun, tmp_path: Path) -> None:
    finished, results = verify(converged, tmp_path, "--active", "--role", "slurm_login,slurm_worker")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert results["active"]
    assert results["left_out"] == []
    assert "An ordinary user runs a job" in {test["title"] for test in results["tests"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--role", "tiem"), "--role tiem: there is no role of this name: did you mean time?"),
        (("--limit", "nobody"), "--limit nobody matches no node of the cluster"),
    ],
)
def test_a_wish_that_matches_nothing_is_one_line(
    run: SiteRun, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    finished, results = verify(run, tmp_path, *words)
    assert finished.returncode == 2
    assert results == {}
    assert finished.stdout == ""
    [line] = finished.stderr.splitlines()
    assert line.startswith(f"coldiron: {said}")
