"""What a verification found, as plain data: for the page, for junit.xml, for results.json and for the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from coldiron.text import cut, printable

FORMAT = 1
#: What is kept of one output: its beginning and its end, in characters.
KEPT_START, KEPT_END = 3000, 1500
#: Commands kept of one test: the last ones, where it failed.
KEPT_COMMANDS = 20


class Result(StrEnum):
    """What came of a test on a node."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"  # it could not be carried out, so nothing is known
    SKIPPED = "skipped"

    @property
    def bad(self) -> bool:
        """Whether the run is red because of it."""
        return self in (Result.FAILED, Result.ERROR)


@dataclass
class Command:
    """A command of a test: where it ran, what, its return code and what came back (trimmed)."""

    node: str
    command: str
    rc: int
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    times: int = 1  # asked so often in a row, with the same answer


@dataclass
class Test:
    """One test on one node. ``message`` says what was found wrong; ``hint`` what may be behind it."""

    __test__ = False  # pytest: no class of tests

    role: str
    node: str
    name: str
    result: Result
    seconds: float = 0.0
    message: str = ""
    hint: str = ""
    commands: list[Command] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The test in words: ``test_the_daemon_runs[x]`` is ``The daemon runs [x]``."""
        return in_words(self.name)

    @property
    def telling(self) -> Command | None:
        """The command that tells most of a failure: the last one that failed, else the last one."""
        failed = [command for command in self.commands if command.rc != 0]
        commands = failed or self.commands
        return commands[-1] if commands else None


@dataclass
class Node:
    """A node within the limit. ``silent`` says why it could not be asked, and is empty where it could."""

    name: str
    kind: str = ""
    silent: str = ""


@dataclass
class Verification:
    """A whole run of ``coldiron verify``. Times are seconds since the epoch."""

    cluster: str
    inventory: str
    command: list[str]
    started: float
    ended: float
    nodes: list[Node]
    roles: list[str]  # in the order of the stages
    tests: list[Test]
    left_out: list[str] = field(default_factory=list)  # tests that act, as role: title
    revision: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    active: bool = False
    simulated_gpus: bool = False

    @property
    def silent(self) -> list[Node]:
        """Nodes that could not be asked."""
        return [node for node in self.nodes if node.silent]

    @property
    def bad(self) -> list[Test]:
        """Tests that failed or could not be carried out, in the order of roles and nodes."""
        return [test for test in self.tests if test.result.bad]

    @property
    def green(self) -> bool:
        """Whether every node answered and every test passed."""
        return not self.bad and not self.silent

    def count(self, result: Result) -> int:
        """Return how many tests came out so."""
        return sum(test.result is result for test in self.tests)

    def as_json(self) -> dict[str, Any]:
        """Return what results.json holds; a passed test's commands are there without their output."""
        data = {"format": FORMAT, "green": self.green, **asdict(self)}
        data["counts"] = {str(result): self.count(result) for result in Result} | {"silent": len(self.silent)}
        for test, item in zip(self.tests, data["tests"], strict=True):
            item["title"] = test.title
        return data


def in_words(name: str) -> str:
    """Return a test's name as a sentence: ``test_a_b[x-y]`` is ``A b [x-y]``."""
    name, bracket, parameters = name.partition("[")
    words = name.removeprefix("test_").replace("_", " ").strip()
    return words[:1].upper() + words[1:] + (f" [{parameters}" if bracket else "")


def trimmed(text: str) -> str:
    """Return a printable output; of a long one its beginning and end, with a word on what was left out."""
    return cut(printable(text), KEPT_START, KEPT_END)


def folded(commands: Iterable[Command]) -> list[Command]:
    """Return commands with the same question and answer in a row counted as one; the last ones of many."""
    kept: list[Command] = []
    for command in commands:
        last = kept[-1] if kept else None
        same = last is not None and all(
            getattr(last, name) == getattr(command, name)
            for name in ("node", "command", "rc", "stdout", "stderr")
        )
        if same and last is not None:
            last.times += 1
            last.seconds += command.seconds
        else:
            kept.append(command)
    return kept[-KEPT_COMMANDS:]


def grouped(tests: list[Test]) -> list[list[Test]]:
    """Return failures gathered by what failed and how, each on its nodes."""
    found: dict[tuple[str, str, str], list[Test]] = {}
    for test in tests:
        message = test.message.replace(test.node, "NODE") if test.node else test.message
        found.setdefault((test.role, test.name, message), []).append(test)
    return list(found.values())
