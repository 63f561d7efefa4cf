"""What Prometheus' and Alertmanager's clients make of good, bad and hostile answers, over real connections."""

from __future__ import annotations

import base64
import json
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from coldiron.errors import ColdironError
from coldiron.status.client import Alertmanager, Client, Prometheus, Source

VECTOR = {
    "status": "success",
    "data": {
        "resultType": "vector",
        "result": [
            {"metric": {"instance": "gpu01"}, "value": [1.5, "1"]},
            {"metric": {"instance": "gpu02"}, "value": [1.5, "NaN"]},
            {"metric": {"instance": "gpu03"}, "value": [1.5, "+Inf"]},
        ],
    },
}


@dataclass
class Fake:
    """A server that says what it is told to, and remembers what it was asked."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    posted: str = ""
    asked: list[tuple[str, str, dict[str, list[str]], str]] = field(default_factory=list)
    address: str = ""
    released: threading.Event = field(default_factory=threading.Event)

    def says(self, what: Any) -> None:
        self.body = json.dumps(what).encode()


@pytest.fixture
def fake() -> Iterator[Fake]:
    told = Fake()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            form = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            told.posted = form
            authorization = self.headers.get("Authorization", "")
            told.asked.append((self.command, self.path, urllib.parse.parse_qs(form), authorization))
            if told.hang:
                told.released.wait(20)
                return
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(told.body)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield told
        told.released.set()
        server.shutdown()
        thread.join(10)


def test_a_query_goes_as_a_form_with_the_password_and_comes_back_without_what_is_no_number(
    fake: Fake,
) -> None:
    fake.says(VECTOR)
    server = Prometheus(Source(fake.address + "/", user="reader", password="s:cret"))
    (sample,) = server.query('up{job="node"}')
    assert (sample.labels, sample.value) == ({"instance": "gpu01"}, 1.0)
    method, path, form, authorization = fake.asked[0]
    assert (method, path, form) == ("POST", "/api/v1/query", {"query": ['up{job="node"}']})
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"reader:s:cret"


def test_a_body_goes_as_json(fake: Fake) -> None:
    fake.says({"hits": 3})
    server = Client(Source(fake.address, user="reader", password="s:cret"), "Elasticsearch")
    assert server.post("/logs/_search", {"query": "ü"}) == {"hits": 3}
    method, path, _, authorization = fake.asked[0]
    assert (method, path, json.loads(fake.posted)) == ("POST", "/logs/_search", {"query": "ü"})
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"reader:s:cret"


def test_a_refusal_s_reason_is_told_whole_and_within_bounds(fake: Fake) -> None:
    fake.status = 400
    server = Client(Source(fake.address), "Elasticsearch")
    fake.says({"error": {"type": "parsing_exception", "reason": "no [bool] " * 30 + "here"}})
    with pytest.raises(ColdironError, match=r"answers 400: .*parsing_exception.*no \[bool\] here"):
        server.post("/logs/_search", {})
    fake.says({"error": "x" * 60000})
    with pytest.raises(ColdironError) as raised:
        server.post("/logs/_search", {})
    assert len(str(raised.value)) < 3000


def test_a_password_is_not_in_what_a_failed_test_would_show() -> None:
    assert "s:cret" not in repr(Source("https://head01:9090", user="reader", password="s:cret"))


def test_a_scalar_is_one_sample(fake: Fake) -> None:
    fake.says({"data": {"resultType": "scalar", "result": [1.5, "42"]}})
    (sample,) = Prometheus(Source(fake.address)).query("42")
    assert (sample.labels, sample.value) == ({}, 42.0)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"Unauthorized", "refuses user reader: 401"),
        (403, b"", "refuses user reader: 403"),
        (400, b'{"status":"error","error":"parse error at char 3"}', "answers 400: parse error at char 3"),
        (503, b"<html>", "answers 503: Service Unavailable"),
        (302, b"", "answers 302"),
        (200, b"<html>no</html>", "with no JSON"),
        (200, b"\xff\xfe", "with no JSON"),
        (200, b"[]", "no answer to a query"),
        (200, b'{"data": {"resultType": "vector", "result": [{"metric": {}, "value": [1]}]}}', "no answer to a query"),
        (200, b'{"data": null}', "no answer to a query"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_one_line_without_the_password(
    fake: Fake, status: int, body: bytes, words: str
) -> None:
    fake.status, fake.body = status, body
    fake.headers = {"Location": "http://127.0.0.1:9/"} if status == 302 else {}
    with pytest.raises(ColdironError) as raised:
        Prometheus(Source(fake.address, user="reader", password="hunter2")).query("up")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert len(fake.asked) == 1


def test_a_server_that_hangs_or_is_away_is_said(fake: Fake) -> None:
    fake.hang = True
    with pytest.raises(ColdironError, match=r"does not answer: timed out"):
        Prometheus(Source(fake.address), timeout_seconds=0.3).query("up")
    with pytest.raises(ColdironError, match=r"at http://127\.0\.0\.1:1 does not answer: .*refused"):
        Prometheus(Source("http://127.0.0.1:1")).query("up")
    with pytest.raises(ColdironError, match="does not answer"):
        Prometheus(Source("nonsense")).query("up")


def test_an_authority_that_is_no_certificate_is_said() -> None:
    with pytest.raises(ColdironError, match="certificate authority is no PEM"):
        Prometheus(Source("https://127.0.0.1:1", ca="-----BEGIN nonsense"))


def test_what_is_silenced_is_told_by_its_labels(fake: Fake) -> None:
    fake.says(
        [
            {"labels": {"alertname": "A", "instance": "gpu01"}, "status": {"state": "suppressed"}},
            {"labels": {"alertname": "B"}, "status": {"state": "active"}},
        ]
    )
    assert Alertmanager(Source(fake.address)).quiet() == [{"alertname": "A", "instance": "gpu01"}]
    fake.says({"labels": {}})
    with pytest.raises(ColdironError, match="no alerts"):
        Alertmanager(Source(fake.address)).quiet()


def test_alerts_are_read(fake: Fake) -> None:
    fake.says({"data": {"alerts": [{"labels": {"alertname": "A"}, "state": "firing"}]}})
    assert Prometheus(Source(fake.address)).alerts()[0]["labels"] == {"alertname": "A"}
    fake.says({"data": {}})
    with pytest.raises(ColdironError, match="no alerts"):
        Prometheus(Source(fake.address)).alerts()
