"""Each reference design from bare nodes to jobs, as `coldiron rehearse` does it; and rehearsals that are cut off."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coldiron.inventory.findings import shown_path
from coldiron.rack.layout import Machine
from coldiron.rack.remote import ssh_command
from coldiron.rack.state import RackState, Registry
from coldiron.testing.steps import command, environment

pytestmark = pytest.mark.rehearsal

INVENTORIES = Path(__file__).parents[2] / "inventories"
SECONDS = 2400


def rehearse(name: str, *words: str) -> list[str]:
    """The command that rehearses a design."""
    return [command("coldiron"), "rehearse", "-i", str(INVENTORIES / name), *words]


def types(*words: str) -> subprocess.CompletedProcess[str]:
    """Type a rehearsal's command to its end."""
    return subprocess.run(
        list(words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=SECONDS,
    )


@dataclass
class Rehearsed:
    """A design whose rehearsal stands: what the verb said of it, and its nodes."""

    name: str
    outcome: dict[str, Any]

    def on(self, node: str, line: str) -> subprocess.CompletedProcess[str]:
        """Run a shell line on a node."""
        state = RackState.load(Path(self.outcome["directory"]) / ".rack" / "state.json")
        assert state is not None
        return subprocess.run(
            ssh_command(state, state.nodes[node], [line]),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    def says(self, node: str, line: str) -> str:
        """What a line prints on a node; it must succeed."""
        done = self.on(node, line)
        assert done.returncode == 0, f"{node}: {line}: {done.stderr}"
        return done.stdout.strip()


def left() -> list[str]:
    """What rehearsals have on this machine."""
    machine = Machine()
    racks = [name for name in Registry.load(machine.registry).racks if name.endswith("-rehearsal")]
    return [*racks, *map(str, machine.lib.glob("rehearsal/*")), *map(str, machine.run.glob("rehearsal-*"))]


# The design, what to add to the command, and how many nodes that makes. The large one is sampled.
DESIGNS = [
    pytest.param("starter", (), 3, id="starter"),
    pytest.param("edge", (), 9, id="edge", marks=pytest.mark.slow),
    pytest.param("dgx-h100-12", (), 26, id="dgx-h100-12", marks=pytest.mark.slow),
    pytest.param("hgx-h200-256", ("--sample", "2"), 8, id="hgx-h200-256", marks=pytest.mark.slow),
]


def proof(name: str, rehearsed: Rehearsed) -> None:
    """What a design promises beyond a cluster that runs jobs."""
    if name in ("dgx-h100-12", "hgx-h200-256"):
        worker = "dgx01" if name == "dgx-h100-12" else "hgx001"
        refused = rehearsed.on(worker, "runuser -l alice -c true")
        assert refused.returncode != 0
        assert "not available" in refused.stdout + refused.stderr
        assert rehearsed.says("login01", "runuser -l alice -c 'echo in'") == "in"
        # The way in: a shell on the node that Slurm gave.
        shell = f"runuser -l alice -c 'srun -p {'dgx' if worker == 'dgx01' else 'train'} -w {worker} -t 1 hostname'"
        assert rehearsed.says("login01", shell) == worker
        # Two heads, one controller.
        assert rehearsed.says("head01", "systemctl is-active slurmctld slurmdbd mariadb dnsmasq chrony")
        assert rehearsed.on("head02", "systemctl cat slurmctld").returncode != 0
        assert rehearsed.says("head02", "systemctl is-active dnsmasq chrony")


@pytest.fixture
def alone() -> Iterator[None]:
    """No rehearsal before, none after."""
    assert left() == []
    yield
    assert left() == []


@pytest.mark.parametrize(("name", "words", "nodes"), DESIGNS)
def test_a_design_becomes_a_cluster(name: str, words: tuple[str, ...], nodes: int, alone: None) -> None:
    files = sorted((INVENTORIES / name).rglob("*"))
    try:
        done = types(*rehearse(name, "--json", "--keep", *words))
        assert done.returncode == 0, done.stderr[-3000:]
        outcome = json.loads(done.stdout)
        assert len(outcome["nodes"]) == nodes
        assert outcome["changed"] == 0
        assert len(outcome["jobs"]) >= 2
        assert any("(simulated)" in job for job in outcome["jobs"])
        print(f"{name}: {outcome['seconds']}")
        proof(name, Rehearsed(name, outcome))
    finally:
        ended = types(*rehearse(name, "--down"))
        assert ended.returncode == 0, ended.stderr
    # The site's own inventory was only read.
    assert sorted((INVENTORIES / name).rglob("*")) == files


def cut_off(signal_number: int) -> tuple[int, str]:
    """Rehearse until the stages run, send the signal to the verb alone; returns its end and its last words."""
    # Whoever started the tests in the background has its children ignore Ctrl-C.
    heard = ["env", "--default-signal=INT,TERM"]
    with subprocess.Popen(
        [*heard, *rehearse("starter")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=environment() | {"PYTHONUNBUFFERED": "1"}, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if re.search(r"base: \d+ nodes", line):
                break
        time.sleep(1)
        os.kill(process.pid, signal_number)
        if signal_number == signal.SIGKILL:
            # Its children hold the pipe; what they do goes on until the rack is gone from under them.
            return process.wait(), ""
        rest = process.stdout.read()
    return process.returncode, rest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_rehearsal_leaves_nothing(number: int, alone: None) -> None:
    code, last = cut_off(number)
    assert code == 4, last
    assert last.splitlines()[-1] == "coldiron: interrupted; the same command goes on from here"


def test_a_killed_rehearsal_can_be_taken_away(alone: None) -> None:
    code, _ = cut_off(signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert left()
    ended = types(*rehearse("starter", "--down"))
    assert (ended.returncode, ended.stdout) == (
        0,
        f"rehearsal of {shown_path(INVENTORIES / 'starter')}: taken away\n",
    )


def test_what_the_rack_has_not_is_refused_in_one_line(tmp_path: Path, alone: None) -> None:
    text = (INVENTORIES / "starter" / "cluster.yml").read_text(encoding="utf-8")
    catalog = INVENTORIES / "starter" / "catalog.yml"
    (tmp_path / "catalog.yml").write_text(catalog.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "cluster.yml").write_text(text.replace("debian-13", "rocky-9"), encoding="utf-8")
    done = types(command("coldiron"), "rehearse", "-i", str(tmp_path))
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "runs rocky-9, and the virtual rack has debian-12 and debian-13 only" in line
