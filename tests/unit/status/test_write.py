"""From an inventory to the page: whom it asks, and what is said where that cannot be done."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coldiron.cli import app
from coldiron.errors import ColdironError
from coldiron.status.where import watch_of
from coldiron.status.write import write_status

CLUSTER = """\
plugin: coldiron.cluster.cluster
name: hopper
domain: hopper.internal
networks:
  cluster: {subnet: 127.0.0.0/24}
features: {scheduler: none, home_backend: provided%s}
defaults: {distribution: debian-13}
nodes:
  - {name: head01, kind: head, address: 127.0.0.1}
  - {name: "cpu[01-02]", kind: cpu, address: "127.0.0.[11-12]"}
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    directory = tmp_path / "hopper"
    directory.mkdir()
    (directory / "cluster.yml").write_text(CLUSTER % ", monitoring: prometheus")
    done = CliRunner().invoke(app, ["secrets", "init", "--generate-password", "-i", str(directory)])
    assert done.exit_code == 0, done.output
    return directory


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """Answers what is asked with one node, and no alerts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            result = [{"metric": {"instance": "cpu01"}, "value": [1, "1"]}]
            data = (
                {"alerts": []}
                if self.path.endswith("/alerts")
                else {"resultType": "vector", "result": result}
            )
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"data": data}).encode())

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
        yield made
        made.shutdown()


@pytest.mark.parametrize("given", ["hopper", "./hopper/cluster.yml"])
def test_the_inventory_says_whom_to_ask_and_how(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(inventory.parent)
    watch = watch_of(Path(given))
    assert (watch.cluster, watch.nodes) == ("hopper", ["head01", "cpu01", "cpu02"])
    assert watch.prometheus.address == "https://127.0.0.1:9090"
    assert watch.prometheus.user == "coldiron"
    assert len(watch.prometheus.password) > 15
    assert watch.prometheus.ca.startswith("-----BEGIN CERTIFICATE-----")
    assert watch.alertmanager is not None
    assert watch.alertmanager.address == "https://127.0.0.1:9093"


def test_the_page_is_written_and_said(inventory: Path, server: ThreadingHTTPServer, tmp_path: Path) -> None:
    (inventory / "group_vars" / "cluster.yml").write_text(
        f"prometheus_port: {server.server_port}\nprometheus_tls_certificate: ''\n"
    )
    file = tmp_path / "status.html"
    line = write_status(inventory, file)
    assert line.startswith("hopper: 1 of 3 nodes up, no alert; ")
    page = file.read_text()
    assert "1 of 3 nodes up" in page
    assert "Not watched: cpu02, head01" in page
    # Nobody listens there.
    assert "Alertmanager at https://127.0.0.1:9093 does not answer" in page
    assert watch_of(inventory).prometheus.password not in page


def test_a_prometheus_that_is_away_leaves_an_older_page_as_it_was(inventory: Path, tmp_path: Path) -> None:
    (inventory / "group_vars" / "cluster.yml").write_text("prometheus_port: 1\n")
    file = tmp_path / "status.html"
    file.write_text("older")
    with pytest.raises(ColdironError, match=r"Prometheus at https://127\.0\.0\.1:1 does not answer"):
        write_status(inventory, file)
    assert file.read_text() == "older"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_cluster_that_nobody_watches_is_told_what_to_write(inventory: Path, tmp_path: Path) -> None:
    (inventory / "cluster.yml").write_text(CLUSTER % "")
    with pytest.raises(
        ColdironError, match="has no Prometheus to ask: write `monitoring: prometheus` to features"
    ):
        write_status(inventory, tmp_path / "status.html")


@pytest.mark.parametrize("file", ["", "nowhere/status.html"])
def test_a_file_that_cannot_be_is_refused_before_anything_is_asked(
    inventory: Path, tmp_path: Path, file: str
) -> None:
    with pytest.raises(ColdironError, match="give a file in a directory that is there"):
        write_status(inventory, tmp_path / file)
