"""How the roles' tests ask a web server, and what an exporter serves as they read it."""

from __future__ import annotations

import http.server
import shlex
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldiron.provision.pki import issue, make_ca_certificate, make_ca_key
from coldiron.testing.asking import answered, samples

HERE = "127.0.0.1"


class Host:
    """This machine as testinfra has a host."""

    def check_output(self, line: str, *words: str) -> str:
        text = line % tuple(shlex.quote(word) for word in words)
        return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True).stdout


class Page(http.server.BaseHTTPRequestHandler):
    """Says the same to everybody."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"heard")

    def log_message(self, *words: object) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, tuple[str, str]]:
    """An authority, and the files of a certificate of it with its key."""
    key = make_ca_key()
    certificate = make_ca_certificate(key)
    folder = tmp_path_factory.mktemp("pair")
    files = (str(folder / "certificate.pem"), str(folder / "key.pem"))
    for file, text in zip(files, issue(key, certificate, [HERE]), strict=True):
        Path(file).write_text(text)
    return certificate, files


@pytest.fixture(scope="module")
def url(authority: tuple[str, tuple[str, str]]) -> Iterator[str]:
    """A server that hears who has a certificate of the authority."""
    certificate, files = authority
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=certificate)
    context.load_cert_chain(*files)
    context.verify_mode = ssl.CERT_REQUIRED
    # With 1.3 a client is refused only after its handshake, and may be reset before it reads why.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with http.server.ThreadingHTTPServer((HERE, 0), Page) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://{HERE}:{server.server_port}/"
        server.shutdown()


def test_who_shows_a_certificate_is_answered(authority: tuple[str, tuple[str, str]], url: str) -> None:
    certificate, files = authority
    assert answered(Host(), url, authority=certificate, client=files) == (200, "heard")
    status, why = answered(Host(), url, authority=certificate)
    assert status == 0
    assert "HANDSHAKE_FAILURE" in why


def test_the_server_s_certificate_is_looked_at_unless_nobody_wants_that(
    authority: tuple[str, tuple[str, str]], url: str
) -> None:
    _, files = authority
    status, why = answered(Host(), url, client=files)
    assert status == 0
    assert "CERTIFICATE_VERIFY_FAILED" in why
    another = make_ca_certificate(make_ca_key())
    assert answered(Host(), url, authority=another, client=files)[0] == 0
    assert answered(Host(), url, authority=None, client=files) == (200, "heard")


def test_samples_are_read_with_their_labels() -> None:
    text = '# TYPE up gauge\nup 1\nrate{a="b",c="say \\"so\\", {x}"} 2.5e-3\nnan_one NaN\n'
    found = samples(text)
    assert found["up"] == [({}, 1.0)]
    assert found["rate"] == [({"a": "b", "c": 'say \\"so\\", {x}'}, 0.0025)]
    assert list(found) == ["up", "rate", "nan_one"]
