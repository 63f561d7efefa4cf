"""Results: words, trimming, folding, gathering."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldiron.text import counted, cut, duration, moment, printable
from coldiron.verify.results import KEPT_COMMANDS, Command, Result, folded, grouped, in_words, trimmed
from tests.unit.verify.samples import failed, mixed, passed, verification


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("test_the_daemon_runs", "The daemon runs"),
        ("test_settings[innodb_log, 4]", "Settings [innodb_log, 4]"),
        ("test_", ""),
    ],
)
def test_a_name_in_words(name, words):
    assert in_words(name) == words


def test_terminal_escapes_are_taken_out_and_controls_are_marked():
    assert printable("\x1b[31mred\x1b[0m \x1b]0;title\x07done\x00\r\n\u202e") == "red done\ufffd\n\ufffd"


@given(st.text())
def test_what_is_printable_stays_so_and_has_no_controls(text):
    once = printable(text)
    assert printable(once) == once
    assert not any(ord(letter) < 32 and letter not in "\t\n\r" for letter in once)


def test_a_huge_output_keeps_its_beginning_and_its_end():
    text = trimmed("A" + "x" * 10_000_000 + "Z")
    assert text.startswith("A")
    assert text.endswith("Z")
    assert len(text) < 5000
    assert "characters left out" in text


def test_a_cut_without_an_end():
    assert cut("abcdef", 2, 0) == "ab\n… 4 characters left out …\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0401, "40 ms"),
        (3.21, "3.2 s"),
        (60, "1 min"),
        (250, "4 min 10 s"),
        (7500, "2 h 5 min"),
        (7200, "2 h"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_other_words():
    assert moment(0) == "1970-01-01 00:00:00 UTC"
    assert (counted(1, "node"), counted(2, "node"), counted(0, "child", "children")) == (
        "1 node",
        "2 nodes",
        "0 children",
    )


def test_the_same_question_and_answer_in_a_row_is_one():
    asked = [Command("a", "x", 1, seconds=1.0), Command("a", "x", 1, seconds=2.0), Command("a", "x", 0)]
    kept = folded(asked)
    assert [(one.rc, one.times, one.seconds) for one in kept] == [(1, 2, 3.0), (0, 1, 0.0)]


def test_the_last_commands_of_many_are_kept():
    kept = folded(Command("a", str(number), 0) for number in range(KEPT_COMMANDS + 5))
    assert [one.command for one in kept] == [str(number) for number in range(5, KEPT_COMMANDS + 5)]


def test_the_telling_command_is_the_last_that_failed():
    test = failed(
        "time", "gpu01", commands=[Command("a", "1", 1), Command("a", "2", 2), Command("a", "3", 0)]
    )
    assert test.telling is not None
    assert test.telling.command == "2"
    assert failed("time", "gpu01", commands=[]).telling is None


def test_failures_that_differ_in_the_node_alone_are_one():
    tests = [
        failed("time", "gpu01", message="gpu01 is late"),
        failed("time", "gpu02", message="gpu02 is late"),
        failed("time", "gpu02", message="gpu02 is early"),
    ]
    assert [[test.node for test in group] for group in grouped(tests)] == [["gpu01", "gpu02"], ["gpu02"]]


def test_a_verification_is_green_when_all_answer_and_pass():
    assert verification(passed("base", "head01")).green
    assert not verification(passed("base", "head01"), failed("base", "gpu01")).green
    silent = mixed()
    silent.tests = []
    assert not silent.green


def test_the_json_says_it_all():
    data = json.loads(json.dumps(mixed().as_json()))
    assert data["counts"] == {"passed": 4, "failed": 2, "error": 1, "skipped": 1, "silent": 1}
    assert data["green"] is False
    assert data["tests"][4]["title"] == "The daemon runs"
    assert data["tests"][4]["commands"][0]["stdout"] == "inactive\n"
    assert data["tests"][4]["result"] == Result.FAILED
