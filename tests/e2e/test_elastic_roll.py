"""Three servers of Elasticsearch are restarted and upgraded one after the other while lines are written and searched.

The upgrade is the same real server, packed anew with a higher Debian revision: another package for apt and the role.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from coldiron.errors import ColdironError
from coldiron.rack import elastic
from coldiron.rack.layout import Layout
from coldiron.status.client import Client, Source
from coldiron.testing.aptrepo import Deb, SigningKey, build
from coldiron.testing.steps import call, command, rack
from tests.e2e.siterun import SiteRun, eventually

pytestmark = [pytest.mark.rolling, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
# A rack of its own.
INVENTORY = ROOT / ".cache" / "roll"
NAME = "roll"
CLUSTER = f"""\
plugin: coldiron.cluster.cluster
name: {NAME}
domain: roll.internal
networks:
  cluster: {{subnet: 10.77.26.0/24, gateway: 10.77.26.254}}
features: {{scheduler: none, home_backend: provided, logging: elasticsearch}}
defaults: {{platform: container, distribution: debian-13}}
nodes:
  - name: log01
    kind: head
    address: 10.77.26.1
    functions: [dns_server, time_server, home_server, elasticsearch]
  - name: log[02-03]
    kind: storage
    address: 10.77.26.[2-3]
    functions: [elasticsearch]
"""
SERVERS = ("log01", "log02", "log03")
HEAP_MIB = 512
POLICY: dict[str, Any] = {
    "dns_isolated": True,
    "time_upstream_servers": [],
    "elasticsearch_repository": "{{ (coldiron_rack | default({})).elastic | default({}) }}",
    "elasticsearch_heap_mib": HEAP_MIB,
    # A machine that carries much else starts three servers in minutes.
    "elasticsearch_timeout_seconds": 900,
    # The machine that carries the rack may be rather full.
    "elasticsearch_watermarks": {"low": "95%", "high": "97%", "flood_stage": "99%"},
}
UPGRADE = f"{elastic.VERSION}-2"
SITE_SECONDS, ROLL_SECONDS = 2400, 2400
# What a person waits for a search without thinking that it is broken.
PATIENCE_SECONDS = 30


class Logs(SiteRun):
    """The site, and its three servers."""

    def policy(self, **changes: Any) -> None:
        """Write the options of all nodes: the policy above, with changes."""
        file = self.inventory / "group_vars" / "cluster.yml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(POLICY | changes, width=10_000), encoding="utf-8")

    def option(self, name: str) -> Any:
        """An option of the servers."""
        return self.site.resolve(SERVERS[0], "elasticsearch", f"elasticsearch_{name}")

    def clients(self, who: str) -> list[Client]:
        """Each server, asked as one of the declared users."""
        authority = str(self.option("ca_certificate"))
        password = str.__str__(self.option(f"{who}_password"))
        return [
            Client(
                Source(f"https://10.77.26.{number}:9200", authority, f"coldiron-{who}", password),
                f"log0{number}",
                PATIENCE_SECONDS,
            )
            for number in (1, 2, 3)
        ]

    @property
    def stream(self) -> str:
        """Where the lines are."""
        return str(self.option("data_stream"))

    def health(self) -> dict[str, Any]:
        """What the first server says of the cluster."""
        found: dict[str, Any] = self.clients("reader")[0].get("/_cluster/health")
        return found

    def starts(self) -> dict[str, str]:
        """What tells one start of each server from another."""
        return {
            host: self.on(host, "systemctl show --value --property=InvocationID elasticsearch").strip()
            for host in SERVERS
        }


@dataclass
class Watch:
    """What was seen from outside while the servers rolled, by who reads and who ships of all three."""

    site: Logs
    readers: list[Client]
    shippers: list[Client]
    stream: str
    statuses: dict[str, int] = field(default_factory=dict)
    fewest_servers: int = 3
    searches: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    mark: str = field(default_factory=lambda: f"roll{os.getpid()}x{time.monotonic_ns()}")

    def _anyone(self, clients: list[Client], ask: Callable[[Client], Any]) -> tuple[Any, float]:
        """An answer of the first server that gives one, as a client of all three gets it, and how long it took."""
        begun = time.monotonic()
        last = ""
        for client in itertools.cycle(clients):
            try:
                return ask(client), time.monotonic() - begun
            except ColdironError as error:
                last = str(error)
            if time.monotonic() - begun > PATIENCE_SECONDS:
                raise ColdironError(f"no server answers for {PATIENCE_SECONDS} s: {last}")
            # A server that is away refuses at once.
            time.sleep(0.05)
        raise AssertionError("no clients")

    def _forever(self, turn: Callable[[int], None], pause: float) -> None:
        for number in itertools.count():
            try:
                turn(number)
            except (ColdironError, AssertionError, KeyError, TypeError) as error:
                self.wrong.append(f"{turn.__name__}: {error}")
            if self.ended.wait(pause):
                return

    def look(self, _: int) -> None:
        """Note how the cluster is."""
        path = "/_cluster/health?master_timeout=5s"
        health, _seconds = self._anyone(self.readers, lambda client: client.get(path))
        self.statuses[health["status"]] = self.statuses.get(health["status"], 0) + 1
        self.fewest_servers = min(self.fewest_servers, health["number_of_nodes"])

    def search(self, _: int) -> None:
        """Search as a person does; not all of the index is an answer that is wrong."""
        body = {"size": 5, "query": {"match": {"message": self.mark}}}
        answer, seconds = self._anyone(
            self.readers, lambda client: client.post(f"/{self.stream}/_search", body)
        )
        assert answer["_shards"]["failed"] == 0, answer["_shards"]
        self.searches.append(seconds)

    def write(self, number: int) -> None:
        """Add a line, and know that it is kept; what was sent and not answered is sent again under the same id."""
        path = f"/{self.stream}/_create/{self.mark}-{number}"
        line = {
            "@timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "message": f"{self.mark} direct",
        }

        def once(client: Client) -> None:
            try:
                client.post(path, line)
            except ColdironError as error:
                if "answers 409" not in str(error):
                    raise

        _, seconds = self._anyone(self.shippers, once)
        self.written.append(seconds)

    @contextlib.contextmanager
    def going_on(self) -> Iterator[Watch]:
        """Look, search and write, and have each node log five lines a second, until the end."""
        line = "for i in $(seq 100000); do [ -e /run/roll-end ] && break; logger -t roll %s shipped $i; sleep 0.2; done"
        for host in SERVERS:
            script = line % f"{self.mark} {host}"
            self.site.on(
                host, f"rm -f /run/roll-end; systemd-run --quiet --collect --unit=roll-lines sh -c '{script}'"
            )
        threads = [
            threading.Thread(target=self._forever, args=(turn, pause), daemon=True)
            for turn, pause in ((self.look, 0.25), (self.search, 0.5), (self.write, 0.2))
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self.ended.set()
            for host in SERVERS:
                self.site.on(host, "touch /run/roll-end")
            for thread in threads:
                thread.join(2 * PATIENCE_SECONDS)

    def shipped(self) -> int:
        """How many lines the nodes have logged, by their own journals."""
        count = f"journalctl -q -t roll -o cat --no-pager | grep -c '^{self.mark} '"
        return sum(int(self.site.on(host, count)) for host in SERVERS)

    def found(self, word: str) -> int:
        """How many lines are found."""
        body = {
            "size": 0,
            "track_total_hits": True,
            "query": {"match": {"message": {"query": f"{self.mark} {word}", "operator": "and"}}},
        }
        answer = self.readers[0].post(f"/{self.stream}/_search", body)
        return int(answer["hits"]["total"]["value"])

    def assert_nobody_noticed(self) -> None:
        """Never red, every search and every line answered, and all lines there, none of them twice."""
        assert self.wrong == []
        assert set(self.statuses) <= {"green", "yellow"}
        # One after the other.
        assert self.fewest_servers == 2
        shipped = self.shipped()
        eventually(
            lambda: (self.found("shipped"), self.found("direct")) == (shipped, len(self.written)),
            lambda: (
                f"shipped {shipped}, direct {len(self.written)}; "
                f"there are {self.found('shipped')} and {self.found('direct')}"
            ),
        )

    def figures(self) -> str:
        """For docs/logging.md."""
        return (
            f"{sum(self.statuses.values())} looks: {self.statuses}; {len(self.searches)} searches, the slowest "
            f"{max(self.searches):.1f} s; {len(self.written)} lines written, the slowest {max(self.written):.1f} s; "
            f"{self.shipped()} lines shipped"
        )


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logs]:
    """Three bare nodes, converged into a cluster of log servers; left standing with COLDIRON_ROLL_STANDING."""
    standing = bool(os.environ.get("COLDIRON_ROLL_STANDING"))
    site = Logs(INVENTORY, tmp_path_factory.mktemp("roll"))
    if not (standing and (INVENTORY / ".rack").is_dir()):
        if (INVENTORY / "cluster.yml").exists():
            rack("down", INVENTORY)
            shutil.rmtree(INVENTORY)
        site.policy()
        (INVENTORY / "cluster.yml").write_text(CLUSTER)
        call(
            [command("coldiron"), "secrets", "init", "--generate-password", "-i", str(INVENTORY)],
            "secrets init",
        )
        rack("up", INVENTORY)
        record = site.run(timeout=SITE_SECONDS)
        assert record.status == 0, record.told()
    yield site
    if not standing:
        rack("down", INVENTORY)
        shutil.rmtree(INVENTORY)


def repacked(scratch: Path) -> None:
    """Put the server into the rack's repository under a higher Debian revision."""
    layout = Layout(NAME, INVENTORY)
    (old,) = elastic.place(layout).glob(f"{elastic.NAME}_*.deb")
    tree, new = scratch / "tree", scratch / f"{elastic.NAME}_{UPGRADE}.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", str(old), str(tree)], check=True)
    control = tree / "DEBIAN" / "control"
    text = control.read_text(encoding="utf-8")
    assert f"Version: {elastic.VERSION}\n" in text
    control.write_text(
        text.replace(f"Version: {elastic.VERSION}\n", f"Version: {UPGRADE}\n"), encoding="utf-8"
    )
    words = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(new)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    build(elastic.place(layout), [Deb(new)], SigningKey.make(layout.data / "elastic-key"))
    new.unlink()


def installed(site: Logs) -> dict[str, str]:
    """The package's version on each server."""
    return {
        host: site.on(host, f"dpkg-query -W -f '${{Version}}' {elastic.NAME}").strip() for host in SERVERS
    }


def rolled(site: Logs, what: str) -> None:
    """Run the stage of logs while the servers are used, and see each of them restarted once and nobody notice."""
    before = site.starts()
    with Watch(site, site.clients("reader"), site.clients("shipper"), site.stream).going_on() as watch:
        # What is used is there before it begins.
        eventually(lambda: len(watch.written) > 5 and len(watch.searches) > 5, lambda: watch.wrong)
        begun = time.monotonic()
        record = site.run("--tags", "elasticsearch", timeout=ROLL_SECONDS)
        taken = time.monotonic() - begun
        assert record.status == 0, record.told()
        time.sleep(5)
    print(f"\n{what}: {taken:.0f} s; {watch.figures()}", flush=True)
    watch.assert_nobody_noticed()
    after = site.starts()
    assert [host for host in SERVERS if after[host] == before[host]] == []
    assert site.health()["status"] == "green"


def test_a_changed_option_restarts_one_server_after_the_other(logs: Logs) -> None:
    logs.policy(elasticsearch_heap_mib=HEAP_MIB - 16)
    rolled(logs, "rolling restart")
    for host in SERVERS:
        words = logs.on(host, "pgrep -a -f org.elasticsearch.bootstrap.Elasticsearch").split()
        assert f"-Xmx{HEAP_MIB - 16}m" in words


def test_another_package_is_upgraded_to_one_server_after_the_other(logs: Logs, tmp_path: Path) -> None:
    repacked(tmp_path)
    logs.policy(elasticsearch_heap_mib=HEAP_MIB - 16, elasticsearch_version=UPGRADE)
    rolled(logs, "rolling upgrade")
    assert installed(logs) == dict.fromkeys(SERVERS, UPGRADE)


def test_a_second_run_restarts_nobody(logs: Logs) -> None:
    before = logs.starts()
    record = logs.run()
    assert record.status == 0, record.told()
    assert not record.restless, record.told()
    assert logs.starts() == before


def test_a_server_that_does_not_come_back_stops_the_others(logs: Logs) -> None:
    """The cluster goes on with two, and the next run, with what is wrong mended, makes three of them again."""
    # The first of them to be restarted refuses to start.
    settings = {"node.attr.coldiron": "planted"}
    logs.policy(
        elasticsearch_heap_mib=HEAP_MIB - 16,
        elasticsearch_version=UPGRADE,
        elasticsearch_settings=settings | {"no.such.setting": "x"},
        elasticsearch_timeout_seconds=45,
    )
    before = logs.starts()
    record = logs.run("--tags", "elasticsearch", timeout=ROLL_SECONDS)
    assert record.status != 0
    away = [host for host, _, _ in record.failed]
    assert away
    alive = [client for client in logs.clients("reader") if answers(client)]
    assert len(alive) == 2
    health = alive[0].get("/_cluster/health")
    assert (health["status"] != "red", health["number_of_nodes"]) == (True, 2), json.dumps(health)
    after = logs.starts()
    assert len([host for host in SERVERS if after[host] == before[host]]) == 2
    logs.policy(elasticsearch_heap_mib=HEAP_MIB - 16, elasticsearch_version=UPGRADE)
    record = logs.run("--tags", "elasticsearch", timeout=ROLL_SECONDS)
    assert record.status == 0, record.told()
    assert logs.health()["number_of_nodes"] == 3
    assert logs.health()["status"] == "green"


def answers(client: Client) -> bool:
    """Whether a server answers as a member of a cluster."""
    try:
        client.get("/_cluster/health?timeout=1s&master_timeout=5s")
    except ColdironError:
        return False
    return True
