"""One verification: which tests on which nodes, run in a pool of processes, and what came of them."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from coldiron import __version__
from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import nearest
from coldiron.testing import plugin
from coldiron.testing.forked import case_of, last_lines
from coldiron.testing.site import Site
from coldiron.text import printable
from coldiron.verify.pool import Pool
from coldiron.verify.results import (
    Command,
    Node,
    Result,
    Test,
    Verification,
    folded,
    in_words,
    trimmed,
)

ANSWER_SECONDS = 15
#: Commands at a time. A node's sshd takes ten sessions of one connection.
MOST_PROCESSES = 8
REFUSED_BY_GUARD = "coldiron: refused: "
READ_ONLY = "Read-only file system"
MESSAGE_LIMIT = 2000
_NOISE = re.compile(
    r"CommandResult\(backend=<[^>]*>, exit_status=(\d+), command=(.*?), _stdout=.*", re.DOTALL
)


@dataclass
class Wish:
    """What is to be verified. No roles: all; no limit: the whole cluster."""

    sources: tuple[Path, ...]
    limit: str = ""
    roles: tuple[str, ...] = ()
    matching: str = ""  # only tests whose name, in words or not, has this in it
    active: bool = False
    processes: int = 0  # 0: as many as this machine and sshd carry


class Progress(Protocol):
    """Somebody who watches a verification."""

    def begin(self, totals: dict[str, int], silent: list[Node]) -> None:
        """Say how many tests each role has, and which nodes do not answer."""

    def test(self, test: Test) -> None:
        """Say that a test ended."""


def verify(wish: Wish, site: Site, progress: Progress, command: Sequence[str]) -> Verification:
    """Run the roles' tests on the site's nodes; nodes that do not answer cost one line each, not the run.

    A wish that matches nothing, or tests that cannot be collected, raise ColdironError.
    """
    started = time.time()
    hosts = matched_hosts(site, wish.limit)
    roles = matched_roles(site, wish.roles)
    nodes = look_for(site, hosts)
    site.silent |= {node.name for node in nodes if node.silent}
    tests: list[Test] = []
    left_out: list[str] = []
    if len(site.silent & set(hosts)) < len(hosts):
        keeper = _Keeper(site, nodes, progress)
        tests, left_out = keeper.run(wish, roles)
    else:
        progress.begin({}, [node for node in nodes if node.silent])
    found = {test.role for test in tests}
    if not tests and not site.silent:
        raise ColdironError(_nothing(wish, left_out))
    cluster, simulated = _cluster(site, hosts)
    folder = inventory_folder(wish.sources[0])
    return Verification(
        cluster=cluster,
        inventory=str(wish.sources[0]),
        command=list(command),
        started=started,
        ended=time.time(),
        nodes=nodes,
        roles=[role for role in site.roles if role in found] + sorted(found - set(site.roles)),
        tests=tests,
        left_out=left_out,
        revision=revision(folder),
        versions=versions(),
        active=wish.active,
        simulated_gpus=simulated,
    )


def _nothing(wish: Wish, left_out: list[str]) -> str:
    """Say why not one test was run."""
    if left_out:
        return f"only tests that act match ({left_out[0]}{' …' if len(left_out) > 1 else ''}): --active runs them"
    words = [f"--role {','.join(wish.roles)}"] if wish.roles else []
    words += [f"--limit {wish.limit}"] if wish.limit else []
    words += [f"-k {wish.matching}"] if wish.matching else []
    return f"{' '.join(words) or 'this inventory'}: no test matches, nothing was run"


def inventory_folder(source: Path) -> Path:
    """Return the folder of an inventory that is a folder or a file in one."""
    return source if source.is_dir() else source.parent


def matched_hosts(site: Site, limit: str) -> list[str]:
    """Return the cluster's hosts that a pattern matches; none is a ColdironError with the nearest name."""
    from ansible import constants
    from ansible.errors import AnsibleError

    # What does not match is said below, and better.
    constants.HOST_PATTERN_MISMATCH = "ignore"
    everyone = site.hosts()
    try:
        within = set(site.hosts(limit)) if limit else set(everyone)
    except AnsibleError as error:
        raise ColdironError(f"--limit {limit}: {error}") from error
    found = [host for host in everyone if host in within]
    if not found:
        raise ColdironError(
            f"--limit {limit} matches no node of the cluster{_near(limit, [*everyone, *site.groups()])}"
        )
    return found


def matched_roles(site: Site, wanted: Iterable[str]) -> list[str]:
    """Return the wanted roles, all that have tests where none is named; an unknown one is a ColdironError."""
    folder = site.collection / "roles"
    known = sorted(path.parent.name for path in folder.glob("*/tests") if any(path.glob("test_*.py")))
    if not known:
        raise ColdironError(
            f"{folder}: no role's tests are installed there: install coldiron again", ExitCode.ENVIRONMENT
        )
    for role in wanted:
        if role not in known:
            raise ColdironError(f"--role {role}: there is no role of this name{_near(role, known)}")
    return list(dict.fromkeys(wanted)) or known


def _near(wrong: str, names: Sequence[str]) -> str:
    near = nearest(wrong, names)
    if near:
        return f": did you mean {near}?"
    return f": there are {', '.join(names[:12])}{' …' if len(names) > 12 else ''}"


def look_for(site: Site, hosts: Sequence[str]) -> list[Node]:
    """Ask every host whether it is there, many at a time."""
    _ = site.connections.config  # Written before there are threads.

    def ask(host: str) -> Node:
        answer = site.connections.run(host, "true", timeout=ANSWER_SECONDS)
        why = ""
        if answer.returncode != 0:
            said = printable(answer.stderr).strip().splitlines()
            why = said[-1] if said else f"ssh ended with {answer.returncode}"
        return Node(host, str(site.hostvars(host).get("coldiron_kind") or ""), site.redactor.clean(why))

    with ThreadPoolExecutor(min(32, len(hosts))) as pool:
        return list(pool.map(ask, hosts))


class _Keeper:
    """Runs pytest over the pool and keeps what its processes tell."""

    def __init__(self, site: Site, nodes: list[Node], progress: Progress) -> None:
        self._site = site
        self._silent = [node for node in nodes if node.silent]
        self._progress = progress
        self._items: list[pytest.Item] = []
        self._tests: dict[int, Test] = {}
        self._left_out: dict[str, None] = {}
        self._broken: list[str] = []
        self._matching = ""

    def run(self, wish: Wish, roles: list[str]) -> tuple[list[Test], list[str]]:
        """Run the tests; return what came of each, in their order, and those that act and were left out."""
        size = wish.processes or min(MOST_PROCESSES, 2 * (os.cpu_count() or 1))
        pool = Pool(size, _unit, self._tell, self._hear)
        self._matching = wish.matching.lower()
        with _own_pytest():
            code = pytest.main(self._words(wish, roles), plugins=[self, pool])
        if self._broken:
            raise ColdironError(
                f"the roles' tests cannot be collected: {self._broken[0]}", ExitCode.ENVIRONMENT
            )
        if code == pytest.ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise ColdironError(
                f"the roles' tests cannot be run: pytest ended with {int(code)}", ExitCode.ENVIRONMENT
            )
        return [self._tests[number] for number in sorted(self._tests)], list(self._left_out)

    def _words(self, wish: Wish, roles: list[str]) -> list[str]:
        folder = self._site.collection / "roles"
        sources = [word for source in wish.sources for word in ("--inventory", str(source))]
        return [
            # Neither the configuration of where it is called nor other plugins have a say in this.
            "-c", os.devnull, "--rootdir", str(self._site.collection), "--confcutdir", str(folder),
            "-p", "coldiron.testing.plugin", "-p", "no:cacheprovider", "-p", "no:terminal", "-s",
            "--import-mode=importlib", "--read-only", *(["--active"] if wish.active else []),
            *(["--limit", wish.limit] if wish.limit else []), *sources,
            *(str(folder / role / "tests") for role in roles),
        ]  # fmt: skip

    def pytest_configure(self, config: pytest.Config) -> None:
        """Hand over the site that is loaded already."""
        self._site.connections.watch.read_only = True
        config.stash[plugin.SITE] = self._site

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a test file that cannot be loaded."""
        if report.failed:
            self._broken.append(last_lines(str(report.longrepr), 1))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests that are asked for by a part of their name."""
        if self._matching:
            items[:] = [
                item for item in items if self._matching in f"{item.name}\n{in_words(item.name)}".lower()
            ]

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note the tests that act and are left out."""
        for item in items:
            if item.get_closest_marker(plugin.ACTS):
                name = getattr(item, "originalname", None) or item.name
                self._left_out[f"{plugin.role_of(item.path)}: {in_words(name)}"] = None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say what is to be done."""
        self._items = session.items
        totals = Counter(plugin.role_of(item.path) or "" for item in session.items)
        self._progress.begin(dict(totals), self._silent)

    def _tell(self, item: pytest.Item, reports: list[pytest.TestReport]) -> dict[str, Any]:
        """Sum up a test, in the process that ran it."""
        result, bad = _result(reports)
        journal = self._site.connections.watch.journal
        clean = self._site.redactor.clean
        commands = [
            Command(
                ran.node, printable(clean(ran.command)), ran.rc, trimmed(clean(ran.stdout)),
                trimmed(clean(ran.stderr)), round(ran.seconds, 3),
            )
            for ran in journal
        ]  # fmt: skip
        if not result.bad:
            commands = [Command(c.node, c.command, c.rc, seconds=c.seconds) for c in commands]
        commands = folded(commands)
        return {
            "result": str(result),
            "seconds": round(sum(report.duration for report in reports), 3),
            "message": printable(clean(_message(bad))) if bad else "",
            "hint": _hint(commands) if result.bad else "",
            "commands": [asdict(command) for command in commands],
        }

    def _hear(self, number: int, told: Any) -> None:
        item = self._items[number]
        role, host = _unit(item)
        test = Test(role, host, _name(item), Result.ERROR, message="The process that ran this test died.")
        if told is not None:
            commands = [Command(**command) for command in told.pop("commands")]
            test = Test(role, host, test.name, Result(told.pop("result")), commands=commands, **told)
        self._tests[number] = test
        self._progress.test(test)


@contextlib.contextmanager
def _own_pytest() -> Iterator[None]:
    """Keep what the caller's environment says about pytest out of this run."""
    words = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "PYTEST_PLUGINS": ""}
    before = {word: os.environ.get(word) for word in words}
    os.environ.update(words)
    try:
        yield
    finally:
        for word, value in before.items():
            if value is None:
                del os.environ[word]
            else:
                os.environ[word] = value


def _unit(item: pytest.Item) -> tuple[str, str]:
    return plugin.role_of(item.path) or "", case_of(item).host


def _name(item: pytest.Item) -> str:
    """Return a test's name with its parameters, its host not among them."""
    case = case_of(item)
    callspec = getattr(item, "callspec", None)
    given = [str(value) for key, value in callspec.params.items() if key != "hostname"] if callspec else []
    return case.test + (f"[{', '.join(given)}]" if given else "")


def _result(reports: Iterable[pytest.TestReport]) -> tuple[Result, pytest.TestReport | None]:
    """Return what came of a test, and the report that says why it is no pass."""
    skipped = None
    for report in reports:
        if report.failed:
            silent = "NodeSilentError" in str(report.longrepr)
            return (Result.FAILED if report.when == "call" and not silent else Result.ERROR), report
        if report.skipped:
            skipped = report
    return (Result.SKIPPED, skipped) if skipped else (Result.PASSED, None)


def _message(report: pytest.TestReport) -> str:
    """Return what pytest found wrong, without its own machinery."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if isinstance(report.longrepr, tuple):
        text = str(report.longrepr[2]).removeprefix("Skipped: ")
    elif crash is not None:
        text = str(crash.message)
    else:
        lines = last_lines(str(report.longrepr), 20).splitlines()
        text = "\n".join(line.removeprefix("E").strip() for line in lines)
    text = re.sub(r"^(AssertionError|coldiron\.[\w.]+Error): ", "", text)
    text = re.sub(r"\n *\+ +(where|and) .*|\n *Use -v to get .*", "", text)
    text = re.sub(r"Unexpected exit code \d+ for CommandResult\(.*", "", text, flags=re.DOTALL)
    text = re.sub(r"\n\s*\n+", "\n", _NOISE.sub(r"a command that ended with \1", text)).strip()
    if re.match(r"assert\b", text):
        asked = [line[1:].strip() for line in str(report.longrepr).splitlines() if line.startswith(">")]
        told = "" if text == "assert False" else f"\n{text.removeprefix('assert ')}"
        text = f"Does not hold: {asked[-1].removeprefix('assert ') if asked else text}{told}"
    return text[:MESSAGE_LIMIT] or "A command that had to succeed did not."


def _hint(commands: Iterable[Command]) -> str:
    """Return what stands behind a failure where the read-only view does."""
    for command in commands:
        if REFUSED_BY_GUARD in command.stderr or READ_ONLY in command.stdout + command.stderr:
            return (
                "This test tried to change the node, and verify lets nothing be changed. A test that has to act "
                "carries the marker `acts` and runs with --active. (Or the node's own file system is read-only.)"
            )
    return ""


def _cluster(site: Site, hosts: Sequence[str]) -> tuple[str, bool]:
    """Return the cluster's name, and whether its GPUs are simulated."""
    variables = [site.hostvars(host) for host in hosts]
    name = next((str(found["coldiron_cluster"]) for found in variables if "coldiron_cluster" in found), "")
    simulated = any(
        found.get("coldiron_platform") == "container" and (found.get("coldiron_hardware") or {}).get("gpus")
        for found in variables
    )
    return name or "cluster", bool(simulated)


def revision(folder: Path) -> str:
    """Return the git revision of a folder, with a ``+`` where it has uncommitted changes; empty outside git."""

    def ask(*words: str) -> str:
        answer = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=False
        )
        return answer.stdout.strip() if answer.returncode == 0 else ""

    try:
        short = ask("rev-parse", "--short", "HEAD")
        return short + ("+" if short and ask("status", "--porcelain", "--", ".") else "")
    except FileNotFoundError:
        return ""


def versions() -> dict[str, str]:
    """Return the versions of what carried the tests out."""
    names = ("ansible-core", "pytest", "pytest-testinfra")
    return {
        "coldiron": __version__,
        **{name: importlib.metadata.version(name) for name in names},
        "python": platform.python_version(),
    }
