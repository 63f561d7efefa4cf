"""What the terminal shows."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from coldiron.verify import display
from coldiron.verify.results import Command, Node, Result, Test
from tests.unit.verify.samples import failed, mixed, passed, verification


def screen(terminal=False, **more):
    return Console(file=io.StringIO(), width=80, force_terminal=terminal, highlight=False, **more)


def end(found, console=None):
    console = console or screen()
    display.print_end(found, console, "inventories/lab/.coldiron/verify/x/index.html")
    return console.file.getvalue()


def test_failures_come_first_with_the_command_and_its_answer():
    said = end(mixed()).splitlines()
    assert said[0] == "gpu03 does not answer: ssh: connect to host 192.0.2.3 port 22: No route to host"
    at = said.index("gpu[01-02]  time  failed: The daemon runs")
    assert said[at + 1 : at + 5] == [
        "  Does not hold: is_running",
        "  gpu01$ systemctl is-active chrony",
        "  inactive",
        "  (ended with 3)",
    ]
    assert "gpu02  time  could not be tested: The clocks agree" in said
    assert said[-3:] == [
        "lab is not as declared: 4 of 8 tests passed on 3 of 4 nodes (21.0 s)",
        "1 test that act left out (--active runs them)",
        "page: inventories/lab/.coldiron/verify/x/index.html",
    ]


def test_a_good_end_is_short():
    assert end(verification(passed("base", "head01"))).splitlines() == [
        "lab is as declared: 1 of 1 test passed on 3 of 3 nodes (21.0 s)",
        "page: inventories/lab/.coldiron/verify/x/index.html",
    ]


def test_many_failures_and_long_outputs_are_cut():
    command = Command("gpu01", "cat\n" * 20, 1, "y" * 2000 + "\n" + "line\n" * 50)
    tests = [failed("time", "gpu01", f"test_{n}", commands=[command]) for n in range(14)]
    said = end(verification(*tests))
    assert "… and 4 more on the page" in said
    assert max(len(line) for line in said.splitlines()) < 450
    assert said.count("line\n") == 10 * 7


def test_only_silent_nodes():
    said = end(verification(nodes=[Node("a", "gpu", "gone")]))
    assert said.splitlines()[:3] == [
        "a does not answer: gone",
        "",
        "lab is not as declared: 0 of 0 tests passed on 0 of 1 node (21.0 s)",
    ]


def test_markup_of_a_node_is_text():
    said = end(verification(failed("time", "gpu01", message="[bold]not bold[/bold] [/]")))
    assert "[bold]not bold[/bold] [/]" in said


def test_a_failure_without_a_command_or_with_a_hint():
    said = end(verification(failed("time", "", commands=[], hint="look there")))
    assert "cluster  time  failed" in said
    assert "  look there" in said


def test_plain_progress_is_a_line_a_role():
    console = screen()
    progress = display.make_progress(console)
    assert isinstance(progress, display.PlainProgress)
    progress.begin({"base": 1, "time": 2}, [])
    for test in (failed("time", "gpu01"), passed("base", "gpu01"), passed("time", "gpu02")):
        progress.test(test)
    progress.end()
    assert console.file.getvalue().splitlines() == ["base: 1 passed", "time: 1 of 2 failed"]


@pytest.mark.parametrize("color", [True, False])
def test_live_progress_names_the_nodes_that_failed(color):
    console = screen(terminal=True, no_color=not color, legacy_windows=False, _environ={"TERM": "xterm"})
    progress = display.make_progress(console)
    assert isinstance(progress, display.LiveProgress)
    progress.begin({"time": 2}, [])
    progress.test(failed("time", "gpu01"))
    progress.test(Test("time", "gpu02", "test_x", Result.ERROR))
    progress.end()
    said = console.file.getvalue()
    assert "2 failed: gpu[01-02]" in said
    assert "2/2" in said


def test_long_lists_of_nodes_are_cut():
    assert len(display.folded_names([f"n{n * n}x" for n in range(60)])) <= 60
