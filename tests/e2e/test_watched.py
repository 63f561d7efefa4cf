"""A site that is watched: silent while it is well, and each planted fault raises its alert and nothing else.

The rules are the roles' own, but that what they wait for is shortened: minutes and days to seconds.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from coldiron.dashboards import check
from coldiron.dashboards.read import dashboards
from coldiron.repair.journal import path_of, read
from coldiron.repair.keep import directory
from coldiron.repair.machine import State
from coldiron.repair.view import last_repair
from coldiron.run.events import Event
from coldiron.status.client import Alertmanager, Client, Prometheus, Source
from coldiron.status.where import Watch, watch_of
from coldiron.testing.steps import call, command, rack
from tests.e2e.siterun import SiteRun, eventually, receiver

pytestmark = pytest.mark.watched

ROOT = Path(__file__).resolve().parents[2]
# A rack of its own.
INVENTORY = ROOT / ".cache" / "watched"
CLUSTER = """\
plugin: coldiron.cluster.cluster
name: watched
domain: watched.internal
networks:
  cluster: {subnet: 10.77.20.0/24, gateway: 10.77.20.254}
racks: [{name: r01, units: 42}]
features: {scheduler: slurm, home_backend: provided, gpus: managed, monitoring: prometheus, logging: elasticsearch}
defaults:
  platform: container
  distribution: debian-13
  software: {driver: 580.95.05, kernel_module: open}
nodes:
  - name: head01
    kind: head
    address: 10.77.20.1
    rack: r01
    functions: [dns_server, time_server, home_server, mariadb, slurm_controller, slurm_dbd, slurm_login,
      prometheus, alertmanager, blackbox_exporter, elasticsearch]
  - name: gpu[01-02]
    kind: gpu
    address: 10.77.20.[41-42]
    rack: r01
    hardware:
      {sockets: 1, cores_per_socket: 2, memory_gib: 2, gpus: {model: h100-sxm5-80gb, type: h100, count: 2}}
  - name: cpu01
    kind: cpu
    address: 10.77.20.31
    rack: r01
    hardware: {sockets: 1, cores_per_socket: 2, memory_gib: 2}
"""
SCRAPE_SECONDS = 5
# What rules wait for, as they have it, and here.
HURRIED = {
    "(?m)^( +for:) .*$": r"\1 15s",
    # Days of being drained.
    r"> 259200\b": "> 20",
    "(?m)^( +interval:) .*$": r"\1 5s",
    # A round that takes a third of the time is left out three times as often.
    r"(iterations_missed_total\[15m\]\)) > 5\b": r"\1 > 15",
    # The machine that carries the rack may be rather full.
    r"(elasticsearch_filesystem_data_size_bytes) < 0\.15\b": r"\1 < 0.02",
}
POLICY = {
    "prometheus_interval_seconds": SCRAPE_SECONDS,
    "prometheus_timeout_seconds": SCRAPE_SECONDS,
    # What is asked from outside too: rules wait for as many answers as on a site that does not hurry.
    "topology_probe_seconds": SCRAPE_SECONDS,
    "slurm_exporter_seconds": SCRAPE_SECONDS,
    "node_exporter_often_seconds": 10,
    "elasticsearch_repository": "{{ (coldiron_rack | default({})).elastic | default({}) }}",
    "elasticsearch_heap_mib": 512,
    "elasticsearch_watermarks": {"low": "95%", "high": "97%", "flood_stage": "99%"},
}
SITE_SECONDS = 2400
# Nodes deployed from no image.
ABSENT_LABELS = {"digest", "image"}


def hurried(rules: str) -> str:
    """What makes the roles' rules, an expression, wait for seconds."""
    text = rules
    for pattern, replacement in HURRIED.items():
        # Ansible takes a backslash in an expression for itself.
        text += f" | map('regex_replace', '{pattern}', '{replacement}')"
    return text


class Watched(SiteRun):
    """The site, and what its servers say."""

    def __init__(self, inventory: Path, scratch: Path) -> None:
        super().__init__(inventory, scratch)
        self._watch: Watch | None = None

    @property
    def watch(self) -> Watch:
        """Its servers."""
        if self._watch is None:
            self._watch = watch_of(self.inventory)
        return self._watch

    def value(self, question: str) -> float | None:
        """The first value that Prometheus answers; None where it answers none."""
        found = Prometheus(self.watch.prometheus).query(question)
        return found[0].value if found else None

    def unwatched(self) -> list[str]:
        """What Prometheus shall watch and does not yet: targets that were not read, rules that were not reckoned."""
        server = Prometheus(self.watch.prometheus)
        targets = server.get("/api/v1/targets?state=active")["data"]["activeTargets"]
        groups = server.get("/api/v1/rules")["data"]["groups"]
        away = [
            f"{one['labels']}: {one['lastError'] or 'not asked'}" for one in targets if one["health"] != "up"
        ]
        unread = [
            f"{rule['name']}: {rule['health']}"
            for group in groups
            for rule in group["rules"]
            if rule["health"] != "ok"
        ]
        return [*away, *unread] if targets and groups else ["nothing is declared"]

    def pending(self) -> list[str]:
        """Every alert that Prometheus has, firing or about to, but for the one that always fires."""
        found = [one["labels"] for one in Prometheus(self.watch.prometheus).alerts()]
        return sorted(
            f"{labels['alertname']} {labels}" for labels in found if labels["alertname"] != "Watchdog"
        )

    def told(self) -> list[dict[str, Any]]:
        """The alerts that Alertmanager would tell people of: not those that are held back."""
        assert self.watch.alertmanager is not None
        found = Alertmanager(self.watch.alertmanager).get("/api/v2/alerts")
        return [one for one in found if one["status"]["state"] == "active"]

    def tells(self, **labels: str) -> dict[str, Any] | None:
        """The alert with these labels, as Alertmanager has it."""
        return next((one for one in self.told() if labels.items() <= one["labels"].items()), None)

    def wait_for(self, **labels: str) -> dict[str, Any]:
        """The alert with these labels, once people are told of it."""
        found: dict[str, Any] = eventually(lambda: self.tells(**labels), lambda: (labels, self.pending()))
        return found

    def calm(self) -> None:
        """Wait until nothing is pending and nobody is told of anything."""
        # The last Xid stands until the exporter starts anew, and the node's health check may have drained it.
        self.on("gpu01", "systemctl restart coldiron-gpu-exporter")
        for worker in self.workers:
            self.fault(f"{worker} drained", clear=True)
        eventually(lambda: not self.pending(), self.pending)
        eventually(lambda: [one["labels"]["alertname"] for one in self.told()] == ["Watchdog"], self.told)

    def fault(self, line: str, *, clear: bool = False) -> None:
        """Plant a fault, or take it away."""
        self.verb("rack", "fault", *line.split(), *(["--clear"] if clear else []))

    def lines(self, query: str) -> list[dict[str, Any]]:
        """What Elasticsearch finds."""
        found = self.logs().post(f"/{self.stream()}/_search", {"query": {"query_string": {"query": query}}})
        return [one["_source"] for one in found["hits"]["hits"]]

    def stream(self) -> str:
        """Where the lines are."""
        return str(self.option("data_stream"))

    def logs(self) -> Client:
        """Elasticsearch, for who reads."""
        address = f"https://{self.option('address')}:{self.option('http_port')}"
        password = str.__str__(self.option("reader_password"))
        return Client(Source(address, self.watch.prometheus.ca, "coldiron-reader", password), "Elasticsearch")

    def option(self, name: str) -> Any:
        """An option of the log server."""
        return self.site.resolve(
            self.site.hosts("elasticsearch")[0], "elasticsearch", f"elasticsearch_{name}"
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Bare nodes, converged, with everything on that watches; left standing with COLDIRON_WATCHED_STANDING."""
    standing = bool(os.environ.get("COLDIRON_WATCHED_STANDING"))
    made = Watched(INVENTORY, tmp_path_factory.mktemp("watched"))
    if not (standing and (INVENTORY / ".rack").is_dir()):
        with contextlib.suppress(FileNotFoundError):
            if (INVENTORY / "cluster.yml").exists():
                rack("down", INVENTORY)
            shutil.rmtree(INVENTORY)
        policy = ROOT / "inventories" / "gpu" / "group_vars" / "all"
        shutil.copytree(policy, INVENTORY / "group_vars" / "all", ignore=shutil.ignore_patterns("vault.yml"))
        (INVENTORY / "cluster.yml").write_text(CLUSTER)
        rules = "topology | coldiron.cluster.roles_present | coldiron.cluster.rules_of"
        contents = hurried(f"{rules} | map(attribute='content')")
        names = f"{rules} | map(attribute='name')"
        pairs = f"dict(({names}) | zip({contents})) | dict2items(key_name='name', value_name='content')"
        own = POLICY | {"prometheus_rules": f"{{{{ {pairs} }}}}"}
        (INVENTORY / "group_vars" / "cluster.yml").write_text(yaml.safe_dump(own, width=10_000))
        call(
            [command("coldiron"), "secrets", "init", "--generate-password", "-i", str(INVENTORY)],
            "secrets init",
        )
        rack("up", INVENTORY)
        record = made.run(timeout=SITE_SECONDS)
        assert record.status == 0, record.told()
    made.converged = True
    yield made
    if not standing:
        rack("down", INVENTORY)
        shutil.rmtree(INVENTORY)


def test_a_fresh_site_is_silent(site: Watched) -> None:
    # While exporters start, those who hurry find one away.
    eventually(
        lambda: not site.unwatched() and not site.pending(), lambda: (site.unwatched(), site.pending())
    )
    began = time.time()

    def since() -> str:
        return f"{math.ceil(time.time() - began)}s"

    # However slow the machine is: ten scrapes of every target, and a round of the rules after each.
    eventually(lambda: (site.value(f"min(count_over_time(up[{since()}]))") or 0) >= 10, site.unwatched)
    assert {
        sample.labels["instance"] for sample in Prometheus(site.watch.prometheus).query('up{job="node"}')
    } == {*site.site.hosts()}
    # Of every round that there was, not only of those in which somebody looks. What a scrape that came too late has
    # pending for a moment is no alert: it takes as many as one has to be away for.
    fired = f'count_over_time(ALERTS{{alertstate="firing",alertname!="Watchdog"}}[{since()}])'
    assert [sample.labels for sample in Prometheus(site.watch.prometheus).query(fired)] == []
    eventually(lambda: not site.pending(), site.pending)
    # The one that always fires is told to whoever waits for it; Prometheus says an alert again once a minute.
    eventually(lambda: [one["labels"]["alertname"] for one in site.told()] == ["Watchdog"], site.told)
    assert [sample.labels for sample in Prometheus(site.watch.prometheus).query(fired)] == []


FAULTS = {
    # What is planted, the alert and its labels.
    "cpu01 power-cut": {"alertname": "ColdironNodeDown", "instance": "cpu01", "severity": "ticket"},
    "gpu01 disk-full": {
        "alertname": "ColdironFilesystemFull",
        "instance": "gpu01",
        "mountpoint": "/srv/full",
    },
    "gpu01 gpu 1 xid79": {"alertname": "ColdironGpuFellOffTheBus", "host": "gpu01", "gpu": "1"},
    "gpu02 drained": {"alertname": "ColdironSlurmNodeDrainedLong", "node": "gpu02", "severity": "ticket"},
    # A container's clock cannot be off, but that of whoever keeps it right can be away.
    "gpu02 stopped chrony": {"alertname": "ColdironClockFollowsNobody", "instance": "gpu02"},
    "gpu02 hung coldiron-gpu-exporter": {
        "alertname": "ColdironTargetDown",
        "instance": "gpu02",
        "job": "gpu",
    },
}


def test_each_fault_is_told_and_ends(site: Watched) -> None:
    for line in FAULTS:
        site.fault(line)
    found = {line: site.wait_for(**labels) for line, labels in FAULTS.items()}
    for line, one in found.items():
        labels, notes = one["labels"], one["annotations"]
        assert labels["cluster"] == "watched", line
        assert labels["severity"] in ("page", "ticket", "info"), line
        assert notes["summary"], line
        page = Path(notes["runbook"]).stem
        assert (ROOT / "docs" / "runbooks" / f"{page}.md").is_file(), line
    # Slurm's own node that is away, and all else of it, is held back by the node's.
    held = [one["labels"] for one in site.told() if one["labels"].get("instance") == "cpu01"]
    assert {labels["alertname"] for labels in held} == {"ColdironNodeDown"}
    for line in reversed(FAULTS):
        site.fault(line, clear=True)
    site.calm()


def test_slurms_controller_that_is_stopped_is_told(site: Watched) -> None:
    site.fault(f"{site.head} stopped slurmctld")
    try:
        one = site.wait_for(alertname="ColdironSlurmControllerDown")
    finally:
        site.fault(f"{site.head} stopped slurmctld", clear=True)
    assert one["labels"]["severity"] == "page"
    site.calm()


def test_a_line_is_found_with_its_fields(site: Watched) -> None:
    word = f"coldiron{os.getpid()}"
    site.on("cpu01", f"logger -t watched {shlex.quote(word)}")
    (line,) = eventually(lambda: site.lines(word), lambda: "the line is not found")
    assert line["host"]["name"] == "cpu01"
    assert line["coldiron"] == {"cluster": "watched", "kind": "cpu", "rack": "r01"}
    site.fault("gpu01 gpu 0 xid79")
    (xid, *_) = eventually(
        lambda: site.lines("gpu.xid:79 AND host.name:gpu01"), lambda: site.lines("gpu.xid:*")
    )
    assert xid["event"]["kind"] == "gpu"
    site.fault("gpu01 gpu 0 xid79", clear=True)
    site.calm()


def test_what_people_type_and_what_jobs_print_is_in_no_line(site: Watched) -> None:
    canary, fence = (f"{word}{secrets.token_hex(8)}" for word in ("canary", "fence"))
    begun = datetime.now(UTC).isoformat()
    typed = f"true --password={canary}"
    # sudo logs what it runs, systemd what it is given to run, Ansible what it was asked, sshd who came.
    site.on("cpu01", f"sudo -u nobody {typed}; runuser -l bob -c {shlex.quote(f'sudo {typed}')}")
    site.on("cpu01", f"systemd-run --wait --quiet {typed}")
    call(
        [
            command("ansible"),
            "cpu01",
            "-i",
            str(site.inventory),
            "-m",
            "ansible.builtin.command",
            "-a",
            typed,
        ],
        "a module",
    )
    prints = f"echo {canary}; srun {typed}; srun echo {canary}; srun /no/such --password={canary}; true"
    output = f"{canary}.out"
    number = site.as_user(
        f"sbatch --parsable --output={output} --export=ALL,PASSWORD={canary} --wrap {shlex.quote(prints)}"
    ).strip()
    eventually(lambda: not site.job_state(number), lambda: f"job {number} does not end")
    assert site.as_user(f"grep -c {canary} {output}").strip() != "0"
    site.as_user(f"rm {output}")

    def of_late() -> str:
        late = {"range": {"@timestamp": {"gte": begun}}}
        asked = {"size": 10_000, "track_total_hits": True, "query": late}
        found = site.logs().post(f"/{site.stream()}/_search", asked)["hits"]
        assert found["total"]["value"] < 10_000
        return json.dumps(found["hits"])

    # What was logged before has come once this has; and what a program logs of its own will is found.
    for host in site.site.hosts():
        site.on(host, f"logger -t watched {fence} {host}")
    eventually(lambda: all(f"{fence} {host}" in of_late() for host in site.site.hosts()), lambda: "no fence")
    assert "COMMAND=/usr/bin/true [left out]" in of_late()
    assert canary not in of_late()
    site.on("cpu01", f"logger -t watched {canary}")
    eventually(lambda: canary in of_late(), lambda: "it would not be found if it were there")


def test_every_panel_of_every_dashboard_is_answered(site: Watched) -> None:
    # Where no GPU has had an Xid: the health check drains such a node until somebody has looked at it.
    site.as_user("sbatch --wrap 'sleep 600' --gres=gpu:1 -w gpu02")
    found = dashboards(ROOT / "roles" / "grafana" / "files" / "dashboards")
    server = Prometheus(site.watch.prometheus)
    eventually(lambda: site.value("sum(slurm_job_gpu)"), lambda: "no job with a GPU is known")

    def faults() -> list[check.Fault]:
        found_now = check.metrics(server, found, all_answered=False, absent_labels=ABSENT_LABELS)
        # Containers have no cards of their own, and are told to say nothing of their host's.
        return [fault for fault in found_now if fault.panel != "Links that came and went"]

    # A rate takes two scrapes of what has only begun.
    eventually(lambda: not faults(), faults)
    assert not check.lines(site.logs(), site.stream(), found)
    site.as_user("scancel --me")


def test_the_page_says_the_same(site: Watched, tmp_path: Path) -> None:
    file = tmp_path / "status.html"

    def said() -> str:
        return site.verb("status", "--html", str(file))

    eventually(lambda: said().startswith("watched: 4 of 4 nodes up"), said)
    page = file.read_text()
    assert "NVIDIA H100" in page
    assert "Not known" not in page


def test_a_second_run_changes_nothing(site: Watched) -> None:
    record = site.run()
    assert record.status == 0, record.told()
    assert not record.restless, record.told()


def test_an_alert_has_its_node_drained_and_looked_at_and_no_more(site: Watched) -> None:
    """From a broken GPU by the rules and Alertmanager, over TLS, to coldiron's receiver on the controller."""
    token = secrets.token_hex(16)
    boot = site.identities("gpu02")
    with (
        site.job_on("gpu02") as job,
        receiver(site, token, "--listen", "10.77.20.254:0", "--tls-site") as url,
    ):
        # A group that has just said something of an earlier fault says the next after its interval.
        hurry = {"alertmanager_group_wait_seconds": 1, "alertmanager_group_interval_seconds": 5}
        options = hurry | {"alertmanager_repair_url": url, "alertmanager_repair_token": token}
        record = site.run("--tags", "alertmanager", "--limit", site.head, "-e", json.dumps(options))
        assert record.status == 0, record.told()
        site.fault("gpu02 gpu 1 xid79")
        found = eventually(lambda: ended_repair(site, "gpu02"), lambda: (site.told(), said(site)))
        # It is done with the alert, and whoever is to be told of it has been.
        heard = site.inventory / ".coldiron" / "webhook.jsonl"
        eventually(lambda: "webhook_end" in heard.read_text(), lambda: said(site))
        assert "alert ColdironGpuFellOffTheBus: looking at gpu02" in said(site)
        assert site.node_state("gpu02") == "draining"
        assert site.job_state(job) == "RUNNING"
    states = [event.data["state"] for event in found if "state" in event.data]
    assert list(dict.fromkeys(states)) == [State.DRAIN, State.DIAGNOSE]
    assert site.identities("gpu02") == boot
    assert not path_of(directory(site.inventory), "gpu01").exists()


def ended_repair(site: Watched, node: str) -> list[Event]:
    """What the journal says of a node's last repair, once that has come to where a person goes on."""
    file = path_of(directory(site.inventory), node)
    found = list(last_repair(read(file))) if file.exists() else []
    return found if found and found[-1].data.get("next") in (State.HELD, State.TICKET) else []


def said(site: Watched) -> str:
    """What the receiver has said."""
    return (site.scratch / "webhook.log").read_text()
