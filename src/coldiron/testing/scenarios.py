"""Run the roles' molecule scenarios in turn on one set of nodes, and say what each took.

    python -m coldiron.testing.scenarios                       # all of them
    python -m coldiron.testing.scenarios --role time --keep    # one, and leave the nodes for a look
    python -m coldiron.testing.scenarios --changed-since main  # those that a change touches

Each scenario is ``molecule test -s ROLE``, as a person would run it, with its output in a log file. A scenario
that fails does not keep the others from running.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.run.processes import kill_tree
from coldiron.testing.stages import find_collection, read_plays, roles_in_order
from coldiron.testing.steps import WHOLE_SITE, command, environment

# Twice what the longest takes on two cores, each of its breakages waited for.
SCENARIO_SECONDS = 3600
# Named, because molecule finds it by itself only where there is a git checkout.
CONFIG = Path(".config", "molecule", "config.yml")
LOGS = Path(".cache", "molecule")
LAST_LINES = 60
ACTION = re.compile(r"➜ (\w+):.* Executing")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# A change of one of these may change what any role does.
SHARED = (
    "plugins/", "playbooks/", "molecule/default/", ".config/molecule/", "src/coldiron/testing/",
    "src/coldiron/rack/", "src/coldiron/inventory/", "requirements.lock",
)  # fmt: skip


@dataclass
class Outcome:
    """What came of one scenario: its log, its last action, its duration in seconds."""

    scenario: str
    passed: bool
    seconds: float
    log: Path
    action: str


def scenarios_of(root: Path) -> list[str]:
    """Return the scenarios in the order of the stages; the one of the whole site comes last."""
    there = {path.parent.name for path in (root / "molecule").glob("*/molecule.yml")} - {"default"}
    order = [role for role in roles_in_order(read_plays(root / "playbooks" / "site.yml")) if role in there]
    return order + sorted(there - set(order) - {WHOLE_SITE}) + sorted(there & {WHOLE_SITE})


def touched(changed: list[str], scenarios: list[str]) -> list[str]:
    """Return the scenarios that a change of these files (paths from the root) touches."""
    if any(path.startswith(SHARED) for path in changed):
        return scenarios
    names = {path.split("/")[1] for path in changed if path.startswith(("roles/", "molecule/"))}
    roles = any(path.startswith("roles/") for path in changed)
    return [name for name in scenarios if name in names or (roles and name == WHOLE_SITE)]


def changed_files(root: Path, revision: str) -> list[str]:
    """Return the files that differ from a revision, new ones included; paths from the checkout's root."""
    found: list[str] = []
    for words in (["diff", "--name-only", revision], ["ls-files", "--others", "--exclude-standard"]):
        listed = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
        if listed.returncode != 0:
            raise ColdironError(f"git {' '.join(words)}: {listed.stderr.strip()}")
        found += listed.stdout.splitlines()
    return found


def molecule(root: Path, words: list[str], log: Path) -> tuple[int, str]:
    """Run molecule with its output in a log file; returns its status and the last action that it began."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w", encoding="utf-8") as stream,
        subprocess.Popen(
            [command("molecule"), "--base-config", str(root / CONFIG), *words],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        ) as process,
    ):
        try:
            status = process.wait(SCENARIO_SECONDS)
        except subprocess.TimeoutExpired:
            stream.write(f"\nno end within {SCENARIO_SECONDS} s\n")
            status = 124
        finally:
            # What it has started would work on the nodes of the next one.
            if process.poll() is None:
                kill_tree(process.pid)
    actions = ACTION.findall(ESCAPES.sub("", log.read_text(encoding="utf-8", errors="replace")))
    return status, actions[-1] if actions else "start"


def run_scenarios(root: Path, scenarios: list[str]) -> list[Outcome]:
    """Run the scenarios in turn, telling each one's outcome when it is known."""
    outcomes = []
    for name in scenarios:
        log = root / LOGS / f"{name}.log"
        begun = time.monotonic()
        status, action = molecule(root, ["test", "-s", name, "--destroy=never"], log)
        outcome = Outcome(name, status == 0, time.monotonic() - begun, log, action)
        outcomes.append(outcome)
        verdict = "passed" if outcome.passed else f"FAILED in {action}, see {log}"
        print(f"{name:<18} {outcome.seconds:5.0f} s  {verdict}", flush=True)
        if not outcome.passed:
            lines = ESCAPES.sub("", log.read_text(encoding="utf-8", errors="replace")).splitlines()
            print("\n".join(lines[-LAST_LINES:]), flush=True)
    return outcomes


def choose(root: Path, roles: list[str], revision: str | None) -> list[str]:
    """Return the scenarios that the command line asks for; an unknown name is a ColdironError."""
    known = scenarios_of(root)
    wanted = [name for text in roles for name in text.split(",") if name]
    for name in wanted:
        if name not in known:
            raise ColdironError(f"there is no scenario {name}: choose from {', '.join(known)}")
    chosen = [name for name in known if not wanted or name in wanted]
    return touched(changed_files(root, revision), chosen) if revision else chosen


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the command line's meaning."""
    first = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m coldiron.testing.scenarios", description=first)
    parser.add_argument(
        "--role", action="append", default=[], help="only this scenario; repeat it or use commas"
    )
    parser.add_argument(
        "--changed-since", metavar="REV", help="only scenarios touched since this git revision"
    )
    parser.add_argument("--keep", action="store_true", help="leave the nodes up afterwards")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0 when every scenario passed, 1 otherwise."""
    options = parse(arguments)
    root = find_collection()
    begun = time.monotonic()
    try:
        scenarios = choose(root, options.role, options.changed_since)
        if not scenarios:
            print("no scenario is touched")
            return 0
        try:
            outcomes = run_scenarios(root, scenarios)
        finally:
            if not options.keep:
                molecule(root, ["destroy", "-s", "default"], root / LOGS / "destroy.log")
    except ColdironError as error:
        print(f"coldiron: {error.message}", file=sys.stderr)
        return int(error.exit_code)
    failed = [outcome.scenario for outcome in outcomes if not outcome.passed]
    print(
        f"{len(outcomes) - len(failed)} of {len(outcomes)} scenarios passed in {time.monotonic() - begun:.0f} s"
    )
    return int(ExitCode.HOSTS_FAILED if failed else ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
