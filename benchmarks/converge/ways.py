"""The ways to the same end state, and how a run is measured."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.converge import floor
from benchmarks.converge.scratch import ROOT, Failed, Scratch, environment

STOCK = Path(__file__).with_name("stock.cfg")


@dataclass
class Run:
    """One run: seconds by the clock, processor seconds here and on the nodes, and how busy the machine was before."""

    wall: float
    cpu: float
    nodes_cpu: float
    load: float

    @property
    def all_cpu(self) -> float:
        """Processor seconds, here and on the nodes."""
        return self.cpu + self.nodes_cpu


@dataclass
class Measured:
    """All runs of one way at one size."""

    first: list[Run] = field(default_factory=list)
    again: list[Run] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


def cpu_of_children() -> float:
    """Seconds of processor time that ended children, and theirs, have used on this machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def clock(rack: Scratch, runs: list[Run]) -> Iterator[None]:
    """Add what happens inside to ``runs``, if it ends well."""
    load, here, there, since = os.getloadavg()[0], cpu_of_children(), rack.cpu(), time.monotonic()
    yield
    runs.append(Run(time.monotonic() - since, cpu_of_children() - here, rack.cpu() - there, load))


class Playbook:
    """site.yml, by one ansible.cfg or another."""

    def __init__(self, rack: Scratch, config: Path) -> None:
        self.rack, self.config = rack, config

    def play(self, **settings: str) -> str:
        """Run it once; return what it prints."""
        variables = environment(self.rack.inventory) | settings
        variables["ANSIBLE_CONFIG"] = str(self.config)
        variables["ANSIBLE_VAULT_PASSWORD_FILE"] = str(self.rack.inventory / ".vault-password")
        program = Path(sys.executable).with_name("ansible-playbook")
        done = subprocess.run(
            [str(program), "-i", str(self.rack.inventory), str(ROOT / "site.yml")],
            cwd=ROOT, env=variables, capture_output=True, text=True, timeout=self.rack.seconds,
        )  # fmt: skip
        if done.returncode:
            raise Failed(f"site.yml failed ({done.returncode}):\n{(done.stdout + done.stderr)[-3000:]}")
        return done.stdout

    def first(self) -> None:
        """Converge bare nodes."""
        self.play()

    def again(self) -> None:
        """Run on nodes that are converged."""
        self.play()


class Floor:
    """The plain scripts."""

    def __init__(self, rack: Scratch) -> None:
        self.rack = rack
        self.scripts: dict[str, str] = {}
        self.checks: dict[str, str] = {}
        self.wanted: dict[str, floor.State] = {}
        self.seen: dict[str, floor.Touched] = {}

    def learn(self, site: Playbook) -> None:
        """Converge bare nodes by site.yml, untimed, and make the scripts of what that has done."""
        bare = floor.look(self.rack)
        printed = site.play(ANSIBLE_STDOUT_CALLBACK="ansible.posix.json")
        results, _ = json.JSONDecoder().raw_decode(printed[printed.index("{\n") :])
        self.seen = floor.touched(results)
        self.wanted = floor.look(self.rack, self.seen)
        archives = floor.archives(self.rack, self.seen)
        for node in self.rack.nodes:
            state, about = self.wanted[node], self.seen[node]
            head = self.rack.address(self.rack.nodes[0])
            self.scripts[node] = floor.first_script(node, bare[node], state, about, archives[node], head)
            self.checks[node] = floor.check_script(node, state, about, bare[node])

    def differences(self) -> list[str]:
        """Where the nodes now differ from those that site.yml made."""
        return floor.differences(self.wanted, floor.look(self.rack, self.seen))

    def first(self) -> None:
        """Converge bare nodes."""
        self.rack.everywhere(self.scripts, ["bash", "-s"])

    def again(self) -> None:
        """Look whether all is as it should be."""
        self.rack.everywhere(self.checks, ["bash", "-s"])


def measure(
    rack: Scratch,
    ways: Mapping[str, Playbook | Floor],
    firsts: int,
    repeats: int,
    found: dict[str, Measured],
    after_first: Callable[[str], None],
) -> None:
    """Run the ways in turn, round by round, so that what the machine does meanwhile meets all of them.

    What is measured goes into ``found`` at once: an interrupted benchmark reports what it has.
    """
    found.update({name: Measured() for name in ways})
    for number in range(firsts):
        for name, way in ways.items():
            rack.reset()
            rack.disconnect()
            with clock(rack, found[name].first):
                way.first()
            after_first(name)
            for _ in range(repeats if number == 0 else 0):
                rack.disconnect()
                with clock(rack, found[name].again):
                    way.again()
