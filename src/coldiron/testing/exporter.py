"""What is asked of every exporter alike: that it runs, where it is heard, whom it answers, and what it hides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coldiron.testing import asking

ETC = "/etc/coldiron"
STARTS_SECONDS = 20


@dataclass(frozen=True)
class Exporter:
    """The exporter of role ``name`` on a host, by the options that all of them have.

    They are ``NAME_address``, ``_port``, ``_tls_certificate``, and ``_user`` with ``_password``; where those are of
    what the exporter itself asks, ``_web_user`` with ``_web_password``.
    """

    name: str
    host: Any
    opts: Mapping[str, Any]
    eventually: Callable[..., Any]

    def option(self, name: str) -> Any:
        """An option of the role's."""
        return self.opts[f"{self.name}_{name}"]

    @property
    def _words(self) -> tuple[Any, Any]:
        """Who may ask: name and password."""
        web = "web_" if f"{self.name}_web_password" in self.opts else ""
        return self.option(f"{web}user"), self.option(f"{web}password")

    def ask(self, path: str = "/metrics", password: str | None = None) -> tuple[int, str]:
        """Ask it on its own node, as Prometheus does: (status, text). An empty password shows none."""
        tls = bool(self.option("tls_certificate"))
        user, known = self._words
        return asking.ask(
            self.host,
            f"http{'s' * tls}://{self.option('address')}:{self.option('port')}{path}",
            authority=str(self.opts["coldiron_ca_certificate"]) if tls else "",
            user=user,
            password=known if password is None else password,
        )

    def samples(self, path: str = "/metrics") -> asking.Samples:
        """What it serves, by metric: each value with its labels."""
        status, text = self.ask(path)
        assert status == 200, text
        return asking.samples(text)

    def runs(self, unit: str) -> None:
        """Fail unless its service runs, and a boot starts it."""
        service = self.host.service(unit)
        assert service.is_enabled
        assert self.eventually(lambda: service.is_running, seconds=STARTS_SECONDS)

    def is_heard_where_declared(self) -> None:
        """Fail unless it listens at its address, and at no other."""
        where, port = self.option("address"), self.option("port")

        def heard() -> list[str]:
            lines = self.host.check_output("ss -Hltn").splitlines()
            return [line.split()[3] for line in lines if line.split()[3].endswith(f":{port}")]

        # One that ends when what it asks is away is started anew.
        assert self.eventually(heard, seconds=STARTS_SECONDS) == [f"{where}:{port}"]

    def wants_its_password(self) -> None:
        """Fail unless who has the password is answered, and nobody else where there is one."""
        assert self.ask()[0] == 200
        if self._words[1]:
            assert self.ask(password="")[0] == 401
            assert self.ask(password="another")[0] == 401

    def hides_its_password(self, group: str = "prometheus", file: str = "web.yml") -> None:
        """Fail unless its directory is root's and its group's alone, and ``file`` there does not hold the password."""
        place = f"{ETC}/{self.name.replace('_', '-')}"
        folder = self.host.file(place)
        assert (folder.user, folder.group, folder.mode) == ("root", group, 0o750)
        password = self._words[1]
        if password or file != "web.yml":
            written = self.host.file(f"{place}/{file}")
            assert (written.user, written.group, written.mode) == ("root", group, 0o640)
            assert not password or str.__str__(password) not in written.content_string
