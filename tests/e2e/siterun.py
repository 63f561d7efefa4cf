"""Runs of the stages on a site, and what they did: for tests/e2e/test_site*.py."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from coldiron.errors import ColdironError
from coldiron.testing.site import Site
from coldiron.testing.steps import command, environment, rack

RUN_SECONDS = 420
RECORD = "ansible.posix.jsonl"
USER = "alice"
JOB_SECONDS = 60
WAIT_SECONDS = 300
# The cluster.yml as it was before a test edited it.
KEPT = "cluster.yml.before-the-test"


def eventually(
    look: Callable[[], object], what: str | Callable[[], object], seconds: float = WAIT_SECONDS
) -> Any:
    """Wait until a look finds something, and return it; ``what`` says, or is asked, what there is instead."""
    end = time.monotonic() + seconds
    while True:
        unheard = ""
        try:
            if found := look():
                return found
        except ColdironError as error:
            # A server that does not answer has not found it yet.
            unheard = f"; {error}"
        if time.monotonic() >= end:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {seconds:.0f} s: {told}{unheard}")
        time.sleep(1)


@dataclass
class Record:
    """What a run did, read from its events: counts a host, and the tasks that changed something."""

    status: int
    stats: dict[str, dict[str, int]] = field(default_factory=dict)
    changed: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    tasks: dict[str, list[str]] = field(default_factory=dict)
    output: str = ""

    @property
    def restless(self) -> dict[str, int]:
        """Hosts with changes, and how many."""
        return {host: counts["changed"] for host, counts in self.stats.items() if counts["changed"]}

    def told(self) -> str:
        """What an assertion shows: failures and changes."""
        return f"rc {self.status}\nfailed: {self.failed}\nchanged: {self.changed}\n{self.output[-1500:]}"


def read_events(lines: Sequence[str]) -> Record:
    """Return the record of a run from the lines that the callback printed; other lines are its output."""
    record = Record(-1)
    rest = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            rest.append(line)
            continue
        kind = event.get("_event", "")
        if kind == "v2_playbook_on_stats":
            record.stats = event["stats"]
        name = (event.get("task") or {}).get("name", "")
        for host, result in (event.get("hosts") or {}).items():
            if kind in ("v2_runner_on_ok", "v2_runner_on_failed"):
                record.tasks.setdefault(host, []).append(name)
            if kind == "v2_runner_on_ok" and result.get("changed"):
                record.changed.append((host, name))
            if kind in ("v2_runner_on_failed", "v2_runner_on_unreachable"):
                record.failed.append((host, name, str(result.get("msg", ""))[:500]))
    record.output = "\n".join(rest)
    return record


class SiteRun:
    """A site under test: the rack's inventory, and the words to run the stages on it."""

    def __init__(self, inventory: Path, scratch: Path) -> None:
        self.inventory = inventory
        self.scratch = scratch
        self.converged = False
        self._site: Site | None = None

    @property
    def site(self) -> Site:
        """The inventory as the harness sees it."""
        if self._site is None:
            self._site = Site((self.inventory,))
        return self._site

    def verb(self, *words: str, seconds: float = 120, code: int = 0) -> str:
        """Run a verb of coldiron's for this inventory and return what it printed; another exit code fails the test."""
        done = subprocess.run(
            [command("coldiron"), *words, "-i", str(self.inventory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
            timeout=seconds,
            check=False,
        )
        assert done.returncode == code, f"{words}: rc {done.returncode}\n{done.stdout[-4000:]}"
        return done.stdout

    def words(self, *arguments: str, inventory: Path | None = None) -> list[str]:
        """Return the command line of a run."""
        where = inventory or self.inventory
        return [command("ansible-playbook"), "coldiron.cluster.site", "-i", str(where), *arguments]

    def run(self, *arguments: str, inventory: Path | None = None, timeout: float = RUN_SECONDS) -> Record:
        """Run the stages to their end and return what they did."""
        finished = subprocess.run(
            self.words(*arguments, inventory=inventory),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment() | {"ANSIBLE_STDOUT_CALLBACK": RECORD},
            timeout=timeout,
            check=False,
        )
        record = read_events(finished.stdout.splitlines())
        record.status = finished.returncode
        return record

    def run_killed(self, host: str, task: int) -> bool:
        """Run the stages and kill -9 all of the run inside the host's n-th task; False if it ended before."""
        seen = 0
        with subprocess.Popen(
            self.words(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment() | {"ANSIBLE_STDOUT_CALLBACK": RECORD, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        ) as process:
            watchdog = threading.Timer(RUN_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
            watchdog.start()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    event = json.loads(line) if line.startswith("{") else {}
                    seen += event.get("_event") == "v2_runner_on_ok" and host in event.get("hosts", {})
                    if seen >= task and event.get("_event") == "v2_playbook_on_task_start":
                        # Not between two tasks but inside one: it has had time to begin.
                        time.sleep(0.4)
                        os.killpg(process.pid, signal.SIGKILL)
                        return True
            finally:
                watchdog.cancel()
                _kill(process.pid)
        return False

    def on(self, host: str, line: str, timeout: float = JOB_SECONDS, source: str = "") -> str:
        """Run a shell line as root on a node, ``source`` on its standard input; a failure fails the test."""
        finished = self.site.connections.run(host, line, timeout=timeout, source=source)
        assert finished.returncode == 0, f"{host}: {line}: rc {finished.returncode}: {finished.stderr}"
        return finished.stdout

    @property
    def head(self) -> str:
        """The host of Slurm's controller."""
        return self.site.hosts("slurm_controller")[0]

    @property
    def workers(self) -> list[str]:
        """The hosts that run jobs."""
        return self.site.hosts("slurm_worker")

    def as_user(self, line: str, timeout: float = JOB_SECONDS) -> str:
        """Run a shell line as an ordinary user on the login node."""
        login = self.site.hosts("slurm_login")[0]
        return self.on(login, f"runuser -l {USER} -c {shlex.quote(line)}", timeout=timeout)

    def identities(self, pattern: str = "cluster") -> dict[str, dict[str, str]]:
        """Return, for each host, its boot and the invocation of every running service.

        A daemon that was restarted has another invocation, a node that was rebooted another boot. Services of
        logins come and go with them and are left out.
        """
        query = (
            "echo boot=$(cat /proc/sys/kernel/random/boot_id); "
            "for unit in $(systemctl list-units --type=service --state=running --plain --no-legend | cut -d' ' -f1); "
            "do echo $unit=$(systemctl show --value --property=InvocationID $unit); done"
        )
        found: dict[str, dict[str, str]] = {}
        for host in self.site.hosts(pattern):
            pairs = (line.partition("=")[::2] for line in self.on(host, query).splitlines())
            found[host] = {name: value for name, value in pairs if not name.startswith("user@")}
        return found

    def node_state(self, worker: str) -> str:
        """Return a worker's state in Slurm, such as idle."""
        # Asked for one node alone, slurmctld answers what it last told somebody who asked for all.
        lines = self.on(self.head, "sinfo -h -a -N -o '%N %T'").splitlines()
        return next((state for name, state in map(str.split, lines) if name == worker), "")

    def wait_for_state(self, worker: str, wanted: Sequence[str], seconds: float = 60) -> str:
        """Wait until a worker has one of the states; returns the last one seen."""
        end = time.monotonic() + seconds
        while True:
            state = self.node_state(worker)
            if state in wanted or time.monotonic() > end:
                return state
            time.sleep(1)

    @contextmanager
    def job_on(self, worker: str, *words: str) -> Iterator[str]:
        """Yield the number of a long job that runs on ``worker``; ``words`` are more of sbatch's."""
        more = " ".join(words)
        line = f"sbatch --parsable -w {worker} {more} --time=30 --output=/dev/null --wrap 'sleep 1200'"
        number = self.as_user(line).strip()
        try:
            eventually(lambda: self.job_state(number) == "RUNNING", f"job {number} does not run", 120)
            yield number
        finally:
            self.as_user(f"scancel {number}")

    def job_state(self, number: str) -> str:
        """A job's state, such as RUNNING; empty once it has left the queue."""
        return self.as_user(f"squeue -h -j {number} -o %T").strip()

    @contextmanager
    def edited(self, old: str, new: str) -> Iterator[SiteRun]:
        """Yield the site with its cluster.yml edited in place, as a person would; put the file back then.

        A rack belongs to the one file it was made from, so a copy would not do. What a killed test left
        behind is put back by ``mend``.
        """
        path, kept = self.inventory / "cluster.yml", self.inventory / ".rack" / KEPT
        text = path.read_text(encoding="utf-8")
        assert old in text
        assert self.site  # Loaded before the edit: this site stays what it was.
        kept.write_text(text, encoding="utf-8")
        path.write_text(text.replace(old, new), encoding="utf-8")
        other = SiteRun(self.inventory, self.scratch)
        other.converged = self.converged
        try:
            yield other
        finally:
            self.mend()

    def mend(self) -> None:
        """Put a cluster.yml back that a test has edited."""
        kept = self.inventory / ".rack" / KEPT
        if kept.is_file():
            (self.inventory / "cluster.yml").write_text(kept.read_text(encoding="utf-8"), encoding="utf-8")
            kept.unlink()

    def wait_for_death(self, host: str) -> None:
        """Wait until a node has ended."""
        eventually(lambda: host in self.stopped(), f"{host} is still there", 120)

    def stopped(self) -> list[str]:
        """The rack's nodes that do not run."""
        line = [command("coldiron"), "rack", "status", "-i", str(self.inventory), "--json"]
        told = json.loads(subprocess.run(line, capture_output=True, text=True, timeout=120).stdout)
        return [node["name"] for node in told["nodes"] if node["state"] == "stopped"]

    def revive(self) -> None:
        """Bring back whatever node is down."""
        rack("up", self.inventory)
        self.site.connections.forget()

    def reset(self, *nodes: str) -> None:
        """Put nodes (all when none is named) back to the bare image."""
        rack("reset", self.inventory, *nodes)
        self.site.connections.forget()


def _kill(group: int) -> None:
    """End what is left of a process group; there may be nothing."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def hand_written(run: SiteRun) -> Path:
    """Write the same cluster as a person would without a plugin: one hosts.yml; returns its folder."""
    folder = run.scratch / "hand-written"
    shutil.copytree(run.inventory / "group_vars", folder / "group_vars")
    shutil.copy(run.inventory / ".vault-password", folder / ".vault-password")
    listed = subprocess.run(
        [command("ansible-inventory"), "-i", str(run.inventory), "--list"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=True,
    )
    groups = json.loads(listed.stdout)
    own = {
        "ansible_host", "ansible_user", "ansible_ssh_private_key_file", "ansible_ssh_common_args",
        "coldiron_hardware", "coldiron_distribution",
    }  # fmt: skip
    hosts = {
        host: {key: value for key, value in variables.items() if key in own and value is not None}
        for host, variables in groups["_meta"]["hostvars"].items()
    }
    first = next(iter(groups["_meta"]["hostvars"].values()))
    shared = ("coldiron_cluster", "coldiron_domain", "coldiron_networks", "coldiron_features")
    children: dict[str, Any] = {
        name: {"hosts": dict.fromkeys(group["hosts"])}
        for name, group in groups.items()
        if isinstance(group, dict) and group.get("hosts") and name not in ("cluster", "all", "ungrouped")
    }
    children["cluster"] = {"hosts": hosts}
    content = {"all": {"vars": {name: first[name] for name in shared if name in first}, "children": children}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder


@contextmanager
def watched_processes(needles: Sequence[bytes], every: float = 0.02) -> Iterator[list[str]]:
    """Look at every process's command line, over and over; yields what holds a needle.

    The rack's containers are this machine's processes too, so the nodes are watched as well.
    """
    found: list[str] = []
    end = threading.Event()

    def watch() -> None:
        while not end.wait(every):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = path.read_bytes()
                except OSError:
                    continue
                if any(needle in line for needle in needles):
                    found.append(line.split(b"\0")[0].decode(errors="replace"))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        end.set()
        thread.join(5)


@contextmanager
def receiver(run: SiteRun, token: str, *words: str) -> Iterator[str]:
    """A webhook's receiver as a process, with more ``words`` on its command line; its URL."""
    secret = run.scratch / "webhook-token"
    secret.write_text(token, encoding="ascii")
    secret.chmod(0o600)
    policy = run.scratch / "webhook.yml"
    # The site may have been through this before.
    policy.write_text("quiet_seconds: 0\n", encoding="ascii")
    given = ["-i", str(run.inventory), "--token-file", str(secret), "--policy", str(policy)]
    log = run.scratch / "webhook.log"
    with (
        log.open("w") as out,
        subprocess.Popen(
            [command("coldiron"), "webhook", "serve", *given, *(words or ("--listen", "127.0.0.1:0"))],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(),
        ) as process,
    ):
        try:
            end = time.monotonic() + 60
            while not (found := re.search(r"answering alerts on (\S+)", log.read_text())):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end
                time.sleep(0.1)
            yield found[1]
        finally:
            process.terminate()
