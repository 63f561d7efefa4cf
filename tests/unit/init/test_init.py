"""What `coldiron init` writes loads clean, says what was answered, and overwrites nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from coldiron.errors import ColdironError, ExitCode
from coldiron.init import answers as answers_of
from coldiron.init import cli, text
from coldiron.init.answers import Answers, checked, groups
from coldiron.inventory import InventoryError, load
from coldiron.inventory.check import build, packaged
from coldiron.inventory.json_schema import FILE, schema
from coldiron.inventory.source import parse
from coldiron.plan.checks import CHECKS
from coldiron.plan.design import Design, run
from coldiron.plan.findings import Severity

DGX = ("--gpu-nodes", "12", "--model", "dgx-h100", "--cpu-nodes", "2", "--racks", "4")
RTX = ("--gpu-nodes", "2", "--gpu", "rtx-4090", "--gpus-per-node", "4")


def typed(*words: str, answers: str | None = None) -> Result:
    app = typer.Typer()
    cli.register(app)
    return CliRunner().invoke(app, list(words), input=answers)


def refused(*words: str) -> ColdironError:
    result = typed(*words)
    assert isinstance(result.exception, ColdironError), result.output
    return result.exception


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        DGX,
        RTX,
        (*RTX, "--cores", "32", "--memory-gib", "256", "--bmc-subnet", ""),
        ("--cpu-nodes", "1", "--storage", "0", "--login", "0"),
        ("--cpu-nodes", "300", "--heads", "3", "--scheduler", "kubernetes", "--domain", "c.example.org"),
        ("--scheduler", "none", "--racks", "1"),
        ("--virtual", "--gpu-nodes", "3", "--cpu-nodes", "1"),
        ("--gpu-nodes", "4", "--model", "supermicro-sys-421ge-tnrt", "--gpu", "l40s", "--gpus-per-node", "8"),
        ("--cpu-nodes", "2000", "--dns", "192.0.2.53", "--dns", "192.0.2.54"),
    ],
    ids=["dgx", "rtx", "figures", "small", "kubernetes", "none", "virtual", "board", "many"],
)
def test_the_result_loads_and_nothing_stops_it(words: tuple[str, ...]) -> None:
    result = typed("inventories/hopper", *words)
    assert result.exit_code == 0, result.exception
    cluster = load(Path("inventories/hopper"))
    assert cluster.name == "hopper"
    assert len(cluster.racks) == (int(words[words.index("--racks") + 1]) if "--racks" in words else 0)
    assert [f for f in run(Design(cluster), CHECKS) if f.severity is Severity.REFUSE] == []
    for file in Path("inventories/hopper").rglob("*.yml"):
        content = file.read_text()
        assert max(map(len, content.splitlines())) <= 120, file
        assert "\n\n\n" not in content
        assert content.endswith("\n")
        assert not content.endswith("\n\n")
        assert [line for line in content.splitlines() if line != line.rstrip()] == []
        yaml.safe_load(content)
    data = yaml.safe_load((Path("inventories/hopper") / "cluster.yml").read_text())
    assert list(jsonschema.Draft202012Validator(schema()).iter_errors(data)) == []


def test_it_says_what_it_wrote_and_what_comes_next() -> None:
    lines = typed("inventories/hopper", *DGX).stdout.splitlines()
    written = [line for line in lines if line.startswith("inventories/hopper/")]
    assert [line for line in written if not Path(line).is_file()] == []
    assert len(written) == 6
    assert "Some figures are examples: look for them in inventories/hopper/cluster.yml." in lines
    assert (
        lines[-1]
        == "Next:  coldiron secrets init -i inventories/hopper  |  coldiron plan -i inventories/hopper"
    )
    assert "an example: write your own" in Path("inventories/hopper/cluster.yml").read_text()


def test_what_was_said_is_no_example() -> None:
    typed("a", *RTX, "--cores", "32", "--memory-gib", "256")
    examples = [
        line.split()[0] for line in Path("a/cluster.yml").read_text().splitlines() if "an example" in line
    ]
    assert examples == ["sockets:", "threads_per_core:"]
    hardware = load(Path("a")).node("gpu01").hardware
    assert hardware is not None
    assert (hardware.cores_per_socket, hardware.memory_gib) == (32, 256)


def test_the_editor_finds_the_schema() -> None:
    typed("hopper", *DGX)
    first = Path("hopper/cluster.yml").read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={FILE}"
    assert json.loads((Path("hopper") / FILE).read_text()) == schema()


def test_addresses_are_easily_told_apart_and_follow_each_other() -> None:
    typed("hopper", *DGX)
    cluster = load(Path("hopper"))
    assert str(cluster.node("head01").address) == "10.20.0.1"
    assert str(cluster.node("gpu12").address) == "10.20.0.52"
    assert str(cluster.node("gpu12").bmc_address) == "10.24.0.52"


def test_a_virtual_one_is_all_containers() -> None:
    typed("lab", "--virtual", "--gpu-nodes", "3")
    cluster = load(Path("lab"))
    assert {node.platform for node in cluster.nodes} == {"container"}
    assert cluster.features.home_backend == "provided"
    assert yaml.safe_load(Path("lab/group_vars/all/site.yml").read_text()) == {
        "dns_isolated": True,
        "time_upstream_servers": [],
    }


def test_name_servers_go_where_the_role_reads_them() -> None:
    typed("hopper", "--cpu-nodes", "1", "--dns", "192.0.2.53")
    assert yaml.safe_load(Path("hopper/group_vars/all/site.yml").read_text()) == {
        "dns_forwarders": ["192.0.2.53"]
    }


@pytest.mark.parametrize("there", ["cluster.yml", "cluster.yaml", "group_vars/all/users.yml"])
def test_nothing_is_overwritten(there: str) -> None:
    file = Path("hopper") / there
    file.parent.mkdir(parents=True)
    file.write_text("mine\n")
    error = refused("hopper", *DGX)
    assert (
        error.message
        == f"hopper/{there} is there already, and nothing is overwritten; name another directory"
    )
    assert error.exit_code == ExitCode.REFUSED
    assert [path for path in Path("hopper").rglob("*") if path.is_file()] == [file]
    assert file.read_text() == "mine\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "where shall it be? write a directory"),
        (("a",), "no node runs jobs; write --gpu-nodes or --cpu-nodes, or --scheduler none"),
        (("a", "--gpu-nodes", "2"), "--gpu: which GPU?"),
        (("a", "--gpu-nodes", "2", "--gpu", "t4"), "--gpus-per-node: how many GPUs are in one node?"),
        (("a", "--gpu-nodes", "2", "--gpu", "rtx4090"), "--gpu: the catalog has no GPU rtx4090; did you mean"),
        (("a", "--gpu-nodes", "2", "--model", "dgx-h10"), "--model: the catalog has no server dgx-h10; did"),
        (("a", "--cpu-nodes", "1", "--gpu", "t4"), "--gpu-nodes: how many nodes have these GPUs?"),
        (("a", "--gpu-nodes", "2", "--gpu", "t4", "--gpus-per-node", "33"), "--gpus-per-node: 33 must be at most 32"),
        (("a", "--cpu-nodes", "1", "--scheduler", "slrm"), "--scheduler: slrm is none; did you mean `slurm`?"),
        (("a", "--cpu-nodes", "-1"), "--cpu-nodes: -1 must be from 0 to 10000"),
        (("a", "--cpu-nodes", "9000", "--heads", "2000"), "11002 nodes are too many; at most 10000"),
        (("a", "--cpu-nodes", "1", "--heads", "0"), "--heads: a cluster needs a head"),
        (("a", "--cpu-nodes", "1", "--name", "A b"), "--name: `A b` is no name for a cluster"),
        (("a", "--cpu-nodes", "1", "--domain", "x.local"), "--domain: `x.local` ends in .local"),
        (("a", "--cpu-nodes", "1", "--subnet", "10.0.0.0"), "--subnet: `10.0.0.0` has no prefix length"),
        (("a", "--cpu-nodes", "1", "--dns", "x"), "--dns: `x` is no IPv4 address"),
        (("a", "--cpu-nodes", "300", "--subnet", "10.0.0.0/24"), "253 nodes, and there are 303; write one with"),
        (("a", "--cpu-nodes", "1", "--bmc-subnet", "10.20.0.0/25"), "--bmc-subnet: 10.20.0.0/25 overlaps"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_is_told_with_its_option(words: tuple[str, ...], told: str) -> None:
    error = refused(*words)
    assert told in error.message
    assert "\n" not in error.message
    assert not Path("a").exists()


def test_a_directory_that_cannot_be_written_is_told() -> None:
    Path("file").write_text("")
    assert "cannot be written" in refused("file/inventory", *DGX).message


def test_answers_that_make_no_sound_file_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # A name of the catalog that a site's own overlay alone knows would end so.
    monkeypatch.setattr(answers_of, "_hardware", lambda answers, catalog: None)
    error = refused("a", "--gpu-nodes", "1", "--gpu", "h1000", "--gpus-per-node", "4")
    assert error.message.startswith(
        "these answers make no sound cluster.yml:\nthe catalog has no GPU `h1000`"
    )
    assert not Path("a").exists()


def test_on_a_terminal_it_asks_what_was_not_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given_ = iter(
        [
            "hopper",
            "hopper.example.org",
            "slurm",
            1,
            0,
            1,
            0,
            2,
            "",
            "rtx4090",
            "rtx-4090",
            4,
            1,
            "10.5.0.0/24",
            "",
            "",
        ]
    )
    asked: list[str] = []

    def prompt(question: str, **_: Any) -> Any:
        asked.append(question)
        return next(given_)

    monkeypatch.setattr(cli.sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr(cli.typer, "prompt", prompt)
    monkeypatch.setattr(cli.typer, "confirm", lambda question, **_: False)
    cli.init(None)
    assert len(asked) == 16
    assert "the catalog has no rtx4090; did you mean `rtx-4090`?" in capsys.readouterr().err
    cluster = load(Path("inventories/hopper"))
    assert cluster.groups()["kind_gpu"] == ["gpu01", "gpu02"]
    assert cluster.node("gpu01").build.gpu_count == 4
    assert "bmc" not in cluster.networks


NUMBERS = st.integers(0, 400)


@settings(max_examples=60, deadline=None)
@given(st.builds(Answers, name=st.just("a"), domain=st.just("a.internal"), heads=st.integers(1, 40), logins=NUMBERS,
                 storage=NUMBERS, cpu_nodes=NUMBERS, gpu_nodes=NUMBERS, gpu=st.just("t4"), gpus_per_node=st.just(2),
                 racks=st.integers(0, 200), virtual=st.booleans()))  # fmt: skip
def test_any_numbers_fit_the_subnets_that_are_proposed(answers: Answers) -> None:
    from dataclasses import replace

    own, bmc = text.subnets(answers)
    whole = replace(answers, subnet=own, bmc_subnet=bmc)
    taken = [int(group.address) + number for group in groups(whole) for number in range(group.number)]
    assert len(set(taken)) == len(taken)
    if answers.cpu_nodes + answers.gpu_nodes == 0 or not answers.gpu_nodes:
        return
    made = text.files(checked(whole, packaged()), packaged(), "a")["cluster.yml"]
    try:
        cluster = build(parse(made, "cluster.yml"), Path("cluster.yml"))
    except InventoryError as error:
        raise AssertionError(str(error)) from None
    assert len(cluster.nodes) == sum(answers.numbers.values())


def test_the_command_itself_writes_it_in_an_empty_directory(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "coldiron"), "init", "lab", "--virtual", "--gpu-nodes", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"]},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Next:  coldiron secrets init -i lab" in done.stdout
