"""What is probed is probed for real: ports of the node itself, and the certificate that the exporter shows."""

from __future__ import annotations

import time
import urllib.parse

import pytest
import yaml

from coldiron.testing import asking


@pytest.fixture
def ask(host, opts):
    """Ask it on its own node: (status, text). An empty password shows none."""
    tls = bool(opts["blackbox_exporter_tls_certificate"])
    base = f"http{'s' * tls}://{opts['blackbox_exporter_address']}:{opts['blackbox_exporter_port']}"
    authority = str(opts["coldiron_ca_certificate"]) if tls else ""

    def get(path, password=None):
        word = opts["blackbox_exporter_password"] if password is None else password
        return asking.ask(
            host, base + path, authority=authority, user=opts["blackbox_exporter_user"], password=word
        )

    return get


def test_it_runs_and_a_boot_starts_it(host, opts, eventually):
    service = host.service(opts["__blackbox_exporter_os"]["service"])
    assert service.is_enabled
    assert eventually(lambda: service.is_running, seconds=20)


def test_it_is_heard_where_it_is_declared_and_nowhere_else(host, opts):
    where, port = opts["blackbox_exporter_address"], opts["blackbox_exporter_port"]
    lines = host.check_output("ss -Hltn").splitlines()
    assert [line.split()[3] for line in lines if line.split()[3].endswith(f":{port}")] == [f"{where}:{port}"]


def test_nobody_asks_without_the_password(opts, ask):
    assert ask("/metrics")[0] == 200
    if opts["blackbox_exporter_password"]:
        assert ask("/metrics", "")[0] == 401
        assert ask("/metrics", "another")[0] == 401


def test_nobody_else_reads_its_secrets(host, opts):
    folder = host.file("/etc/coldiron/blackbox-exporter")
    assert (folder.user, folder.group, folder.mode) == ("root", "prometheus", 0o750)
    assert host.file("/etc/coldiron/blackbox-exporter/web.yml").mode == 0o640
    if opts["blackbox_exporter_password"]:
        assert (
            str(opts["blackbox_exporter_password"])
            not in host.file("/etc/coldiron/blackbox-exporter/web.yml").content_string
        )


@pytest.fixture
def probe(ask):
    """What a module says of a target: {metric: [(labels, value)]}."""

    def go(module, target):
        status, text = ask("/probe?" + urllib.parse.urlencode({"module": module, "target": target}))
        assert status == 200, text
        return asking.samples(text)

    return go


def test_a_server_that_greets_is_told_from_one_that_does_not(opts, probe):
    if "ssh" in opts["blackbox_exporter_modules"]:
        assert probe("ssh", f"{opts['blackbox_exporter_address']}:22")["probe_success"] == [({}, 1.0)]
        # Port 9 of the node itself: nobody is there.
        assert probe("ssh", "127.0.0.1:9")["probe_success"] == [({}, 0.0)]
    if "tcp" in opts["blackbox_exporter_modules"]:
        own = f"{opts['blackbox_exporter_address']}:{opts['blackbox_exporter_port']}"
        assert probe("tcp", own)["probe_success"] == [({}, 1.0)]


def test_a_certificate_of_the_authority_is_believed_and_its_end_told(opts, probe):
    if opts["blackbox_exporter_tls_certificate"] and "tls" in opts["blackbox_exporter_modules"]:
        own = f"{opts['blackbox_exporter_address']}:{opts['blackbox_exporter_port']}"
        found = probe("tls", own)
        assert found["probe_success"] == [({}, 1.0)]
        assert found["probe_ssl_earliest_cert_expiry"][0][1] > time.time() + 86400


def test_it_has_the_declared_modules(opts, ask):
    status, text = ask("/config")
    assert status == 200
    assert set(yaml.safe_load(text)["modules"]) == set(opts["blackbox_exporter_modules"])


def test_it_has_read_its_file(ask):
    text = ask("/metrics")[1]
    assert asking.samples(text)["blackbox_exporter_config_last_reload_successful"] == [({}, 1.0)]
