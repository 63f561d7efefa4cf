"""A cluster at one moment, put together from what its Prometheus answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from coldiron.errors import ColdironError
from coldiron.status.client import Alertmanager, Prometheus, Sample

#: The alert that always fires: that it does shows that alerts are worked out at all.
DEAD_MANS_SWITCH: Final = "Watchdog"
SEVERITIES: Final = ("page", "critical", "ticket", "warning", "info")
# A share of a file system that holds no data of anybody's says nothing.
_FILE_SYSTEMS = (
    'fstype!~"tmpfs|ramfs|overlay|squashfs|iso9660|fuse.*|autofs|nsfs",'
    'mountpoint!~"/(proc|sys|dev|run|boot/efi)($|/.*)"'
)

QUESTIONS: Final = {
    "up": 'max by (instance) (up{job="node"})',
    "kind": 'count by (instance, kind, rack) (up{job="node"})',
    "busy": '1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[5m]))',
    "memory": "1 - max by (instance) (node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)",
    "disk": f"1 - min by (instance) (node_filesystem_avail_bytes{{{_FILE_SYSTEMS}}} / node_filesystem_size_bytes)",
    "booted": "max by (instance) (node_boot_time_seconds)",
    "watts": "max by (instance) (coldiron:bmc_power_watts)",
    "slurm": "slurm_node_state == 1",
    "reason": "slurm_node_reason_timestamp_seconds",
    "utilization": "coldiron:gpu_utilization_percent",
    "used": "coldiron:gpu_memory_used_bytes",
    "total": "coldiron:gpu_memory_total_bytes",
    "power": "coldiron:gpu_power_watts",
    "limit": "coldiron:gpu_power_limit_watts",
    "temperature": "coldiron:gpu_temperature_celsius",
    "xid": "coldiron:gpu_xid > 0",
    "jobs": "sum by (state) (slurm_jobs)",
    "users": "slurm_job_gpu",
}
"""What is asked, in PromQL; no answer to one of them is no error: a site need not have every exporter."""


@dataclass(frozen=True)
class Alert:
    """An alert that pends, fires, or is kept quiet. ``since`` is in seconds since 1970."""

    name: str
    severity: str
    node: str
    rack: str
    state: str
    since: float
    summary: str
    description: str
    runbook: str
    quiet: bool

    @property
    def grave(self) -> bool:
        """Whether a person has to act now."""
        return self.state == "firing" and not self.quiet and self.severity in ("page", "critical")


@dataclass
class Gpu:
    """A GPU, or an instance of one (``mig``); None stands for what nobody measures."""

    node: str
    number: str
    uuid: str
    model: str
    mig: str
    profile: str
    utilization: float | None = None
    used: float | None = None
    total: float | None = None
    power: float | None = None
    limit: float | None = None
    temperature: float | None = None
    xid: int = 0


@dataclass
class Node:
    """A node; ratios are of 0 to 1, None stands for what nobody measures."""

    name: str
    kind: str = ""
    rack: str = ""
    up: bool | None = None
    busy: float | None = None
    memory: float | None = None
    disk: float | None = None
    booted: float | None = None
    watts: float | None = None
    slurm: str = ""
    reason: str = ""
    gpus: list[Gpu] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> bool:
        """Whether somebody should look at it."""
        return self.up is False or any(alert.grave for alert in self.alerts)


@dataclass
class Overview:
    """All of it. ``jobs`` counts by Slurm's states; ``silent`` are questions that the server answered with an error."""

    cluster: str
    at: float
    nodes: list[Node]
    alerts: list[Alert]
    gpus: list[Gpu]
    jobs: dict[str, int]
    alive: bool
    silent: list[str]


def look(
    prometheus: Prometheus,
    alertmanager: Alertmanager | None,
    cluster: str,
    names: Sequence[str],
    now: float,
) -> Overview:
    """Ask for everything and put it together. ``names`` are the inventory's nodes; others that are watched come after.

    Raises ColdironError where Prometheus does not answer at all.
    """
    silent: list[str] = []
    found = {key: _ask(prometheus, key, silent) for key in QUESTIONS}
    # The first question tells whether the server answers; one that fails by itself is only said.
    if len(silent) == len(QUESTIONS):
        raise ColdironError(silent[0])
    quiet: list[dict[str, str]] = []
    if alertmanager is not None:
        try:
            quiet = alertmanager.quiet()
        except ColdironError as error:
            silent.append(str(error))
    alerts = [_alert(raw, quiet) for raw in prometheus.alerts()]
    alive = any(alert.name == DEAD_MANS_SWITCH and alert.state == "firing" for alert in alerts)
    alerts = sorted((alert for alert in alerts if alert.name != DEAD_MANS_SWITCH), key=_weight)
    nodes = _nodes(found, names)
    for alert in alerts:
        if alert.node in nodes:
            nodes[alert.node].alerts.append(alert)
    gpus = _gpus(found)
    for gpu in gpus:
        if gpu.node in nodes:
            nodes[gpu.node].gpus.append(gpu)
    jobs = {sample.labels.get("state", ""): int(sample.value) for sample in found["jobs"]}
    return Overview(cluster, now, list(nodes.values()), alerts, gpus, jobs, alive, silent)


def _ask(prometheus: Prometheus, key: str, silent: list[str]) -> list[Sample]:
    if silent and len(silent) == list(QUESTIONS).index(key):
        # It has answered nothing so far: each further question would wait as long.
        silent.append(silent[-1])
        return []
    try:
        return prometheus.query(QUESTIONS[key])
    except ColdironError as error:
        silent.append(str(error))
        return []


def _nodes(found: dict[str, list[Sample]], names: Sequence[str]) -> dict[str, Node]:
    nodes = {name: Node(name) for name in names}
    watched = {sample.labels["instance"] for sample in found["up"] if "instance" in sample.labels}
    for name in sorted(watched - set(nodes), key=_by_number):
        nodes[name] = Node(name)

    def each(key: str, label: str, put: Callable[[Node, Sample], None]) -> None:
        for sample in found[key]:
            if (node := nodes.get(sample.labels.get(label, ""))) is not None:
                put(node, sample)

    def place(node: Node, sample: Sample) -> None:
        node.kind, node.rack = sample.labels.get("kind", ""), sample.labels.get("rack", "")

    def stand(node: Node, sample: Sample) -> None:
        node.up = sample.value == 1

    def state(node: Node, sample: Sample) -> None:
        node.slurm = sample.labels.get("state", "")

    def reason(node: Node, sample: Sample) -> None:
        node.reason = sample.labels.get("reason", "")

    def job(node: Node, sample: Sample) -> None:
        labels = sample.labels
        node.jobs.append(f"{labels.get('job_id', '?')} of {labels.get('user', '?')}: {sample.value:.0f}")

    each("kind", "instance", place)
    each("up", "instance", stand)
    for key in ("busy", "memory", "disk", "booted", "watts"):
        each(key, "instance", lambda node, sample, key=key: setattr(node, key, sample.value))  # type: ignore[misc]
    each("slurm", "node", state)
    each("reason", "node", reason)
    each("users", "node", job)
    return nodes


def _gpus(found: dict[str, list[Sample]]) -> list[Gpu]:
    gpus: dict[tuple[str, str, str], Gpu] = {}
    for key in ("utilization", "used", "total", "power", "limit", "temperature", "xid"):
        for sample in found[key]:
            host, gpu, uuid, model, mig, profile = (
                sample.labels.get(name, "") for name in ("host", "gpu", "uuid", "model", "mig", "mig_profile")
            )
            found_one = gpus.setdefault((host, gpu, mig), Gpu(host, gpu, uuid, model, mig, profile))
            setattr(found_one, key, int(sample.value) if key == "xid" else sample.value)
    return [gpus[place] for place in sorted(gpus, key=lambda place: [_by_number(word) for word in place])]


def _alert(raw: dict[str, Any], quiet: Iterable[dict[str, str]]) -> Alert:
    labels = {str(name): str(value) for name, value in (raw.get("labels") or {}).items()}
    notes = raw.get("annotations") or {}
    # Alertmanager knows external labels besides.
    hushed = any(labels.items() <= other.items() for other in quiet)
    return Alert(
        name=labels.get("alertname", "?"),
        severity=labels.get("severity", ""),
        node=labels.get("node") or labels.get("instance", ""),
        rack=labels.get("rack", ""),
        state=str(raw.get("state", "")),
        since=_seconds(str(raw.get("activeAt", ""))),
        summary=str(notes.get("summary", "")),
        description=str(notes.get("description", "")),
        runbook=str(notes.get("runbook_url") or notes.get("runbook", "")),
        quiet=hushed,
    )


def _by_number(name: str) -> list[tuple[int, str]]:
    """gpu2 before gpu10."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", name)]


def _seconds(text: str) -> float:
    """Seconds since 1970 of an RFC 3339 time; 0 where it is none."""
    try:
        # Python reads six digits of a second, Prometheus writes nine.
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def _weight(alert: Alert) -> tuple[bool, bool, int, float]:
    """Firing first, then by gravity, then the oldest."""
    rank = SEVERITIES.index(alert.severity) if alert.severity in SEVERITIES else len(SEVERITIES)
    return alert.quiet, alert.state != "firing", rank, alert.since
