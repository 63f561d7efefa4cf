"""What the exporter makes of BMCs that answer, and what it says of those that do not; over TLS, as a BMC is asked."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import exporter_http
from ansible_collections.coldiron.cluster.plugins.module_utils import redfish_exporter as exporter

from coldiron.rack.metal.certificates import make_ca, make_certificate
from coldiron.testing import asking
from tests.unit.monitoring.redfish_trees import COMMON, NEW, OLD, V1, expanded

USER, PASSWORD = "reader", "canary-Redfish-4d1e"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
Answer = Callable[["Handler"], bool]


class Handler(BaseHTTPRequestHandler):
    """A BMC of one tree; ``twist`` may answer in its own way first."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.shown.append(self.headers.get("Authorization"))
        if self.server.twist is not None and self.server.twist(self):
            return
        if self.path != f"{V1}/" and self.headers.get("Authorization") != BASIC:
            self.say(401, {})
        else:
            found = self.server.tree.get(self.path)
            self.say(404 if found is None else 200, found or {})

    def say(self, status: int, found: Any, **headers: str) -> bool:
        text = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        return True

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, tree: dict[str, Any], twist: Answer | None, context: ssl.SSLContext) -> None:
        self.tree, self.twist, self.context = tree, twist, context
        self.asked: list[str] = []
        self.shown: list[str | None] = []
        self.open: list[socket.socket] = []
        # Those that hang go on hanging until this.
        self.released = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def get_request(self) -> tuple[Any, Any]:
        connection, peer = super().get_request()
        connection.settimeout(20)
        wrapped = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self.open.append(wrapped)
        return wrapped, peer

    def handle_error(self, *_: Any) -> None:
        pass


class Site:
    """An authority, and BMCs of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = folder / "ca.crt"
        make_ca(folder / "ca.key", self.ca, "BMCs")
        self.servers: list[Server] = []

    def certificate(self, known: bool, address: str = "127.0.0.1") -> tuple[Path, Path]:
        stem = f"{address}-{known}"
        pair = (self.folder / f"{stem}.key", self.folder / f"{stem}.crt")
        make_certificate(*pair, "bmc", address, (self.folder / "ca.key", self.ca) if known else None)
        return pair

    def bmc(
        self,
        tree: dict[str, Any] | None = None,
        twist: Answer | None = None,
        *,
        known: bool = True,
        address: str = "127.0.0.1",
    ) -> Server:
        key, certificate = self.certificate(known, address)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.servers.append(Server(OLD if tree is None else tree, twist, context))
        return self.servers[-1]

    def collector(self, *targets: dict[str, Any], **more: Any) -> exporter.Collector:
        config = {
            "timeout_seconds": 30,
            "seconds": 0,
            "log_seconds": 600,
            "ca": str(self.ca),
            "credentials": {"bmc": {"user": USER, "password": PASSWORD}},
            "targets": {
                f"n{place}": {"address": "127.0.0.1", "credentials": "bmc", **target}
                for place, target in enumerate(targets)
            },
        }
        return exporter.Collector({**config, **more.pop("config", {})}, **more)

    def read(self, server: Server, **target: Any) -> asking.Samples:
        return asking.samples(self.collector({"port": server.server_port, **target}).text("n0"))


@pytest.fixture(scope="module")
def module_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("bmcs"))
    yield site
    for server in site.servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(module_site: Site) -> Site:
    return module_site


def of(found: asking.Samples, metric: str, *labels: str) -> dict[Any, float]:
    """A metric's values by the values of ``labels``."""
    return {tuple(one[name] for name in labels): value for one, value in found.get(f"redfish_{metric}", [])}


def away(found: asking.Samples) -> str:
    """Why a BMC is away; everything else is left out then."""
    assert found["redfish_up"] == [({}, 0.0)]
    ours = {"redfish_up", "redfish_failures", "redfish_scrape_seconds", "redfish_questions"}
    assert set(found) <= ours
    ((labels, count),) = found["redfish_failures"]
    assert count == 1
    return labels["reason"]


def test_the_old_tree(site: Site) -> None:
    found = site.read(site.bmc(OLD))
    assert found["redfish_up"] == [({}, 1.0)]
    assert "redfish_failures" not in found
    assert of(found, "temperature_celsius", "id", "name") == {
        ("0", "Inlet Temp"): 23, ("1", "CPU1 Temp"): 97,
    }  # fmt: skip
    # The second one by its limits, as its BMC does not say.
    assert of(found, "temperature_state", "name") == {("Inlet Temp",): 0, ("CPU1 Temp",): 2}
    assert of(found, "fan_speed_rpm", "name") == {("Fan 1A",): 9360, ("Fan 2A",): 0}
    assert of(found, "fan_speed_ratio", "name") == {("Fan 3",): 0.31}
    assert of(found, "fan_state", "name") == {("Fan 1A",): 0, ("Fan 2A",): 2, ("Fan 3",): 0}
    assert found["redfish_power_watts"] == [({"chassis": "1"}, 5430.0)]
    assert found["redfish_power_limit_watts"] == [({"chassis": "1"}, 8000.0)]
    assert of(found, "psu_state", "name") == {("PSU 1",): 0, ("PSU 2",): 2}
    assert of(found, "psu_input_watts", "name") == {("PSU 1",): 2750.5}
    assert of(found, "psu_output_watts", "name") == {("PSU 1",): 2650}
    assert of(found, "voltage_volts", "name") == {("VBAT",): 2.1, ("12V",): 12.1}
    assert of(found, "voltage_state", "name") == {("VBAT",): 1, ("12V",): 0}


def test_the_machine_the_bmc_and_their_logs(site: Site) -> None:
    found = site.read(site.bmc(OLD))
    assert found["redfish_system_power_state"] == [({"system": "1"}, 1.0)]
    assert found["redfish_system_health"] == [({"system": "1"}, 1.0)]
    assert found["redfish_chassis_health"] == [({"chassis": "1"}, 0.0)]
    assert found["redfish_manager_health"] == [({"manager": "bmc"}, 0.0)]
    assert found["redfish_log_entries"] == [({"owner": "1", "log": "SEL"}, 3.0)]
    assert found["redfish_log_critical_entries"] == [({"owner": "1", "log": "SEL"}, 2.0)]


@pytest.mark.parametrize("tree", [NEW, expanded()], ids=["one by one", "with its collections"])
def test_the_new_tree(site: Site, tree: dict[str, Any]) -> None:
    server = site.bmc(tree)
    found = site.read(server)
    assert found["redfish_up"] == [({}, 1.0)]
    assert "redfish_failures" not in found
    assert of(found, "temperature_celsius", "chassis", "name") == {
        ("HGX", "GPU 1 Temp"): 88.5, ("HGX", "Inlet"): 22,
    }  # fmt: skip
    assert of(found, "temperature_state", "name") == {("GPU 1 Temp",): 1, ("Inlet",): 0}
    assert of(found, "voltage_state", "name") == {("12V",): 2}
    assert of(found, "fan_speed_rpm", "name") == {("Fan 1",): 7200}
    assert of(found, "fan_speed_ratio", "name") == {("Fan 1",): 0.45}
    assert of(found, "psu_state", "name") == {("PSU 1",): 1}
    assert of(found, "psu_input_watts", "name") == {("PSU 1",): 1800}
    assert of(found, "psu_output_watts", "name") == {("PSU 1",): 1700}
    assert found["redfish_power_watts"] == [({"chassis": "HGX"}, 3600.0)]
    assert found["redfish_power_limit_watts"] == [({"chassis": "HGX"}, 10200.0)]
    assert found["redfish_chassis_health"] == [({"chassis": "HGX"}, 2.0)]
    assert of(found, "questions")[()] == len(server.asked)


def test_the_warmth_of_thermal_metrics_is_read_where_there_are_no_sensors(site: Site) -> None:
    bare = {key: value for key, value in NEW[f"{V1}/Chassis/HGX"].items() if key != "Sensors"}
    found = site.read(site.bmc({**NEW, f"{V1}/Chassis/HGX": bare}))
    assert of(found, "temperature_celsius", "name") == {("Intake",): 21}


def test_expanding_is_a_saving_and_no_need(site: Site) -> None:
    """One that says that it can, and cannot, is asked one by one; that is no failure."""
    tree = {**NEW, f"{V1}/": expanded()[f"{V1}/"]}
    found = site.read(site.bmc(tree))
    assert "redfish_failures" not in found
    assert of(found, "fan_speed_rpm", "name") == {("Fan 1",): 7200}


@pytest.mark.parametrize(
    ("status", "reason"), [(503, "busy"), (429, "busy"), (403, "forbidden"), (500, "http"), (404, "http")]
)
def test_what_is_refused_in_part_is_told_and_the_rest_is_read(site: Site, status: int, reason: str) -> None:
    found = site.read(site.bmc(OLD, lambda one: one.path.endswith("/Thermal") and one.say(status, {})))
    assert found["redfish_up"] == [({}, 1.0)]
    assert found["redfish_failures"] == [({"reason": reason}, 1.0)]
    assert "redfish_temperature_celsius" not in found
    assert of(found, "psu_state", "name") == {("PSU 1",): 0, ("PSU 2",): 2}


@pytest.mark.parametrize(
    ("twist", "reason"),
    [
        (lambda one: one.say(503, {}), "busy"),
        (lambda one: one.say(401, {}), "refused"),
        (lambda one: one.say(500, {}), "http"),
        (lambda one: one.say(200, b"<html>Sign in</html>"), "garbage"),
        (lambda one: one.say(200, b"[1, 2]"), "garbage"),
        (lambda one: one.say(200, b"[" * 100_000), "garbage"),
        (lambda one: one.say(200, b"{}"), "garbage"),
        (lambda one: one.say(200, b" " * (exporter.MOST_BYTES + 1)), "large"),
        (lambda one: one.wfile.write(b"SMTP ready\r\n\r\n"), "garbage"),
        (lambda one: one.connection.shutdown(socket.SHUT_RDWR) or True, "unreachable"),
    ],
    ids=["busy", "refused", "broken", "html", "list", "deep", "nothing", "endless", "no http", "hangs up"],
)
def test_a_bmc_that_does_not_answer_well_is_away_and_the_reason_is_told(
    site: Site, twist: Answer, reason: str
) -> None:
    assert away(site.read(site.bmc(OLD, twist))) == reason


def test_a_closed_port_is_told(site: Site) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    assert away(asking.samples(site.collector({"port": port}).text("n0"))) == "unreachable"


def _sleeps(one: Handler) -> bool:
    one.server.released.wait(30)
    # Who still waits then hears that nothing will come.
    one.close_connection = True
    return True


def _drips(one: Handler) -> bool:
    """A byte now and then: no single read is ever late."""
    one.send_response(200)
    one.send_header("Content-Length", "1000")
    one.end_headers()
    with contextlib.suppress(OSError):
        for _ in range(150):
            one.wfile.write(b" ")
            one.wfile.flush()
            time.sleep(0.2)
    return True


@pytest.mark.parametrize("twist", [_sleeps, _drips])
def test_a_bmc_that_hangs_is_let_go_in_time(site: Site, twist: Answer) -> None:
    begin = time.monotonic()
    collector = site.collector({"port": site.bmc(OLD, twist).server_port}, config={"timeout_seconds": 1})
    assert away(asking.samples(collector.text("n0"))) == "timeout"
    assert time.monotonic() - begin < 15


def test_a_handshake_that_hangs_is_let_go_in_time(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        begin = time.monotonic()
        collector = site.collector({"port": port}, config={"timeout_seconds": 1})
        assert away(asking.samples(collector.text("n0"))) == "timeout"
        assert time.monotonic() - begin < 15


def test_what_was_read_before_it_hung_is_told(site: Site) -> None:
    server = site.bmc(OLD, lambda one: one.path.endswith("/Managers") and _sleeps(one))
    found = asking.samples(
        site.collector({"port": server.server_port}, config={"timeout_seconds": 6}).text("n0")
    )
    assert found["redfish_up"] == [({}, 1.0)]
    assert found["redfish_failures"] == [({"reason": "timeout"}, 1.0)]
    assert of(found, "fan_state", "name")[("Fan 2A",)] == 2


def test_an_unknown_certificate_is_sent_nothing(site: Site) -> None:
    server = site.bmc(OLD, known=False)
    assert away(site.read(server)) == "certificate"
    other = site.bmc(OLD, address="127.0.0.9")
    assert away(site.read(other)) == "certificate"
    assert server.asked == other.asked == []


def test_a_learnt_certificate_is_the_only_one_that_is_taken(site: Site) -> None:
    server, other = site.bmc(OLD, known=False), site.bmc(OLD)
    der = ssl.PEM_cert_to_DER_cert(site.certificate(known=False)[1].read_text())
    digest = hashlib.sha256(der).hexdigest().upper()
    written = "SHA256:" + ":".join(digest[at : at + 2] for at in range(0, 64, 2))
    assert site.read(server, fingerprint=written)["redfish_up"] == [({}, 1.0)]
    assert site.read(server, fingerprint=f"SHA256:{digest}")["redfish_up"] == [({}, 1.0)]
    # One of the site's own authority is another one all the same.
    assert away(site.read(other, fingerprint=written)) == "certificate"
    assert other.asked == []


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_nobody_else_is_sent_the_password(site: Site, status: int) -> None:
    elsewhere = site.bmc(OLD)
    where = f"https://127.0.0.1:{elsewhere.server_port}{V1}/Systems"
    server = site.bmc(OLD, lambda one: one.path == f"{V1}/Systems" and one.say(status, {}, Location=where))
    found = site.read(server)
    assert found["redfish_failures"] == [({"reason": "redirect"}, 1.0)]
    assert away(site.read(site.bmc(OLD, lambda one: one.say(status, {}, Location=where)))) == "redirect"
    assert elsewhere.asked == []


@pytest.mark.parametrize(
    "path", ["//evil.example/x", "https://evil.example/x", "/other", f"{V1}/x y", f"{V1}/\r\n", 5]
)
def test_a_link_to_anywhere_else_is_not_followed(site: Site, path: Any) -> None:
    server = site.bmc({**OLD, f"{V1}/Chassis/1": {**OLD[f"{V1}/Chassis/1"], "Thermal": {"@odata.id": path}}})
    found = site.read(server)
    assert found["redfish_failures"] == [({"reason": "garbage"}, 1.0)]
    assert str(path) not in server.asked


def test_a_refused_password_is_not_shown_again_for_a_while(site: Site) -> None:
    now = [0.0]
    server = site.bmc(OLD, lambda one: one.path != f"{V1}/" and one.say(401, {}))
    collector = site.collector({"port": server.server_port}, clock=lambda: now[0])
    assert away(asking.samples(collector.text("n0"))) == "refused"
    shown = len(server.asked)
    # Once: the account may be locked after three.
    assert server.asked.count(f"{V1}/Systems") == 1
    now[0] = exporter.REFUSED_SECONDS - 1
    assert away(asking.samples(collector.text("n0"))) == "refused"
    assert len(server.asked) == shown
    server.twist = None
    now[0] = exporter.REFUSED_SECONDS + 1
    assert asking.samples(collector.text("n0"))["redfish_up"] == [({}, 1.0)]


def test_two_who_ask_at_once_are_one_reading_and_logs_are_read_seldom(site: Site) -> None:
    now = [0.0]
    server = site.bmc(OLD)
    collector = site.collector({"port": server.server_port}, clock=lambda: now[0], config={"seconds": 30})
    first = collector.text("n0")
    many = len(server.asked)
    assert collector.text("n0") == first
    assert len(server.asked) == many
    now[0] = 60
    assert "redfish_log_entries" in collector.text("n0")
    assert not [path for path in server.asked[many:] if "Entries" in path]
    assert len(server.asked) > many
    now[0] = 700
    before = len(server.asked)
    collector.text("n0")
    assert [path for path in server.asked[before:] if "Entries" in path]


def test_who_has_less_patience_does_not_wait_for_who_has_more(site: Site) -> None:
    server = site.bmc(OLD, _sleeps)
    collector = site.collector({"port": server.server_port}, config={"timeout_seconds": 25})
    first = threading.Thread(target=collector.text, args=("n0",), daemon=True)
    first.start()
    time.sleep(0.3)
    begin = time.monotonic()
    assert away(asking.samples(collector.text("n0", 1))) == "timeout"
    assert time.monotonic() - begin < 12
    server.released.set()
    first.join(timeout=30)


def test_a_log_without_end_is_read_to_a_bound(site: Site) -> None:
    entries = f"{V1}/Systems/1/LogServices/SEL/Entries"
    page = {"Members": [{"Severity": "OK"}], "Members@odata.nextLink": entries}
    server = site.bmc({**OLD, entries: page})
    found = site.read(server)
    assert of(found, "log_entries")[()] == exporter.MOST_PAGES
    assert server.asked.count(entries) == exporter.MOST_PAGES


def test_a_tree_without_end_is_read_to_a_bound(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "MOST_QUESTIONS", 40)
    many = [f"{V1}/Chassis/{number}" for number in range(exporter.MOST_QUESTIONS + 50)]
    tree = {**COMMON, f"{V1}/Chassis": {"Members": [{"@odata.id": path} for path in many]}}
    tree.update({path: {"Id": path[-4:], "Status": {"Health": "OK"}} for path in many})
    server = site.bmc(tree)
    found = asking.samples(
        site.collector({"port": server.server_port}, config={"timeout_seconds": 30}).text("n0")
    )
    assert found["redfish_failures"] == [({"reason": "large"}, 1.0)]
    assert len(server.asked) == exporter.MOST_QUESTIONS


def test_a_bmc_that_closes_between_two_questions_is_asked_anew(site: Site) -> None:
    def closes(one: Handler) -> bool:
        # As one that keeps a connection, and then does not.
        one.close_connection = True
        return False

    server = site.bmc(OLD, closes)
    assert site.read(server)["redfish_up"] == [({}, 1.0)]
    assert len(server.open) == len(server.asked)


def test_a_user_nobody_declared_shows_no_password(site: Site) -> None:
    server = site.bmc(OLD)
    assert away(site.read(server, credentials="")) == "refused"
    assert server.shown == [None, None]


@pytest.fixture
def front(site: Site) -> Iterator[Callable[[Any], tuple[str, int]]]:
    """The exporter itself, on a port of its own."""
    started = []

    def start(collector: exporter.Collector) -> tuple[str, int]:
        key, certificate = site.certificate(known=True)
        config = {
            "address": "127.0.0.1",
            "port": 0,
            "certificate": str(certificate),
            "key": str(key),
            "user": "prometheus",
            "password_sha256": hashlib.sha256(b"scrape").hexdigest(),
        }
        server = exporter_http.Server(config, collector.answer)
        started.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return "127.0.0.1", server.server_address[1]

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def ask(
    site: Site, where: tuple[str, int], path: str, password: str = "scrape", **headers: str
) -> tuple[int, str]:
    connection = http.client.HTTPSConnection(
        *where, context=ssl.create_default_context(cafile=str(site.ca)), timeout=60
    )
    word = base64.b64encode(f"prometheus:{password}".encode()).decode()
    try:
        connection.request(
            "GET", path, headers={**({"Authorization": f"Basic {word}"} if password else {}), **headers}
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_who_asks_needs_a_password_and_a_declared_target(site: Site, front: Any) -> None:
    where = front(site.collector({"port": site.bmc(OLD).server_port}))
    status, text = ask(site, where, "/redfish?target=n0")
    assert status == 200
    assert "\nredfish_up 1\n" in text
    assert ask(site, where, "/redfish?target=n0", "")[0] == 401
    assert ask(site, where, "/redfish?target=n0", "other")[0] == 401
    # Nobody is sent to an address of the asker's choice, with the site's password.
    assert ask(site, where, "/redfish?target=10.0.0.1")[0] == 400
    assert ask(site, where, "/redfish")[0] == 400
    assert ask(site, where, "/")[0] == 404
    status, text = ask(site, where, "/metrics")
    assert status == 200
    assert "\nredfish_exporter_targets 1\n" in text
    assert "\nredfish_exporter_readings_total 1\n" in text
    assert PASSWORD not in text


def test_one_that_hangs_holds_nobody_up(site: Site, front: Any) -> None:
    """Ten that hang, and one that does not: that one is told at once."""
    hanging = site.bmc(OLD, _sleeps)
    targets = [{"port": hanging.server_port}] * 10 + [{"port": site.bmc(OLD).server_port}]
    where = front(site.collector(*targets, config={"timeout_seconds": 25}))
    waiting = [
        threading.Thread(target=ask, args=(site, where, f"/redfish?target=n{place}"), daemon=True)
        for place in range(10)
    ]
    for one in waiting:
        one.start()
    time.sleep(0.3)
    begin = time.monotonic()
    status, text = ask(site, where, "/redfish?target=n10")
    assert (status, "\nredfish_up 1\n" in text) == (200, True)
    assert time.monotonic() - begin < 15
    assert all(one.is_alive() for one in waiting)
    hanging.released.set()
    for one in waiting:
        one.join(timeout=30)


def test_it_answers_before_prometheus_gives_up(site: Site, front: Any) -> None:
    where = front(
        site.collector({"port": site.bmc(OLD, _sleeps).server_port}, config={"timeout_seconds": 90})
    )
    begin = time.monotonic()
    status, text = ask(site, where, "/redfish?target=n0", **{"X-Prometheus-Scrape-Timeout-Seconds": "2"})
    assert (status, 'reason="timeout"' in text) == (200, True)
    assert time.monotonic() - begin < 20


def test_the_words_of_a_bmc_cannot_break_the_answer(site: Site) -> None:
    evil = {"MemberId": "0", "Name": 'a"b\\c\nd{x="1"} 5', "ReadingCelsius": 20, "Status": {"Health": "OK"}}
    tree = {**OLD, f"{V1}/Chassis/1/Thermal": {"Temperatures": [evil, 5, None], "Fans": {"no": "list"}}}
    found = site.read(site.bmc(tree))
    assert len(found["redfish_temperature_celsius"]) == 1
    assert found["redfish_up"] == [({}, 1.0)]
