"""What is committed is what the code makes; panels say what they are, links lead somewhere, logs are asked in form."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from coldiron.dashboards import written
from coldiron.dashboards.check import fields_of, filled, forms, malformed, search
from coldiron.dashboards.read import dashboards, panels, variables

FOLDER = Path(__file__).resolve().parents[2] / "roles/grafana/files/dashboards"
FOUND = dashboards(FOLDER)
ALL = sorted(FOUND)
# What role log_shipper gives a line.
FIELDS = {
    *("@timestamp", "message", "host.name", "service.unit", "process.name", "user.name", "source.ip"),
    *("log.level", "log.severity", "event.kind", "event.action"),
    *("slurm.job_id", "gpu.xid", "gpu.pci", "hardware.error", "coldiron.rack", "coldiron.kind"),
}


def test_the_committed_files_are_what_the_code_makes() -> None:
    there = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.json")}
    assert there == written.files(), "run: python -m coldiron.dashboards"


def test_there_is_one_for_each_thing_that_is_looked_at() -> None:
    assert ALL == ["cluster", "fabric", "gpu", "logs", "node", "power", "slurm", "storage"]
    assert {one["uid"] for one in FOUND.values()} == {f"coldiron-{name}" for name in ALL}


@pytest.mark.parametrize("name", ALL)
def test_every_panel_says_what_it_is_and_in_which_unit(name: str) -> None:
    for panel in panels(FOUND[name]):
        assert panel.title
        assert panel.row
        assert panel.about.endswith("."), panel.title
        assert panel.targets, panel.title
        if panel.kind in ("stat", "timeseries", "bargauge"):
            assert panel.unit, panel.title


@pytest.mark.parametrize("name", ALL)
def test_panels_have_numbers_of_their_own_and_lie_beside_each_other(name: str) -> None:
    places = [(one["id"], one["gridPos"]) for one in FOUND[name]["panels"]]
    assert len({number for number, _ in places}) == len(places)
    taken: set[tuple[int, int]] = set()
    for number, at in places:
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24, number
        assert not cells & taken, number
        taken |= cells


@pytest.mark.parametrize("name", ALL)
def test_rows_are_as_wide_as_the_page(name: str) -> None:
    lines: dict[int, int] = {}
    for one in FOUND[name]["panels"]:
        at = one["gridPos"]
        lines[at["y"]] = lines.get(at["y"], 0) + at["w"]
    assert set(lines.values()) == {24}, lines


@pytest.mark.parametrize("name", ALL)
def test_what_is_asked_with_is_chosen_there(name: str) -> None:
    known = {one["name"]: "x" for one in variables(FOUND[name])}
    for panel in panels(FOUND[name]):
        for target in panel.targets:
            left = filled(target.get("expr") or target.get("query") or "", known)
            # What is left is PromQL's own: the group that label_replace matched.
            assert not re.search(r"\$\{?(?!1\b)\w", left), panel.title
            assert filled(target["datasource"]["uid"], known) == "x", panel.title


@pytest.mark.parametrize("name", ALL)
def test_links_lead_to_a_dashboard_or_a_runbook(name: str) -> None:
    text = json.dumps(FOUND[name])
    for uid in re.findall(r'"/d/([\w-]+)', text):
        assert uid in {one["uid"] for one in FOUND.values()}
    assert "https://runbooks.invalid" in text
    assert not set(re.findall(r"https?://[\w.-]+", text)) - {"https://runbooks.invalid"}
    for one in FOUND[name]["panels"]:
        heads = {
            head
            for step in one.get("transformations") or []
            if step["id"] == "organize"
            for head in step["options"]["renameByName"].values()
        }
        for head in re.findall(r"__data\.fields\.(\w+)", json.dumps(one)):
            assert head in heads, one["title"]


def test_logs_are_asked_in_form_for_fields_that_lines_have() -> None:
    assert forms(FOUND, FIELDS) == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ('host.name:$node AND message:("one)', "a quote is not closed"),
        ("host.name:$node AND (log.level:err", "brackets do not match"),
        ("host.name:$node AND", "a word joins nothing"),
        ("host.name:$node AND OR service.unit:x", "a word joins nothing"),
        ("hostname:$node", "no line has field hostname"),
        ("host.name:$nodes", "a variable that the dashboard does not have"),
        ("_exists_:xids", "no line has field xids"),
    ],
)
def test_a_planted_broken_question_to_the_logs_is_caught(query: str, said: str) -> None:
    broken: Any = copy.deepcopy(FOUND["logs"])
    panel = next(one for one in broken["panels"] if one["title"] == "Errors")
    panel["targets"][0]["query"] = query
    faults = forms({"logs": broken}, FIELDS)
    assert [fault.panel for fault in faults] == ["Errors"]
    assert said in faults[0].why


def test_a_field_of_buckets_that_no_line_has_is_caught() -> None:
    broken: Any = copy.deepcopy(FOUND["logs"])
    panel = next(one for one in broken["panels"] if one["title"] == "Errors")
    panel["targets"][0]["bucketAggs"][0]["field"] = "node"
    assert [str(fault) for fault in forms({"logs": broken}, FIELDS)] == [
        "logs: Errors: no line has field node: log.severity:[0 TO 3] AND host.name:* AND log.level:*"
        " AND (service.unit:* OR (*:* NOT _exists_:service.unit))"
    ]


@pytest.mark.parametrize(
    "query", ['a:"x AND" OR b:(c OR "d)")', "*", "NOT a:b", "_exists_:a", 'a:"say \\"x\\""']
)
def test_a_query_in_form_is_taken(query: str) -> None:
    assert malformed(query) == ""


def test_a_search_is_what_grafana_sends() -> None:
    panel = next(one for one in panels(FOUND["logs"]) if one.title == "Errors")
    body = search(panel.targets[0], {"node": '("gpu01" OR "gpu02")', "level": "*", "unit": "*"})
    asked = body["query"]["bool"]["filter"]
    assert asked[0] == {"range": {"@timestamp": {"gte": "now-24h", "lte": "now"}}}
    assert 'host.name:("gpu01" OR "gpu02")' in asked[1]["query_string"]["query"]
    assert body["size"] == 0
    outer = body["aggs"]["3"]
    assert outer["terms"] == {"field": "host.name", "size": 10, "order": {"_count": "desc"}}
    assert outer["aggs"]["2"]["date_histogram"]["field"] == "@timestamp"
    lines = next(one for one in panels(FOUND["logs"]) if one.kind == "logs")
    plain = search(lines.targets[0], {})
    assert plain["size"] == 50
    assert "aggs" not in plain
    assert fields_of(lines.targets[0]) >= {"host.name", "log.level", "service.unit"}
