"""The pytest plugin, run as a person runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from coldiron.testing.fixtures import wait_until
from tests.unit.testing.toy import Toy, write


def run(toy: Toy, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin on the toy, apart from the checkout's configuration."""
    bootstrap = f"import sys; sys.path.insert(0, {str(toy.root)!r}); import pytest; sys.exit(pytest.main())"
    return subprocess.run(
        [
            *(sys.executable, "-c", bootstrap, "-p", "coldiron.testing.plugin", "-p", "no:cacheprovider"),
            *("--rootdir", str(toy.collection), "--inventory", str(toy.inventory), "-q", *words),
        ],
        cwd=toy.collection,
        # Other packages' plugins take seconds to load and say nothing here.
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_every_host_of_the_role_is_tested(toy: Toy) -> None:
    finished = run(toy, "-vv", str(toy.role / "tests"))
    assert finished.returncode == 0, finished.stdout
    assert "test_toy.py::test_color[node01]" in finished.stdout
    assert "8 passed" in finished.stdout


def test_limit_role_and_no_paths(toy: Toy) -> None:
    write(toy.collection / "roles" / "part" / "tests" / "test_part.py", "def test_part(host):\n    pass\n")
    assert "9 passed" in run(toy).stdout
    assert "4 passed" in run(toy, "--role", "toy", "--limit", "node02").stdout
    assert "1 passed" in run(toy, "--role", "part").stdout
    folder = str(toy.collection / "roles")
    assert "1 passed, 8 deselected" in run(toy, "--role", "part", folder).stdout
    nobody = run(toy, "--limit", "node02").stdout
    assert "4 passed" in nobody
    assert "skipped" not in nobody
    missing = run(toy, "--role", "nothing")
    assert missing.returncode == pytest.ExitCode.USAGE_ERROR
    assert "role nothing has no tests" in missing.stderr


def test_in_parallel_and_with_junit(toy: Toy) -> None:
    report = toy.root / "report.xml"
    finished = run(toy, "-p", "xdist", "-n", "2", f"--junitxml={report}")
    assert finished.returncode == 0, finished.stdout
    suite = ET.parse(report).getroot().find("testsuite")
    assert suite is not None
    assert suite.get("tests") == "8"


def test_secrets_are_not_in_any_report(toy: Toy) -> None:
    write(
        toy.role / "tests" / "test_toy.py",
        """\
def test_compares(host, opts):
    assert opts["toy_password"] == "x", opts["toy_password"]

def test_finds(host, opts):
    secret = opts["toy_password"]
    print(secret)
    assert "y" in host.run("cat password").stdout
""",
    )
    report = toy.root / "report.xml"
    finished = run(toy, "-vv", "-l", f"--junitxml={report}")
    assert "4 failed" in finished.stdout
    assert "<secret>" in finished.stdout
    assert "correct-horse" not in finished.stdout
    assert "correct-horse" not in report.read_text()


def test_a_broken_inventory_is_one_line(toy: Toy) -> None:
    (toy.inventory / "hosts.yml").write_text("all: {hosts: {a: }}\n")
    finished = run(toy)
    assert finished.returncode == pytest.ExitCode.USAGE_ERROR
    assert "has no host in group cluster" in finished.stdout + finished.stderr
    assert "Traceback" not in finished.stdout + finished.stderr


def test_options_outside_a_role_are_refused(toy: Toy) -> None:
    path = write(toy.root / "test_free.py", "def test_free(opts):\n    pass\n")
    finished = run(toy, str(path), "--limit", "node01")
    assert "is not in a role's tests folder" in finished.stdout


def test_somebody_has_a_login_shell_and_what_fails_there_fails_the_test(toy: Toy) -> None:
    write(
        toy.root / "bin" / "runuser",
        '#!/bin/sh\ntest "$1 $3" = "-l -c" || exit 9\nPERSON=$2 exec sh -c "$4"\n',
        executable=True,
    )
    write(
        toy.role / "tests" / "test_toy.py",
        """\
def test_asks(as_user, hostname):
    alice = as_user("alice")
    assert alice.name == "alice"
    assert alice.output("echo \\"$PERSON's $(cat color)\\" 100%") == "alice's blue 100%\\n"
    assert (alice.run("exit 3").rc, as_user("bob").output("echo $PERSON")) == (3, "bob\\n")

def test_fails(as_user):
    as_user("alice").output("echo no such color >&2; exit 3")
""",
    )
    finished = run(toy, "--limit", "node01")
    assert "1 failed, 1 passed" in finished.stdout, finished.stdout
    assert "alice on node01: echo no such color >&2; exit 3: rc 3: no such color" in finished.stdout


def test_waiting_is_bounded() -> None:
    seen: list[int] = []

    def third() -> bool:
        seen.append(1)
        assert len(seen) > 1, "too early"
        return len(seen) > 2

    assert wait_until(third, seconds=5, every=0.01)
    with pytest.raises(AssertionError, match=r"did not hold within 0\.05 s"):
        wait_until(lambda: False, seconds=0.05, every=0.01)
    with pytest.raises(AssertionError, match="never"):
        wait_until(_never, seconds=0.05, every=0.01)


def _never() -> bool:
    raise AssertionError("never")
