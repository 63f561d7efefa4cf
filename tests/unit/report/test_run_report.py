"""The report of a run."""

from __future__ import annotations

import gzip
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from coldiron.report import write_run_report
from coldiron.report.run import CHANGES_TOLD, run_page
from coldiron.run.events import read_events
from coldiron.run.reducer import reduce
from coldiron.run.state import (
    Cell,
    CellStatus,
    Change,
    Counts,
    Failure,
    Header,
    Host,
    Outcome,
    RunState,
    Stage,
    TaskTiming,
)
from tests.unit.report.test_verify_report import HOSTILE, Page

RECORDED = Path(__file__).parents[2] / "data" / "runs"
BEGAN = 1_790_000_000.0


def state(**more):
    """A run of two stages on two nodes that failed on one of them."""
    header = Header(
        id="r1",
        verb="apply",
        command=["coldiron", "apply", "-i", "a b"],
        plain="ansible-playbook site.yml",
        started=BEGAN,
        user="ada",
        machine="desk",
        pid=1,
        cluster="lab",
        inventory="inventories/lab",
        playbooks=["site.yml"],
        stages=["base", "storage"],
        hosts=["gpu01", "gpu02"],
        revision="abc1234+",
        versions={"coldiron": "1.2.3"},
    )
    ok = Cell(CellStatus.OK, Counts(ok=3), BEGAN, BEGAN + 2)
    bad = Cell(CellStatus.FAILED, Counts(ok=1, failed=1), BEGAN, BEGAN + 4)
    changed = Cell(CellStatus.CHANGED, Counts(ok=1, changed=2), BEGAN, BEGAN + 3)
    waiting = Cell()
    fields = {
        "outcome": Outcome.FAILED,
        "ended": BEGAN + 65,
        "stages": {"base": Stage("base", started=BEGAN, ended=BEGAN + 4), "storage": Stage("storage")},
        "hosts": {
            "gpu01": Host("gpu01", "gpu", {"base": bad, "storage": waiting}, status=CellStatus.FAILED),
            "gpu02": Host("gpu02", "gpu", {"base": changed, "storage": ok}, status=CellStatus.CHANGED),
        },
        "tasks": [
            TaskTiming(
                "1", "base", "p", "time", "Follow the clock", "x:1", BEGAN, BEGAN + 3, slowest_host="gpu02"
            )
        ],
        "changes": [
            Change(
                "gpu02",
                "base",
                "time",
                "Write it",
                "/etc/chrony.conf",
                "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new",
            ),
            Change(
                "gpu01",
                "base",
                "time",
                "Write it",
                "/etc/chrony.conf",
                "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new",
            ),
            Change("gpu01", "base", "base", "Name it", "hostname"),
        ],
        "failures": [
            Failure(
                "gpu01",
                "base",
                "time",
                "Follow",
                "roles/time/tasks/main.yml:4",
                "gpu01 is late",
                "Look there",
                "item1",
            ),
            Failure("gpu02", "base", "time", "Try", "x:1", "passed over", ignored=True),
        ],
        "warnings": ["careful"],
        "messages": ["by the way"],
        **more,
    }
    return RunState(header, **fields)


def recorded(name, tmp_path):
    """The state of a recorded run."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(gzip.decompress((RECORDED / f"{name}.jsonl.gz").read_bytes()))
    return reduce(read_events(path))


def test_the_page_says_what_failed_where_and_what_to_do():
    text = Page(run_page(state())).text
    for part in (
        "apply failed", "gpu01 is late", "Look there", "roles/time/tasks/main.yml:4", "(item1)",
        "2026-09-21 14:13:20 UTC",
        "1 min 5 s", "ada on desk", "abc1234+", "coldiron apply -i 'a b'", "ansible-playbook site.yml", "passed over",
        "careful", "by the way", "Follow the clock", "It failed on gpu01.",
    ):  # fmt: skip
        assert part in text, part


def test_the_same_change_on_many_nodes_is_one_with_its_diff():
    page = Page(run_page(state()))
    changes = page.all("li", data_item="change")
    assert [change["data-nodes"] for change in changes] == ["gpu02 gpu01", "gpu01"]
    assert {one["class"] for one in page.all("span") if one.get("class") in ("add", "del", "at", "file")} == {
        "add", "del", "at", "file",
    }  # fmt: skip


def test_check_mode_says_that_nothing_changed():
    checked = state()
    checked.header.check = True
    text = Page(run_page(checked)).text
    assert "check mode: nothing was changed" in text
    assert "Would change" in text


def test_a_damaged_record_says_so():
    assert (
        "2 lines of the run\N{RIGHT SINGLE QUOTATION MARK}s record could not be read"
        in Page(run_page(state(damaged=2))).text
    )


def test_hostile_texts_are_only_text():
    hostile = state(
        failures=[Failure("gpu01", HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)],
        changes=[Change("gpu01", "base", HOSTILE, HOSTILE, HOSTILE, "+" + HOSTILE)],
        warnings=[HOSTILE + "\x1b[31m"],
    )
    page = Page(run_page(hostile))
    assert not page.all("img")
    assert len(page.all("script")) == 1
    assert "\x1b" not in page.text


def test_changes_without_end_are_cut():
    changes = [
        Change("gpu01", "base", "r", "t", f"/etc/{number}", "x" * 20_000)
        for number in range(CHANGES_TOLD + 2)
    ]
    text = run_page(state(changes=changes))
    assert "2 more changes" in Page(text).text
    assert len(text) < 6_000_000
    assert "record has this diff" in text


def test_five_hundred_nodes_fold():
    hosts = {
        f"gpu{number:03d}": Host(
            f"gpu{number:03d}", "gpu", {"base": Cell(CellStatus.OK)}, status=CellStatus.OK
        )
        for number in range(500)
    }
    hosts["gpu007"].status = hosts["gpu007"].cells["base"].status = CellStatus.UNREACHABLE
    text = run_page(state(hosts=hosts))
    assert Page(text).all("tbody")[0]["class"] == "folded"
    assert 'title="base: unreachable on 1 of 500 nodes"' in text
    assert len(text) < 2_000_000


@pytest.mark.parametrize(
    "path", sorted(RECORDED.glob("*.jsonl.gz")), ids=lambda path: path.name.split(".")[0]
)
def test_every_recorded_run_has_its_report(path, tmp_path):
    run = recorded(path.name.removesuffix(".jsonl.gz"), tmp_path)
    page, junit = write_run_report(run, tmp_path / "report")
    text = Page(page.read_text(encoding="utf-8")).text
    assert run.header.cluster in text
    root = ET.parse(junit).getroot()
    assert int(root.get("tests")) == sum(len(host.cells) for host in run.hosts.values())
    bad = [failure for failure in run.failures if not failure.ignored]
    for failure in bad:
        assert failure.task in text


def test_the_junit_file_has_a_case_for_each_host_and_stage(tmp_path):
    _, junit = write_run_report(state(), tmp_path)
    root = ET.parse(junit).getroot()
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("4", "1", "1")
    [failure] = root.findall("testsuite[@name='base']/testcase[@name='gpu01']/failure")
    assert failure.get("message") == "gpu01 is late"
    assert "roles/time/tasks/main.yml:4" in failure.text
    [case] = root.findall("testsuite[@name='storage']/testcase[@name='gpu01']")
    assert case.find("skipped").get("message") == "waiting"
    assert root.find("testsuite[@name='base']/testcase[@name='gpu02']").get("time") == "3.000"
