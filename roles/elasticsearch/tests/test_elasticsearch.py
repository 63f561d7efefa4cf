"""The server answers those who are declared, over the site's TLS, and keeps what it is sent as declared."""

from __future__ import annotations

import uuid

import pytest

UNIT = "elasticsearch.service"
CA = "/etc/elasticsearch/certs/ca.crt"


@pytest.fixture
def ask(ask_web, opts):
    """Ask the server: ask(user, password, method, path, body) is a status and the answer."""
    own = f"https://{opts['elasticsearch_address']}:{opts['elasticsearch_http_port']}"
    authority = opts["elasticsearch_ca_certificate"]

    def asked(user, password, method, path, body=None, url=own):
        return ask_web(url + path, user, password, method, body, authority=authority)

    return asked


@pytest.fixture
def admin(ask, opts):
    """Ask as the administrator."""
    return lambda method, path, body=None: ask(
        "coldiron-admin", opts["elasticsearch_admin_password"], method, path, body
    )


def servers(opts):
    return [one["name"] for one in opts["elasticsearch_nodes"]] or [opts["elasticsearch_node_name"]]


def test_the_server_runs_and_a_boot_starts_it(host):
    unit = host.service(UNIT)
    assert unit.is_running
    assert unit.is_enabled


def test_the_cluster_is_whole_and_green(admin, opts, eventually):
    health = eventually(
        lambda: (found := admin("GET", "/_cluster/health"))[0] == 200 and found[1], seconds=60
    )
    assert health["cluster_name"] == opts["elasticsearch_cluster_name"]
    assert health["number_of_nodes"] == len(servers(opts))
    assert eventually(lambda: admin("GET", "/_cluster/health")[1]["status"] == "green", seconds=120)


def test_it_is_heard_where_it_is_declared_and_nowhere_else(host, opts):
    ports = (opts["elasticsearch_http_port"], opts["elasticsearch_transport_port"])
    heard = {line.split()[3] for line in host.check_output("ss -Hltn").splitlines()}
    for port in ports:
        where = {one.replace("[::ffff:", "").replace("]", "") for one in heard if one.endswith(f":{port}")}
        assert where == {f"{opts['elasticsearch_address']}:{port}"}


def test_nobody_is_let_in_without_a_password_of_its_own(ask, opts):
    for user, password in (("", ""), ("coldiron-admin", "wrong"), ("elastic", "changeme"), ("elastic", "")):
        for path in ("/_cluster/health", f"/{opts['elasticsearch_data_stream']}/_search"):
            assert ask(user, password, "GET", path)[0] == 401


def test_nothing_is_answered_without_tls(ask, opts):
    url = f"http://{opts['elasticsearch_address']}:{opts['elasticsearch_http_port']}"
    assert ask("", "", "GET", "/", url=url)[0] == 0


def test_the_certificate_is_the_site_s(host, opts):
    said = host.check_output(
        "openssl s_client -connect %s -CAfile %s -verify_ip %s -brief < /dev/null 2>&1",
        f"{opts['elasticsearch_address']}:{opts['elasticsearch_http_port']}", CA, opts["elasticsearch_address"],
    )  # fmt: skip
    assert "Verification: OK" in said


@pytest.mark.acts
def test_who_ships_can_add_and_do_nothing_else(ask, admin, opts, eventually):
    stream = opts["elasticsearch_data_stream"]
    shipper = ("coldiron-shipper", opts["elasticsearch_shipper_password"])
    line = [
        {"create": {"_id": "coldiron-role-test"}},
        {"@timestamp": "2026-01-01T00:00:00Z", "message": "a test"},
    ]
    status, answer = ask(*shipper, "POST", f"/{stream}/_bulk", line)
    assert status == 200
    # There it is, or was already.
    assert answer["items"][0]["create"]["status"] in (201, 409)

    def refused(*words):
        return ask(*shipper, *words)[0] == 403

    # The server looks every 5 s at what users may do.
    assert eventually(lambda: refused("GET", f"/{stream}/_search"), seconds=30)
    for method, path, body in (
        ("GET", f"/{stream}/_mapping", None),
        ("DELETE", f"/{stream}", None),
        ("GET", "/_cluster/health", None),
        ("PUT", "/_cluster/settings", {"persistent": {"cluster.routing.allocation.enable": None}}),
        ("POST", "/else/_doc", {"a": 1}),
    ):
        assert refused(method, path, body), path
    overwritten = [{"index": {"_id": "coldiron-role-test"}}, line[1]]
    assert ask(*shipper, "POST", f"/{stream}/_bulk", overwritten)[1]["errors"] is True


def test_who_reads_can_read_and_do_nothing_else(ask, opts, eventually):
    stream = opts["elasticsearch_data_stream"]
    reader = ("coldiron-reader", opts["elasticsearch_reader_password"])

    def found():
        """The server looks every 5 s at what users may do."""
        status, answer = ask(*reader, "GET", f"/{stream}/_search?size=0")
        assert status == 200
        return answer

    answer = eventually(found, seconds=30)
    assert answer["hits"]["total"]["value"] > 0
    line = [{"create": {}}, {"@timestamp": "2026-01-01T00:00:00Z", "message": "a test"}]
    status, answer = ask(*reader, "POST", f"/{stream}/_bulk", line)
    assert status == 403 or answer["errors"] is True
    assert ask(*reader, "DELETE", f"/{stream}")[0] == 403


def test_logs_have_the_declared_template(admin, opts):
    status, answer = admin("GET", "/_index_template/coldiron-logs")
    assert status == 200
    template = answer["index_templates"][0]["index_template"]
    assert template["data_stream"] is not None
    wanted = opts["__elasticsearch_template"]["template"]
    index = template["template"]["settings"]["index"]
    assert index["number_of_replicas"] == str(wanted["settings"]["index"]["number_of_replicas"])
    assert set(template["template"]["mappings"]["properties"]) == set(wanted["mappings"]["properties"])
    assert template["template"]["mappings"]["dynamic"] in (False, "false")


def test_lifecycle_is_declared_or_the_server_has_none(admin):
    known = admin("GET", "/_ilm/status")[0]
    if known == 200:
        assert "delete" in admin("GET", "/_ilm/policy/coldiron-logs")[1]["coldiron-logs"]["policy"]["phases"]
    else:
        assert known in (400, 404, 405)


@pytest.mark.acts
def test_what_is_lost_is_taken_back_from_a_snapshot(admin, opts):
    if not opts["elasticsearch_snapshot_directory"]:
        return
    index = f"coldiron-test-{uuid.uuid4().hex[:12]}"
    snapshot, document = f"/_snapshot/coldiron/{index}", {"message": index}
    try:
        assert admin("PUT", f"/{index}", {"settings": {"index": {"number_of_replicas": 0}}})[0] == 200
        assert admin("PUT", f"/{index}/_doc/1", document)[0] == 201
        status, said = admin(
            "PUT", f"{snapshot}?wait_for_completion=true", {"indices": index, "include_global_state": False}
        )
        assert status == 200, said
        assert said["snapshot"]["state"] == "SUCCESS"
        assert admin("DELETE", f"/{index}")[0] == 200
        status, said = admin("POST", f"{snapshot}/_restore?wait_for_completion=true", {"indices": index})
        assert status == 200, said
        assert admin("GET", f"/{index}/_doc/1")[1]["_source"] == document
    finally:
        for path in (f"/{index}", snapshot):
            admin("DELETE", path)


def test_watermarks_and_version_are_the_declared_ones(admin, opts):
    version = opts["elasticsearch_version"]
    node = next(iter(admin("GET", "/_nodes/_local")[1]["nodes"].values()))
    assert node["version"] == version
    settings = admin("GET", "/_nodes/_local/settings?flat_settings=true")[1]["nodes"]
    flat = next(iter(settings.values()))["settings"]
    for name, value in opts["elasticsearch_watermarks"].items():
        assert flat[f"cluster.routing.allocation.disk.watermark.{name}"] == value


def test_the_heap_is_the_declared_one(host, opts):
    if not opts["elasticsearch_heap_mib"]:
        return
    said = host.check_output("pgrep -a -f org.elasticsearch.bootstrap.Elasticsearch")
    assert f"-Xmx{opts['elasticsearch_heap_mib']}m" in said.split()


def test_nobody_else_reads_keys_and_passwords(host):
    for path in ("certs/node.key", "users", "elasticsearch.keystore"):
        file = host.file(f"/etc/elasticsearch/{path}")
        assert (file.group, file.mode & 0o007) == ("elasticsearch", 0)
    assert host.file("/etc/elasticsearch").mode & 0o007 == 0
