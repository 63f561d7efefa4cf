"""pytest runs in a fork of this process: Ansible, testinfra and the inventory are loaded once, not a run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coldiron.errors import ColdironError
from coldiron.testing.site import Site

PYTEST_RAN = (
    pytest.ExitCode.OK,
    pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED,
)


class Case(NamedTuple):
    """A test function of a role's tests on one host."""

    test: str
    host: str


@dataclass
class Outcome:
    """What came of a case: passed, failed, skipped or error (set-up broke, so nothing was tested)."""

    result: str
    message: str = ""


class _Recorder:
    """Runs only the wanted cases and notes each one's outcome; one red parameter makes a case red."""

    def __init__(self, hosts: frozenset[str] | None, cases: frozenset[Case] | None) -> None:
        self.hosts = hosts
        self.cases = cases
        self.outcomes: dict[Case, Outcome] = {}
        self.collection_errors: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.collection_errors.append(str(report.longrepr))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self._wanted(item)]

    def _wanted(self, item: pytest.Item) -> bool:
        case = case_of(item)
        if self.cases is not None:
            return case in self.cases
        return self.hosts is None or case.host in self.hosts or not case.host

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        case = case_of(item)
        known = self.outcomes.get(case)
        if report.failed:
            result = "failed" if report.when == "call" else "error"
            if known is None or known.result not in ("failed", "error"):
                self.outcomes[case] = Outcome(result, last_lines(str(report.longrepr)))
        elif report.skipped and known is None:
            self.outcomes[case] = Outcome("skipped", last_lines(str(report.longrepr)))
        elif report.when == "call" and (known is None or known.result == "skipped"):
            self.outcomes[case] = Outcome("passed")
        return report


def case_of(item: pytest.Item) -> Case:
    """Return the case that a collected item belongs to; its host is empty when it asks for none."""
    callspec = getattr(item, "callspec", None)
    host = callspec.params.get("hostname", "") if callspec else ""
    return Case(getattr(item, "originalname", None) or item.name, str(host))


def last_lines(text: str, count: int = 6) -> str:
    """Return the lines of a failure that say what is wrong: pytest's ``E`` lines, else the last ones."""
    lines = text.rstrip().splitlines()
    errors = [line for line in lines if line.startswith("E ")]
    return "\n".join((errors or lines)[:count] if errors else lines[-count:])


def run_tests(
    site: Site,
    folder: Path,
    hosts: Iterable[str] | None = None,
    cases: Iterable[Case] | None = None,
    timeout: float = 900,
) -> dict[Case, Outcome]:
    """Run a folder's tests in a fork and return what came of each case.

    ``cases`` picks test functions on hosts; else all tests run on ``hosts`` (None: on all). Past ``timeout``
    seconds, or when pytest itself breaks down, a ColdironError says so.
    """
    _ = site.connections.config  # Written here, so that every fork uses one file and its kept masters.
    with tempfile.TemporaryDirectory(prefix="coldiron-tests-") as scratch:
        answer, log = Path(scratch, "outcomes.json"), Path(scratch, "log")
        child = os.fork()
        if child == 0:
            status = 70
            with contextlib.suppress(BaseException):
                status = _child(site, folder, hosts, cases, answer, log)
            os._exit(status)
        _wait(child, timeout, folder)
        if not answer.exists():
            raise ColdironError(f"pytest broke down on {folder}:\n{last_lines(_read(log), 30)}")
        content = json.loads(answer.read_text(encoding="utf-8"))
    if content["errors"]:
        raise ColdironError(f"the tests in {folder} cannot be collected:\n" + "\n".join(content["errors"]))
    return {Case(test, host): Outcome(**outcome) for test, host, outcome in content["outcomes"]}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _wait(child: int, timeout: float, folder: Path) -> None:
    end = time.monotonic() + timeout
    pause = 0.01
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise ColdironError(f"the tests in {folder} did not end within {timeout:.0f} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def _child(
    site: Site,
    folder: Path,
    hosts: Iterable[str] | None,
    cases: Iterable[Case] | None,
    answer: Path,
    log: Path,
) -> int:
    # A group of its own, so that a run that hangs can be ended with the ssh clients it started.
    os.setpgid(0, 0)
    # Other packages' pytest plugins cost a second a run and have nothing to say here.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    target = os.open(log, os.O_CREAT | os.O_WRONLY, 0o600)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    recorder = _Recorder(
        frozenset(hosts) if hosts is not None else None,
        frozenset(cases) if cases is not None else None,
    )
    inventories = [word for source in site.sources for word in ("--inventory", str(source))]
    code = pytest.main(
        [
            "-p", "coldiron.testing.plugin", "-p", "no:cacheprovider", "-o", "addopts=",
            "--import-mode=importlib", "--rootdir", str(site.collection), "-q", *inventories, str(folder),
        ],
        plugins=[recorder],
    )  # fmt: skip
    sys.stdout.flush()
    if code in PYTEST_RAN or recorder.collection_errors:
        outcomes = [(case.test, case.host, asdict(outcome)) for case, outcome in recorder.outcomes.items()]
        answer.write_text(
            json.dumps({"outcomes": outcomes, "errors": recorder.collection_errors}),
            encoding="utf-8",
        )
    return 0
