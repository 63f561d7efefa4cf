"""What the exporters share, and that each is whole as its role installs it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.coldiron.cluster.plugins.module_utils import exporter_http as http

ROOT = Path(__file__).resolve().parents[3]
PASSWORD = "scrape"
CONFIG = {
    "address": "127.0.0.1",
    "port": 0,
    "user": "prometheus",
    "password_sha256": hashlib.sha256(PASSWORD.encode()).hexdigest(),
}
# What each role's program wants beside that.
OWN: dict[str, dict[str, Any]] = {
    "redfish_exporter": {
        "timeout_seconds": 5,
        "seconds": 30,
        "log_seconds": 600,
        "credentials": {},
        "targets": {},
    },
    "slurm_exporter": {"seconds": 30},
}
SAYS = {"redfish_exporter": "redfish_exporter_targets 0", "slurm_exporter": "slurm_up 0"}


def test_samples_of_one_metric_are_together_and_those_alike_told_once() -> None:
    metrics = {"b": ("gauge", "B."), "a": ("counter", "A.")}
    samples = [
        http.Sample("a", 1, {"x": 'q"\\\n'}),
        http.Sample("b", 0.5),
        http.Sample("a", 2, {"x": "y"}),
        http.Sample("a", 3, {"x": "y"}),
        http.Sample("nobodys", 1),
    ]
    assert http.render(metrics, samples) == (
        "# HELP b B.\n# TYPE b gauge\nb 0.5\n"
        '# HELP a A.\n# TYPE a counter\na{x="q\\"\\\\\\n"} 1\na{x="y"} 2\n'
    )


def ask(url: str, password: str = "", kind: str = "Basic") -> tuple[int, str]:
    """Status and text; an empty password shows none."""
    asked = urllib.request.Request(url)
    if password:
        word = base64.b64encode(f"prometheus:{password}".encode()).decode()
        asked.add_header("Authorization", f"{kind} {word}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(asked, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextlib.contextmanager
def served(**more: Any) -> Iterator[str]:
    """A server that says what it was asked."""

    def answer(path: str, query: str, headers: Message) -> tuple[int, str]:
        return 200, f"{path} {query} {headers.get('Host', '').partition(':')[0]}"

    server = http.Server({**CONFIG, **more}, answer)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_who_has_the_password_is_answered_and_nobody_else() -> None:
    with served() as url:
        assert ask(f"{url}/x?a=1", PASSWORD) == (200, "/x a=1 127.0.0.1")
        assert ask(f"{url}/x")[0] == 401
        assert ask(f"{url}/x", "other")[0] == 401
        assert ask(f"{url}/x", PASSWORD, "Bearer")[0] == 401
    with served(password_sha256="") as url:
        assert ask(f"{url}/x") == (200, "/x  127.0.0.1")


def installed(role: str, place: Path) -> None:
    """Write the program as its role does."""
    folder = ROOT / "roles" / role
    files = yaml.safe_load((folder / "vars" / "main.yml").read_text(encoding="utf-8"))[f"__{role}_static"]
    for one in files:
        path = place / one["dest"].removeprefix(f"{{{{ __{role}_program }}}}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if "src" in one:
            text = (folder / "templates" / one["src"]).read_text(encoding="utf-8")
            text = re.sub(r"\{\{.*?\}\}", "", text)
        else:
            name = re.search(r"plugins/module_utils/\w+\.py", one["content"])[0]
            text = (ROOT / name).read_text(encoding="utf-8")
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("role", OWN)
def test_the_program_runs_from_what_its_role_installs(role: str, tmp_path: Path) -> None:
    program, config = tmp_path / "program", tmp_path / "config.json"
    installed(role, program)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config.write_text(json.dumps({**CONFIG, **OWN[role], "port": port}), encoding="utf-8")
    words = [sys.executable, "-IB", program, config]
    # Somewhere else, and without commands of Slurm's.
    with subprocess.Popen(words, cwd="/", env={"PATH": str(tmp_path)}) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(200):
                assert process.poll() is None
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), timeout=5).close()
                    break
                time.sleep(0.1)
            status, text = ask(f"{url}/metrics", PASSWORD)
            assert status == 200
            assert f"\n{SAYS[role]}\n" in text
            assert ask(f"{url}/metrics")[0] == 401
            assert ask(f"{url}/", PASSWORD)[0] == 404
        finally:
            process.terminate()
    assert not list(program.rglob("__pycache__"))
