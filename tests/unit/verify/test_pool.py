"""The pool: every test is heard of once, whatever happens to the process that ran it."""

from __future__ import annotations

import os

import pytest

from coldiron.verify.pool import Pool

FILE = """
import os, signal, pytest

@pytest.mark.parametrize("number", range(6))
def test_number(number):
    assert number != 2

def test_killed():
    os.kill(os.getpid(), signal.SIGKILL)

def test_after_the_killed():
    pass

def test_last():
    pass
"""


def run(tmp_path, unit_of, size=2, text=FILE):
    """Run a file of tests in a pool; what was heard by name, and how often each was."""
    # A name of its own: pytest would take a module of the same name for the same file.
    path = tmp_path / f"test_{tmp_path.name}.py"
    path.write_text(text)
    items = []

    class Items:
        def pytest_collection_finish(self, session):
            items.extend(session.items)

    heard = []
    pool = Pool(
        size,
        unit_of,
        lambda item, reports: [os.getpid(), any(report.failed for report in reports)],
        lambda number, told: heard.append((items[number].name, told)),
    )
    code = pytest.main(
        [
            "-c",
            os.devnull,
            "--import-mode=importlib",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:terminal",
            "-s",
            "--rootdir",
            str(tmp_path),
            str(path),
        ],
        plugins=[pool, Items()],
    )
    return code, heard


def test_each_test_is_heard_of_once_and_a_death_costs_its_unit(tmp_path):
    _, heard = run(tmp_path, lambda item: "killers" if "killed" in item.name else item.name)
    told = dict(heard)
    assert len(heard) == len(told) == 9
    assert [name for name, answer in told.items() if answer is None] == [
        "test_killed",
        "test_after_the_killed",
    ]
    assert [name for name, answer in told.items() if answer and answer[1]] == ["test_number[2]"]
    assert told["test_last"] is not None
    assert all(answer is None or answer[0] != os.getpid() for answer in told.values())


def test_a_unit_stays_in_one_process(tmp_path):
    text = FILE.replace("os.kill(os.getpid(), signal.SIGKILL)", "pass")
    _, heard = run(tmp_path, lambda item: item.originalname, text=text)
    assert len({answer[0] for name, answer in heard if name.startswith("test_number")}) == 1


def test_what_cannot_be_collected_is_not_run(tmp_path):
    code, heard = run(tmp_path, lambda item: item.name, text="import no_such_module\n")
    assert code == pytest.ExitCode.INTERRUPTED
    assert heard == []


def test_an_interrupt_ends_the_processes(tmp_path, monkeypatch):
    hired = []

    def interrupted(self):
        hired.extend(worker.pid for worker in self._workers)
        raise KeyboardInterrupt

    monkeypatch.setattr(Pool, "_listen", interrupted)
    code, heard = run(
        tmp_path, lambda item: item.name, text="import time\ndef test_long():\n    time.sleep(600)\n"
    )
    assert code == pytest.ExitCode.INTERRUPTED
    assert heard == []
    assert len(hired) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(hired[0], 0)
