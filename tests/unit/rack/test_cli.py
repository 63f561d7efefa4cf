"""The verbs as they are typed, on a machine made of files."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from coldiron.errors import ColdironError
from coldiron.rack import cli
from coldiron.rack.host import Host
from coldiron.rack.layout import Layout
from coldiron.rack.rack import Rack
from coldiron.rack.report import Report
from coldiron.rack.state import NodeState, RackState, Registry

from .conftest import Toy


class Typist:
    """Types ``coldiron rack``."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy

    def type(self, verb: str, *words: str) -> Result:
        return CliRunner().invoke(
            cli.app, [verb, "-i", str(self.toy.inventory), *words], catch_exceptions=True
        )

    def do(self, verb: str, *words: str) -> str:
        result = self.type(verb, *words)
        if result.exception is not None:
            raise result.exception
        return result.stdout

    def fails(self, verb: str, *words: str) -> ColdironError:
        result = self.type(verb, *words)
        assert isinstance(result.exception, ColdironError), result.exception
        return result.exception


@pytest.fixture
def typist(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Typist:
    def open_toy(name: str, directory: Path, as_json: bool = False) -> Rack:
        console = Console(file=sys.stderr if as_json else sys.stdout, width=200)
        return Rack(Layout(name, directory, toy.machine), toy.host, Report(console))

    monkeypatch.setattr(cli, "_open", open_toy)
    monkeypatch.setattr(cli, "_registered", lambda: Registry.load(toy.machine.registry).racks)
    return Typist(toy)


def test_a_rack_comes_and_goes(typist: Typist) -> None:
    assert "rack toy: was not up" in typist.do("down")
    out = typist.do("up")
    assert "baking the base image of debian-13" in out
    assert "rack toy: 2 nodes up, simulated on this machine" in out
    status = typist.do("status")
    assert "2 x h100" in status
    assert "bound at /home on every node (provided)" in status
    assert "rack toy: taken away" in typist.do("down")
    result = typist.type("status")
    assert result.exit_code == 1
    assert "down" in result.stdout


def test_outcomes_as_json_have_the_channel_to_themselves(typist: Typist) -> None:
    up = json.loads(typist.do("up", "--json"))
    assert up["nodes"] == ["head01", "gpu01"]
    assert json.loads(typist.do("status", "--json"))["nodes"][1]["gpus"] == "simulated"
    taken = json.loads(typist.do("snapshot", "one", "--json"))
    assert (taken["kept"], taken["nodes"]) == (False, ["head01", "gpu01"])
    assert json.loads(typist.do("snapshot", "--json"))[0]["name"] == "one"
    assert json.loads(typist.do("reset", "gpu[01]", "--to", "one", "--json"))["nodes"] == ["gpu01"]
    assert json.loads(typist.do("down", "--json"))["was_up"] is True


def test_snapshots_are_taken_listed_and_removed(typist: Typist) -> None:
    typist.do("up")
    assert "snapshot one of 1 nodes taken" in typist.do("snapshot", "one", "gpu01")
    assert "snapshot two of 2 nodes taken" in typist.do("snapshot", "two", "--keep")
    assert typist.do("snapshot").splitlines() == ["one: gpu01", "two (kept): head01, gpu01"]
    assert "2 nodes reset to two" in typist.do("reset", "--to", "two")
    assert "1 nodes reset to their base image" in typist.do("reset", "gpu01")
    assert "snapshot one: removed" in typist.do("snapshot", "one", "--remove")
    typist.do("down")
    assert "2 nodes up" in typist.do("up", "--from-snapshot", "two")
    assert "there is no snapshot three" in typist.fails("up", "--from-snapshot", "three").message
    typist.do("up", "--from-snapshot", "three", "--or-bare")


def test_a_rack_goes_by_its_name_when_its_inventory_is_gone(typist: Typist) -> None:
    typist.do("up")
    assert "no rack called other is up" in typist.fails("down", "--name", "other").message
    (typist.toy.inventory / "cluster.yml").write_text("broken: [")
    assert "rack toy: taken away" in typist.do("down", "--name", "toy")


def test_a_rack_goes_though_its_file_is_broken_and_its_state_lost(typist: Typist) -> None:
    typist.do("up")
    (typist.toy.inventory / "cluster.yml").write_text("broken: [")
    (typist.toy.inventory / ".rack/state.json").unlink()
    assert "rack toy: taken away" in typist.do("down")


def test_purge_takes_what_outlives_racks(typist: Typist) -> None:
    typist.do("up")
    assert "take them down first: toy" in str(CliRunner().invoke(cli.app, ["purge"]).exception)
    typist.do("down", "--purge")
    assert not typist.toy.machine.cache.exists()
    typist.do("up")
    typist.do("down")
    assert CliRunner().invoke(cli.app, ["purge"]).exit_code == 0
    assert not typist.toy.machine.cache.exists()


def test_commands_on_nodes(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    typist.do("up")

    def everywhere(
        state: RackState, nodes: Sequence[NodeState], command: list[str], show: object
    ) -> dict[str, int]:
        assert callable(show)
        for node in nodes:
            show(node.name, " ".join(command))
        return {node.name: len(node.name) - 5 for node in nodes}

    monkeypatch.setattr(cli, "run_everywhere", everywhere)
    result = typist.type("exec", "gpu01", "head01", "--", "ls", "-i", "--", "x")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == ["gpu01  | ls -i -- x", "head01 | ls -i -- x"]
    assert json.loads(typist.do("exec", "gpu01", "--json", "--", "x")) == {
        "gpu01": {"exit_code": 0, "output": ["x"]}
    }
    assert "write the command after --" in typist.fails("exec", "gpu01").message
    assert "has no node gpu09" in typist.fails("exec", "gpu09", "--", "x").message
    assert "is not closed" in typist.fails("exec", "gpu[", "--", "x").message
    went: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(cli, "log_in", lambda state, node, command: went.append((node.name, command)))
    typist.do("ssh", "gpu01", "uptime")
    typist.do("ssh", "gpu01", "--", "ls", "-l")
    typist.do("ssh", "gpu01")
    assert went == [("gpu01", ["uptime"]), ("gpu01", ["ls", "-l"]), ("gpu01", [])]


def test_verbs_that_need_a_rack_say_how_to_get_one(typist: Typist) -> None:
    for verb in (["ssh", "gpu01"], ["exec", "--", "x"], ["reset"], ["snapshot", "one"]):
        assert (
            f"its rack is not up; type: coldiron rack up -i {typist.toy.inventory}"
            in typist.fails(*verb).message
        )


def test_requirements_feed_the_installer(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = CliRunner().invoke(cli.app, ["requirements"]).stdout.split()
    assert "systemd-container" in everything
    monkeypatch.setattr(Host, "which", lambda self, command: None if command == "ip" else "/usr/bin/x")
    lacking = CliRunner().invoke(cli.app, ["requirements", "--missing"]).stdout.split()
    assert "iproute2" in lacking
    assert "mmdebstrap" not in lacking
