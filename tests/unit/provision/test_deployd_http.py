"""What is asked of the provisioner over its socket: the way of a machine, and everything that is refused."""

from __future__ import annotations

import http.client
import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from coldiron.errors import ColdironError
from coldiron.provision import deployd_http
from coldiron.provision.deployd_http import LONGEST_BODY, Server, Settings, parse_event, parse_serials
from coldiron.provision.deployd_script import Mirror, nearest
from coldiron.provision.deployd_state import State
from coldiron.provision.order import parse_identity, parse_order
from tests.unit.provision.deployd_samples import CANARY, MAC, identity, order

TLS = {"X-Coldiron-Transport": "tls", "X-Real-IP": "10.95.0.39"}
BOOT = f"/boot/{MAC.replace(':', '-')}.ipxe"
SETTINGS = Settings(
    server="https://10.95.0.1:8443",
    files="http://10.95.0.1",
    arguments=("console=ttyS0,115200",),
    mirrors=(Mirror(IPv4Network("10.95.8.0/24"), "http://10.95.8.9"),),
    refusal_seconds=0.0,
)


class Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, where: Path) -> None:
        super().__init__("deployd", timeout=60)
        self._where = where

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self._where))


class Client:
    """One machine, or somebody who says so. ``heard`` is everything that it was ever answered."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.heard = ""

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] = TLS, token: str = ""
    ) -> tuple[int, str]:
        connection = Connection(self.where)
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, data, {**headers, **bearer})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        self.heard += text
        return answer.status, text

    def raw(self, data: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self.where))
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            found = b""
            while chunk := connection.recv(65536):
                found += chunk
            return found


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "deploy")


@pytest.fixture
def client(tmp_path: Path, state: State, caplog: pytest.LogCaptureFixture) -> Iterator[Client]:
    caplog.set_level(logging.DEBUG)
    where = tmp_path / "http.sock"
    with Server(state, SETTINGS, where) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield Client(where)
        server.shutdown()
        thread.join()


def place(state: State) -> None:
    state.place(parse_order(order()), parse_identity(identity()))


def token_in(script: str) -> str:
    return script.split("coldiron.token=")[1].split()[0]


def redeem(client: Client, state: State) -> str:
    place(state)
    token = token_in(client.ask("GET", BOOT)[1])
    status, text = client.ask("POST", "/api/v1/nodes/gpu01/redeem", token=token)
    assert status == 200
    return str(json.loads(text)["session"])


def test_the_way_of_a_machine(client: Client, state: State, caplog: pytest.LogCaptureFixture) -> None:
    place(state)
    status, script = client.ask("GET", BOOT, headers={"X-Coldiron-Transport": "plain"})
    assert status == 200
    assert script.startswith("#!ipxe\n")
    line = next(line for line in script.splitlines() if line.startswith("kernel "))
    for word in (
        "http://10.95.0.1/deploy/vmlinuz", "initrd=initrd", "coldiron.node=gpu01", f"coldiron.mac={MAC}",
        "coldiron.server=https://10.95.0.1:8443", "console=ttyS0,115200", "console=ttyS1,115200",
    ):  # fmt: skip
        assert word in line.split()
    # The installed system's words are not the RAM environment's.
    assert "mitigations=off" not in line
    token = token_in(script)
    status, text = client.ask("POST", "/api/v1/nodes/gpu01/redeem", token=token)
    answer = json.loads(text)
    assert parse_order(answer["order"]) == parse_order(order())
    assert answer["images"] == ["https://10.95.0.1:8443/images"]
    session = answer["session"]
    status, text = client.ask("GET", "/api/v1/nodes/gpu01/identity", token=session)
    assert parse_identity(text) == parse_identity(identity())
    event = {"step": "stream", "seconds": 41.5, "text": "428 MB"}
    assert client.ask("POST", "/api/v1/nodes/gpu01/events", event, token=session) == (200, "{}\n")
    body = {"serials": ["S1"], "more": "of the node's own record"}
    assert client.ask("POST", "/api/v1/nodes/gpu01/done", body, token=session)[0] == 200
    assert client.ask("GET", BOOT)[1].startswith("#!ipxe\necho coldiron: this machine has no order")
    assert (state.record("gpu01") or {})["serials"] == ["S1"]
    for secret in (token, session, CANARY):
        assert secret not in caplog.text
    assert "10.95.0.39 /api/v1/nodes/gpu01/redeem: token of gpu01 redeemed" in caplog.text


def test_a_machine_of_another_rack_fetches_nearby(client: Client, state: State) -> None:
    place(state)
    far = {"X-Real-IP": "10.95.8.41", "X-Coldiron-Transport": "tls"}
    script = client.ask("GET", BOOT, headers=far)[1]
    # The cache is asked first; both files come from the provisioner where it lacks one of them.
    near, home = "http://10.95.8.9", "http://10.95.0.1"
    asked = [re.search(r"http://[0-9.]+", line) for line in script.splitlines() if "/deploy/" in line]
    assert [found[0] for found in asked if found] == [near, near, home, home]
    for number in range(2):
        assert script.count(f"|| goto failed{number}\n") == 3
        assert script.count(f"\n:failed{number}\nimgfree\n") == 1
    # Secrets still go to the provisioner itself.
    assert "coldiron.server=https://10.95.0.1:8443" in script
    text = client.ask("POST", "/api/v1/nodes/gpu01/redeem", token=token_in(script), headers=far)[1]
    assert json.loads(text)["images"] == ["http://10.95.8.9/images", "https://10.95.0.1:8443/images"]


def test_the_nearest_mirror_is_that_of_the_smallest_subnet() -> None:
    mirrors = [Mirror(IPv4Network("10.0.0.0/8"), "far"), Mirror(IPv4Network("10.1.0.0/24"), "near")]
    assert nearest(mirrors, "10.1.0.7", "own") == "near"
    assert nearest(mirrors, "10.2.0.7", "own") == "far"
    assert nearest(mirrors, "192.0.2.7", "own") == "own"
    assert nearest(mirrors, "garbage", "own") == "own"


def test_no_secret_goes_over_plain_http(client: Client, state: State) -> None:
    place(state)
    token = token_in(client.ask("GET", BOOT)[1])
    for headers in ({"X-Coldiron-Transport": "plain"}, {}):
        for method, call in (("POST", "redeem"), ("GET", "identity"), ("POST", "events"), ("POST", "done")):
            status, text = client.ask(method, f"/api/v1/nodes/gpu01/{call}", {}, headers=headers, token=token)
            assert (status, text) == (403, '{"error": "this is for TLS only"}\n')
    # The token was not used up by it.
    assert client.ask("POST", "/api/v1/nodes/gpu01/redeem", token=token)[0] == 200


def test_every_wrong_token_is_a_403_with_its_reason(client: Client, state: State) -> None:
    place(state)
    old = token_in(client.ask("GET", BOOT)[1])
    token = token_in(client.ask("GET", BOOT)[1])
    path = "/api/v1/nodes/gpu01/redeem"
    for shown, node, why in (
        ("x" * 43, "gpu01", "is not one that was issued"),
        ("x" * 5000, "gpu01", "is not one that was issued"),
        (old, "gpu01", "was replaced before"),
        (token, "gpu02", "was issued for another node"),
    ):
        status, text = client.ask("POST", path.replace("gpu01", node), token=shown)
        assert status == 403
        assert why in json.loads(text)["error"]
        assert shown not in text
    assert client.ask("POST", path)[0] == 403
    assert client.ask("POST", path, headers={**TLS, "Authorization": f"Basic {token}"})[0] == 403
    assert client.ask("POST", path, token=token)[0] == 200
    status, text = client.ask("POST", path, token=token)
    assert status == 403
    assert "was used before" in text


def test_a_session_is_of_one_node(client: Client, state: State) -> None:
    session = redeem(client, state)
    state.place(parse_order(order("gpu02", "02:95:00:00:00:0a")), parse_identity(identity("gpu02")))
    before = client.heard
    for method, call in (("GET", "identity"), ("POST", "events"), ("POST", "done")):
        body = {"step": "up", "seconds": 1} if call == "events" else {"serials": []}
        assert client.ask(method, f"/api/v1/nodes/gpu02/{call}", body, token=session)[0] == 403
    assert CANARY not in client.heard[len(before) :]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/boot/../api/v1/nodes/gpu01/identity", 404),
        ("GET", "/boot/%2e%2e%2forders%2fgpu01.json", 404),
        ("GET", "/boot/02-95-00-00-00-zz.ipxe", 404),
        ("POST", BOOT, 405),
        ("GET", "/api/v1/nodes/gpu01/redeem", 405),
        ("POST", "/api/v1/nodes/gpu01/identity", 405),
        ("POST", "/api/v1/nodes/gpu01/forget", 404),
        ("POST", "/api/v1/nodes/../../etc/redeem", 404),
        ("POST", "/api/v1/nodes/-gpu01/redeem", 400),
        ("POST", "/api/v1/nodes/7/redeem", 400),
        ("POST", "/api/v2/nodes/gpu01/redeem", 404),
    ],
)
def test_what_is_not_there(client: Client, method: str, path: str, status: int) -> None:
    found, text = client.ask(method, path, {}, token="x" * 43)
    assert found == status
    assert "error" in json.loads(text)


@pytest.mark.parametrize(
    ("call", "body", "status"),
    [
        ("events", b"not json", 400),
        ("events", b"[" * 60_000, 400),
        ("events", b"[]", 400),
        ("events", {"step": "lunch"}, 400),
        ("events", {"step": "up", "seconds": -1}, 400),
        ("events", {"step": "up", "seconds": "1"}, 400),
        ("events", {"step": "up", "seconds": True}, 400),
        ("events", {"step": "up", "text": 7}, 400),
        ("events", {"step": "up", "secret": CANARY}, 400),
        ("events", b"x" * (LONGEST_BODY + 1), 413),
        ("done", {}, 400),
        ("done", {"serials": [7]}, 400),
        ("done", {"serials": ["a\nb"]}, 400),
        ("done", {"serials": ["x"] * 300}, 400),
    ],
)
def test_garbage_is_a_400(
    client: Client, state: State, caplog: pytest.LogCaptureFixture, call: str, body: Any, status: int
) -> None:
    session = redeem(client, state)
    found, text = client.ask("POST", f"/api/v1/nodes/gpu01/{call}", body, token=session)
    assert found == status
    assert "Traceback" not in text + caplog.text
    assert CANARY not in text + caplog.text
    # The deployment goes on.
    assert client.ask("POST", "/api/v1/nodes/gpu01/done", {"serials": []}, token=session)[0] == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\0\1\2\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"BREW /boot HTTP/1.0\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.0\r\n\r\n",
        b"POST /api/v1/nodes/gpu01/events HTTP/1.0\r\nX-Coldiron-Transport: tls\r\nAuthorization: Bearer x\r\n\r\n",
        b"POST /api/v1/nodes/gpu01/done HTTP/1.0\r\nX-Coldiron-Transport: tls\r\nContent-Length: -5\r\n\r\n",
        b"GET / HTTP/1.0\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    ],
)
def test_what_is_no_request_gets_one_line(
    client: Client, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.raw(data)
    # What has no version that it knows is answered without a status line.
    assert answer.endswith(b"}\n")
    assert b" 200 " not in answer.splitlines()[0]
    assert b"Traceback" not in answer
    assert "Traceback" not in caplog.text
    assert client.ask("GET", BOOT)[0] == 200


def test_a_body_that_never_comes_costs_the_server_nothing(client: Client) -> None:
    head = (
        "POST /api/v1/nodes/gpu01/events HTTP/1.0\r\nX-Coldiron-Transport: tls\r\nContent-Length: 50\r\n\r\n{"
    )
    assert client.raw(head.encode()) == b""
    assert client.ask("GET", BOOT)[0] == 200


def test_a_fault_inside_is_told_to_the_journal_alone(
    client: Client, state: State, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(state)
    (state.directory / "orders" / "gpu01.json").write_text("damaged")
    status, text = client.ask("GET", BOOT)
    assert (status, str(state.directory) in text) == (503, False)
    assert "is damaged; remove it" in caplog.text

    def broken(*_: object) -> None:
        raise KeyError(CANARY)

    monkeypatch.setattr(deployd_http.State, "boot", broken)
    status, text = client.ask("GET", BOOT)
    assert (status, json.loads(text)["error"]) == (500, "the provisioner has a fault; see its journal")
    assert "KeyError at test_deployd_http.py" in caplog.text
    assert CANARY not in caplog.text + text


def test_a_wrong_token_waits_for_its_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(deployd_http.time, "sleep", slept.append)
    client.ask("POST", "/api/v1/nodes/gpu01/redeem", token="x" * 43)
    assert slept == [SETTINGS.refusal_seconds]


def test_a_node_s_words_are_one_line(state: State) -> None:
    event = parse_event({"step": "disks", "failed": "no\r\ndisk \x1b[31m" + "x" * 5000}, 7.0)
    assert event.failed.startswith("no  disk  [31mxxx")
    assert len(event.failed) == 1000
    assert (event.at, event.seconds, event.text) == (7.0, None, "")
    assert parse_serials({"serials": []}) == []


def test_without_a_socket_it_says_so(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LISTEN_FDS", raising=False)
    with pytest.raises(ColdironError, match="systemd has passed no socket; name one with --socket FILE"):
        Server(state, SETTINGS, None)
