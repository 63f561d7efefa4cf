"""Grafana shows what is declared to who logs in, by TLS, and reaches the servers that it asks."""

from __future__ import annotations

import json

import pytest

UNIT = "grafana-server.service"
PLACE = "/etc/grafana/coldiron"


@pytest.fixture
def ask(ask_web, opts, eventually):
    """Ask Grafana on its own node: (status, what it answers). An empty password shows none."""
    tls = bool(opts["grafana_tls_certificate"])
    base = f"http{'s' * tls}://{opts['grafana_address']}:{opts['grafana_port']}"

    def get(path, password=None):
        word = opts["grafana_admin_password"] if password is None else password
        authority = opts["coldiron_ca_certificate"] if tls else ""
        return ask_web(base + path, word and opts["grafana_admin_user"], word, authority=authority)

    assert eventually(lambda: get("/api/health", "")[0] == 200, seconds=60)
    return get


def test_it_runs_and_a_boot_starts_it(host):
    assert host.service(UNIT).is_running
    assert host.service(UNIT).is_enabled


def test_it_is_heard_where_it_is_declared_and_nowhere_else(host, opts, eventually):
    where, port = opts["grafana_address"], opts["grafana_port"]

    def heard():
        lines = host.check_output("ss -Hltn").splitlines()
        return [line.split()[3] for line in lines if line.split()[3].endswith(f":{port}")]

    assert eventually(heard, seconds=60) == [f"{where}:{port}"]


def test_it_is_well(ask):
    status, said = ask("/api/health", "")
    assert status == 200
    assert said["database"] == "ok"


def test_it_is_the_declared_version(opts, ask):
    if opts["grafana_version"]:
        assert ask("/api/health")[1]["version"].startswith(opts["grafana_version"].rstrip("*"))


def test_nobody_reads_without_a_password(ask):
    for path in ("/api/search", "/api/datasources", "/api/admin/settings"):
        assert ask(path, "")[0] == 401
    assert ask("/api/search", "admin")[0] == 401
    assert ask("/api/search")[0] == 200


def test_the_declared_dashboards_are_there_and_no_others(host, opts, ask, eventually):
    wanted = {f"coldiron-{name}" for name in opts["__grafana_shown"]}
    wanted |= {json.loads(one["json"])["uid"] for one in opts["grafana_extra_dashboards"]}

    def shown():
        found = ask("/api/search?type=dash-db")[1]
        # Grafana looks at the files every half minute.
        return found if {one["uid"] for one in found} == wanted else None

    found = eventually(shown, seconds=45)
    assert found
    assert {one["folderTitle"] for one in found} == {opts["grafana_folder"]}


def test_a_dashboard_is_the_declared_one(host, opts, ask):
    files = {
        one["dest"].rpartition("/")[2]: json.loads(one["content"]) for one in opts["__grafana_page_files"]
    }
    for page in files.values():
        status, said = ask(f"/api/dashboards/uid/{page['uid']}")
        assert status == 200
        assert said["dashboard"]["title"] == page["title"]
        assert len(said["dashboard"]["panels"]) == len(page["panels"])


def test_the_declared_data_sources_are_there_and_keep_their_passwords(opts, ask):
    status, found = ask("/api/datasources")
    assert status == 200
    wanted = opts["__grafana_sources"]["datasources"]
    assert {one["name"]: (one["type"], one["url"]) for one in found} == {
        one["name"]: (one["type"], one["url"]) for one in wanted
    }
    said = json.dumps(found)
    for secret in ("grafana_prometheus_password", "grafana_elasticsearch_password"):
        assert not opts[secret] or str(opts[secret]) not in said


def test_prometheus_answers_through_grafana(opts, ask, role_hosts, eventually):
    if opts["grafana_prometheus"] and role_hosts("prometheus"):
        path = "/api/datasources/proxy/uid/coldiron-prometheus/api/v1/query?query=up"
        status, said = eventually(lambda: (lambda got: got if got[0] == 200 else None)(ask(path)), seconds=30)
        assert status == 200
        assert said["status"] == "success"


def test_nobody_signs_up_and_nobody_installs_plugins(ask):
    settings = ask("/api/admin/settings")[1]
    assert settings["auth.anonymous"]["enabled"] == "false"
    assert settings["users"]["allow_sign_up"] == "false"
    assert settings["plugins"]["plugin_admin_enabled"] == "false"
    assert settings["plugins"]["preinstall_disabled"] == "true"


def test_it_has_read_the_declared_settings(opts, ask):
    settings = ask("/api/admin/settings")[1]
    for section, words in opts["__grafana_ini"].items():
        for word, value in words.items():
            if value not in ("", None) and not str(value).startswith("$__file"):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                assert settings[section][word] == text, f"{section}: {word}"


def test_people_log_in_by_the_declared_ways_alone(opts, ask):
    settings = ask("/api/admin/settings")[1]
    for section, declared in (("auth.ldap", "grafana_ldap"), ("auth.generic_oauth", "grafana_oauth")):
        assert (settings.get(section, {}).get("enabled") == "true") == bool(opts[declared])


def test_grafana_alone_reads_what_is_secret(host, opts):
    folder = host.file(PLACE)
    assert (folder.user, folder.group, folder.mode) == ("root", "grafana", 0o750)
    for name in host.check_output("ls %s", PLACE).split():
        file = host.file(f"{PLACE}/{name}")
        assert (file.user, file.group, file.mode) == ("root", "grafana", 0o640), name
    text = host.file("/etc/grafana/grafana.ini").content_string
    for secret in ("grafana_admin_password", "grafana_secret_key", "grafana_oauth_client_secret"):
        assert not opts[secret] or str(opts[secret]) not in text
    pid = host.check_output("systemctl show -p MainPID --value %s", UNIT)
    assert host.check_output("ps -o user= -p %s", pid).strip() == "grafana"


def test_the_directory_is_the_declared_one(host, opts):
    if opts["grafana_ldap"]:
        file = host.file("/etc/grafana/ldap.toml")
        assert (file.user, file.group, file.mode) == ("root", "grafana", 0o640)
        for group in opts["grafana_ldap"]["groups"]:
            assert json.dumps(group) in file.content_string
        assert "ssl_skip_verify = false" in file.content_string


def test_the_repository_is_trusted_by_its_own_key_only(host, opts):
    text = host.file("/etc/apt/sources.list.d/coldiron-grafana.sources")
    if text.exists:
        assert "Signed-By:" in text.content_string
        for uri in opts["grafana_repository"].get("uris", []):
            assert uri in text.content_string
