"""coldiron-deployd as it lies on a head: a directory of Python text, run by the system's Python and nothing else."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coldiron.errors import ColdironError
from coldiron.provision import deployd
from coldiron.provision.deployd_files import files
from tests.unit.provision.deployd_samples import CANARY, MAC, identity, order
from tests.unit.provision.test_deployd_http import BOOT, Client, token_in

Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "deploy").mkdir(mode=0o700)
    file = tmp_path / "deployd.json"
    file.write_text(
        json.dumps(
            {
                "directory": str(tmp_path / "deploy"),
                "token_seconds": 600,
                "session_seconds": 3600,
                "server": "https://10.95.0.1:8443",
                "files": "http://10.95.0.1",
                "kernel_arguments": ["console=ttyS0"],
                "mirrors": [{"subnet": "10.95.8.0/24", "url": "http://10.95.8.9/"}],
            }
        )
    )
    return file


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """How the program is called, from its text alone: no site-packages, no environment, no current directory."""
    for path, text in files().items():
        file = tmp_path / "program" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return [sys.executable, "-ISB", str(tmp_path / "program")]


@pytest.fixture
def program(words: list[str], config: Path) -> Program:
    def run(*arguments: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
        text = json.dumps(stdin) if not isinstance(stdin, str) else stdin
        return subprocess.run(
            [*words, "--config", str(config), *arguments],
            input=text if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def serve(words: list[str], config: Path, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    where = tmp_path / "http.sock"

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "journal").open("ab") as journal:
            process = subprocess.Popen(
                # Who runs the tests in the background has them ignore SIGINT, and all that they start.
                [
                    "env",
                    "--default-signal=INT",
                    *words,
                    "--config",
                    str(config),
                    "serve",
                    "--socket",
                    str(where),
                ],
                stderr=journal,
            )
        started.append(process)
        for _ in range(400):
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(str(where))
                    return process
                except OSError:
                    time.sleep(0.025)
        raise AssertionError("it does not answer")

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_deployment_over_a_kill_at_every_step(
    program: Program, serve: Callable[[], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    client = Client(tmp_path / "http.sock")
    process = serve()

    def killed() -> None:
        nonlocal process
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = serve()

    done = program("order", "--stdin", stdin={"order": order(), "identity": identity()})
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"node": "gpu01", "image": "ab" * 32}
    token = token_in(client.ask("GET", BOOT)[1])
    killed()
    session = json.loads(client.ask("POST", "/api/v1/nodes/gpu01/redeem", token=token)[1])["session"]
    killed()
    assert client.ask("POST", "/api/v1/nodes/gpu01/redeem", token=token)[0] == 403
    assert client.ask("GET", "/api/v1/nodes/gpu01/identity", token=session)[0] == 200
    killed()
    event = {"step": "partition", "seconds": 48.6, "text": "S1"}
    assert client.ask("POST", "/api/v1/nodes/gpu01/events", event, token=session)[0] == 200
    assert json.loads(program("status", "--json").stdout)[0]["step"] == "partition"
    assert json.loads(program("wait", "gpu01", "--seen", "2").stdout)["step"] == "partition"
    killed()
    assert client.ask("POST", "/api/v1/nodes/gpu01/done", {"serials": ["S1"]}, token=session)[0] == 200
    killed()
    record = json.loads(program("record", "gpu01").stdout)["record"]
    assert (record["serials"], record["class"]) == (["S1"], "gpu-debian-13")
    assert json.loads(program("record").stdout)["records"] == [record]
    journal = (tmp_path / "journal").read_text()
    for secret in (token, session, CANARY):
        assert secret not in journal
    assert "Traceback" not in journal
    assert program("status").stdout.startswith("gpu01        done       done, ")


def test_a_kill_in_the_middle_of_many_requests_leaves_every_file_whole(
    program: Program, serve: Callable[[], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    client = Client(tmp_path / "http.sock")
    process = serve()
    program("order", "--stdin", stdin={"order": order(), "identity": identity()})
    for round_ in range(3):
        askers = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "import socket,sys\nwhile True:\n s=socket.socket(socket.AF_UNIX)\n s.connect(sys.argv[1])\n"
                    f" s.sendall(b'GET {BOOT} HTTP/1.0\\r\\n\\r\\n')\n s.recv(9999)\n",
                    str(tmp_path / "http.sock"),
                ],
                stderr=subprocess.DEVNULL,
            )
            for _ in range(2)
        ]
        time.sleep(0.3 + 0.05 * round_)
        process.kill()
        process.wait()
        for asker in askers:
            asker.wait(30)
        process = serve()
        token = token_in(client.ask("GET", BOOT)[1])
    assert client.ask("POST", "/api/v1/nodes/gpu01/redeem", token=token)[0] == 200
    assert {path.suffix for path in (tmp_path / "deploy" / "orders").iterdir() if path.name[0] != "."} == {
        ".json"
    }


def test_ending_it_is_no_failure(serve: Callable[[], subprocess.Popen[bytes]]) -> None:
    process = serve()
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 4


def test_orders_are_cancelled_and_records_forgotten(program: Program) -> None:
    assert "no node has an order" in program("status").stdout
    program("order", "--stdin", stdin={"order": order(), "identity": identity()})
    assert program("status").stdout.startswith("gpu01        open       ordered, ")
    assert program("status", "gpu02").stdout == "no node has an order, and none was deployed from here\n"
    assert json.loads(program("cancel", "gpu01").stdout) == {"node": "gpu01", "changed": True}
    assert json.loads(program("cancel", "gpu01").stdout) == {"node": "gpu01", "changed": False}
    assert json.loads(program("forget", "gpu01").stdout) == {"node": "gpu01", "changed": False}
    assert json.loads(program("record", "gpu01").stdout) == {"record": None}


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        ("", "standard input is not JSON"),
        ({"order": {}}, 'standard input wants {"order": …, "identity": …}'),
        ({"order": order(boot="usb"), "identity": identity()}, "the order's boot is not one of disk, kexec"),
        ({"order": order(), "identity": identity(host_keys={})}, "the identity has no host key"),
        ("x" * 3_000_000, "order and identity are too long"),
    ],
)
def test_a_wrong_order_is_one_line(program: Program, stdin: Any, says: str) -> None:
    done = program("order", "--stdin", stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert CANARY not in done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "is not JSON; run role netboot again"),
        ("{}", "is wrong: directory; run role netboot again"),
        ('{"directory": "/nowhere", "token_seconds": "x"}', "is wrong: "),
    ],
)
def test_a_wrong_configuration_is_one_line(
    program: Program, config: Path, text: str | None, says: str
) -> None:
    config.unlink()
    if text is not None:
        config.write_text(text)
    done = program("status")
    assert done.returncode == 5
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_state_that_is_not_there(program: Program, config: Path, tmp_path: Path) -> None:
    (tmp_path / "deploy").rmdir()
    done = program("status")
    assert done.returncode == 5
    assert "cannot be used: No such file or directory" in done.stderr


def test_root_works_as_the_state_s_owner(program: Program, tmp_path: Path) -> None:
    owner = 65534 if os.geteuid() == 0 else os.geteuid()
    if owner != os.geteuid():
        os.chown(tmp_path / "deploy", owner, owner)
        for path in (tmp_path, *tmp_path.parents):
            if path.stat().st_mode & 0o011 != 0o011:
                path.chmod(path.stat().st_mode | 0o011)
    done = program("order", "--stdin", stdin={"order": order(), "identity": identity()})
    assert done.returncode == 0, done.stderr
    assert {path.stat().st_uid for path in (tmp_path / "deploy").rglob("*")} == {owner}


def test_nobody_else_works_there(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployd.os, "geteuid", lambda: 12345)
    assert deployd.main(["--config", str(config), "status"]) == 5
    assert capsys.readouterr().err.endswith("/deploy is another user's; type: sudo coldiron-deployd …\n")


def test_in_the_process(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same verbs without a process of their own."""
    assert deployd.main(["--config", str(config), "status"]) == 0
    assert deployd.main(["--config", str(config), "cancel", "GPU01"]) == 2
    assert "has capitals" in capsys.readouterr().err
    texts = json.dumps({"order": order(), "identity": identity()}).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(texts)))
    for words in (
        ["order", "--stdin"], ["status"], ["status", "--json"], ["wait", "gpu01"], ["record"], ["record", "gpu01"],
    ):  # fmt: skip
        assert deployd.main(["--config", str(config), *words]) == 0
    assert deployd.main(["--config", str(config), "cancel", "gpu01"]) == 0
    assert deployd.main(["--config", str(config), "forget", "gpu01"]) == 0
    assert CANARY not in capsys.readouterr().out
    for text in (b"7", b"{", b"x" * 3_000_000):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert deployd.main(["--config", str(config), "order", "--stdin"]) == 2
    config.with_name("bad.json").write_text("{")
    assert deployd.main(["--config", str(config.with_name("bad.json")), "status"]) == 5
    config.with_name("bad.json").write_text("{}")
    assert deployd.main(["--config", str(config.with_name("bad.json")), "status"]) == 5
    found = deployd.read_config(config)
    assert found.settings.mirrors[0].url == "http://10.95.8.9"
    with pytest.raises(ColdironError):
        deployd.read_config(config.with_name("none"))


def test_ages_are_told_in_the_largest_unit_that_says_something() -> None:
    assert [deployd._ago(age) for age in (0, 119, 121, 7300, 200_000)] == [
        "0 s",
        "119 s",
        "2 min",
        "2 h",
        "2 d",
    ]


def test_a_failed_node_is_told_with_its_reason() -> None:
    line = {
        "node": "gpu01",
        "state": "failed",
        "step": "disks",
        "age_seconds": 5,
        "failed": "no disk",
        "text": "",
    }
    assert deployd._told(line) == "gpu01        failed     disks, 5 s ago  failed: no disk"


def test_it_is_the_same_text_each_time() -> None:
    assert files() == files()
    assert MAC not in "".join(files().values())
