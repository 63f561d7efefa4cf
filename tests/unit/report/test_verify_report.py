"""The page and the JUnit file of a verification."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
import xml.etree.ElementTree as ET

import pytest

from coldiron.report import write_verify_report
from coldiron.report.page import as_data, folded
from coldiron.report.verify import FOLD_FROM, KINDS_TOLD, NODES_TOLD, matrix, verify_page
from coldiron.verify.results import Command, Node
from tests.unit.verify.samples import failed, mixed, passed, verification

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>]]>&amp;\"'`\u2028"
UNICODE = "Grüße 日本 \N{GRINNING FACE}"


class Page(html.parser.HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.parts = []
        self.feed(text)
        self.text = "".join(self.parts)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.parts.append(data)

    def all(self, tag, **attributes):
        return [
            found
            for name, found in self.elements
            if name == tag
            and all(found.get(key.replace("_", "-")) == value for key, value in attributes.items())
        ]


def data_of(page):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    )


@pytest.fixture(scope="module")
def page():
    return Page(verify_page(mixed()))


def test_the_header_says_what_and_when(page):
    for text in (
        "is not as declared",
        "2026-09-21 14:13:20 UTC",
        "abc1234+",
        "inventories/lab",
        "coldiron 1.2.3",
    ):
        assert text in page.text
    assert "GPUs simulated." in page.text
    assert "4 of 8 tests passed on 3 of 4 nodes. Something is wrong on gpu[01-03]." in page.text


def test_failures_are_told_with_command_and_answer(page):
    failures = page.all("article")
    assert [failure["data-nodes"] for failure in failures] == ["gpu01 gpu02", "gpu02"]
    for text in ("The daemon runs", "systemctl is-active chrony", "inactive", "ended with 3", "a hint"):
        assert text in page.text


def test_the_matrix_has_every_node_and_role():
    groups = matrix(mixed())
    assert [(group.kind, [row.node.name for row in group.rows]) for group in groups] == [
        ("head", ["head01"]),
        ("gpu", ["gpu01", "gpu02", "gpu03"]),
    ]
    assert groups[1].bad == 3
    assert groups[1].bad_in(1) == 2
    assert groups[1].rows[1].cells[1].bad == 2
    assert not groups[1].has(2)


def test_a_good_page_has_no_failures():
    text = Page(verify_page(verification(passed("base", "head01")))).text
    assert "is as declared" in text
    assert "Failures" not in text
    assert "found by looking only" in text
    assert "GPUs simulated" not in text


def test_nothing_comes_from_outside_and_only_our_own_script_runs():
    text = verify_page(mixed())
    page = Page(text)
    assert not re.search(r"""(src|href)=["'](?!#)""", text)
    assert "url(" not in text
    assert "@import" not in text
    policy = page.all("meta", http_equiv="Content-Security-Policy")[0]["content"]
    assert policy.startswith("default-src 'none'")
    for kind, tag in (("script-src", "<script>"), ("style-src", "<style>")):
        inside = (
            text.split(tag)[1].split("</")[0]
            if tag == "<style>"
            else text.rsplit(tag)[1].split("</script>")[0]
        )
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert not [
        attributes for _, attributes in page.elements if any(key.startswith("on") for key in attributes)
    ]
    assert not [attributes for _, attributes in page.elements if "style" in attributes]


def test_hostile_output_is_only_text():
    command = Command("gpu01", HOSTILE, 1, HOSTILE + UNICODE, HOSTILE)
    found = verification(
        failed("time", "gpu01", message=HOSTILE + UNICODE, commands=[command], hint=HOSTILE),
        passed("base", "gpu01", f"test_x[{HOSTILE}]", HOSTILE),
        cluster=HOSTILE,
        nodes=[Node("gpu01", HOSTILE), Node("gpu02", "gpu", HOSTILE)],
        left_out=[HOSTILE],
        revision=HOSTILE,
    )
    text = verify_page(found)
    page = Page(text)
    assert not page.all("img")
    assert len(page.all("script")) == 2
    assert HOSTILE in page.text
    assert UNICODE in page.text
    assert HOSTILE in data_of(text)["commands"]


def test_data_can_stand_in_a_script():
    text = str(as_data({HOSTILE: ["<!--", "-->", UNICODE]}))
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {HOSTILE: ["<!--", "-->", UNICODE]}


def test_the_page_looks_runs_up_by_number():
    data = data_of(verify_page(mixed()))
    assert data["nodes"] == ["head01", "gpu01", "gpu02", "gpu03"]
    assert data["runs"][0] == [[0, "p", 200, 0], [1, "p", 200, 0], [2, "p", 200, 0]]
    assert data["runs"][1][1:] == [[1, "f", 1500, 1], [2, "f", 1500, 1]]
    assert data["commands"] == ["uname -n", "systemctl is-active chrony"]


def test_each_id_is_there_once():
    page = Page(verify_page(mixed()))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {attributes["href"][1:] for tag, attributes in page.elements if tag == "a"}
    assert targets <= set(ids)


def big(nodes, tests, bad):
    """Nodes by tests, ``bad(test, node)`` of them failed."""
    machines = [Node(f"gpu{number:04d}", "gpu") for number in range(nodes)]
    found = []
    for test in range(tests):
        for number, node in enumerate(machines):
            make = failed if bad(test, number) else passed
            found.append(make(f"role{test // 10}", node.name, f"test_number_{test}"))
    return verification(*found, nodes=machines)


def test_many_nodes_fold_and_the_same_failure_is_told_once():
    text = verify_page(big(FOLD_FROM, 2, lambda test, node: test == 1 and node != 3))
    page = Page(text)
    assert len(page.all("article")) == 1
    assert page.all("tbody")[0]["class"] == "folded"
    assert f"results.json has the other {FOLD_FROM - 1 - NODES_TOLD} nodes" in page.text


def test_the_widest_failure_comes_first():
    found = verification(failed("base", "gpu01"), failed("time", "gpu01"), failed("time", "gpu02"))
    assert [one["data-role"] for one in Page(verify_page(found)).all("article")] == ["time", "base"]


def test_failures_without_end_are_cut():
    found = verification(*(failed("time", "gpu01", f"test_{number}") for number in range(KINDS_TOLD + 3)))
    page = Page(verify_page(found))
    assert len(page.all("article")) == KINDS_TOLD
    assert "results.json has 3 more kinds" in page.text


def test_five_hundred_nodes_and_a_hundred_tests_are_a_sane_page():
    text = verify_page(big(500, 100, lambda test, node: (test * 7 + node) % 251 == 0))
    assert len(text) < 15_000_000 / 4


def test_the_junit_file_counts_and_tells(tmp_path):
    found = mixed()
    found.tests[4].message = "\x1b[31mred\x00]]>" + UNICODE
    page, junit = write_verify_report(found, tmp_path)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    root = ET.parse(junit).getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors"), root.get("skipped")) == (
        "9",
        "2",
        "2",
        "1",
    )
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["nodes", "base", "time", "nfs"]
    assert suites["time"].get("timestamp") == "2026-09-21T14:13:20"
    [failure] = suites["time"].findall("testcase[@name='test_the_daemon_runs[gpu01]']/failure")
    assert failure.get("message") == "red\ufffd]]>" + UNICODE
    assert "gpu01$ systemctl is-active chrony\ninactive\n(ended with 3)" in failure.text
    assert suites["nodes"].find("testcase/error").get("message") == "does not answer"


def test_names_fold_readably():
    assert folded(["gpu01", "gpu02", "head01"]) == "gpu[01-02], head01"
    assert folded(["a1", "a3"]) == "a[1,3]"
    assert folded([f"n{n * n}x{n}" for n in range(60)]) == "60 nodes"
