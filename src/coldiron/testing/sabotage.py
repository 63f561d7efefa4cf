"""Prove that the roles' tests can fail and that the roles heal: break a node, see red, heal, see green.

    python -m coldiron.testing.sabotage --inventory inventories/virtual --role time

For each entry of roles/ROLE/tests/sabotage.yml the named test must pass before the break, fail after it on
that node, and pass again after the unmodified role ran there. To save Ansible's start, breaks are gathered
in rounds with one healing run. In a round each break is still proven by itself: its test passed immediately
before it, whatever was broken earlier. ``--one-by-one`` heals after each break instead.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from coldiron.errors import ColdironError, ExitCode
from coldiron.testing.forked import Case, Outcome, run_tests
from coldiron.testing.site import Site, load_site
from coldiron.testing.stages import COLLECTION, load_yaml

KEYS = {"name", "hosts", "break", "red", "all", "alone", "settle_seconds"}
NEEDED = ("name", "hosts", "break", "red")
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
HEAL_SECONDS = 300
BREAK_SECONDS = 60
RECAP = re.compile(
    r"^(\S+)\s*: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)",
    re.MULTILINE,
)
VERDICTS_OK = ("proven", "no such host")


@dataclass(frozen=True)
class Sabotage:
    """One way to break a converged node.

    ``command`` is a shell command run as root; ``red`` the test function that must fail on the node then,
    within ``settle_seconds``. ``all_hosts``: every matching host is broken. ``alone``: nothing else may be
    broken in the same round.
    """

    role: str
    name: str
    hosts: str
    command: str
    red: str
    all_hosts: bool = False
    alone: bool = False
    settle_seconds: float = 0


@dataclass(frozen=True)
class Part:
    """One in so many (``of_parts``) of all sabotages; ``turn`` says which: turns in a row prove them all."""

    of_parts: int = 1
    turn: int = 0

    def of(self, sabotages: Sequence[Sabotage], before: int) -> list[Sabotage]:
        """Those of a role that are this turn's, where ``before`` of them are other roles'."""
        return [
            one
            for place, one in enumerate(sabotages, before)
            if place % self.of_parts == self.turn % self.of_parts
        ]


@dataclass
class Result:
    """What came of a sabotage. ``verdict`` is one of proven, stayed green, not healed, … (see docs)."""

    role: str
    name: str
    hosts: list[str]
    verdict: str
    detail: str = ""
    seconds: float = 0.0


@dataclass
class Healing:
    """What a healing run did: its exit status, changed tasks per host and the end of its output."""

    status: int
    changed: dict[str, int]
    output: str


@dataclass
class _Broken:
    """A sabotage that was carried out in the present round."""

    sabotage: Sabotage
    hosts: list[str]
    result: Result


def read_sabotages(path: Path, role: str) -> list[Sabotage]:
    """Return the entries of a role's sabotage.yml; every mistake in it is a ColdironError that names it."""
    content = load_yaml(path)
    if not isinstance(content, list) or not content:
        raise ColdironError(f"{path}:1: a list of sabotages is wanted: `- name: …`, hosts, break, red")
    found = []
    for number, item in enumerate(content, 1):
        if not isinstance(item, dict):
            raise ColdironError(f"{path}: entry {number}: write `- name: …`, hosts, break, red")
        missing = [key for key in NEEDED if not str(item.get(key) or "").strip()]
        unknown = sorted(set(item) - KEYS)
        if missing or unknown:
            wrong = [f"{key} is missing" for key in missing] + [f"{key} is no key of it" for key in unknown]
            raise ColdironError(f"{path}: entry {number} ({item.get('name')}): {', '.join(wrong)}")
        found.append(
            Sabotage(
                role,
                str(item["name"]),
                str(item["hosts"]),
                str(item["break"]),
                str(item["red"]),
                bool(item.get("all", False)),
                bool(item.get("alone", False)),
                float(item.get("settle_seconds", 0)),
            )
        )
    return found


@dataclass
class Bench:
    """The hands of the runner: testing, breaking and healing nodes of a site."""

    site: Site
    limit: str | None = None
    ansible_args: list[str] = field(default_factory=list)
    playbook: Path = PLAYBOOK

    def hosts_of(self, role: str) -> list[str]:
        """Return the hosts of a role within the limit."""
        within = set(self.site.hosts(self.limit or "all"))
        return [host for host in self.site.hosts_of_role(role) if host in within]

    def candidates(self, sabotage: Sabotage) -> list[str]:
        """Return the hosts on which the sabotage can be carried out, in the inventory's order."""
        of_role = set(self.hosts_of(sabotage.role))
        return [host for host in self.site.hosts(sabotage.hosts) if host in of_role]

    def folder(self, role: str) -> Path:
        """Return the folder of a role's tests."""
        return self.site.collection / "roles" / role / "tests"

    def test(self, role: str, hosts: Iterable[str]) -> dict[Case, Outcome]:
        """Run all tests of a role on these hosts."""
        return run_tests(self.site, self.folder(role), hosts=list(hosts))

    def cases(self, role: str, cases: Iterable[Case]) -> dict[Case, Outcome]:
        """Run single tests of a role on single hosts."""
        return run_tests(self.site, self.folder(role), cases=list(cases))

    def damage(self, sabotage: Sabotage, hosts: Iterable[str]) -> str:
        """Carry the sabotage out; returns an empty text, or why it could not be."""
        for host in hosts:
            finished = self.site.connections.run(host, sabotage.command, timeout=BREAK_SECONDS)
            if finished.returncode != 0:
                output = (finished.stderr or finished.stdout).strip()[-400:]
                return f"on {host}: rc {finished.returncode}: {self.site.redactor.clean(output)}"
        return ""

    def heal(self, role: str, hosts: Iterable[str]) -> Healing:
        """Run the unmodified role on these hosts, as a person would."""
        words = [
            str(self.playbook),
            f"{COLLECTION}.site",
        ]
        for source in self.site.sources:
            words += ["-i", str(source)]
        words += ["--limit", ",".join(hosts), "--tags", role, *self.ansible_args]
        environment = {
            **os.environ,
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_NOCOLOR": "1",
        }
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        try:
            finished = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
                timeout=HEAL_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Healing(124, {}, f"no end within {HEAL_SECONDS} s")
        changed = {match[1]: int(match[2]) for match in RECAP.finditer(finished.stdout)}
        output = self.site.redactor.clean((finished.stdout + finished.stderr)[-1500:])
        return Healing(finished.returncode, changed, output)


def passed(outcomes: dict[Case, Outcome], test: str, hosts: Iterable[str]) -> bool:
    """Tell whether a test passed on every one of the hosts."""
    return all(result_of(outcomes, test, host) == "passed" for host in hosts)


def result_of(outcomes: dict[Case, Outcome], test: str, host: str) -> str:
    """Return a case's result, or ``missing`` when there is no such test on that host."""
    outcome = outcomes.get(Case(test, host))
    return outcome.result if outcome else "missing"


def reds(outcomes: dict[Case, Outcome]) -> str:
    """Return the failed cases in words, each with its first line; empty when all is green."""
    lines = [
        f"{case.test} on {case.host or '-'}: {(outcome.message.splitlines() or [''])[0]}"
        for case, outcome in outcomes.items()
        if outcome.result in ("failed", "error")
    ]
    return "; ".join(lines)


class RoleRun:
    """All sabotages of one role, in rounds."""

    def __init__(
        self,
        bench: Bench,
        role: str,
        sabotages: list[Sabotage],
        one_by_one: bool = False,
    ) -> None:
        self.bench = bench
        self.role = role
        self.one_by_one = one_by_one
        self.queue = list(sabotages)
        self.results: list[Result] = []
        self._busy: set[str] = set()  # hosts broken in this round
        self._red: set[Case] = set()  # cases that this round has turned red already

    def run(self) -> list[Result]:
        """Return one result a sabotage; the nodes are healed after every round."""
        for sabotage in list(self.queue):
            if not self.bench.candidates(sabotage):
                self.queue.remove(sabotage)
                self._note(
                    sabotage,
                    [],
                    "no such host",
                    f"no host of role {self.role} matches {sabotage.hosts}",
                )
        if not self.queue:
            return self.results
        start = time.monotonic()
        baseline = self.bench.test(self.role, self.bench.hosts_of(self.role))
        complaint = reds(baseline) or ("" if baseline else "no test ran")
        if complaint:
            return self._give_up("red before anything was broken", complaint)
        green_since = time.monotonic() - start
        while self.queue:
            complaint = self._round(baseline)
            if complaint:
                return self._give_up("not run", complaint)
        if self.results:
            self.results[0].seconds += green_since
        return self.results

    def _note(self, sabotage: Sabotage, hosts: list[str], verdict: str, detail: str = "") -> Result:
        result = Result(self.role, sabotage.name, hosts, verdict, detail)
        self.results.append(result)
        return result

    def _give_up(self, verdict: str, detail: str) -> list[Result]:
        for sabotage in self.queue:
            self._note(sabotage, [], verdict, detail)
        self.queue.clear()
        return self.results

    def _place(self, sabotage: Sabotage, baseline: dict[Case, Outcome]) -> list[str]:
        """Return the hosts for a sabotage in this round."""
        hosts = self.bench.candidates(sabotage)
        known = [host for host in hosts if Case(sabotage.red, host) in baseline]
        fit = [host for host in known if result_of(baseline, sabotage.red, host) == "passed"]
        if not sabotage.all_hosts:
            # An untouched host is best; the first of them is what the author meant.
            fit = [host for host in fit if host not in self._busy] or fit[:1]
            hosts = (fit or hosts)[:1]
        return hosts

    def _round(self, baseline: dict[Case, Outcome]) -> str:
        """Break what can be broken together, heal once; returns why the role cannot go on, or nothing."""
        self._busy, self._red = set(), set()
        broken: list[_Broken] = []
        ahead: dict[Case, Outcome] = dict(baseline)
        for sabotage in list(self.queue):
            hosts = self._place(sabotage, baseline)
            cases = {Case(sabotage.red, host) for host in hosts}
            if cases & self._red or (sabotage.alone and broken):
                continue
            if broken:
                # What was broken before may reach this host: its test must still pass at this moment.
                ahead = self.bench.cases(self.role, cases)
                if not passed(ahead, sabotage.red, hosts) and self._waits(sabotage, baseline, hosts):
                    continue
            self.queue.remove(sabotage)
            broken.append(self._break(sabotage, hosts, ahead))
            self._busy |= set(hosts)
            self._red |= cases
            if self.one_by_one or sabotage.alone:
                break
        return self._heal(broken)

    @staticmethod
    def _waits(sabotage: Sabotage, baseline: dict[Case, Outcome], hosts: list[str]) -> bool:
        """Tell whether a red test was green before this round, so that the next round can have it."""
        return passed(baseline, sabotage.red, hosts)

    def _break(self, sabotage: Sabotage, hosts: list[str], before: dict[Case, Outcome]) -> _Broken:
        start = time.monotonic()
        result = self._note(sabotage, hosts, "proven")
        if not passed(before, sabotage.red, hosts):
            result.verdict = "no green test"
            result.detail = ", ".join(f"{sabotage.red} on {host}: {result_of(before, sabotage.red, host)}"
                                      for host in hosts)  # fmt: skip
        else:
            failure = self.bench.damage(sabotage, hosts)
            if failure:
                result.verdict, result.detail = "break failed", failure
            else:
                self._expect_red(sabotage, hosts, result)
        result.seconds += time.monotonic() - start
        return _Broken(sabotage, hosts, result)

    def _expect_red(self, sabotage: Sabotage, hosts: list[str], result: Result) -> None:
        end = time.monotonic() + sabotage.settle_seconds
        cases = [Case(sabotage.red, host) for host in hosts]
        while True:
            after = self.bench.cases(self.role, cases)
            left = [case for case in cases if result_of(after, *case) != "failed"]
            if not left:
                result.detail = after[cases[0]].message.splitlines()[0] if after[cases[0]].message else ""
                return
            if time.monotonic() >= end:
                break
            time.sleep(0.5)
        result.verdict = "stayed green"
        result.detail = ", ".join(f"{case.test} on {case.host}: {result_of(after, *case)}" for case in left)

    def _heal(self, broken: list[_Broken]) -> str:
        start = time.monotonic()
        hosts = list(dict.fromkeys(host for item in broken for host in item.hosts))
        healing = self.bench.heal(self.role, hosts)
        after = self.bench.test(self.role, hosts)
        for item in broken:
            item.result.seconds += (time.monotonic() - start) / len(broken)
            if item.result.verdict != "proven":
                continue
            if healing.status != 0:
                item.result.verdict, item.result.detail = "not healed", healing.output
            elif not passed(after, item.sabotage.red, item.hosts):
                item.result.verdict, item.result.detail = "not healed", reds(after)
            elif not all(healing.changed.get(host, 0) for host in item.hosts):
                item.result.verdict = "not the role's doing"
                item.result.detail = "green again although the role changed nothing: the break undoes itself"
        if healing.status != 0:
            return f"the healing run failed: {healing.output}"
        left = reds(after)
        return f"red after healing: {left}" if left else ""


def run_sabotages(
    bench: Bench,
    roles: list[str],
    one_by_one: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    part: Part = Part(),
) -> list[Result]:
    """Run the sabotages of the roles, or a part of them, role after role, and return their results."""
    results: list[Result] = []
    seen = 0
    for role in roles:
        path = bench.folder(role) / "sabotage.yml"
        every = read_sabotages(path, role)
        sabotages = part.of(every, seen)
        seen += len(every)
        if not sabotages:
            continue
        start = time.monotonic()
        found = RoleRun(bench, role, sabotages, one_by_one).run()
        proven = sum(result.verdict == "proven" for result in found)
        tell(f"{role}: {proven} of {len(found)} proven in {time.monotonic() - start:.1f} s")
        results += found
    return results


def table(results: list[Result]) -> Table:
    """Return the results for a person."""
    shown = Table(title="Sabotage: break, red, heal, green", title_justify="left")
    for column in ("role", "sabotage", "node", "verdict", "seconds"):
        shown.add_column(column, justify="right" if column == "seconds" else "left", overflow="fold")
    for result in results:
        colour = (
            "green" if result.verdict == "proven" else "dim" if result.verdict in VERDICTS_OK else "bold red"
        )
        shown.add_row(
            result.role,
            result.name,
            ",".join(result.hosts),
            f"[{colour}]{result.verdict}[/]",
            f"{result.seconds:.1f}",
        )
    return shown


def choose_roles(site: Site, wanted: list[str]) -> list[str]:
    """Return the roles to run in the stages' order; a name that is none of them is a ColdironError."""
    names = [name for text in wanted for name in text.split(",") if name]
    for name in names:
        if name not in site.roles:
            raise ColdironError(f"no stage has a role {name}: choose from {', '.join(site.roles)}")
    return [role for role in site.roles if not names or role in names]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the command line's meaning."""
    parser = argparse.ArgumentParser(
        prog="python -m coldiron.testing.sabotage",
        description=(__doc__ or "").split("\n")[0],
    )
    parser.add_argument("--inventory", "-i", action="append", type=Path, required=True, metavar="PATH")
    parser.add_argument(
        "--role",
        action="append",
        default=[],
        help="only this role; repeat it or use commas",
    )
    parser.add_argument("--limit", metavar="PATTERN", help="break only hosts that this pattern matches")
    parser.add_argument("--one-by-one", action="store_true", help="heal after each break (slow)")
    parser.add_argument("--one-in", type=int, default=1, metavar="N", help="only every Nth of all")
    parser.add_argument("--turn", type=int, default=0, metavar="K", help="which of the Nths: 0, 1, …")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print the results as JSON")
    parser.add_argument("ansible_args", nargs="*", help="after --: more arguments for ansible-playbook")
    return parser.parse_args(arguments)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; returns 0 when every sabotage was proven, 1 otherwise."""
    options = parse(arguments)
    site = load_site(tuple(path.resolve() for path in options.inventory))
    bench = Bench(site, options.limit, options.ansible_args)
    errors = Console(stderr=True)
    start = time.monotonic()
    results = run_sabotages(
        bench,
        choose_roles(site, options.role),
        options.one_by_one,
        lambda text: errors.print(text, highlight=False),
        Part(max(1, options.one_in), max(0, options.turn)),
    )
    bad = [result for result in results if result.verdict not in VERDICTS_OK]
    if options.as_json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        Console().print(table(results))
        for result in bad:
            print(
                f"{result.role}: {result.name}: {result.verdict}: {result.detail}",
                file=sys.stderr,
            )
        proven = sum(result.verdict == "proven" for result in results)
        print(f"{proven} of {len(results)} proven in {time.monotonic() - start:.0f} s")
    return int(ExitCode.HOSTS_FAILED if bad else ExitCode.OK)


def main() -> Any:
    """Entry point: a ColdironError is one line and its exit code."""
    try:
        return run()
    except ColdironError as error:
        print(f"coldiron: {error.message}", file=sys.stderr)
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main())
