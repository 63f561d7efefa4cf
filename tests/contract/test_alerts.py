"""Each alert is tried both ways, says what to do, and asks for metrics that somebody serves."""

from __future__ import annotations

import re
from functools import cache

import pytest
import yaml

from coldiron.docs_gen.alerts import SEVERITIES, meaning
from coldiron.docs_gen.alerts import Alert as Listed
from tests.rules.alerts import CASES, KNOWN, ROOT, RUNBOOKS, Alert, alerts, cases, metrics, rule_files

ALERTS = alerts()
# Programs of this collection that serve metrics of its own making.
PROGRAMS = ("node_metrics.py", "redfish_exporter.py", "slurm_exporter.py")
SECTIONS = ["What it means", "Look", "Do", "Can it wait?"]
# It fires whatever is the case.
ALWAYS = {"Watchdog"}


@cache
def known() -> frozenset[str]:
    """The names of all metrics that somebody serves or a rule records."""
    found: set[str] = set()
    for lists in yaml.safe_load(KNOWN.read_text(encoding="utf-8")).values():
        found.update(*(names.split() for names in lists.values()))
    for name in PROGRAMS:
        path = ROOT / "plugins" / "module_utils" / name
        if path.is_file():
            found.update(re.findall(r'"((?:coldiron|redfish|slurm)_\w+)"', path.read_text(encoding="utf-8")))
    role = ROOT / "roles" / "gpu_exporter"
    counters = yaml.safe_load((role / "defaults" / "main.yml").read_text(encoding="utf-8"))
    found.update(one["field"] for one in counters["gpu_exporter_counters"])
    served = (ROOT / "tests" / "rules" / "nvitop.prom").read_text(encoding="utf-8")
    found.update(re.findall(r"^# TYPE (\w+)", served, re.MULTILINE))
    for path in rule_files():
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            found.update(rule["record"] for rule in group["rules"] if "record" in rule)
    return frozenset(found)


def unknown(expr: str) -> set[str]:
    """The metrics of an expression that nobody serves."""
    return metrics(expr) - known()


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_the_alert_is_whole(alert: Alert) -> None:
    tried = {case.fires for case in cases(alert)}
    assert tried == ({True} if alert.name in ALWAYS else {True, False})
    assert alert.rule["labels"]["severity"] in SEVERITIES
    notes = alert.rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook"}
    assert notes["runbook"] == f"runbooks/{alert.name}.html"
    assert re.fullmatch(r"Watchdog|Coldiron[A-Z]\w+", alert.name)
    assert unknown(str(alert.rule["expr"])) == set()


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_its_page_says_what_to_do(alert: Alert) -> None:
    text = (RUNBOOKS / f"{alert.name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {alert.name}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert all(part.strip() for part in re.split(r"^## .*$", text, flags=re.MULTILINE))
    assert meaning(ROOT, Listed(alert.name, "", ""))


def test_names_are_given_once_and_nothing_is_left_over() -> None:
    names = [alert.name for alert in ALERTS]
    assert sorted(names) == sorted(set(names))
    assert len(names) >= 40
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(names)
    for path in CASES.glob("*.yml"):
        tried = set(yaml.safe_load(path.read_text(encoding="utf-8"))) - {"_labels"}
        assert tried == {alert.name for alert in ALERTS if alert.role == path.stem}, path.name


def test_every_recording_rule_asks_for_metrics_that_are_served() -> None:
    for alert in ALERTS:
        for record in alert.records:
            assert unknown(str(record["expr"])) == set(), record["record"]


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ('up{job="node"} == 0 unless on (instance) node_load1', {"up", "node_load1"}),
        ("sum by (rack) (rate(a_total[5m])) / count(b) > 0.5 and absent(c)", {"a_total", "b", "c"}),
        ('label_replace(a{b="c"}, "d", "$1", "e", "(.*)") or coldiron:f offset 1d', {"a", "coldiron:f"}),
    ],
)
def test_the_names_in_an_expression_are_found(expr: str, names: set[str]) -> None:
    assert metrics(expr) == names


def test_a_metric_that_nobody_serves_is_seen() -> None:
    assert unknown("node_filesystem_free_ratio < 0.1") == {"node_filesystem_free_ratio"}
