"""``coldiron rehearse``: a site's own inventory, from bare nodes to jobs, on the virtual rack of this machine."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster, Node, find, load
from coldiron.inventory.findings import shown_path
from coldiron.rack.build import Builder, Wishes
from coldiron.rack.host import Host
from coldiron.rack.jobs import Jobs
from coldiron.rack.layout import Layout, Machine
from coldiron.rack.machine import refuse_not_root
from coldiron.rack.network import parse_routes
from coldiron.rack.rack import Rack
from coldiron.rack.rehearsal import POOL, block, rack_name, sample, write
from coldiron.rack.report import Report
from coldiron.rack.spec import from_cluster, inventory_directory
from coldiron.rack.teardown import down

_OWNER = ".rehearsal-of"
_STOP_SECONDS = 30.0


@dataclass
class Outcome:
    """What a rehearsal did. ``seconds`` are by step; ``left`` are the site's encrypted files, which stayed behind."""

    cluster: str
    directory: str
    subnet: str = ""
    nodes: list[str] = field(default_factory=list)
    of: int = 0
    left: list[str] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    changed: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    kept: bool = False


class Place:
    """Where the rehearsal called ``name`` lies on this machine, and its rack."""

    def __init__(
        self, name: str, report: Report, machine: Machine | None = None, host: Host | None = None
    ) -> None:
        self.name = name
        self.machine = machine or Machine()
        self.report = report
        self.directory = self.machine.lib / "rehearsal" / name
        self.rack = Rack(Layout(name, self.directory, self.machine), host, report)

    @property
    def owner(self) -> Path:
        """The file that names the site's inventory."""
        return self.directory / _OWNER

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One rehearsal of a name at a time."""
        # Not the rack's own host: its nodes would inherit the lock, and outlive this process with it.
        host = Host()
        try:
            with host.lock(self.machine.run / f"rehearsal-{self.name}.lock", self.report.say):
                yield
        finally:
            self.rack.keeper.leave()

    def take_away(self) -> None:
        """Remove nodes and files, whatever there is of them."""
        down(self.rack)
        shutil.rmtree(self.directory, ignore_errors=True)
        for directory in (self.directory.parent, self.machine.lib):
            with contextlib.suppress(OSError):
                directory.rmdir()


def end(inventory: Path, report: Report, machine: Machine | None = None, host: Host | None = None) -> bool:
    """Take away what a kept or killed rehearsal of ``inventory`` left; False where there is nothing.

    The inventory itself is not read: it may be broken by now.
    """
    refuse_not_root()
    own = str(inventory_directory(inventory))
    found = [
        owner.parent.name
        for owner in (machine or Machine()).lib.glob(f"rehearsal/*/{_OWNER}")
        if owner.read_text(encoding="utf-8").strip() == own
    ]
    for name in found:
        place = Place(name, report, machine, host)
        with place.alone():
            place.take_away()
    return bool(found)


class Rehearsal:
    """The rehearsal of the cluster in ``inventory``; only the first ``most`` nodes of each group where it says so."""

    def __init__(
        self,
        inventory: Path,
        report: Report,
        *,
        most: int | None = None,
        pool: IPv4Network = POOL,
        machine: Machine | None = None,
        host: Host | None = None,
    ) -> None:
        self.cluster: Cluster = load(find(inventory))
        self.report = report
        self.most = most
        self.pool = pool
        self.place = Place(rack_name(self.cluster.name), report, machine, host)
        self.rack = self.place.rack
        self.directory = self.place.directory
        self.outcome = Outcome(self.cluster.name, str(self.directory), of=len(self.cluster.nodes))

    def play(self, *, keep: bool = False) -> Outcome:
        """Rehearse from bare nodes; what an earlier one left is taken away first. Raises ColdironError."""
        refuse_not_root()
        nodes = sample(self.cluster, self.most)
        with self.place.alone():
            self._refuse_other()
            self.place.take_away()
            try:
                self._prepare(nodes)
                self._step("the nodes come up", "rack_up", self._up)
                self._step("from bare nodes to a cluster", "first_run", self._apply)
                if self.cluster.features.scheduler == "slurm":
                    self._step("jobs in every partition, and on every kind of GPU", "jobs", self._jobs)
                self._step("every role's own tests", "verify", lambda: self._type("verify"))
                self._step("the same run again", "second_run", self._apply_again)
            finally:
                self.outcome.kept = keep
                if not keep:
                    self._step("the rack is taken away", "rack_down", self.place.take_away)
        return self.outcome

    def _refuse_other(self) -> None:
        """Another site's rehearsal of the same name is left alone."""
        own = str(inventory_directory(self.cluster.directory))
        with contextlib.suppress(FileNotFoundError):
            of = self.place.owner.read_text(encoding="utf-8").strip()
            if of != own and Path(of).is_dir():
                raise ColdironError(
                    f"{self.directory} is the rehearsal of {of}, a cluster of the same name; take it away: "
                    f"coldiron rehearse --down -i {of}",
                    ExitCode.REFUSED,
                )

    def _step(self, what: str, name: str, action: Callable[[], object]) -> None:
        self.report.say(f"== {what}")
        since = time.monotonic()
        action()
        self.outcome.seconds[name] = round(time.monotonic() - since, 1)

    def _prepare(self, nodes: Sequence[Node]) -> None:
        from coldiron.secrets.password import PASSWORD_FILE, generate
        from coldiron.secrets.store import Store

        subnet = block(len(nodes), self.pool, self._taken())
        self.outcome.subnet = str(subnet)
        self.outcome.nodes = [node.name for node in nodes]
        self.outcome.left = write(self.cluster, nodes, subnet, self.directory)
        self.place.owner.write_text(f"{inventory_directory(self.cluster.directory)}\n", encoding="utf-8")
        self.directory.chmod(0o700)
        Store(self.directory, generate(self.directory / PASSWORD_FILE)).add_missing()
        number = f"{len(nodes)} of {self.outcome.of} nodes"
        self.report.say(f"rehearsing {self.cluster.name}: {number} on {subnet}, in {self.directory}")
        for name in self.outcome.left:
            self.report.say(f"left behind, for it is encrypted: {name}; the rehearsal has secrets of its own")

    def _taken(self) -> list[IPv4Network]:
        """What this machine reaches already."""
        routes = self.rack.host.run(["ip", "-4", "-json", "route", "show", "table", "all"]).stdout
        return [route.network for route in parse_routes(routes)]

    def _up(self) -> None:
        with self.report:
            Builder(self.rack, from_cluster(self.directory), Wishes((), False, False, None)).up()

    def _apply(self) -> None:
        self._type("apply")

    def _apply_again(self) -> None:
        from coldiron.run.store import Runs

        self._type("apply")
        run = Runs(self.directory).current()
        changes = run.state().changes if run else []
        self.outcome.changed = len(changes)
        if changes:
            first = changes[0]
            raise ColdironError(
                f"{self.cluster.name}: the second run was to change nothing, and changed {len(changes)} things, "
                f"first {first.role or first.stage}: {first.what} on {first.host}",
                ExitCode.HOSTS_FAILED,
            )

    def _jobs(self) -> None:
        self.outcome.jobs = Jobs(self.rack.standing(), load(self.directory)).run(self.report.say)

    def _type(self, verb: str) -> None:
        """A verb of coldiron on the rehearsal's inventory, before the person's eyes."""
        from coldiron.secrets.password import PASSWORD_FILE

        words = [str(Path(sys.executable).with_name("coldiron")), verb, "-i", str(self.directory)]
        self.report.say(f"$ {shlex.join(['coldiron', *words[1:]])}")
        out = self.report.console.file
        out.flush()
        # Whatever names the site's own password, that one does not open the rehearsal's vault.
        password = str(self.directory / PASSWORD_FILE)
        named = dict.fromkeys(("COLDIRON_VAULT_PASSWORD_FILE", "ANSIBLE_VAULT_PASSWORD_FILE"), password)
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, env=os.environ | named) as process:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                _stop(process)
                raise
        if code:
            raise ColdironError(
                f"the rehearsal of {self.cluster.name} stopped: `coldiron {verb}` ended with {code} (its last lines "
                "are above); mend that and rehearse again, with --keep to look at the nodes afterwards",
                ExitCode.HOSTS_FAILED,
            )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a verb that was interrupted, first by asking."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def told(outcome: Outcome, inventory: str) -> list[str]:
    """What the rehearsal of ``inventory`` did, in a line or two."""
    seconds = outcome.seconds
    lines = [
        f"{outcome.cluster}: rehearsed, {len(outcome.nodes)} of {outcome.of} nodes: up in "
        f"{seconds['rack_up']:.0f} s, a cluster after {seconds['first_run']:.0f} s more, verified in "
        f"{seconds['verify']:.0f} s; the second run took {seconds['second_run']:.0f} s and changed nothing"
    ]
    if outcome.kept:
        where = shown_path(Path(outcome.directory))
        lines.append(
            f"it stands: coldiron rack ssh -i {where} NODE; take it away: coldiron rehearse --down -i {inventory}"
        )
    return lines
