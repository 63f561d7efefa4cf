"""A verification of the toy cluster, through the command line's own function."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
import typer
from typer.testing import CliRunner

from coldiron.errors import ColdironError
from coldiron.testing import backend
from coldiron.testing.site import load_site
from coldiron.verify import run as run_module
from coldiron.verify.cli import register
from coldiron.verify.run import Wish, revision, verify
from tests.unit.testing.toy import write

MORE_TESTS = """
import pytest
from pytest import skip


@pytest.mark.acts
def test_writes_a_file(host):
    host.check_output("touch acted")


@pytest.mark.parametrize("name", ["a", "b"])
def test_parts(host, name):
    pass


def test_is_left_out(host):
    skip("not here")


def test_shows_its_secret(host, opts):
    said = host.run("cat password; printf '\\\\033[31m'; printf 'MUNGE:AwQFAAAR/bc=:'")
    assert opts["toy_password"] not in said.stdout + host.run("echo %s", opts["toy_password"]).stdout, said.stdout


def test_refused(host):
    host.check_output("echo 'touch: x: Read-only file system' >&2; false")


def test_explodes(host):
    raise ValueError("the test is broken")
"""


class Quiet:
    """Nobody watches."""

    def __init__(self):
        self.totals = {}
        self.heard = []

    def begin(self, totals, silent):
        self.totals = totals

    def test(self, test):
        self.heard.append(test)


@pytest.fixture(autouse=True)
def no_namespaces(monkeypatch):
    """What the view itself does is tested by test_onlooker.py; here commands run as they are."""
    monkeypatch.setattr(backend, "read_only", lambda command: command)


@pytest.fixture
def check(toy):
    """Verify the toy cluster."""

    def run(**wish):
        return verify(Wish((toy.inventory,), **wish), toy.site(), Quiet(), ["coldiron", "verify"])

    return run


@pytest.fixture
def app():
    """The command line with this one verb; a second one keeps its name from vanishing."""
    made = typer.Typer()
    register(made)
    made.command("other")(lambda: None)
    load_site.cache_clear()
    return made


def by_name(found, result=None):
    return {(test.name, test.node): test for test in found.tests if result is None or test.result == result}


def test_a_cluster_as_declared_is_green(check):
    found = check()
    assert found.green
    assert (found.cluster, found.roles, len(found.tests)) == ("toy", ["toy"], 8)
    assert [node.name for node in found.nodes] == ["node01", "node02"]
    color = by_name(found)["test_color", "node01"]
    assert [(one.node, one.command, one.rc, one.stdout) for one in color.commands] == [
        ("node01", "cat color", 0, "")
    ]


def test_a_broken_node_is_red_and_says_what_was_run_and_what_came_back(check, toy):
    (toy.nodes / "node02" / "color").write_text("green\n")
    found = check()
    assert [(test.name, test.node) for test in found.bad] == [("test_color", "node02")]
    [test] = found.bad
    assert "green" in test.message
    assert [(one.node, one.command, one.stdout) for one in test.commands] == [
        ("node02", "cat color", "green\n")
    ]


def test_a_silent_node_is_one_line_and_the_others_go_on(check, toy):
    (toy.nodes / "node01").rename(toy.nodes / "elsewhere")
    found = check()
    assert [(node.name, node.silent) for node in found.silent] == [
        ("node01", "ssh: connect to host node01 port 22: No route to host")
    ]
    assert {test.node for test in found.tests} == {"node02"}
    assert not found.bad
    assert not found.green


def test_nobody_answers(check, toy):
    for name in ("node01", "node02"):
        (toy.nodes / name).rename(toy.nodes / f"not-{name}")
    found = check()
    assert len(found.silent) == 2
    assert found.tests == []
    assert not found.green


@pytest.fixture
def more(toy):
    """The toy role with tests of every kind of outcome."""
    write(toy.role / "tests" / "test_more.py", MORE_TESTS)
    return toy


def test_tests_that_act_are_left_out_unless_asked_for(check, more):
    found = check(limit="node01")
    assert found.left_out == ["toy: Writes a file"]
    assert not (more.nodes / "node01" / "acted").exists()
    found = check(limit="node01", active=True)
    assert found.left_out == []
    assert (more.nodes / "node01" / "acted").exists()


def test_every_outcome(check, more):
    found = check(limit="node01")
    results = {test.name: str(test.result) for test in found.tests}
    assert results["test_parts[a]"] == results["test_parts[b]"] == "passed"
    assert results["test_is_left_out"] == "skipped"
    assert results["test_explodes"] == "failed"
    tests = {test.name: test for test in found.tests}
    assert tests["test_is_left_out"].message == "not here"
    assert tests["test_explodes"].message == "ValueError: the test is broken"
    assert tests["test_refused"].message == "A command that had to succeed did not."
    assert "--active" in tests["test_refused"].hint
    assert tests["test_explodes"].hint == ""


def test_no_secret_and_no_escape_leaves_the_process(check, more):
    found = check(limit="node01", matching="shows its")
    assert len(found.bad) == 1
    text = json.dumps(found.as_json())
    assert "correct-horse" not in text
    assert "MUNGE:" not in text
    assert "<secret>" in text
    assert "\\u001b" not in text


def test_a_part_of_a_name_picks_tests(check):
    assert {test.name for test in check(matching="daemon_is").tests} == {
        "test_daemon_is_seen_from_everywhere"
    }
    assert {test.name for test in check(matching="IS SEEN").tests} == {"test_daemon_is_seen_from_everywhere"}


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"roles": ("toi",)}, "--role toi: there is no role of this name: did you mean toy?"),
        ({"roles": ("quite other",)}, "there are toy"),
        ({"limit": "node1"}, "--limit node1 matches no node of the cluster: did you mean node01?"),
        ({"matching": "no such"}, "-k no such: no test matches, nothing was run"),
    ],
)
def test_a_wish_that_matches_nothing_is_one_line(check, wish, said):
    with pytest.raises(ColdironError, match=said.replace("?", r"\?")) as caught:
        check(**wish)
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2


def test_only_tests_that_act_match(check, more):
    with pytest.raises(ColdironError, match=r"only tests that act match .*--active runs them"):
        check(matching="writes")


def test_tests_that_cannot_be_loaded(check, toy):
    write(toy.role / "tests" / "test_bad.py", "import no_such_module\n")
    with pytest.raises(ColdironError, match="no_such_module") as caught:
        check()
    assert caught.value.exit_code == 5
    assert "\n" not in caught.value.message


def test_no_role_has_tests(check, toy):
    for path in (toy.role / "tests").iterdir():
        path.unlink()
    with pytest.raises(ColdironError, match="no role's tests are installed"):
        check()


def test_the_callers_pytest_has_no_say(check, monkeypatch, tmp_path):
    write(tmp_path / "pytest.ini", "[pytest]\naddopts = --nonsense\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--more-nonsense")
    assert check().green


def test_progress_hears_of_everything(toy):
    watcher = Quiet()
    verify(Wish((toy.inventory,), processes=1), toy.site(), watcher, [])
    assert watcher.totals == {"toy": 8}
    assert len(watcher.heard) == 8


def test_a_process_that_dies_makes_its_tests_errors(check, toy):
    write(toy.role / "tests" / "test_dies.py", "import os\n\ndef test_dies(host):\n    os.abort()\n")
    found = check(matching="dies", limit="node01")
    assert [(str(test.result), test.message) for test in found.tests] == [
        ("error", "The process that ran this test died.")
    ]


def test_a_node_that_falls_silent_later_could_not_be_tested(check, toy):
    text = "import pathlib\n\ndef test_falls(host):\n    pathlib.Path({0!r}).rename({1!r})\n    host.run('true')\n"
    here, there = str(toy.nodes / "node01"), str(toy.nodes / "gone")
    write(toy.role / "tests" / "test_falls.py", text.format(here, there))
    [test] = check(matching="falls", limit="node01").tests
    assert str(test.result) == "error"
    assert "node01 cannot be asked over ssh: ssh: connect to host node01" in test.message


def test_simulated_gpus_are_found(toy, check):
    write(
        toy.inventory / "host_vars" / "node01.yml",
        "coldiron_platform: container\ncoldiron_kind: gpu\ncoldiron_hardware: {gpus: {type: h100, count: 4}}\n",
    )
    found = check()
    assert found.simulated_gpus
    assert found.nodes[0].kind == "gpu"


def test_the_revision_of_an_inventory(tmp_path, monkeypatch):
    import subprocess

    assert revision(tmp_path) == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    write(tmp_path / "cluster.yml", "x")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)
    clean = revision(tmp_path)
    assert len(clean) >= 7
    write(tmp_path / "cluster.yml", "y")
    assert revision(tmp_path) == f"{clean}+"
    monkeypatch.setenv("PATH", "")
    assert revision(tmp_path) == ""


def test_the_command_line(app, toy):
    answer = CliRunner().invoke(app, ["verify", "-i", str(toy.inventory)])
    assert answer.exit_code == 0, answer.output
    assert "toy: 8 passed" in answer.output
    assert "toy is as declared: 8 of 8 tests passed on 2 of 2 nodes" in answer.output
    [folder] = (toy.inventory / ".coldiron" / "verify").iterdir()
    assert {path.name for path in folder.iterdir()} == {"index.html", "junit.xml", "results.json"}
    assert ET.parse(folder / "junit.xml").getroot().get("tests") == "8"
    assert (toy.inventory / ".coldiron" / ".gitignore").read_text() == "*\n"


def test_the_command_line_is_red_and_speaks_json(app, toy, tmp_path):
    (toy.nodes / "node02" / "daemon").write_text("off\n")
    answer = CliRunner().invoke(
        app,
        ["verify", "-i", str(toy.inventory), "--json", "--output", str(tmp_path / "out"), "--role", "toy,"],
    )
    assert answer.exit_code == 1
    data = json.loads(answer.stdout)
    assert data["counts"]["failed"] == 3
    assert "node02  toy  failed: Daemon" in answer.stderr
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == data
    assert not (toy.inventory / ".coldiron").exists()


def test_a_missing_inventory(app, tmp_path):
    answer = CliRunner().invoke(app, ["verify", "-i", str(tmp_path / "none")])
    assert isinstance(answer.exception, ColdironError)
    assert "does not exist" in answer.exception.message


def test_an_interrupt_passes_through(check, monkeypatch):
    monkeypatch.setattr(run_module.pytest, "main", lambda *a, **k: pytest.ExitCode.INTERRUPTED)
    with pytest.raises(KeyboardInterrupt):
        check()


def test_pytest_that_breaks_down_is_one_line(check, monkeypatch):
    monkeypatch.setattr(run_module.pytest, "main", lambda *a, **k: pytest.ExitCode.INTERNAL_ERROR)
    with pytest.raises(ColdironError, match="pytest ended with 3"):
        check()
