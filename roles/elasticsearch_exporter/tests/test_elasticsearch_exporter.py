"""What is told is what the real server says: over TLS both ways, by a user that can do nothing else."""

from __future__ import annotations

import json

import pytest

from coldiron.testing import asking

PLACE = "/etc/coldiron/elasticsearch-exporter"
# What the alerts of role elasticsearch look at, with the labels that they choose by.
TOLD = {
    "elasticsearch_cluster_health_number_of_nodes": {},
    "elasticsearch_cluster_health_status": {"color": "red"},
    "elasticsearch_filesystem_data_available_bytes": {},
    "elasticsearch_filesystem_data_size_bytes": {},
    "elasticsearch_indices_indexing_index_total": {},
    "elasticsearch_jvm_memory_max_bytes": {"area": "heap"},
    "elasticsearch_jvm_memory_used_bytes": {"area": "heap"},
    "elasticsearch_thread_pool_rejected_count": {"type": "write"},
}


@pytest.fixture
def server(host, opts):
    """Ask the server itself as the exporter's user: (status, text). With a body it posts that."""

    def asked(path, body="", password=None):
        return asking.ask(
            host,
            opts["elasticsearch_exporter_url"] + path,
            authority=str(opts["elasticsearch_exporter_ca"]),
            user=opts["elasticsearch_exporter_user"],
            password=opts["elasticsearch_exporter_password"] if password is None else password,
            body=body,
        )

    return asked


def unit(opts):
    return opts["__elasticsearch_exporter_os"]["service"]


def test_it_runs_and_a_boot_starts_it(exporter, opts):
    exporter.runs(unit(opts))


def test_it_is_heard_where_it_is_declared_and_nowhere_else(exporter):
    exporter.is_heard_where_declared()


def test_nobody_asks_without_the_password(exporter):
    exporter.wants_its_password()


def test_nobody_else_reads_its_secrets(host, exporter):
    exporter.hides_its_password()
    environment = host.file(f"{PLACE}/environment")
    assert (environment.user, environment.mode) == ("root", 0o600)


def test_it_believes_the_authority_alone_and_shows_nobody_its_password(host, opts):
    process = host.check_output("systemctl show --property MainPID --value %s", unit(opts))
    words = host.check_output("tr '\\0' '\\n' < /proc/%s/cmdline", process.strip()).splitlines()
    assert f"--es.uri={opts['elasticsearch_exporter_url']}" in words
    assert "--es.ssl-skip-verify" not in words
    if opts["elasticsearch_exporter_ca"]:
        assert f"--es.ca={PLACE}/ca.pem" in words
    # Not in what everybody can read of processes and units.
    password = str(opts["elasticsearch_exporter_password"])
    assert not any(password in word for word in words)
    assert password not in host.check_output("systemctl show %s", unit(opts))


def test_it_tells_what_the_server_says_of_its_cluster(exporter, server, eventually):
    def both():
        health = json.loads(server("/_cluster/health")[1])
        found = exporter.samples()
        told = {
            labels["color"]: value for labels, value in found.get("elasticsearch_cluster_health_status", ())
        }
        counted = [value for _, value in found.get("elasticsearch_cluster_health_number_of_nodes", ())]
        wanted = {color: float(color == health["status"]) for color in ("green", "yellow", "red")}
        return (told, counted) == (wanted, [health["number_of_nodes"]])

    assert eventually(both, seconds=30)


def test_what_the_alerts_look_at_is_told(exporter, eventually):
    def missing():
        found = exporter.samples()
        return [
            name
            for name, wanted in TOLD.items()
            if not any(wanted.items() <= labels.items() for labels, _ in found.get(name, ()))
        ]

    assert eventually(lambda: not missing(), seconds=30), missing()


def test_it_tells_of_its_own_server_alone(exporter, server):
    own = next(iter(json.loads(server("/_nodes/_local")[1])["nodes"].values()))["name"]
    told = exporter.samples()["elasticsearch_indices_indexing_index_total"]
    assert {labels["name"] for labels, _ in told} == {own}


def test_its_user_can_look_at_the_cluster_and_at_nothing_in_it(opts, server):
    stream = opts["elasticsearch_data_stream"]
    assert server("/_cluster/health")[0] == 200
    assert server("/_cluster/health", password="another")[0] == 401
    assert server(f"/{stream}/_search")[0] == 403
    line = json.dumps({"@timestamp": "2026-01-01T00:00:00Z", "message": "a test"})
    assert server(f"/{stream}/_doc", line)[0] == 403
    assert server("/_cluster/reroute", "{}")[0] == 403
