"""What is done about an alert, and about those that say too little or too much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coldiron.errors import ColdironError
from coldiron.inventory import load
from coldiron.webhook.alerts import Alert, parse
from coldiron.webhook.policy import Known, Policy, Roster, Word, decide, read_policy
from tests.unit.repair.samples import CLUSTER
from tests.unit.webhook.samples import alert, message

NOW = 1_000_000.0


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    (tmp_path / "cluster.yml").write_text(CLUSTER, encoding="utf-8")
    return Roster(load(tmp_path / "cluster.yml"))


def one(**more: Any) -> Alert:
    return parse(message(alert(**more)))[0]


def word(
    found: Alert, roster: Roster, policy: Policy | None = None, known: Known | None = None
) -> tuple[str, str]:
    verdict = decide(found, policy or Policy(), roster, known or Known(), NOW)
    return verdict.word.value, verdict.why


@pytest.mark.parametrize(
    "value",
    ["cpu02", "CPU02", "cpu02:9100", "cpu02.lab.internal", "cpu02.lab.internal.:9400", "10.98.0.32:9100"],
)
def test_a_node_is_known_by_each_of_its_names(roster: Roster, value: str) -> None:
    assert roster.find(value) == "cpu02"
    assert decide(one(node=value), Policy(), roster, Known(), NOW).node == "cpu02"


def test_only_what_asks_for_it_is_acted_on(roster: Roster) -> None:
    assert word(one(), roster) == ("accepted", "GpuFellOff: cpu01 is drained and looked at")
    for value in ("false", "True", "1", ""):
        assert word(one(labels={"coldiron_repair": value}), roster) == ("ignored", "")
    assert word(one(status="resolved"), roster) == ("resolved", "")


def test_the_policy_wins_over_the_label(roster: Roster) -> None:
    policy = Policy(alerts={"GpuFellOff": "ignore", "NodeDown": "diagnose"})
    assert word(one(), roster, policy) == ("ignored", "")
    named = one(labels={"alertname": "NodeDown", "coldiron_repair": "false"})
    assert word(named, roster, policy)[0] == "accepted"


def test_the_first_label_that_is_there_says_which_node(roster: Roster) -> None:
    found = one(labels={"instance": "cpu03:9100"})
    assert decide(found, Policy(), roster, Known(), NOW).node == "cpu01"
    policy = Policy(node_labels=["host", "instance"])
    assert decide(found, policy, roster, Known(), NOW).node == "cpu03"
    assert word(found, roster, Policy(node_labels=["host"])) == (
        "refused",
        "GpuFellOff: no label host says which node",
    )


@pytest.mark.parametrize("value", ["cpu99", "", "cpu01; reboot", "10.98.0.99:9100", "-i"])
def test_a_node_that_nobody_knows_is_refused_with_a_line(roster: Roster, value: str) -> None:
    assert word(one(node=value), roster) == (
        "refused",
        f"GpuFellOff: node `{value}` is no node of cluster.yml",
    )


def test_the_head_is_left_alone_whatever_fires(roster: Roster) -> None:
    found, why = word(one(node="head01"), roster)
    assert found == Word.REFUSED
    assert why.startswith("GpuFellOff: head01 is lab's slurm_controller")


def test_the_same_firing_counts_once_and_a_new_one_anew(roster: Roster) -> None:
    first = one()
    known = Known(keys=frozenset({first.key}))
    assert word(first, roster, known=known) == ("duplicate", "")
    assert word(one(startsAt="2026-02-07T01:00:00Z"), roster, known=known)[0] == "accepted"


def test_a_node_is_looked_at_by_one_at_a_time_and_then_left_alone_for_a_while(roster: Roster) -> None:
    assert word(one(), roster, known=Known(waiting=frozenset({"cpu01"}))) == (
        "duplicate",
        "GpuFellOff: cpu01 is being looked at already",
    )
    lately = Known(begun={"cpu01": NOW - 3599})
    assert word(one(), roster, known=lately) == ("duplicate", "GpuFellOff: cpu01 was looked at 59 min ago")
    assert word(one(), roster, known=Known(begun={"cpu01": NOW - 3600}))[0] == "accepted"


def test_a_rule_that_fires_everywhere_does_not_drain_the_cluster(roster: Roster) -> None:
    known = Known(begun={"cpu02": NOW - 80_000, "cpu03": NOW - 5000, "gpu02": NOW - 90_000})
    policy = Policy(nodes_a_day=2)
    found, why = word(one(), roster, policy, known)
    assert found == Word.REFUSED
    assert "alerts have drained 2 nodes within a day" in why
    # One of the two may be looked at again; and so may others, a day later.
    assert word(one(node="cpu02"), roster, policy, known)[0] == "accepted"
    assert word(one(), roster, Policy(nodes_a_day=3), known)[0] == "accepted"


def test_a_policy_is_read(tmp_path: Path) -> None:
    file = tmp_path / "policy.yml"
    file.write_text("alerts: {NodeDown: diagnose}\nnodes_a_day: 2\n", encoding="utf-8")
    assert read_policy(file) == Policy(alerts={"NodeDown": "diagnose"}, nodes_a_day=2)
    file.write_text("", encoding="utf-8")
    assert read_policy(file) == Policy()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("alerts: {NodeDown: reboot}", "alerts.NodeDown: Input should be 'diagnose' or 'ignore'"),
        ("alert: {NodeDown: diagnose}", "alert: Extra inputs"),
        ("nodes_a_day: 0", "nodes_a_day: Input should be greater"),
        ("nodes_a_day: '4'", "nodes_a_day: Input should be a valid integer"),
        ("node_labels: []", "node_labels: List should have at least 1"),
        ("- one", "Input should be a valid dictionary"),
        ("alerts: {a: ", "policy.yml:1: no YAML"),
    ],
)
def test_a_policy_that_says_something_else_is_refused_with_what_to_write(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "policy.yml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ColdironError) as refused:
        read_policy(file)
    assert why in refused.value.message
    assert "\n" not in refused.value.message


def test_a_policy_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ColdironError, match="cannot be read: No such file"):
        read_policy(tmp_path / "none.yml")
