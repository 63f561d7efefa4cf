"""The exporter answers who has the password, and asks a BMC as the declared user."""

from __future__ import annotations

import urllib.parse

import pytest

from coldiron.testing import asking


@pytest.fixture
def ask(host, opts):
    """Ask it on its own node: (status, text). An empty password shows none."""
    tls = bool(opts["ipmi_exporter_tls_certificate"])
    base = f"http{'s' * tls}://{opts['ipmi_exporter_address']}:{opts['ipmi_exporter_port']}"
    authority = str(opts["coldiron_ca_certificate"]) if tls else ""

    def get(path, password=None):
        word = opts["ipmi_exporter_password"] if password is None else password
        return asking.ask(
            host, base + path, authority=authority, user=opts["ipmi_exporter_user"], password=word
        )

    return get


def test_it_runs_and_a_boot_starts_it(host, opts, eventually):
    service = host.service(opts["__ipmi_exporter_os"]["service"])
    assert service.is_enabled
    assert eventually(lambda: service.is_running, seconds=20)


def test_it_is_heard_where_it_is_declared_and_nowhere_else(host, opts):
    where, port = opts["ipmi_exporter_address"], opts["ipmi_exporter_port"]
    lines = host.check_output("ss -Hltn").splitlines()
    assert [line.split()[3] for line in lines if line.split()[3].endswith(f":{port}")] == [f"{where}:{port}"]


def test_nobody_asks_without_the_password(opts, ask):
    assert ask("/metrics")[0] == 200
    if opts["ipmi_exporter_password"]:
        assert ask("/metrics", "")[0] == 401
        assert ask("/metrics", "another")[0] == 401


def test_nobody_else_reads_its_secrets(host, opts):
    folder = host.file("/etc/coldiron/ipmi-exporter")
    assert (folder.user, folder.group, folder.mode) == ("root", "prometheus", 0o750)
    assert host.file("/etc/coldiron/ipmi-exporter/web.yml").mode == 0o640
    if opts["ipmi_exporter_password"]:
        assert (
            str(opts["ipmi_exporter_password"])
            not in host.file("/etc/coldiron/ipmi-exporter/web.yml").content_string
        )


def test_it_knows_the_declared_users(opts, ask):
    """Of a BMC that is not there it says so, by each module; a module that nobody declared is refused."""
    for module in opts["ipmi_exporter_modules"]:
        status, text = ask("/ipmi?" + urllib.parse.urlencode({"module": module, "target": "127.0.0.1"}))
        assert status == 200
        found = asking.samples(text)["ipmi_up"]
        assert found
        assert all(value == 0 for _, value in found)
    assert ask("/ipmi?module=nobody&target=127.0.0.1")[0] == 400


def test_the_bmcs_users_are_for_it_alone(host):
    file = host.file("/etc/coldiron/ipmi-exporter/ipmi.yml")
    assert (file.user, file.group, file.mode) == ("root", "prometheus", 0o640)
