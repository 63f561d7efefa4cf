"""The demo's own logic: reading a recap, refusing a restless second run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from coldiron import demo
from coldiron.demo import Demo, Recap, parse_recap
from coldiron.errors import ColdironError, ExitCode

VIRTUAL = Path(__file__).resolve().parents[2] / "inventories" / "virtual"
QUIET = "head01 : ok=21 changed={changed} unreachable=0 failed=0 skipped=1 rescued=0 ignored=0\n"
HOSTS = ["head01", "login01", "storage01", "cpu01", "gpu01", "gpu02", "gpu03"]


def recap_of(changed: int) -> str:
    return "PLAY RECAP ***\n" + "".join(
        f"{host}   : ok=21   changed={changed}   unreachable=0    failed=0    skipped=1\n" for host in HOSTS
    )


class Scripted(Demo):
    """A demo whose commands answer from a script instead of running."""

    def __init__(self, second_run: str) -> None:
        self.out = io.StringIO()
        super().__init__(VIRTUAL, Console(file=self.out, width=200))
        self.commands: list[tuple[str, ...]] = []
        self.second_run = second_run

    def run(self, *command: str, quiet: bool = False) -> str:
        self.commands.append(command)
        if command[0] != "ansible-playbook":
            return ""
        sites = [one for one in self.commands if one[0] == "ansible-playbook"]
        return recap_of(9) if len(sites) == 1 else self.second_run


def test_a_recap_is_read_line_by_line() -> None:
    assert parse_recap("noise\n" + QUIET.format(changed=3)) == {
        "head01": Recap(changed=3, unreachable=0, failed=0)
    }
    assert parse_recap("") == {}


def test_the_steps_come_in_their_order_and_end_with_what_to_type() -> None:
    played = Scripted(recap_of(0))
    played.play()
    words = [" ".join(command[:3]) for command in played.commands]
    assert words[:3] == ["coldiron secrets init", "coldiron rack up", f"ansible-playbook -i {VIRTUAL}"]
    assert any("srun --job-name=two-gpus --gres=gpu:2" in command[-1] for command in played.commands)
    assert "A Slurm cluster of 7 nodes stands" in played.out.getvalue()
    assert "coldiron rack ssh login01" in played.out.getvalue()


@pytest.mark.parametrize("second_run", [recap_of(1), "PLAY RECAP ***\n"], ids=["restless", "silent"])
def test_a_second_run_that_changes_something_or_reaches_nobody_fails(second_run: str) -> None:
    with pytest.raises(ColdironError, match="second run was to change nothing") as caught:
        Scripted(second_run).play()
    assert caught.value.exit_code == ExitCode.HOSTS_FAILED


def test_a_failing_command_ends_the_demo_with_its_name(capfd: pytest.CaptureFixture[str]) -> None:
    played = Demo(VIRTUAL, Console(file=io.StringIO()))
    assert played.run("sh", "-c", "echo hello") == "hello\n"
    with pytest.raises(ColdironError, match="`sh -c echo bad; exit 7` ended with 7"):
        played.run("sh", "-c", "echo bad; exit 7", quiet=True)
    assert "bad" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ColdironError("no rack", ExitCode.ENVIRONMENT), 5, "coldiron: no rack"),
        (KeyboardInterrupt(), 4, "`make demo` goes on from here"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    error: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def raising(*_: object) -> None:
        raise error

    monkeypatch.setattr(demo, "Demo", raising)
    with pytest.raises(SystemExit) as caught:
        demo.main()
    assert caught.value.code == code
    shown = capsys.readouterr().err
    assert line in shown
    assert "Traceback" not in shown
