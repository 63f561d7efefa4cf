"""A site that is watched: silent while it is well, and each planted fault raises its alert and nothing else.

The rules are the roles' own, but that what they wait for is shortened: minutes and days to seconds.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from coldiron.dashboards import check
from coldiron.dashboards.read import dashboards
from coldiron.status.client import Alertmanager, Prometheus
from coldiron.status.where import Watch, watch_of
from coldiron.testing.steps import call, command, rack
from tests.e2e.siterun import SiteRun

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
features: {scheduler: slurm, home_backend: provided, gpus: managed, monitoring: prometheus, logging: elasticsearch}
defaults:
  platform: container
  distribution: debian-13
  software: {driver: 580.95.05, kernel_module: open}
nodes:
  - name: head01
    kind: head
    address: 10.77.20.1
    functions: [dns_server, time_server, home_server, mariadb, slurm_controller, slurm_dbd, slurm_login,
      prometheus, alertmanager, blackbox_exporter, elasticsearch]
  - name: gpu[01-02]
    kind: gpu
    address: 10.77.20.[41-42]
    hardware:
      {sockets: 1, cores_per_socket: 2, memory_gib: 2, gpus: {model: h100-sxm5-80gb, type: h100, count: 2}}
  - name: cpu01
    kind: cpu
    address: 10.77.20.31
    hardware: {sockets: 1, cores_per_socket: 2, memory_gib: 2}
"""
SCRAPE_SECONDS = 5
# What rules wait for, as they have it, and here.
HURRIED = {
    "(?m)^( +for:) .*$": r"\1 15s",
    # Days of being drained.
    r"> 259200\b": "> 20",
    "(?m)^( +interval:) .*$": r"\1 5s",
}
POLICY = {
    "prometheus_interval_seconds": SCRAPE_SECONDS,
    "prometheus_timeout_seconds": SCRAPE_SECONDS,
    "slurm_exporter_seconds": SCRAPE_SECONDS,
    "node_exporter_often_seconds": 10,
    "elasticsearch_repository": "{{ (coldiron_rack | default({})).elastic | default({}) }}",
    "elasticsearch_heap_mib": 512,
    # The machine that carries the rack may be rather full.
    "elasticsearch_watermarks": {"low": "95%", "high": "97%", "flood_stage": "99%"},
}
SITE_SECONDS, WAIT_SECONDS = 2400, 300


def hurried(rules: str) -> str:
    """What makes the roles' rules, an expression, wait for seconds."""
    text = rules
    for pattern, replacement in HURRIED.items():
        # Ansible takes a backslash in an expression for itself.
        text += f" | map('regex_replace', '{pattern}', '{replacement}')"
    return text


def eventually(look: Callable[[], object], what: Callable[[], object], seconds: float = WAIT_SECONDS) -> Any:
    """Wait until a look finds something, and return it."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what()}"
        time.sleep(1)
    return found


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
        found = self.logs().ask(
            f"/{self.stream()}/_search", body={"query": {"query_string": {"query": query}}}
        )
        return [one["_source"] for one in found["hits"]["hits"]]

    def stream(self) -> str:
        """Where the lines are."""
        return str(self.option("data_stream"))

    def logs(self) -> check.Server:
        """Elasticsearch, for who reads."""
        return check.Server(
            f"https://{self.option('address')}:{self.option('http_port')}",
            self.authority(),
            "coldiron-reader",
            str.__str__(self.option("reader_password")),
        )

    def option(self, name: str) -> Any:
        """An option of the log server."""
        return self.site.resolve(
            self.site.hosts("elasticsearch")[0], "elasticsearch", f"elasticsearch_{name}"
        )

    def authority(self) -> str:
        """A file with the certificate of the site's authority."""
        file = self.scratch / "ca.crt"
        file.write_text(self.watch.prometheus.ca)
        return str(file)


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
    eventually(lambda: site.value("min(up)") == 1 and not site.pending(), site.pending)
    for _ in range(10):
        time.sleep(SCRAPE_SECONDS)
        assert site.pending() == []
    assert {
        sample.labels["instance"] for sample in Prometheus(site.watch.prometheus).query('up{job="node"}')
    } == {*site.site.hosts()}
    assert site.pending() == []
    # The one that always fires is told to whoever waits for it; Prometheus says an alert again once a minute.
    eventually(lambda: [one["labels"]["alertname"] for one in site.told()] == ["Watchdog"], site.told)
    assert site.pending() == []


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
    one = site.wait_for(alertname="ColdironSlurmControllerDown")
    assert one["labels"]["severity"] == "page"
    site.fault(f"{site.head} stopped slurmctld", clear=True)
    site.calm()


def test_a_line_is_found_with_its_fields(site: Watched) -> None:
    word = f"coldiron{os.getpid()}"
    site.on("cpu01", f"logger -t watched {shlex.quote(word)}")
    (line,) = eventually(lambda: site.lines(word), lambda: "the line is not found")
    assert line["host"]["name"] == "cpu01"
    assert line["coldiron"] | {"rack": ""} == {"cluster": "watched", "kind": "cpu", "rack": ""}
    site.fault("gpu01 gpu 0 xid79")
    (xid, *_) = eventually(
        lambda: site.lines("gpu.xid:79 AND host.name:gpu01"), lambda: site.lines("gpu.xid:*")
    )
    assert xid["event"]["kind"] == "gpu"
    site.fault("gpu01 gpu 0 xid79", clear=True)
    site.calm()


def test_every_panel_of_every_dashboard_is_answered(site: Watched) -> None:
    # Where no GPU has had an Xid: the health check drains such a node until somebody has looked at it.
    site.as_user("sbatch --wrap 'sleep 600' --gres=gpu:1 -w gpu02")
    found = dashboards(ROOT / "roles" / "grafana" / "files" / "dashboards")
    source = site.watch.prometheus
    server = check.Server(source.address, site.authority(), source.user, source.password)
    eventually(lambda: site.value("sum(slurm_job_gpu)"), lambda: "no job with a GPU is known")
    faults = check.metrics(server, found, all_answered=False, absent_labels={"rack", "digest", "image"})
    # Containers have no cards of their own, and are told to say nothing of their host's.
    assert [fault for fault in faults if fault.panel != "Links that came and went"] == []
    assert not check.lines(site.logs(), site.stream(), found)
    site.as_user("scancel --me")


def test_the_page_says_the_same(site: Watched, tmp_path: Path) -> None:
    file = tmp_path / "status.html"
    said = site.verb("status", "--html", str(file))
    assert said.startswith("watched: 4 of 4 nodes up")
    page = file.read_text()
    assert "NVIDIA H100" in page
    assert "Not known" not in page


def test_a_second_run_changes_nothing(site: Watched) -> None:
    record = site.run()
    assert record.status == 0, record.told()
    assert not record.restless, record.told()
