"""Kibana shows the logs to who logs in and to nobody else, over TLS, with the declared views and searches."""

from __future__ import annotations

import json

import pytest
import yaml

UNIT = "kibana.service"
PLACE = "/etc/kibana/coldiron"
CA = f"{PLACE}/ca.pem"
# It takes no change without, which no page elsewhere can make a browser say.
XSRF = {"kbn-xsrf": "true"}
BORDER = "coldiron-role-test"
# A line for each search; the field says which searches have to find it.
LINES = {
    "hardware": {"event": {"kind": "hardware"}, "hardware": {"error": "memory"}},
    "xid": {"event": {"kind": "gpu"}, "gpu": {"xid": 79, "pci": "0000:18:00"}},
    "job": {"slurm": {"job_id": 4711}},
    "logins": {"event": {"kind": "login", "action": "failed"}, "source": {"ip": "192.0.2.1"}},
    "errors": {"log": {"level": "crit"}, "service": {"unit": "some.service"}},
    "slurm": {
        "service": {"unit": "slurmctld.service"},
        "message": "error: Node gpu01 has low real_memory size",
    },
    "memory": {
        "process": {"name": "kernel"},
        "message": "Memory cgroup out of memory: Killed process 1 (python3)",
    },
    "disk": {"message": "cp: error writing 'x': No space left on device"},
    "none": {"event": {"kind": "login", "action": "accepted"}, "log": {"level": "info"}},
}


@pytest.fixture
def base(opts):
    """Kibana's own address."""
    return f"https://{opts['kibana_address']}:{opts['kibana_port']}"


@pytest.fixture
def ask(ask_web, opts, base):
    """Ask Kibana: ask(path, user, password, method, body, headers) is a status and the answer."""
    authority = opts["kibana_elasticsearch"]["ca"]

    def asked(path, user="", password="", method="", body=None, headers=None, url=base):
        more = {**XSRF, **(headers or {})}
        return ask_web(url + path, user, password, method, body, authority=authority, headers=more)

    return asked


@pytest.fixture
def there(ask, opts, eventually):
    """Wait for Kibana, which takes its time after a start. Tests call it: a fixture that fails proves nothing."""
    pair = opts["kibana_admin_user"], opts["kibana_admin_password"]
    return lambda: eventually(lambda: ask("/api/status", *pair)[0] == 200, seconds=120)


@pytest.fixture
def admin(ask, opts, there):
    """Ask Kibana as its administrator, once it is there."""

    def asked(path, method="", body=None):
        there()
        return ask(path, opts["kibana_admin_user"], opts["kibana_admin_password"], method, body)

    return asked


@pytest.fixture
def elastic(ask, opts):
    """Ask Elasticsearch: elastic(path, user, password, body)."""
    server = opts["kibana_elasticsearch"]["urls"][0]
    return lambda path, user, password, body: ask(path, user, password, body=body, url=server)


@pytest.fixture
def question(elastic, opts):
    """Ask Elasticsearch, as somebody who reads logs, what a search asks."""

    def asked(query, size=0, sort=()):
        body = {"query": {"query_string": {"query": query}}, "size": size, "sort": list(sort)}
        path = f"/{opts['kibana_index']}/_search"
        return elastic(path, opts["kibana_admin_user"], opts["kibana_admin_password"], body)

    return asked


def searches(opts):
    """The collection's own declared searches: (id, query, sort) of each."""
    for one in opts["__kibana_objects"]:
        if one["type"] == "search" and one["id"].startswith("coldiron-"):
            source = json.loads(one["attributes"]["kibanaSavedObjectMeta"]["searchSourceJSON"])
            yield one["id"], source["query"]["query"], one["attributes"].get("sort", [])


def exported(admin, wanted):
    body = {
        "objects": [{"type": one["type"], "id": one["id"]} for one in wanted],
        "excludeExportDetails": True,
    }
    status, said = admin("/api/saved_objects/_export", "POST", body)
    assert status == 200, said
    lines = [said] if isinstance(said, dict) else [json.loads(line) for line in said.splitlines()]
    return {(one["type"], one["id"]): one for one in lines}


def form(one):
    """An object as the file of a form."""
    head = f'--{BORDER}\r\nContent-Disposition: form-data; name="file"; filename="x.ndjson"\r\n'
    text = f"{head}Content-Type: application/ndjson\r\n\r\n{json.dumps(one)}\r\n--{BORDER}--\r\n"
    return text, {"Content-Type": f"multipart/form-data; boundary={BORDER}"}


def test_it_runs_and_a_boot_starts_it(host):
    assert host.service(UNIT).is_running
    assert host.service(UNIT).is_enabled


def test_it_is_heard_where_it_is_declared_and_nowhere_else(host, opts, eventually):
    def heard():
        lines = host.check_output("ss -Hltn").splitlines()
        return [line.split()[3] for line in lines if line.split()[3].endswith(f":{opts['kibana_port']}")]

    assert eventually(heard, seconds=120) == [f"{opts['kibana_address']}:{opts['kibana_port']}"]


def test_it_reaches_elasticsearch_and_is_of_its_version(admin, opts):
    status, said = admin("/api/status")
    assert status == 200
    assert said["status"]["overall"]["level"] == "available"
    assert said["version"]["number"] == opts["kibana_version"]
    version = opts["kibana_elasticsearch"]["version"]
    assert not version or version.split(".")[:2] == said["version"]["number"].split(".")[:2]


def test_nobody_is_let_in_without_a_password(ask, admin, opts, there):
    there()
    for user, password in (("", ""), (opts["kibana_admin_user"], "wrong"), ("elastic", "changeme")):
        assert ask("/api/data_views", user, password)[0] == 401
        body = {"objects": [{"type": "index-pattern", "id": "coldiron-logs"}]}
        assert ask("/api/saved_objects/_export", user, password, "POST", body)[0] == 401
    assert admin("/api/data_views")[0] == 200


def test_who_only_reads_can_look_and_change_nothing(ask, there, hostvars):
    password = hostvars.get("elasticsearch_reader_password")
    if password:
        there()
        reader = ("coldiron-reader", password)
        assert ask("/api/data_views", *reader)[0] == 200
        one = {"type": "search", "id": "coldiron-role-test", "attributes": {"title": "x"}, "references": []}
        assert ask("/api/saved_objects/_import", *reader, "POST", *form(one))[0] == 403


def test_the_certificate_is_the_site_s_and_nothing_is_answered_without_tls(host, ask, there, opts, base):
    there()
    said = host.check_output(
        "openssl s_client -connect %s -CAfile %s -verify_ip %s -brief < /dev/null 2>&1",
        base.removeprefix("https://"), CA, opts["kibana_address"],
    )  # fmt: skip
    assert "Verification: OK" in said
    assert ask("/api/status", url=f"http{base.removeprefix('https')}")[0] == 0


def test_declared_views_and_searches_are_there_as_declared(admin, opts):
    wanted = opts["__kibana_objects"]
    found = exported(admin, wanted)
    for one in wanted:
        said = found[one["type"], one["id"]]["attributes"]
        for name, value in one["attributes"].items():
            if name == "kibanaSavedObjectMeta":
                source = json.loads(value["searchSourceJSON"])
                assert json.loads(said[name]["searchSourceJSON"])["query"] == source["query"], one["id"]
            else:
                assert said[name] == value, one["id"]


def test_people_see_some_view_first(admin):
    status, said = admin("/api/data_views/default")
    assert status == 200
    assert said["data_view_id"]


def test_elasticsearch_answers_every_search(question, opts):
    for name, query, sort in searches(opts):
        status, said = question(query, 1, [{field: order} for field, order in sort])
        assert status == 200, f"{name}: {said}"
        assert said["_shards"]["failed"] == 0, f"{name}: {said}"


@pytest.mark.acts
def test_each_search_finds_its_line_and_no_other(elastic, question, opts, hostvars, eventually):
    stream, password = opts["kibana_index"], hostvars.get("log_shipper_password")
    if not password or "*" in stream:
        return
    lines = []
    for name, fields in LINES.items():
        own = {
            "@timestamp": "2026-01-01T00:00:00Z",
            "message": "a test",
            "host": {"name": f"role-test-{name}"},
        }
        lines += [{"create": {"_id": f"coldiron-role-test-kibana-{name}"}}, {**own, **fields}]
    status, said = elastic(f"/{stream}/_bulk", "coldiron-shipper", password, lines)
    assert status == 200
    # There they are, or were already.
    assert {one["create"]["status"] for one in said["items"]} <= {201, 409}

    def names(query):
        status, said = question(f"({query}) AND host.name:role-test-*", 100)
        assert status == 200, said
        return {one["_source"]["host"]["name"].removeprefix("role-test-") for one in said["hits"]["hits"]}

    assert eventually(lambda: names("host.name:*") == set(LINES), seconds=30)
    declared = {name.removeprefix("coldiron-"): query for name, query, _ in searches(opts)}
    for name, query in declared.items():
        if name in LINES:
            assert names(query) == {name}, name


def test_kibana_alone_reads_what_is_secret(host, opts):
    folder = host.file(PLACE)
    assert (folder.user, folder.group, folder.mode) == ("root", "kibana", 0o750)
    key, words = host.file(f"{PLACE}/key.pem"), host.file(f"{PLACE}/secrets.env")
    assert (key.user, key.group, key.mode) == ("root", "kibana", 0o640)
    assert (words.user, words.mode) == ("root", 0o600)
    text = host.file("/etc/kibana/kibana.yml").content_string
    for value in opts["__kibana_secrets"].values():
        assert str.__str__(value) not in text
    pid = host.check_output("systemctl show -p MainPID --value %s", UNIT)
    assert host.check_output("ps -o user= -p %s", pid).strip() == "kibana"


def test_it_runs_with_the_declared_keys(host, opts):
    pid = host.check_output("systemctl show -p MainPID --value %s", UNIT)
    having = host.check_output("tr '\\0' '\\n' < /proc/%s/environ", pid).splitlines()
    for name, value in opts["__kibana_environment"].items():
        assert f"{name}={str.__str__(value)}" in having, name


def test_its_settings_are_the_declared_ones(host, opts):
    found = yaml.safe_load(host.file("/etc/kibana/kibana.yml").content_string)
    wanted = opts["__kibana_config"]
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        assert found[name] == value, name


def test_memory_is_bounded_and_the_log_is_the_journals(host, opts, admin):
    said = host.check_output("systemctl show -p MemoryMax -p StandardOutput -p Environment %s", UNIT)
    assert f"MemoryMax={opts['kibana_memory_max_mib'] * 1048576}" in said
    assert f"--max-old-space-size={opts['__kibana_heap']}" in said
    assert "StandardOutput=journal" in said
    assert admin("/api/status")[0] == 200
    # A site may want fewer lines.
    if "logging.root.level" not in opts["kibana_settings"]:
        begun = host.check_output("systemctl show -p InvocationID --value %s", UNIT)
        assert "http server running" in host.check_output(
            "journalctl -o cat _SYSTEMD_INVOCATION_ID=%s", begun
        )


def test_upgrades_of_everything_leave_it_alone(host, opts):
    if opts["kibana_hold"] and host.exists("apt-mark"):
        assert "kibana" in host.check_output("apt-mark showhold").split()


def test_the_repository_is_trusted_by_its_own_key_only(host, opts):
    text = host.file("/etc/apt/sources.list.d/coldiron-elasticsearch.sources")
    if text.exists:
        assert "Signed-By:" in text.content_string
        for uri in opts["kibana_repository"].get("uris", []):
            assert uri in text.content_string
