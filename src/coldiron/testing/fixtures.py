"""Fixtures for the tests of roles; coldiron.testing.plugin registers them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from coldiron.testing import asking
from coldiron.testing.exporter import Exporter
from coldiron.testing.plugin import role_of, site_of
from coldiron.testing.site import Site

T = TypeVar("T")


@dataclass(frozen=True)
class Person:
    """Somebody who has an account on a host, and what they run there: in a login shell, as an ssh session or a job."""

    host: Any
    name: str

    def run(self, command: str) -> Any:
        """Run a shell command as this person and return testinfra's result of it, whatever its status."""
        return self.host.run("runuser -l %s -c %s", self.name, command)

    def output(self, command: str) -> str:
        """Run a shell command as this person and return what it printed; a failure fails the test."""
        done = self.run(command)
        assert done.rc == 0, (
            f"{self.name} on {self.host.backend.host.name}: {command}: rc {done.rc}: {done.stderr}"
        )
        return str(done.stdout)


@pytest.fixture(scope="session")
def site(pytestconfig: pytest.Config) -> Site:
    """The inventory under test: hosts, roles, variables, connections."""
    return site_of(pytestconfig)


@pytest.fixture(scope="module")
def hostname(request: pytest.FixtureRequest) -> str:
    """The name of the host under test; tests that use it run once for each host of their role."""
    return str(request.param)


@pytest.fixture(scope="module")
def host(site: Site, hostname: str) -> Any:
    """The host under test, as a testinfra host over ssh."""
    return site.connections.testinfra(hostname)


@pytest.fixture(scope="module")
def hostvars(site: Site, hostname: str) -> Mapping[str, Any]:
    """The variables of the host under test, from the inventory and the playbooks' group_vars."""
    return site.hostvars(hostname)


@pytest.fixture(scope="module")
def role(request: pytest.FixtureRequest) -> str:
    """The role that the test file belongs to."""
    name = role_of(Path(str(request.path)))
    if name is None:
        raise pytest.UsageError(
            f"{request.path} is not in a role's tests folder: `opts` has no role to speak of"
        )
    return name


@pytest.fixture(scope="module")
def opts(site: Site, hostname: str, role: str) -> Mapping[str, Any]:
    """The options of the role on the host under test, as Ansible would resolve them; secrets are masked."""
    return site.options(hostname, role)


@pytest.fixture(scope="module")
def exporter(host: Any, opts: Mapping[str, Any], role: str, eventually: Callable[..., Any]) -> Exporter:
    """The role's exporter on the host under test: ``exporter.ask()``, ``exporter.wants_its_password()``."""
    return Exporter(role, host, opts, eventually)


@pytest.fixture(scope="module")
def ask_web(host: Any) -> Callable[..., tuple[int, Any]]:
    """Ask a web server from the host under test: ``ask_web(url, "alice", password, "PUT", {"a": 1}, authority=pem)``.

    It returns status and answer, as JSON where it is; status 0, and why, where nobody answers. Without a user nobody
    logs in. A body is sent as JSON, a list as lines of it, text as it is.
    """

    def asked(
        url: str,
        user: str = "",
        password: str = "",
        method: str = "",
        body: Any = None,
        *,
        authority: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        if isinstance(body, list):
            body = "".join(json.dumps(line) + "\n" for line in body)
        elif body is not None and not isinstance(body, str):
            body = json.dumps(body)
        status, text = asking.answered(
            host,
            url,
            authority=authority,
            user=user or None,
            password=password,
            method=method,
            headers=headers,
            body=body,
        )
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    return asked


@pytest.fixture(scope="module")
def as_user(host: Any) -> Callable[[str], Person]:
    """Return somebody on the host under test: ``as_user("alice").output("id")``, ``as_user("bob").run(…).rc``."""
    return lambda name: Person(host, name)


@pytest.fixture(scope="module")
def role_hosts(site: Site) -> Callable[[str], list[str]]:
    """Return the hosts that run a role: ``role_hosts("slurm_worker")``."""
    return site.hosts_of_role


@pytest.fixture(scope="session")
def run_on(site: Site) -> Callable[[str], Any]:
    """Return another host of the inventory as a testinfra host: ``run_on("head01").run(…)``."""
    return site.connections.testinfra


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Any]:
    """Wait, within bounds, until a check holds: ``eventually(lambda: …, seconds=15)``."""
    return wait_until


def wait_until(check: Callable[[], T], seconds: float = 15, every: float = 0.5) -> T:
    """Call ``check`` until it returns something true and return that.

    An AssertionError in it counts as "not yet". After ``seconds`` the last one is raised, or a new one.
    """
    end = time.monotonic() + seconds
    while True:
        failure: AssertionError | None = None
        try:
            value = check()
            if value:
                return value
        except AssertionError as error:
            failure = error
        if time.monotonic() >= end:
            raise failure or AssertionError(f"did not hold within {seconds:g} s")
        time.sleep(every)
