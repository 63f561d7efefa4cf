"""The real Prometheus asks its targets over TLS, reckons by the declared rules, and answers who has a password."""

from __future__ import annotations

import json
import re
import urllib.parse

import pytest

from coldiron.testing import asking

PLACE = "/etc/coldiron/prometheus"


@pytest.fixture
def ask(host, opts):
    """Ask it on its own node: (status, text). An empty password shows none."""
    tls = bool(opts["prometheus_tls_certificate"])
    base = f"http{'s' * tls}://{opts['prometheus_address']}:{opts['prometheus_port']}"
    authority = str(opts["prometheus_ca"]) if tls else ""

    def get(path, password=None):
        user, known = next(iter(opts["prometheus_users"].items()), ("", ""))
        word = str(known) if password is None else password
        return asking.ask(host, base + path, authority=authority, user=user, password=word)

    return get


@pytest.fixture
def query(ask):
    """What it answers to a query: [(labels, value)]."""

    def answer(text):
        status, said = ask("/api/v1/query?" + urllib.parse.urlencode({"query": text}))
        assert status == 200
        return [(one["metric"], float(one["value"][1])) for one in json.loads(said)["data"]["result"]]

    return answer


def jobs(opts):
    return [*opts["prometheus_jobs"], *opts["prometheus_more_jobs"]]


def test_it_runs_and_a_boot_starts_it(host, eventually):
    unit = host.service("prometheus.service")
    assert unit.is_enabled
    assert eventually(lambda: unit.is_running, seconds=20)


def test_it_is_heard_where_it_is_declared_and_nowhere_else(host, opts, eventually):
    where, port = opts["prometheus_address"], opts["prometheus_port"]

    def heard():
        lines = host.check_output("ss -Hltn").splitlines()
        return [line.split()[3] for line in lines if line.split()[3].endswith(f":{port}")]

    # One that has just been started is not heard yet.
    assert eventually(heard, seconds=20) == [f"{where}:{port}"]


def test_nobody_asks_without_a_password(opts, ask, eventually):
    assert eventually(lambda: ask("/-/ready")[0] == 200, seconds=60)
    if opts["prometheus_users"]:
        assert ask("/api/v1/query?query=up", "")[0] == 401
        assert ask("/api/v1/query?query=up", "another")[0] == 401


def test_it_runs_with_the_files_that_are_there(query, ask, eventually):
    assert eventually(lambda: ask("/-/ready")[0] == 200, seconds=60)
    assert eventually(lambda: query("prometheus_config_last_reload_successful") or True, seconds=5)
    status, said = ask("/api/v1/status/runtimeinfo")
    assert status == 200
    assert json.loads(said)["data"]["reloadConfigSuccess"] is True


def test_it_has_read_what_is_declared(host, opts, ask):
    status, said = ask("/api/v1/status/config")
    assert status == 200
    loaded = json.loads(said)["data"]["yaml"]
    assert re.findall(r"^- job_name: (\S+)$", loaded, re.MULTILINE) == [one["name"] for one in jobs(opts)]
    assert f"scrape_interval: {opts['prometheus_interval_seconds']}s" in loaded
    status, said = ask("/api/v1/status/flags")
    flags = json.loads(said)["data"]
    assert flags["storage.tsdb.path"] == opts["prometheus_directory"]
    days = int(opts["prometheus_retention_days"])
    assert flags["storage.tsdb.retention.time"] in (f"{days}d", f"{days // 7}w", f"{days // 365}y")


def test_it_knows_every_declared_target(opts, ask, eventually):
    wanted = {
        (job["name"], target["address"], target.get("labels", {}).get("instance"))
        for job in jobs(opts)
        for target in job.get("targets", [])
    }

    def known():
        status, said = ask("/api/v1/targets?state=active")
        assert status == 200
        return {
            (
                one["scrapePool"],
                one["labels"].get("target") or one["discoveredLabels"]["__address__"],
                one["discoveredLabels"].get("instance"),
            )
            for one in json.loads(said)["data"]["activeTargets"]
        }

    eventually(lambda: known() == wanted, seconds=60)
    assert known() == wanted


def test_its_targets_answer(opts, query, eventually):
    """Those that ask for a password are asked with it; what is down is another role's to say."""
    ours = {job["name"] for job in jobs(opts) if job["name"] in ("node", "prometheus")}
    if ours:
        names = "|".join(sorted(ours))
        assert eventually(lambda: query(f'up{{job=~"{names}"}}'), seconds=90)
        eventually(lambda: all(value == 1 for _, value in query(f'up{{job=~"{names}"}}')), seconds=90)
        assert [labels for labels, value in query(f'up{{job=~"{names}"}}') if value != 1] == []


def test_the_declared_rules_are_loaded_and_work(opts, ask, eventually):
    wanted = {
        f"{PLACE}/rules/{one['name']}" for one in [*opts["prometheus_rules"], *opts["prometheus_more_rules"]]
    }

    def groups():
        status, said = ask("/api/v1/rules")
        assert status == 200
        found = json.loads(said)["data"]["groups"]
        judged = all(rule["health"] != "unknown" for group in found for rule in group["rules"])
        return found if judged else None

    if wanted:
        found = eventually(groups, seconds=120)
        assert {group["file"] for group in found} == wanted
        wrong = [(rule["name"], rule.get("lastError")) for group in found for rule in group["rules"] if
                 rule["health"] != "ok"]  # fmt: skip
        assert wrong == []


def test_every_alertmanager_is_told(opts, ask, eventually):
    status, said = ask("/api/v1/alertmanagers")
    assert status == 200
    told = {
        urllib.parse.urlsplit(one["url"]).netloc for one in json.loads(said)["data"]["activeAlertmanagers"]
    }
    assert told == set(opts["prometheus_alertmanagers"])


@pytest.mark.acts
def test_a_new_target_is_asked_without_a_reload(host, opts, ask, eventually):
    if not jobs(opts):
        return
    name = jobs(opts)[0]["name"]
    path = f"{PLACE}/targets/{name}.json"
    before = host.file(path).content_string
    planted = [*json.loads(before), {"targets": ["127.0.0.1:9"], "labels": {"instance": "planted"}}]

    def instances():
        _status, said = ask("/api/v1/targets?state=active")
        return {one["labels"].get("instance") for one in json.loads(said)["data"]["activeTargets"]}

    def write(text):
        host.check_output("printf '%%s' %s > %s", text, path)

    write(json.dumps(planted))
    try:
        assert eventually(lambda: "planted" in instances(), seconds=60)
    finally:
        write(before)
    assert eventually(lambda: "planted" not in instances(), seconds=60)


def test_nobody_else_reads_its_secrets(host, opts):
    folder = host.file(PLACE)
    assert (folder.user, folder.group, folder.mode) == ("root", "prometheus", 0o750)
    for name in ("prometheus.yml", "web.yml"):
        written = host.file(f"{PLACE}/{name}")
        assert written.mode == 0o640
        for word in (*opts["prometheus_users"].values(), opts["prometheus_scrape_password"]):
            assert not word or str(word) not in written.content_string
