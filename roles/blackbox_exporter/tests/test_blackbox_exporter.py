"""What is probed is probed for real: ports of the node itself, and the certificate that the exporter shows."""

from __future__ import annotations

import time
import urllib.parse

import pytest
import yaml


def test_it_runs_and_a_boot_starts_it(exporter, opts):
    exporter.runs(opts["__blackbox_exporter_os"]["service"])


def test_it_is_heard_where_it_is_declared_and_nowhere_else(exporter):
    exporter.is_heard_where_declared()


def test_nobody_asks_without_the_password(exporter):
    exporter.wants_its_password()


def test_nobody_else_reads_its_secrets(exporter):
    exporter.hides_its_password()


@pytest.fixture
def probe(exporter):
    """What a module says of a target: {metric: [(labels, value)]}."""

    def go(module, target):
        return exporter.samples("/probe?" + urllib.parse.urlencode({"module": module, "target": target}))

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


def test_it_has_the_declared_modules(opts, exporter):
    status, text = exporter.ask("/config")
    assert status == 200
    assert set(yaml.safe_load(text)["modules"]) == set(opts["blackbox_exporter_modules"])


def test_it_has_read_its_file(exporter):
    assert exporter.samples()["blackbox_exporter_config_last_reload_successful"] == [({}, 1.0)]
