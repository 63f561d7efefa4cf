"""The node tells of itself over TLS to who has the password, and of what its own files say."""

from __future__ import annotations

import re
import time

import pytest


@pytest.fixture
def samples(exporter):
    """What it serves: {metric: [(labels, value)]}."""
    return exporter.samples


def unit(opts):
    return opts["__node_exporter_os"]["service"]


def test_it_runs_and_a_boot_starts_it(host, opts, eventually):
    for name in (unit(opts), "coldiron-node-metrics@often.timer", "coldiron-node-metrics@seldom.timer"):
        assert host.service(name).is_enabled
        assert eventually(lambda name=name: host.service(name).is_running, seconds=20)


def test_it_is_heard_where_it_is_declared_and_nowhere_else(exporter):
    exporter.is_heard_where_declared()


def test_it_runs_as_a_user_who_may_do_nothing_else(host, opts):
    pid = host.check_output("systemctl show -p MainPID --value %s", unit(opts))
    status = host.file(f"/proc/{pid}/status").content_string
    assert re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)[1] != "0"
    assert re.search(r"^CapEff:\s+(\w+)$", status, re.MULTILINE)[1].strip("0") == ""


def test_nobody_reads_without_the_password(exporter):
    exporter.wants_its_password()


def test_the_declared_collectors_run(opts, samples):
    ran = {labels["collector"] for labels, _ in samples()["node_scrape_collector_success"]}
    for name, wanted in opts["node_exporter_collectors"].items():
        assert (name in ran) == (wanted is not False), name
    assert {"cpu", "filesystem", "meminfo", "textfile"} <= ran


def test_its_own_files_collectors_have_run_and_work(opts, samples, eventually):
    def states():
        found = samples()
        ends = {one["collector"]: value for one, value in found.get("coldiron_collector_success", [])}
        return ends if set(ends) == set(opts["node_exporter_checks"]) else None

    assert eventually(states, seconds=180) == dict.fromkeys(opts["node_exporter_checks"], 1.0)
    assert samples()["node_textfile_scrape_error"] == [({}, 0.0)]


def test_the_files_are_as_new_as_declared(opts, samples, eventually):
    often = {"mce", "pcie", "infiniband", "raid", "munge"} & set(opts["node_exporter_checks"])
    bound = 2 * int(opts["node_exporter_often_seconds"]) + 60

    def new():
        stamps = {one["collector"]: at for one, at in samples()["coldiron_collector_timestamp_seconds"]}
        return all(time.time() - stamps[name] < bound for name in often)

    assert eventually(new, seconds=bound)


def test_the_kernel_and_a_due_boot_are_told(host, opts, samples, eventually):
    if "software" in opts["node_exporter_checks"]:
        release = host.check_output("uname -r").strip()
        found = eventually(lambda: samples().get("coldiron_kernel_info"), seconds=180)
        assert found == [({"release": release}, 1.0)]
    if "reboot" in opts["node_exporter_checks"]:
        assert samples()["coldiron_reboot_required"][0][1] in (0.0, 1.0)


def test_the_end_of_its_certificate_is_told(opts, samples, eventually):
    if opts["node_exporter_tls_certificate"] and "certificates" in opts["node_exporter_checks"]:
        found = eventually(lambda: samples().get("coldiron_certificate_not_after_seconds"), seconds=180)
        ends = {one["path"]: at for one, at in found}
        assert ends["/etc/coldiron/node-exporter/certificate.pem"] > time.time() + 86400


@pytest.mark.acts
def test_a_planted_file_is_served(host, samples):
    path = "/var/lib/coldiron/metrics/planted.prom"
    host.check_output("printf 'coldiron_planted 42\\n' > %s", path)
    try:
        assert samples()["coldiron_planted"] == [({}, 42.0)]
    finally:
        host.check_output("rm %s", path)


def test_nobody_else_reads_its_key_or_writes_what_root_runs(host, opts):
    account = opts["__node_exporter_os"]["account"]
    folder = host.file("/etc/coldiron/node-exporter")
    assert (folder.user, folder.group, folder.mode) == ("root", account, 0o750)
    for path in ("/usr/lib/coldiron/node_metrics.py", "/var/lib/coldiron/metrics"):
        assert host.file(path).user == "root"
        assert not host.file(path).mode & 0o022
    if opts["node_exporter_password"]:
        written = host.file("/etc/coldiron/node-exporter/web.yml")
        assert written.mode == 0o640
        assert str(opts["node_exporter_password"]) not in written.content_string
