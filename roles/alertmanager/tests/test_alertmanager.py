"""The real Alertmanager takes alerts from who has a password, tells whom it shall, and silences what is dead."""

from __future__ import annotations

import json
import time
import urllib.parse
import uuid

import pytest

from coldiron.testing import asking

SINK = """
import http.server, sys
class Sink(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[2], "ab") as file:
            file.write(data + b"\\n")
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Sink).serve_forever()
"""
PLACE = "/etc/coldiron/alertmanager"


@pytest.fixture
def ask(host, opts):
    """Ask it on its own node: (status, text). An empty password shows none."""
    tls = bool(opts["alertmanager_tls_certificate"])
    base = f"http{'s' * tls}://{opts['alertmanager_address']}:{opts['alertmanager_port']}"
    authority = str(opts["alertmanager_ca"]) if tls else ""

    def get(path, body="", password=None):
        user, known = next(iter(opts["alertmanager_users"].items()), ("", ""))
        word = str(known) if password is None else password
        return asking.ask(host, base + path, authority=authority, user=user, password=word, body=body)

    return get


@pytest.fixture
def fire(ask, eventually):
    """Post an alert with these labels; it is resolved at the test's end."""
    fired = []

    def post(labels, end=None):
        one = {"labels": labels, **({"endsAt": end} if end else {})}
        assert ask("/api/v2/alerts", json.dumps([one]))[0] == 200

    def go(**labels):
        whole = {"alertname": f"Planted{uuid.uuid4().hex[:8]}", "severity": "ticket", **labels}
        assert eventually(lambda: ask("/-/ready")[0] == 200, seconds=60)
        post(whole)
        fired.append(whole)
        return whole["alertname"]

    yield go
    for labels in fired:
        post(labels, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 1)))


@pytest.fixture
def shown(ask, eventually):
    """The alert of that name, as it is shown."""

    def find(name):
        query = urllib.parse.urlencode({"filter": f'alertname="{name}"'})
        found = json.loads(ask("/api/v2/alerts?" + query)[1])
        return found[0] if found else None

    return lambda name: eventually(lambda: find(name), seconds=15)


def silences(node, opts):
    """What another Alertmanager of the pair says of its silences."""
    scheme = "https" if opts["alertmanager_tls_certificate"] else "http"
    address = next(one for one in opts["alertmanager_peers"]).rpartition(":")[0]
    url = f"{scheme}://{address}:{opts['alertmanager_port']}/api/v2/silences"
    user, word = next(iter(opts["alertmanager_users"].items()), ("", ""))
    authority = str(opts["alertmanager_ca"]) if scheme == "https" else ""
    return asking.ask(node, url, authority=authority, user=user, password=word)[1]


def unit(opts):
    return opts["__alertmanager_os"]["service"]


def test_it_runs_and_a_boot_starts_it(host, opts, eventually):
    service = host.service(unit(opts))
    assert service.is_enabled
    assert eventually(lambda: service.is_running, seconds=20)


def test_it_is_heard_where_it_is_declared_and_nowhere_else(host, opts, eventually):
    where, port, gossip = (opts[f"alertmanager_{name}"] for name in ("address", "port", "cluster_port"))
    others = opts["alertmanager_cluster_address"]

    def heard():
        lines = [line.split()[3] for line in host.check_output("ss -Hltn").splitlines()]
        return [[one for one in lines if one.endswith(f":{number}")] for number in (port, gossip)]

    # One that has just been started is not heard yet.
    eventually(lambda: all(heard()[: 2 if others else 1]), seconds=20)
    assert heard() == [[f"{where}:{port}"], [f"{others}:{gossip}"] if others else []]


def test_nobody_asks_without_a_password(opts, ask, eventually):
    assert eventually(lambda: ask("/-/ready")[0] == 200, seconds=60)
    if opts["alertmanager_users"]:
        assert ask("/api/v2/alerts", password="")[0] == 401
        assert ask("/api/v2/alerts", password="another")[0] == 401


def test_it_has_read_what_is_declared(opts, ask):
    loaded = json.loads(ask("/api/v2/status")[1])["config"]["original"]
    declared = [one["name"] for one in opts["alertmanager_receivers"]]
    assert {one["name"] for one in json.loads(ask("/api/v2/receivers")[1])} >= {*declared, "nobody"}
    assert f"group_wait: {opts['alertmanager_group_wait_seconds']}s" in loaded
    assert loaded.count("source_matchers:") == len(opts["alertmanager_inhibitions"])


def test_the_others_are_there(opts, ask, eventually):
    def peers():
        return len(json.loads(ask("/api/v2/status")[1])["cluster"].get("peers") or [])

    wanted = len(opts["alertmanager_peers"]) + bool(opts["alertmanager_cluster_address"])
    eventually(lambda: peers() == wanted, seconds=60)
    assert peers() == wanted


@pytest.mark.acts
def test_an_alert_is_for_the_first_receiver(opts, fire, shown):
    first = (opts["alertmanager_receivers"] or [{"name": "nobody"}])[0]["name"]
    if not opts["alertmanager_routes"]:
        assert [one["name"] for one in shown(fire())["receivers"]] == [first]


@pytest.mark.acts
def test_the_watchdog_and_what_wants_repair_go_where_they_shall(opts, fire, shown):
    wanted = "watchdog" if opts["alertmanager_watchdog_url"] else "nobody"
    fire(alertname="Watchdog", planted="yes")
    assert [one["name"] for one in shown("Watchdog")["receivers"]] == [wanted]
    names = [one["name"] for one in shown(fire(coldiron_repair="true"))["receivers"]]
    assert ("coldiron-repair" in names) == bool(opts["alertmanager_repair_url"])
    assert len(names) >= 1


@pytest.mark.acts
def test_a_dead_node_is_one_alert(opts, fire, shown, eventually):
    """By the default inhibitions only: a site may have others."""
    if not any('inhibits="node"' in str(one) for one in opts["alertmanager_inhibitions"]):
        return
    dead = fire(inhibits="node", instance="planted1", severity="page")
    follows, other = fire(instance="planted1"), fire(instance="planted2")
    assert eventually(lambda: shown(follows)["status"]["state"] == "suppressed", seconds=30)
    assert shown(follows)["status"]["inhibitedBy"] == [shown(dead)["fingerprint"]]
    assert shown(other)["status"]["state"] != "suppressed"
    assert shown(dead)["status"]["state"] != "suppressed"


@pytest.mark.acts
def test_a_silence_on_one_holds_on_all(opts, fire, shown, ask, eventually, role_hosts, run_on, hostname):
    name = fire()
    begin, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + more)) for more in (0, 300))
    silence = {
        "matchers": [{"name": "alertname", "value": name, "isRegex": False, "isEqual": True}],
        "startsAt": begin, "endsAt": end, "createdBy": "test", "comment": "planted",
    }  # fmt: skip
    status, said = ask("/api/v2/silences", json.dumps(silence))
    assert status == 200
    assert json.loads(said)["silenceID"]
    assert eventually(lambda: shown(name)["status"]["state"] == "suppressed", seconds=30)
    others = [one for one in role_hosts("alertmanager") if one != hostname and opts["alertmanager_peers"]]
    for other in others:
        assert eventually(lambda other=other: name in silences(run_on(other), opts), seconds=60)


@pytest.mark.acts
def test_a_receiver_on_the_node_itself_is_told(host, opts, fire, eventually):
    """Where a receiver's address is the node's own, which a scenario's is, somebody listens there for the test."""
    addresses = [
        hook["url"] for one in opts["alertmanager_receivers"][:1] for hook in one.get("webhooks") or []
    ]
    local = [urllib.parse.urlsplit(str(url)) for url in addresses if "//127.0.0.1:" in str(url)]
    if not local:
        return
    place = "/run/planted-sink"
    host.check_output("rm -f %s; systemctl reset-failed planted-sink 2>/dev/null; "
                      "systemd-run --unit planted-sink --collect python3 -c %s %s %s",
                      place, SINK, str(local[0].port), place)  # fmt: skip
    try:
        name = fire(instance="planted3")
        told = eventually(lambda: name in host.run("cat %s", place).stdout, seconds=90)
        assert told
    finally:
        host.check_output("systemctl stop planted-sink; rm -f %s", place)


def test_nobody_else_reads_its_secrets(host, opts):
    folder = host.file(PLACE)
    assert (folder.user, folder.group, folder.mode) == ("root", "prometheus", 0o750)
    for name in ("alertmanager.yml", "web.yml"):
        assert host.file(f"{PLACE}/{name}").mode == 0o640
    for word in opts["alertmanager_users"].values():
        assert str(word) not in host.file(f"{PLACE}/web.yml").content_string
