"""``coldiron webhook serve`` as a process: what it refuses to begin with, and how it answers and ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.webhook.cli import context, parse_listen, read_token
from tests.unit.repair.samples import CLUSTER
from tests.unit.webhook.pki import certificate
from tests.unit.webhook.samples import alert, message

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yml").write_text(CLUSTER, encoding="utf-8")
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n", encoding="utf-8")
    file.chmod(0o600)
    return tmp_path


def words(home: Path, *more: str) -> list[str]:
    given = ["--token-file", str(home / "token"), "-i", str(home), "--listen", "127.0.0.1:0", *more]
    return [sys.executable, "-m", "coldiron", "webhook", "serve", *given]


@contextmanager
def serving(home: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The receiver as a process, and its port."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words(home, *more), stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"answering alerts on https?://127\.0\.0\.1:(\d+)/alerts", line)
            assert found, line + process.stderr.read()
            yield process, int(found[1])
        finally:
            process.kill()


def test_it_answers_and_ends_when_it_is_told_to(home: Path) -> None:
    with serving(home) as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        body = message(alert(status="resolved"))
        connection.request("POST", "/alerts", body, {"Authorization": f"Bearer {TOKEN}"})
        assert json.loads(connection.getresponse().read()) == {"alerts": {"resolved": 1}, "lines": []}
        connection.close()
        again = subprocess.run(words(home), capture_output=True, text=True, check=False)
        assert again.returncode == ExitCode.REFUSED
        assert "a receiver of this inventory is on already" in again.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    events = [json.loads(line) for line in (home / ".coldiron" / "webhook.jsonl").read_text().splitlines()]
    assert [event["kind"] for event in events] == ["webhook_start", "webhook_heard"]
    assert events[0]["data"]["policy"]["nodes_a_day"] == 4
    assert TOKEN not in json.dumps(events)


def refused(home: Path, *more: str) -> tuple[int, str]:
    done = subprocess.run(words(home, *more), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr.removeprefix("coldiron: ").strip()


def test_a_token_in_the_clear_on_a_network_is_refused(home: Path) -> None:
    code, said = refused(home, "--listen", "0.0.0.0:9095")
    assert code == ExitCode.REFUSED
    assert said.startswith("--listen 0.0.0.0:9095: the token would cross the network in the clear")


def test_a_certificate_is_given_or_the_sites(home: Path) -> None:
    code, said = refused(home, "--tls-site", "--tls-certificate", "one.pem")
    assert code != 0
    assert said == "--tls-site has a certificate of its own: leave --tls-certificate and --tls-key out"


def test_a_site_without_an_authority_is_told(home: Path) -> None:
    code, said = refused(home, "--tls-site")
    assert code != 0
    assert "coldiron secrets init" in said
    assert "\n" not in said


def test_an_address_that_is_not_here_is_told(home: Path) -> None:
    files = certificate(home)
    tls = ("--tls-certificate", str(files[0]), "--tls-key", str(files[1]))
    code, said = refused(home, "--listen", "192.0.2.1:9095", *tls)
    assert (code, said) == (ExitCode.ENVIRONMENT, "--listen 192.0.2.1:9095: Cannot assign requested address")


@pytest.mark.parametrize(
    "text", ["9095", "localhost:9095", "127.0.0.1:http", "127.0.0.1:99999", "127.0.0.1:", "::1"]
)
def test_where_to_listen_is_an_address_and_a_port(text: str) -> None:
    with pytest.raises(ColdironError, match="write ADDRESS:PORT, as 127"):
        parse_listen(text)


def test_an_address_may_be_of_either_kind() -> None:
    assert (str(parse_listen("[::1]:9095")[0]), parse_listen("127.0.0.1:0")[1]) == ("::1", 0)


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("short", 0o600, "has no token of 32 or more letters; type: .umask 077; openssl rand -hex 32"),
        ("", 0o600, "has no token"),
        (f"{TOKEN}\n{TOKEN}", 0o600, "has no token"),
        (f"{TOKEN}\xe4", 0o600, "has no token"),
        (TOKEN, 0o640, "can be read by others; type: chmod 600"),
    ],
)
def test_a_token_that_is_none_or_everybodys_is_refused(home: Path, text: str, mode: int, why: str) -> None:
    file = home / "token"
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    with pytest.raises(ColdironError, match=why):
        read_token(file)


def test_a_token_file_that_is_not_there_is_told(home: Path) -> None:
    with pytest.raises(ColdironError, match="none cannot be read: No such file") as told:
        read_token(home / "none")
    assert told.value.exit_code is ExitCode.ENVIRONMENT


def test_tls_needs_both_files_and_they_must_be_what_they_say(home: Path) -> None:
    files = certificate(home)
    assert context(None, None) is None
    with pytest.raises(ColdironError, match="go together"):
        context(files[0], None)
    with pytest.raises(ColdironError, match="No such file"):
        context(home / "none", files[1])
    with pytest.raises(ColdironError, match="not a certificate in PEM"):
        context(home / "cluster.yml", files[1])
