"""A real Prometheus on loopback, over recorded samples and the roles' own rules."""

from __future__ import annotations

import http.server
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from coldiron.errors import ColdironError
from coldiron.status.client import Prometheus, Source

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SAMPLES = HERE / "samples"
# Of each target: its job, its node, that node's kind and rack, and the files that it serves.
TARGETS = [
    ("node", "gpu01", "gpu", "r1", ["node.prom", "textfile.prom"]),
    ("node", "gpu03", "gpu", "r2", ["node.prom", "textfile.prom", "faults.prom"]),
    ("node", "head01", "head", "r1", ["node.prom"]),
    ("gpu", "gpu01", "gpu", "r1", ["../../rules/nvitop-mig.prom", "../../rules/nvitop.prom"]),
    ("gpu", "gpu03", "gpu", "r2", ["../../rules/dcgm.prom", "faults-gpu.prom"]),
    ("bmc", "gpu01", "gpu", "r1", ["bmc.prom"]),
    ("bmc", "gpu03", "gpu", "r2", ["bmc-redfish.prom"]),
    ("slurm", "head01", "head", "r1", ["slurm.prom"]),
]
TYPE = re.compile(r"# TYPE (\w+) (\w+)")
PATIENCE_SECONDS = 60


def _served(files: list[str], ticks: int) -> str:
    """The samples, each once: counters go up as time does."""
    kinds: dict[str, str] = {}
    values: dict[str, float] = {}
    for name in files:
        for line in (SAMPLES / name).read_text(encoding="utf-8").splitlines():
            if found := TYPE.match(line):
                kinds[found[1]] = found[2]
            elif line and not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                counts = kinds.get(series.partition("{")[0]) == "counter"
                values[series] = float(value) + ticks * counts
    return "".join(f"{series} {value!r}\n" for series, value in values.items())


class Exporters:
    """Every target's samples, at /NUMBER; each time it is asked, counters are one up."""

    def __init__(self) -> None:
        asked: dict[int, int] = {}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                at = int(self.path.strip("/"))
                asked[at] = asked.get(at, 0) + 1
                text = _served(TARGETS[at][4], asked[at]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *words: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def _program(name: str, packages: tuple[str, ...]) -> str:
    """A program of Debian's: as it is installed, else out of its package, whose daemon nobody needs here."""
    if found := shutil.which(name):
        return found
    place = ROOT / ".cache" / name
    program = place / "usr/bin" / name
    said = ""
    for package in packages:
        if program.exists():
            break
        place.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["apt-get", "-q", "download", package], cwd=place, capture_output=True, text=True, check=False
        )
        said += done.stderr
        for deb in place.glob(f"{package}_*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(deb), str(place)], check=True)
            deb.unlink()
    if not program.exists():
        pytest.fail(f"{name} is not installed, and cannot be fetched: {said.strip()}")
    return str(program)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _config(exporters: int, dead: int) -> dict[str, Any]:
    jobs = []
    for at, (job, node, kind, rack, _) in enumerate(TARGETS):
        labels = {"job": job, "instance": node, "kind": kind, "rack": rack}
        jobs.append(
            {
                "job_name": f"{job}-{node}",
                "metrics_path": f"/{at}",
                "static_configs": [{"targets": [f"127.0.0.1:{exporters}"], "labels": labels}],
            }
        )
    away = {"job": "node", "instance": "gpu04", "kind": "gpu", "rack": "r2"}
    jobs.append({"job_name": "away", "static_configs": [{"targets": [f"127.0.0.1:{dead}"], "labels": away}]})
    rules = [HERE / "away.rules.yml", *sorted(ROOT.glob("roles/*/files/*.rules.yml"))]
    return {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
        "rule_files": [str(file) for file in rules],
        "scrape_configs": jobs,
    }


def _wait(until: Callable[[], Any], what: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            pytest.fail(f"Prometheus ended: {log.read_text()[-2000:]}")
        try:
            if until():
                return
        except ColdironError:
            pass
        time.sleep(0.5)
    pytest.fail(f"{what}: not within {PATIENCE_SECONDS} s; {log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has read every target several times and every rule at least once since."""
    program = _program("prometheus", ("prometheus",))
    folder = tmp_path_factory.mktemp("prometheus")
    exporters = Exporters()
    port = _free_port()
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(_config(exporters.port, _free_port())), encoding="utf-8")
    server = Prometheus(Source(f"http://127.0.0.1:{port}"))
    log = folder / "log"

    def ready() -> bool:
        many = server.query("min(count_over_time(up[1m]))")
        there = server.query("min(count_over_time(coldiron:gpu_power_watts[1m]))")
        return bool(many and there) and min(many[0].value, there[0].value) >= 4

    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=out,
            stderr=out,
            cwd=folder,
            env={**os.environ, "GOMAXPROCS": "2"},
        )
        try:
            _wait(ready, "Prometheus answers with every target's samples", process, log)
            yield server
        finally:
            process.terminate()
            process.wait(timeout=30)
            exporters.server.shutdown()
