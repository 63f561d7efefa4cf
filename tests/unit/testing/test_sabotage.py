"""The sabotage runner: only what was really broken, seen and healed counts as proven."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coldiron.errors import ColdironError
from coldiron.testing import sabotage
from coldiron.testing.sabotage import Bench, Part, Result, RoleRun, read_sabotages, run_sabotages
from tests.unit.testing.toy import Toy, write

BREAKS = """\
- name: The color is lost
  hosts: node01
  break: echo red > color
  red: test_color
- name: The daemon is off
  hosts: cluster
  break: echo off > daemon
  red: test_daemon
- name: The color is lost everywhere
  hosts: cluster
  all: true
  break: rm color
  red: test_color
"""


def bench(toy: Toy) -> Bench:
    """Return the runner's hands on the toy."""
    return Bench(toy.site(), playbook=toy.playbook)


def results(toy: Toy, text: str, one_by_one: bool = False) -> list[Result]:
    """Run a sabotage.yml with this text on the toy."""
    write(toy.role / "tests" / "sabotage.yml", text)
    return run_sabotages(bench(toy), ["toy"], one_by_one)


def heals(toy: Toy) -> int:
    """Return how often ansible-playbook was started."""
    return len((toy.nodes / "calls").read_text().splitlines())


def one(name: str = "X", hosts: str = "node01", breaks: str = "rm color", red: str = "test_color") -> str:
    """Return a sabotage.yml with one entry."""
    return f"- {{name: {name}, hosts: {hosts}, break: '{breaks}', red: {red}}}\n"


def test_breaks_are_proven_in_few_rounds(toy: Toy) -> None:
    found = results(toy, BREAKS)
    assert {result.name: result.verdict for result in found} == {
        "The color is lost": "proven",
        "The daemon is off": "proven",
        "The color is lost everywhere": "proven",
    }
    assert [result.hosts for result in found] == [["node01"], ["node02"], ["node01", "node02"]]
    assert heals(toy) == 2
    calls = (toy.nodes / "calls").read_text().splitlines()
    assert calls[0] == f"coldiron.cluster.site -i {toy.inventory} --limit node01,node02 --tags toy"


def test_turns_in_a_row_prove_them_all(toy: Toy) -> None:
    write(toy.role / "tests" / "sabotage.yml", BREAKS)
    names = []
    for turn in range(7, 9):
        found = run_sabotages(bench(toy), ["toy"], part=Part(2, turn))
        assert {result.verdict for result in found} == {"proven"}
        names += [result.name for result in found]
    assert sorted(names) == ["The color is lost", "The color is lost everywhere", "The daemon is off"]
    assert (
        Part(2, 0).of(read_sabotages(toy.role / "tests" / "sabotage.yml", "toy"), 1)[0].name
        == "The daemon is off"
    )


def test_one_by_one_heals_after_each(toy: Toy) -> None:
    assert [result.verdict for result in results(toy, BREAKS, one_by_one=True)] == ["proven"] * 3
    assert heals(toy) == 3


def test_a_break_on_the_same_host_is_proven_by_itself(toy: Toy) -> None:
    text = one("A") + one("B", breaks="echo off > daemon", red="test_daemon")
    found = results(toy, text)
    assert [(result.hosts, result.verdict) for result in found] == [(["node01"], "proven")] * 2
    assert heals(toy) == 1


def test_a_break_that_must_be_alone_waits(toy: Toy) -> None:
    text = one("A") + "- {name: B, hosts: node01, break: echo off > daemon, red: test_daemon, alone: true}\n"
    assert [result.verdict for result in results(toy, text)] == ["proven"] * 2
    assert heals(toy) == 2


def test_a_test_already_red_by_an_earlier_break_proves_nothing(toy: Toy) -> None:
    # Seen from node02, node01's daemon is off too: the second break has to wait for the next round.
    text = one("A", breaks="echo off > daemon", red="test_daemon") + one(
        "B", "node02", "echo off > daemon", "test_daemon_is_seen_from_everywhere"
    )
    assert [result.verdict for result in results(toy, text)] == ["proven"] * 2
    assert heals(toy) == 2


def test_what_stays_green_is_told(toy: Toy) -> None:
    (result,) = results(toy, one(breaks="true"))
    assert result.verdict == "stayed green"
    assert result.detail == "test_color on node01: passed"


def test_a_broken_connection_is_not_red(toy: Toy) -> None:
    write(toy.role / "tests" / "test_toy.py", "def test_color(host, opts):\n    assert opts['toy_never']\n")
    (result,) = results(toy, one())
    assert result.verdict == "red before anything was broken"


def test_an_unknown_red_test_is_told(toy: Toy) -> None:
    (result,) = results(toy, one(red="test_colour"))
    assert (result.verdict, result.detail) == ("no green test", "test_colour on node01: missing")


def test_a_break_that_fails_is_told(toy: Toy) -> None:
    (result,) = results(toy, one(breaks="echo correct-horse >&2; exit 3"))
    assert result.verdict == "break failed"
    assert result.detail.startswith("on node01: rc 3")


def test_a_pattern_without_hosts_is_told(toy: Toy) -> None:
    (result,) = results(toy, one(hosts="nobody"))
    assert result.verdict == "no such host"


def test_what_the_role_does_not_heal_is_told_and_ends_the_role(toy: Toy) -> None:
    first, second = results(toy, one("A", breaks="touch stuck; rm color") + one("B"), one_by_one=True)
    assert first.verdict == "not healed"
    assert second.verdict == "not run"
    assert "test_color on node01" in second.detail


def test_a_failing_healing_run_is_told(toy: Toy) -> None:
    write(toy.nodes / "broken-playbook", "")
    (result,) = results(toy, one())
    assert result.verdict == "not healed"


def test_a_break_that_undoes_itself_is_not_the_roles_doing(toy: Toy) -> None:
    write(
        toy.role / "tests" / "test_toy.py",
        "def test_once(host):\n    assert host.run('rm hit').rc != 0\n",
    )
    (result,) = results(toy, one(breaks="touch hit", red="test_once"))
    assert result.verdict == "not the role's doing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "a list of sabotages is wanted"),
        ("- broken", "entry 1: write"),
        ("- {name: A, hosts: x, red: t}", "break is missing"),
        ("- {name: A, hosts: x, break: y, red: t, brake: z}", "brake is no key"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ColdironError, match=message):
        read_sabotages(write(tmp_path / "sabotage.yml", text), "toy")


def test_tests_that_cannot_be_collected_are_an_error_and_not_red(toy: Toy) -> None:
    write(toy.role / "tests" / "test_toy.py", "import nothing_of_that_name\n")
    with pytest.raises(ColdironError, match="cannot be collected"):
        results(toy, one())


def test_tests_that_hang_are_given_up(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    write(toy.role / "tests" / "test_toy.py", "import time\ndef test_color(host):\n    time.sleep(60)\n")
    hands = bench(toy)
    monkeypatch.setattr(sabotage, "run_tests", _impatient)
    with pytest.raises(ColdironError, match="did not end within 1 s"):
        RoleRun(hands, "toy", [sabotage.Sabotage("toy", "A", "node01", "true", "test_color")]).run()


def _impatient(site: object, folder: Path, **words: object) -> object:
    from coldiron.testing import forked

    return forked.run_tests(site, folder, timeout=1, **words)  # type: ignore[arg-type]


def test_the_command_line(
    toy: Toy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(toy.role / "tests" / "sabotage.yml", BREAKS)
    monkeypatch.setattr(Bench, "playbook", toy.playbook)
    monkeypatch.setattr(sabotage, "PLAYBOOK", toy.playbook)
    where = ["--inventory", str(toy.inventory)]
    monkeypatch.setattr("sys.argv", ["sabotage", *where, "--role", "nothing"])
    assert sabotage.main() == 2
    assert "no stage has a role nothing: choose from toy, part" in capsys.readouterr().err
    write(toy.role / "tests" / "sabotage.yml", one(breaks="true"))
    assert sabotage.run([*where, "--role", "toy", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "stayed green"
    assert sabotage.run([*where, "--role", "toy"]) == 1
    output = capsys.readouterr()
    assert "0 of 1 proven" in output.out
    assert "toy: X: stayed green: test_color on node01: passed" in output.err
