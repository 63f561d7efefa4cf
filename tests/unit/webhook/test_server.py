"""What is sent to the receiver over real connections: alerts, and everything that is refused."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coldiron.webhook import server as server_module
from coldiron.webhook.cli import context
from coldiron.webhook.ledger import Ledger
from coldiron.webhook.policy import Policy
from coldiron.webhook.server import CONNECTIONS, LONGEST_BODY, Receiver, Server
from coldiron.webhook.worker import Worker
from tests.unit.repair.samples import CLUSTER
from tests.unit.webhook.disk import full
from tests.unit.webhook.pki import certificate
from tests.unit.webhook.samples import alert, message

TOKEN = "0123456789abcdef0123456789abcdef"


class Idle(Worker):
    """Accepts tasks and does none of them."""

    def start(self) -> None:
        raise AssertionError


class Site:
    """A receiver that answers on a port of this machine."""

    def __init__(self, home: Path, tls: ssl.SSLContext | None = None, seconds: float = 20.0) -> None:
        (home / "cluster.yml").write_text(CLUSTER, encoding="utf-8")
        (home / ".coldiron").mkdir(exist_ok=True)
        self.home = home
        self.ledger = Ledger(home, "test", time.time())
        receiver = Receiver(home, Policy(), self.ledger, Idle(self.ledger, home))
        self.server = Server(("127.0.0.1", 0), receiver, TOKEN, tls, seconds)
        self.port = int(self.server.server_address[1])
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def post(
        self, body: bytes, token: str = TOKEN, path: str = "/alerts", method: str = "POST", **headers: str
    ) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, {"Authorization": f"Bearer {token}", **headers})
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ledger.path.read_text().splitlines()]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.ledger.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.close()


def all_of(connection: socket.socket) -> bytes:
    found = b""
    with connection:
        while chunk := connection.recv(65536):
            found += chunk
    return found


def test_an_alert_is_accepted_once_and_noted(site: Site) -> None:
    status, answer = site.post(message(alert()))
    assert (status, answer) == (
        200,
        {"alerts": {"accepted": 1}, "lines": ["GpuFellOff: cpu01 is drained and looked at"]},
    )
    assert site.post(message(alert())) == (200, {"alerts": {"duplicate": 1}, "lines": []})
    assert [task.node for task in site.ledger.unfinished] == ["cpu01"]
    kinds = [event["kind"] for event in site.events()]
    assert kinds == ["webhook_accepted", "webhook_heard", "webhook_heard"]
    assert site.events()[1]["data"]["peer"] == "127.0.0.1"


def test_each_alert_of_a_request_has_a_fate_of_its_own(site: Site) -> None:
    body = message(
        alert(),
        alert(fingerprint="02"),
        alert("cpu99", fingerprint="03"),
        alert("cpu02", fingerprint="04", labels={"coldiron_repair": "no"}),
        alert("cpu03", fingerprint="05", status="resolved"),
        alert("head01", fingerprint="06"),
    )
    status, answer = site.post(body)
    assert status == 200
    assert answer["alerts"] == {"accepted": 1, "duplicate": 1, "refused": 2, "ignored": 1, "resolved": 1}
    assert "GpuFellOff: node `cpu99` is no node of cluster.yml" in answer["lines"]
    assert [task.node for task in site.ledger.unfinished] == ["cpu01"]


def test_an_alert_that_is_over_takes_its_node_out_of_the_queue(site: Site) -> None:
    site.post(message(alert()))
    site.post(message(alert(status="resolved")))
    assert site.ledger.unfinished == []
    assert [event["kind"] for event in site.events()][2] == "webhook_dropped"


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer wrong"},
        {"Authorization": TOKEN},
        {"Authorization": ""},
        {"Authorization": "Bearer \xe4"},
    ],
)
def test_a_wrong_token_gets_nothing_and_is_noted(site: Site, headers: dict[str, str]) -> None:
    status, answer = site.post(message(alert()), **headers)
    assert (status, answer["error"]) == (401, "wrong token or none; send Authorization: Bearer TOKEN")
    assert site.ledger.unfinished == []
    assert [event["data"]["status"] for event in site.events()] == [401]
    assert TOKEN not in site.ledger.path.read_text()


@pytest.mark.parametrize("body", [b"", b"\x00\xff garbage", b"[]", message(alert(), version="5")])
def test_garbage_is_refused_for_good(site: Site, body: bytes) -> None:
    status, answer = site.post(body)
    assert status == 400
    assert answer["error"].startswith("not what Alertmanager's webhook sends")
    assert site.ledger.unfinished == []


def test_other_paths_and_methods_are_not_there(site: Site) -> None:
    assert site.post(message(alert()), path="/../etc/passwd")[0] == 404
    assert site.post(b"", path="/alerts", method="GET")[0] == 404
    assert site.post(b"", path="/healthy", method="GET") == (200, {"healthy": True})
    assert site.post(message(alert()), method="PUT")[0] == 501


def test_what_is_too_long_is_not_even_read(site: Site) -> None:
    with site.raw() as connection:
        head = f"POST /alerts HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {LONGEST_BODY + 1}\r\n\r\n"
        connection.sendall(head.encode())
        assert b" 413 " in all_of(connection).splitlines()[0]
    with site.raw() as connection:
        connection.sendall(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n")
        assert b" 414 " in all_of(connection).splitlines()[0]
    for length in ("", "-1", "9" * 400, "ten"):
        with site.raw() as connection:
            head = (
                f"POST /alerts HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\n"
            )
            connection.sendall(head.encode())
            assert all_of(connection).split()[1] in (b"411", b"413")


def test_a_request_that_breaks_off_does_nothing(site: Site) -> None:
    with site.raw() as connection:
        body = message(alert())
        head = (
            f"POST /alerts HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body[:-5])
        connection.shutdown(socket.SHUT_WR)
        assert b" 400 " in all_of(connection).splitlines()[0]
    assert site.ledger.unfinished == []
    assert site.post(message(alert()))[0] == 200


@pytest.mark.parametrize("encrypted", [False, True])
def test_who_sends_a_byte_now_and_then_is_cut_off_and_others_are_heard(
    tmp_path: Path, encrypted: bool
) -> None:
    files = certificate(tmp_path)
    site = Site(tmp_path, context(*files) if encrypted else None, seconds=1.0)
    try:
        with site.raw() as slow:
            gone = False
            for letter in f"POST /alerts HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nX: {'y' * 4000}":
                try:
                    slow.sendall(letter.encode())
                    slow.settimeout(0.1)
                    gone = slow.recv(1000) == b"" or gone
                except TimeoutError:
                    continue
                except OSError:
                    gone = True
                if gone:
                    break
            assert gone
        assert site.ledger.unfinished == []
    finally:
        site.close()


def test_so_many_at_once_and_no_more(site: Site) -> None:
    held = [site.raw() for _ in range(CONNECTIONS)]
    try:
        # Each of them has its place once it has been heard.
        for connection in held:
            connection.sendall(b"POST /alerts HTTP/1.1\r\n")
        with site.raw() as late:
            assert late.recv(1000) == b""
        held.pop().close()
        end = time.monotonic() + 30
        while True:
            try:
                assert site.post(message(alert()))[0] == 200
                break
            except (OSError, http.client.HTTPException):
                assert time.monotonic() < end
                time.sleep(0.05)
    finally:
        for connection in held:
            connection.close()


def test_without_room_alertmanager_is_asked_to_send_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_MOST_WAITING", 1)
    both = message(alert(), alert("cpu02", fingerprint="02"))
    status, answer = site.post(both)
    assert (status, answer["alerts"]) == (503, {"accepted": 1, "later": 1})
    monkeypatch.setattr(server_module, "_MOST_WAITING", 2)
    assert site.post(both)[1]["alerts"] == {"duplicate": 1, "accepted": 1}


def test_a_cluster_file_that_is_broken_is_a_fault_and_the_next_one_is_read(site: Site) -> None:
    file = site.home / "cluster.yml"
    file.write_text("nodes: [", encoding="utf-8")
    assert site.post(message(alert())) == (503, {"error": "the receiver has a fault; see its journal"})
    file.write_text(CLUSTER.replace("cpu[01-03]", "cpu[02-04]"), encoding="utf-8")
    assert site.post(message(alert()))[1]["alerts"] == {"refused": 1}
    assert site.post(message(alert("cpu04", fingerprint="02")))[1]["alerts"] == {"accepted": 1}


def test_a_disk_that_is_full_is_a_fault_and_nothing_is_promised(site: Site) -> None:
    with full(site.ledger):
        assert site.post(message(alert()))[0] == 503
    assert site.ledger.unfinished == []
    assert site.post(message(alert()))[1]["alerts"] == {"accepted": 1}


def test_over_tls_with_the_certificate_that_it_was_given(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    site = Site(tmp_path, context(*files))
    try:
        trusting = ssl.create_default_context(cafile=str(files[0]))
        connection = http.client.HTTPSConnection("localhost", site.port, timeout=30, context=trusting)
        connection.request("POST", "/alerts", message(alert()), {"Authorization": f"Bearer {TOKEN}"})
        assert connection.getresponse().status == 200
        connection.close()
        with site.raw() as plain:
            plain.sendall(b"GET /healthy HTTP/1.1\r\n\r\n")
            assert b"healthy" not in all_of(plain)
    finally:
        site.close()
