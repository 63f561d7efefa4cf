"""What a site's Prometheus looks at from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from coldiron.testing.site import load_site

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = """\
plugin: coldiron.cluster.cluster
name: demo
domain: demo.internal
networks: {cluster: {subnet: 10.99.1.0/24}}
features:
  {scheduler: none, home_backend: provided, gpus: provided, monitoring: prometheus, dashboards: grafana,
   logging: elasticsearch, log_viewer: kibana}
defaults: {platform: container, distribution: debian-13}
nodes: [{name: head01, kind: head, address: 10.99.1.1}]
"""
# Who shows a certificate of the site's to people, to nodes, or to other clusters, and the variable of its port.
PAGES = {
    "prometheus": "prometheus_port",
    "alertmanager": "alertmanager_port",
    "elasticsearch": "elasticsearch_http_port",
    "kibana": "kibana_port",
    "grafana": "grafana_port",
}


def probed(folder: Path, variables: dict[str, Any]) -> set[str]:
    """The addresses of a site whose certificates are looked at."""
    (folder / "cluster.yml").write_text(CLUSTER, encoding="utf-8")
    (folder / "group_vars").mkdir()
    (folder / "group_vars/cluster.yml").write_text(yaml.safe_dump(variables), encoding="utf-8")
    (job,) = load_site((folder,)).resolve("head01", "prometheus", "topology_probes")
    return {one["address"] for one in job["targets"] if one["labels"]["module"] == "tls"}


def default(role: str) -> int:
    """The port of a role, where the site says nothing else."""
    text = (ROOT / "roles" / role / "defaults" / "main.yml").read_text(encoding="utf-8")
    return int(yaml.safe_load(text)[PAGES[role]])


@pytest.mark.parametrize("role", ["", *PAGES])
def test_certificates_of_all_pages_are_looked_at(tmp_path: Path, role: str) -> None:
    """At the roles' own ports, and at another that the site says."""
    ports = {**{name: default(name) for name in PAGES}, **({role: 4433} if role else {})}
    found = probed(tmp_path, {PAGES[role]: 4433} if role else {})
    assert found == {f"10.99.1.1:{port}" for port in ports.values()}


@pytest.mark.parametrize("role", ["kibana", "grafana"])
def test_what_only_its_host_hears_is_not_asked_from_outside(tmp_path: Path, role: str) -> None:
    found = probed(tmp_path, {f"{role}_address": "127.0.0.1"})
    assert found == {f"10.99.1.1:{default(name)}" for name in PAGES if name != role}
