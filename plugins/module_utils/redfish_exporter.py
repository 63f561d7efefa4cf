"""Serve what machines' BMCs say by Redfish to Prometheus: power, heat, fans, power supplies, health and event logs.

    python3 -IB /usr/lib/coldiron/redfish-exporter /etc/coldiron/redfish-exporter/config.json

Role redfish_exporter installs this file and exporter_http.py as they are. It asks the declared BMCs and nobody else:
``/redfish?target=NODE``. Each question has a thread, a connection and a time of its own, so that one BMC that hangs
holds nobody up; what is wrong with it is a reason in the metrics. A BMC's certificate is verified before anything is
sent: by the declared authority, or against the one fingerprint that was learnt of it. Nothing is redirected, so the
password goes to that BMC alone; it goes with each question (basic authentication), so no session stays behind. A
refused password is not shown again for a while, since accounts get locked. docs/decisions/0004-redfish-exporter.md
says why it is ours.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import math
import re
import socket
import ssl
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.message import Message
from typing import Any, NamedTuple

from .exporter_http import Sample, patience, render, serve

#: A refused password is not shown again for this long.
REFUSED_SECONDS = 900.0
#: Bounds of one reading: questions, bytes of an answer, pages of a collection.
MOST_QUESTIONS = 600
MOST_BYTES = 4 * 2**20
MOST_PAGES = 20

METRICS: dict[str, tuple[str, str]] = {
    "redfish_up": ("gauge", "Whether the BMC has answered who is known to it."),
    "redfish_failures": ("gauge", "Questions that the BMC left unanswered, by why."),
    "redfish_scrape_seconds": ("gauge", "How long the reading took."),
    "redfish_questions": ("gauge", "Questions that the reading took."),
    "redfish_system_power_state": ("gauge", "Whether the machine is on."),
    "redfish_system_health": ("gauge", "The machine's health: 0 well, 1 warning, 2 critical."),
    "redfish_chassis_health": ("gauge", "The case's health: 0 well, 1 warning, 2 critical."),
    "redfish_manager_health": ("gauge", "The BMC's own health: 0 well, 1 warning, 2 critical."),
    "redfish_temperature_celsius": ("gauge", "A sensor's temperature."),
    "redfish_temperature_state": ("gauge", "The sensor's state: 0 well, 1 warning, 2 critical."),
    "redfish_fan_speed_rpm": ("gauge", "A fan's turns a minute."),
    "redfish_fan_speed_ratio": ("gauge", "A fan's speed, 1 is its greatest."),
    "redfish_fan_state": ("gauge", "The fan's state: 0 well, 1 warning, 2 critical."),
    "redfish_power_watts": ("gauge", "What the case draws."),
    "redfish_power_limit_watts": ("gauge", "What the case may draw."),
    "redfish_psu_state": ("gauge", "The power supply's state: 0 well, 1 warning, 2 critical."),
    "redfish_psu_input_watts": ("gauge", "What the power supply draws."),
    "redfish_psu_output_watts": ("gauge", "What the power supply gives."),
    "redfish_voltage_volts": ("gauge", "A voltage."),
    "redfish_voltage_state": ("gauge", "The voltage's state: 0 well, 1 warning, 2 critical."),
    "redfish_log_entries": ("gauge", "Entries of an event log."),
    "redfish_log_critical_entries": ("gauge", "Critical ones among the log's entries that were read."),
    "redfish_exporter_targets": ("gauge", "BMCs that are declared."),
    "redfish_exporter_readings_total": ("counter", "Readings of BMCs since the start."),
}

Labels = Mapping[str, str]
Resource = Mapping[str, Any]


class Trouble(Exception):
    """A question without an answer. ``reason`` is one word; a ``final`` one ends the reading."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.final = reason, final


class Target(NamedTuple):
    """One BMC: where it is, who logs in, and the one certificate that it may show, where that was learnt."""

    address: str
    port: int = 443
    user: str = ""
    password: str = ""
    fingerprint: str = ""


def plain(fingerprint: str) -> str:
    """A SHA-256 fingerprint without what people write around it."""
    return re.sub(r"^SHA256( FINGERPRINT)?[:=]*", "", fingerprint.strip().upper()).replace(":", "")


class Connection(http.client.HTTPConnection):
    """A connection to one BMC, by TLS; nothing is sent before its certificate was found right."""

    def __init__(self, target: Target, context: ssl.SSLContext, patience: float) -> None:
        super().__init__(target.address, target.port, timeout=patience)
        self.target, self.context = target, context
        self.way: socket.socket | None = None

    def connect(self) -> None:
        """Connect, agree on TLS and look at the certificate."""
        bare = socket.create_connection((self.host, self.port), self.timeout)
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.way = self.sock = self.context.wrap_socket(
            bare, server_hostname=self.host, do_handshake_on_connect=False
        )
        try:
            self.sock.do_handshake()
            if self.target.fingerprint:
                shown = hashlib.sha256(self.sock.getpeercert(binary_form=True) or b"").hexdigest().upper()
                if not hmac.compare_digest(shown, plain(self.target.fingerprint)):
                    raise Trouble("certificate", final=True)
        except BaseException:
            self.close()
            raise

    def cut(self) -> None:
        """End whatever waits for the BMC, from another thread."""
        if self.way is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self.way, socket.SHUT_RDWR)


class Bmc:
    """Asks one BMC, within ``patience`` seconds for all questions together."""

    def __init__(self, target: Target, context: ssl.SSLContext, patience: float) -> None:
        self.target = target
        self.end = time.monotonic() + patience
        self.asked = 0
        self.late = False
        self.connection = Connection(target, context, patience)
        # A BMC that sends a byte now and then would never be late for the socket's own clock.
        self._clock = threading.Timer(patience, self._cut)
        self._clock.daemon = True

    def __enter__(self) -> Bmc:
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._clock.cancel()
        self.connection.close()

    def _cut(self) -> None:
        self.late = True
        self.connection.cut()

    def get(self, path: str) -> dict[str, Any]:
        """One resource. Raises Trouble."""
        self.asked += 1
        if self.asked > MOST_QUESTIONS:
            raise Trouble("large", final=True)
        # A kept connection may have been closed by the BMC meanwhile: then once more, by a new one.
        kept = self.connection.sock is not None
        try:
            status, text = self._ask(path)
        except (ConnectionError, http.client.RemoteDisconnected):
            if not kept or self.late:
                raise self._lost() from None
            status, text = self._again(path)
        if 300 <= status < 400:
            # Not followed: whoever that is, the password is not theirs.
            raise Trouble("redirect")
        if status == 401:
            raise Trouble("refused", final=True)
        if status != 200:
            raise Trouble({403: "forbidden", 429: "busy", 503: "busy"}.get(status, "http"))
        return _parsed(text)

    def _again(self, path: str) -> tuple[int, bytes]:
        self.connection.close()
        try:
            return self._ask(path)
        except (ConnectionError, http.client.RemoteDisconnected):
            raise self._lost() from None

    def _lost(self) -> Trouble:
        # Python 3.9 has no word of its own for a socket's time-out, and that is when the time is up.
        late = self.late or time.monotonic() >= self.end
        return Trouble("timeout" if late else "unreachable", final=True)

    def _ask(self, path: str) -> tuple[int, bytes]:
        left = self.end - time.monotonic()
        if left <= 0 or self.late:
            raise Trouble("timeout", final=True)
        self.connection.timeout = left
        if self.connection.sock is not None:
            self.connection.sock.settimeout(left)
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        if self.target.user:
            pair = f"{self.target.user}:{self.target.password}".encode()
            headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
        try:
            self.connection.request("GET", path, headers=headers)
            answer = self.connection.getresponse()
            text = answer.read(MOST_BYTES + 1)
        except ConnectionError:
            raise
        except TimeoutError:
            raise Trouble("timeout", final=True) from None
        except ssl.SSLCertVerificationError:
            raise Trouble("certificate", final=True) from None
        except ssl.SSLError:
            raise Trouble("timeout" if self.late else "tls", final=True) from None
        except http.client.HTTPException:
            self.connection.close()
            raise Trouble("timeout" if self.late else "garbage", final=self.late) from None
        except OSError:
            raise self._lost() from None
        if self.late:
            # What was cut off looks like an end.
            raise Trouble("timeout", final=True)
        if len(text) > MOST_BYTES:
            self.connection.close()
            raise Trouble("large")
        return answer.status, text


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Trouble("garbage") from None
    if not isinstance(found, dict):
        raise Trouble("garbage")
    return found


# --- what the resources say ------------------------------------------------------------------------------------------

_HEALTH = {"OK": 0.0, "Warning": 1.0, "Critical": 2.0}
_POWER = {"On": 1.0, "PoweringOff": 1.0, "Paused": 1.0, "Off": 0.0, "PoweringOn": 0.0}
# The old names of limits, and those of a Sensor, with the state beyond them.
_LIMITS = (("NonCritical", "Caution", 1.0), ("Critical", "Critical", 2.0), ("Fatal", "Fatal", 2.0))


def _dict(value: Any) -> Resource:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Resource]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """A finite number, or nothing: BMCs say null, "N/A" and worse."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def reading(value: Any) -> float | None:
    """The number of an excerpt of a sensor, ``{"Reading": 5}``, or a number as it is."""
    return number(_dict(value).get("Reading")) if isinstance(value, Mapping) else number(value)


def health(resource: Resource, whole: bool = False) -> float | None:
    """0, 1 or 2 by a resource's Status; ``whole`` counts what is below it too."""
    status = _dict(resource.get("Status"))
    words = [status.get("Health"), *([status.get("HealthRollup")] if whole else ())]
    known = [_HEALTH[word] for word in words if isinstance(word, str) and word in _HEALTH]
    return max(known) if known else None


def state(resource: Resource, value: float | None) -> float | None:
    """A sensor's state: what the BMC says, else what its limits make of ``value``."""
    said = health(resource)
    if said is not None or value is None:
        return said
    limits = _dict(resource.get("Thresholds"))
    found: list[float] = []
    for old, new, level in _LIMITS:
        upper = number(resource.get(f"UpperThreshold{old}"))
        lower = number(resource.get(f"LowerThreshold{old}"))
        upper = reading(limits.get(f"Upper{new}")) if upper is None else upper
        lower = reading(limits.get(f"Lower{new}")) if lower is None else lower
        if upper is not None or lower is not None:
            over = upper is not None and value >= upper
            under = lower is not None and value < lower
            found.append(level if over or under else 0.0)
    return max(found) if found else None


def there(resource: Resource, *gone: str) -> bool:
    """Whether a part is in its place, and in none of the states ``gone``."""
    return _dict(resource.get("Status")).get("State") not in ("Absent", *gone)


def called(resource: Resource, place: int) -> dict[str, str]:
    """The labels ``id`` and ``name`` of a part."""
    own = resource.get("MemberId") or resource.get("Id")
    known = own if isinstance(own, str) else str(place)
    names = (resource.get("Name"), resource.get("FanName"), resource.get("DeviceName"), known)
    return {
        "id": known,
        "name": next(" ".join(name.split()) for name in names if isinstance(name, str) and name),
    }


def _valued(metric: str, value: float | None, labels: Labels) -> Iterator[Sample]:
    if value is not None:
        yield Sample(metric, value, labels)


def sensors(
    kind: str, unit: str, found: Sequence[tuple[Resource, float | None]], labels: Labels
) -> list[Sample]:
    """Value and state of each sensor of one kind, such as ``temperature`` in ``celsius``."""
    samples: list[Sample] = []
    for place, (resource, value) in enumerate(found):
        if there(resource, "Disabled", "StandbyOffline"):
            about = {**labels, **called(resource, place)}
            samples += _valued(f"redfish_{kind}_{unit}", value, about)
            samples += _valued(f"redfish_{kind}_state", state(resource, value), about)
    return samples


def fans(found: Sequence[Resource], labels: Labels) -> list[Sample]:
    """Fans, as Thermal has them or as ThermalSubsystem does."""
    samples: list[Sample] = []
    for place, fan in enumerate(found):
        if not there(fan, "Disabled", "StandbyOffline"):
            continue
        about = {**labels, **called(fan, place)}
        speed = _dict(fan.get("SpeedPercent"))
        turns, share = number(speed.get("SpeedRPM")), number(speed.get("Reading"))
        if not speed:
            value, percent = number(fan.get("Reading")), fan.get("ReadingUnits") == "Percent"
            turns, share = (None, value) if percent else (value, None)
        samples += _valued("redfish_fan_speed_rpm", turns, about)
        samples += _valued("redfish_fan_speed_ratio", None if share is None else share / 100, about)
        # Limits are in the old fans' own unit.
        samples += _valued("redfish_fan_state", state(fan, turns if share is None else share), about)
    return samples


def supplies(found: Sequence[tuple[Resource, Resource]], labels: Labels) -> list[Sample]:
    """Power supplies, each with its metrics where those are a resource of their own."""
    samples: list[Sample] = []
    for place, (supply, more) in enumerate(found):
        if not there(supply):
            continue
        about = {**labels, **called(supply, place)}
        said = health(supply)
        if said is None:
            # Plugged in, and gives nothing: no input, or switched off.
            said = {"Enabled": 0.0, "UnavailableOffline": 2.0}.get(
                str(_dict(supply.get("Status")).get("State"))
            )
        samples += _valued("redfish_psu_state", said, about)
        given = [number(supply.get(key)) for key in ("PowerOutputWatts", "LastPowerOutputWatts")]
        output = next(
            (value for value in (*given, reading(more.get("OutputPowerWatts"))) if value is not None), None
        )
        taken = number(supply.get("PowerInputWatts"))
        samples += _valued("redfish_psu_output_watts", output, about)
        samples += _valued(
            "redfish_psu_input_watts", reading(more.get("InputPowerWatts")) if taken is None else taken, about
        )
    return samples


class Reader:
    """One reading of one BMC. ``logs`` says whether event logs are read too: they are long, and change seldom."""

    def __init__(self, bmc: Bmc, logs: bool = True) -> None:
        self.bmc, self.with_logs = bmc, logs
        self.samples: list[Sample] = []
        self.logs: list[Sample] = []
        self.failures: Counter[str] = Counter()
        self.up = False
        self.expands = False

    def read(self) -> None:
        """Read everything; what could not be read is in ``failures``, and ``up`` says whether anything was."""
        try:
            root = self.bmc.get("/redfish/v1/")
            if not any(key in root for key in ("Systems", "Chassis", "Managers")):
                raise Trouble("garbage")
            expand = _dict(_dict(root.get("ProtocolFeaturesSupported")).get("ExpandQuery"))
            self.expands = expand.get("NoLinks") is True or expand.get("ExpandAll") is True
            self._machine(root)
        except Trouble as trouble:
            self.failures[trouble.reason] += 1
            self.up = self.up and trouble.reason != "refused"

    def _machine(self, root: Resource) -> None:
        logs: list[tuple[str, Any]] = []
        for system in self._members(root.get("Systems")):
            about = {"system": called(system, 0)["id"]}
            power = system.get("PowerState")
            self.samples += _valued("redfish_system_power_state", _POWER.get(str(power)), about)
            self.samples += _valued("redfish_system_health", health(system, whole=True), about)
            logs.append((about["system"], system.get("LogServices")))
        for chassis in self._members(root.get("Chassis")):
            if there(chassis):
                self._chassis(chassis)
        for manager in self._members(root.get("Managers")):
            about = {"manager": called(manager, 0)["id"]}
            self.samples += _valued("redfish_manager_health", health(manager, whole=True), about)
            logs.append((about["manager"], manager.get("LogServices")))
        if self.with_logs:
            for owner, link in logs:
                for service in self._members(link):
                    self._log(owner, service)

    def _chassis(self, chassis: Resource) -> None:
        """Of each kind of reading the old tree's where it has any, else the new one's: many BMCs have both."""
        labels = {"chassis": called(chassis, 0)["id"]}
        self.samples += _valued("redfish_chassis_health", health(chassis, whole=True), labels)
        thermal, power = self._follow(chassis.get("Thermal")), self._follow(chassis.get("Power"))
        heat = [(one, number(one.get("ReadingCelsius"))) for one in _list(thermal.get("Temperatures"))]
        volts = [(one, number(one.get("ReadingVolts"))) for one in _list(power.get("Voltages"))]
        heat, volts = ([one for one in kind if one[1] is not None] for kind in (heat, volts))
        if not heat or (not volts and not power):
            more = [one for one in self._members(chassis.get("Sensors")) if reading(one) is not None]
            heat = heat or [(one, reading(one)) for one in more if one.get("ReadingType") == "Temperature"]
            volts = volts or [(one, reading(one)) for one in more if one.get("ReadingType") == "Voltage"]
        turning = _list(thermal.get("Fans"))
        if not turning or not heat:
            below = self._follow(chassis.get("ThermalSubsystem"))
            turning = turning or self._members(below.get("Fans"))
            if not heat:
                metrics = self._follow(below.get("ThermalMetrics"))
                heat = [(one, reading(one)) for one in _list(metrics.get("TemperatureReadingsCelsius"))]
        feeding = [(one, {}) for one in _list(power.get("PowerSupplies"))]
        if not feeding:
            below = self._follow(chassis.get("PowerSubsystem"))
            feeding = [
                (one, self._follow(one.get("Metrics"))) for one in self._members(below.get("PowerSupplies"))
            ]
        self.samples += sensors("temperature", "celsius", heat, labels)
        self.samples += sensors("voltage", "volts", volts, labels)
        self.samples += fans(turning, labels)
        self.samples += supplies(feeding, labels)
        self.samples += self._draw(chassis, power, labels)

    def _draw(self, chassis: Resource, power: Resource, labels: Labels) -> Iterator[Sample]:
        """What the case draws: the first control is the whole of it, those after it are parts."""
        control = next(iter(_list(power.get("PowerControl"))), {})
        watts = number(control.get("PowerConsumedWatts"))
        limit = number(_dict(control.get("PowerLimit")).get("LimitInWatts"))
        if watts is None:
            around = self._follow(chassis.get("EnvironmentMetrics"))
            watts = reading(around.get("PowerWatts"))
            limit = number(_dict(around.get("PowerLimitWatts")).get("SetPoint")) if limit is None else limit
        yield from _valued("redfish_power_watts", watts, labels)
        # 0 and null are "none" to those that say either.
        yield from _valued("redfish_power_limit_watts", limit or None, labels)

    def _log(self, owner: str, service: Resource) -> None:
        link = _dict(service.get("Entries"))
        about = {"owner": owner, "log": called(service, 0)["id"]}
        counted, read, critical = None, 0, 0
        for page in self._pages(link.get("@odata.id")):
            counted = number(page.get("Members@odata.count")) if counted is None else counted
            entries = _list(page.get("Members"))
            read += len(entries)
            critical += sum(one.get("Severity") == "Critical" for one in entries)
        if counted is not None or read:
            self.logs.append(Sample("redfish_log_entries", max(counted or 0.0, read), about))
            self.logs.append(Sample("redfish_log_critical_entries", critical, about))

    def _follow(self, link: Any) -> Resource:
        """What a link leads to; nothing where there is none, or no answer."""
        path = _dict(link).get("@odata.id")
        return self._get(path) if path is not None else {}

    def _get(self, path: Any) -> Resource:
        try:
            # A link names a resource of this BMC, and is no way to anywhere else.
            if not isinstance(path, str) or not re.fullmatch(r"/redfish/[!-~]*", path):
                raise Trouble("garbage")
            found = self.bmc.get(path)
        except Trouble as trouble:
            if trouble.final:
                raise
            self.failures[trouble.reason] += 1
            return {}
        # The root is for everybody; whoever reads on is known.
        self.up = True
        return found

    def _pages(self, path: Any) -> Iterator[Resource]:
        for _ in range(MOST_PAGES):
            if path is None:
                return
            page = self._get(path)
            yield page
            path = page.get("Members@odata.nextLink")

    def _members(self, link: Any) -> list[Resource]:
        """The resources of a collection: as it shows them, or each by its own."""
        path = _dict(link).get("@odata.id")
        if path is None:
            return []
        pages: list[Resource] = []
        if self.expands and isinstance(path, str):
            before = Counter(self.failures)
            pages = [page for page in self._pages(f"{path}?$expand=.") if page]
            if not pages:
                # It said that it can, and cannot: that is no failure.
                self.failures = before
        pages = pages or list(self._pages(path))
        found = []
        for one in [one for page in pages for one in _list(page.get("Members"))]:
            found.append(
                self._follow(one) if set(one) <= {"@odata.id", "@odata.type", "@odata.etag"} else one
            )
        return [one for one in found if one]


# --- who is asked, and who asks --------------------------------------------------------------------------------------


class Kept:
    """What is remembered of one BMC between readings."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.text, self.at = "", float("-inf")
        self.logs: list[Sample] = []
        self.logs_at = self.refused_at = float("-inf")


def _away(reason: str) -> str:
    """What is told of a BMC that was not asked."""
    return render(METRICS, [Sample("redfish_up", 0), Sample("redfish_failures", 1, {"reason": reason})])


class Collector:
    """Reads declared BMCs, each at most once in ``seconds``, its logs once in ``log_seconds``."""

    def __init__(self, config: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.patience, self.seconds = float(config["timeout_seconds"]), float(config["seconds"])
        self.log_seconds = float(config["log_seconds"])
        users = config["credentials"]
        self.targets = {
            name: Target(
                one["address"],
                int(one.get("port") or 443),
                str(_dict(users.get(one.get("credentials"))).get("user") or ""),
                str(_dict(users.get(one.get("credentials"))).get("password") or ""),
                one.get("fingerprint") or "",
            )
            for name, one in config["targets"].items()
        }
        self._verifying = ssl.create_default_context(cafile=config.get("ca") or None)
        self._pinned = ssl.create_default_context()
        # A learnt certificate is looked at itself; its names, dates and signer count for nothing.
        self._pinned.check_hostname = False
        self._pinned.verify_mode = ssl.CERT_NONE
        self._kept = {name: Kept() for name in self.targets}
        self._counting = threading.Lock()
        self._readings = 0

    def answer(self, path: str, query: str, headers: Message) -> tuple[int, str]:
        """What who may ask is told at ``/redfish?target=NODE`` and at ``/metrics``."""
        if path == "/metrics":
            return 200, self.own()
        if path != "/redfish":
            return 404, "BMCs are at /redfish?target=NODE, the exporter itself is at /metrics\n"
        name = urllib.parse.parse_qs(query).get("target", [""])[0]
        if name not in self.targets:
            return 400, "nobody has declared this target\n"
        return 200, self.text(name, patience(headers))

    def own(self) -> str:
        """The exporter's own metrics."""
        return render(
            METRICS,
            [
                Sample("redfish_exporter_targets", len(self.targets)),
                Sample("redfish_exporter_readings_total", self._readings),
            ],
        )

    def text(self, name: str, patience: float | None = None) -> str:
        """What the BMC of ``name`` says. Raises KeyError for one that nobody declared."""
        target, kept = self.targets[name], self._kept[name]
        patience = min(self.patience, patience or self.patience)
        end = time.monotonic() + patience
        # Somebody with more patience may be waiting for this BMC already.
        if not kept.lock.acquire(timeout=patience):
            return _away("timeout")
        try:
            if self.clock() - kept.at >= self.seconds:
                kept.text = self._read(target, kept, max(0.1, end - time.monotonic()))
                kept.at = self.clock()
            return kept.text
        finally:
            kept.lock.release()

    def _read(self, target: Target, kept: Kept, patience: float) -> str:
        with self._counting:
            self._readings += 1
        if self.clock() - kept.refused_at < REFUSED_SECONDS:
            return _away("refused")
        begin = time.monotonic()
        old = self.clock() - kept.logs_at >= self.log_seconds
        with Bmc(target, self._pinned if target.fingerprint else self._verifying, patience) as bmc:
            reader = Reader(bmc, old)
            reader.read()
        if reader.failures["refused"]:
            kept.refused_at = self.clock()
        if old and reader.up:
            kept.logs, kept.logs_at = reader.logs, self.clock()
        samples = [Sample("redfish_up", float(reader.up))]
        samples += [
            Sample("redfish_failures", count, {"reason": why}) for why, count in reader.failures.items()
        ]
        samples.append(Sample("redfish_scrape_seconds", round(time.monotonic() - begin, 3)))
        samples.append(Sample("redfish_questions", bmc.asked))
        # Half of what a BMC that is away said before is worse than nothing.
        return render(METRICS, [*samples, *(reader.samples + kept.logs if reader.up else ())])


def main(path: str) -> None:
    """Serve until the process is ended."""
    serve(path, lambda config: Collector(config).answer)
