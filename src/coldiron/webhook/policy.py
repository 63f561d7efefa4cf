"""What is done about an alert: the site's policy as data, and the decision. Pure, save for reading the two files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coldiron.errors import ColdironError
from coldiron.inventory import Cluster
from coldiron.inventory.findings import shown, shown_path
from coldiron.repair import target
from coldiron.repair.machine import Kind
from coldiron.run.lock import span
from coldiron.webhook.alerts import Alert

ASKING_LABEL = "coldiron_repair"
_DAY = 86400


class Policy(BaseModel):
    """The policy file. An alert that ``alerts`` does not name acts only where its label ``coldiron_repair`` is true.

    ``node_labels``: the labels that say which node, the first that the alert has counts. ``nodes_a_day``: no more
    nodes are drained within a day, as a rule that is wrong fires everywhere. ``quiet_seconds``: how long a node that
    an alert has drained is left alone.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    alerts: dict[str, Literal["diagnose", "ignore"]] = Field(default_factory=dict)
    node_labels: Annotated[list[str], Field(min_length=1)] = ["node", "nodename", "instance"]
    nodes_a_day: Annotated[int, Field(ge=1)] = 4
    quiet_seconds: Annotated[int, Field(ge=0)] = 3600


def read_policy(path: Path) -> Policy:
    """The policy in ``path``. Raises ColdironError, which says what to write."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ColdironError(f"{shown_path(path)} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ColdironError(f"{shown_path(path)}{line}: no YAML") from None
    try:
        return Policy.model_validate({} if data is None else data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        fields = ", ".join(Policy.model_fields)
        raise ColdironError(
            f"{shown_path(path)}: {where + ': ' if where else ''}{first['msg']}; it has {fields}, and an alert's "
            "action is diagnose or ignore"
        ) from None


class Roster:
    """The nodes that alerts can name: by name, by name and domain, by address; with a port or without."""

    def __init__(self, cluster: Cluster) -> None:
        self._names: dict[str, str] = {}
        self._cluster = cluster
        for node in cluster.nodes:
            for word in (node.name, f"{node.name}.{cluster.domain}", str(node.address)):
                self._names[word.lower()] = node.name

    def find(self, value: str) -> str | None:
        """The node that a label's value means."""
        host, colon, port = value.strip().lower().rpartition(":")
        named = host if colon and port.isdigit() else value.strip().lower()
        return self._names.get(named.removesuffix("."))

    def refusal(self, node: str) -> str:
        """Why ``node`` may not be drained by an alert; empty where it may."""
        try:
            target.check(self._cluster, [node], Kind.WEBHOOK)
        except ColdironError as error:
            return error.message
        return ""


class Word(StrEnum):
    """What becomes of an alert. ``LATER``: ask again, there is no room now."""

    ACCEPTED = "accepted"
    IGNORED = "ignored"
    RESOLVED = "resolved"
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    LATER = "later"


@dataclass(frozen=True)
class Verdict:
    """A decision on one alert; ``why`` is a line for people, empty where there is nothing to say."""

    word: Word
    node: str = ""
    why: str = ""


@dataclass(frozen=True)
class Known:
    """What has happened so far. ``begun``: when each node was last accepted, in seconds since the epoch.

    ``keys``: the alerts that were accepted. ``waiting``: nodes that are in the queue or being looked at.
    """

    keys: frozenset[str] = frozenset()
    begun: Mapping[str, float] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()


def decide(alert: Alert, policy: Policy, roster: Roster, known: Known, now: float) -> Verdict:
    """What becomes of ``alert`` at ``now``, in seconds since the epoch."""
    if alert.status == "resolved":
        return Verdict(Word.RESOLVED)
    asks = "diagnose" if alert.labels.get(ASKING_LABEL) == "true" else "ignore"
    if policy.alerts.get(alert.labels.get("alertname", ""), asks) == "ignore":
        return Verdict(Word.IGNORED)
    if alert.key in known.keys:
        return Verdict(Word.DUPLICATE)
    label = next((name for name in policy.node_labels if name in alert.labels), None)
    if label is None:
        return Verdict(
            Word.REFUSED, why=f"{alert.name}: no label {', '.join(policy.node_labels)} says which node"
        )
    node = roster.find(alert.labels[label])
    if node is None:
        value = shown(alert.labels[label][:80])
        return Verdict(Word.REFUSED, why=f"{alert.name}: {label} `{value}` is no node of cluster.yml")
    if why := roster.refusal(node):
        return Verdict(Word.REFUSED, node, f"{alert.name}: {why}")
    if node in known.waiting:
        return Verdict(Word.DUPLICATE, node, f"{alert.name}: {node} is being looked at already")
    since = now - known.begun.get(node, float("-inf"))
    if since < policy.quiet_seconds:
        return Verdict(Word.DUPLICATE, node, f"{alert.name}: {node} was looked at {span(since)} ago")
    today = {name for name, begun in known.begun.items() if now - begun < _DAY}
    if node not in today and len(today) >= policy.nodes_a_day:
        return Verdict(
            Word.REFUSED,
            node,
            f"{alert.name}: {node} is left alone: alerts have drained {len(today)} nodes within a day, as many as "
            "nodes_a_day allows",
        )
    return Verdict(Word.ACCEPTED, node, f"{alert.name}: {node} is drained and looked at")
