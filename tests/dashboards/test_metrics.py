"""Every panel that asks a Prometheus is answered by a real one, over recorded samples and the roles' own rules."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldiron.dashboards.check import Fault, metrics
from coldiron.dashboards.read import Dashboard, dashboards, panels
from coldiron.status.client import Prometheus, Source

FOLDER = Path(__file__).resolve().parents[2] / "roles/grafana/files/dashboards"
FOUND = dashboards(FOLDER)
OF_METRICS = [name for name, one in FOUND.items() if any(not panel.of_logs for panel in panels(one))]


# On a busy machine Prometheus may miss a round of its targets; what is wrong is wrong in every round.
ROUNDS = 3


def lasting(server: Prometheus, name: str, dashboard: Dashboard, *, all_answered: bool = True) -> list[Fault]:
    """Faults that are there each time that the dashboard is asked; no round after one without any."""
    left: list[Fault] = []
    for turn in range(ROUNDS):
        found = metrics(server, {name: dashboard}, all_answered=all_answered)
        again = {fault.panel for fault in found}
        left = [fault for fault in left if fault.panel in again] if turn else found
        if not left:
            break
        time.sleep(1.5)
    return left


@pytest.mark.parametrize("name", OF_METRICS)
def test_every_panel_is_answered(prometheus: Prometheus, name: str) -> None:
    faults = lasting(prometheus, name, FOUND[name])
    assert not faults, "\n".join(map(str, faults))


def panel_of(dashboard: Any, title: str) -> Any:
    return next(one for one in dashboard["panels"] if one["title"] == title)


def wrong_metric(dashboard: Any) -> None:
    target = panel_of(dashboard, "Temperature")["targets"][0]
    target["expr"] = target["expr"].replace("gpu_temperature_celsius", "gpu_temperature_kelvin")


def wrong_label_in_selector(dashboard: Any) -> None:
    target = panel_of(dashboard, "Temperature")["targets"][0]
    target["expr"] = target["expr"].replace('mig=""', 'mig="", nodename="gpu01"')


def wrong_label_by_which_is_summed(dashboard: Any) -> None:
    target = panel_of(dashboard, "Temperature")["targets"][0]
    target["expr"] = target["expr"].replace("by (host)", "by (hostname)")


def wrong_syntax(dashboard: Any) -> None:
    target = panel_of(dashboard, "Temperature")["targets"][0]
    target["expr"] = target["expr"] + ")"


def variable_that_is_not_there(dashboard: Any) -> None:
    target = panel_of(dashboard, "Temperature")["targets"][0]
    target["expr"] = target["expr"].replace("$node", "$nodes")


def several_to_several(dashboard: Any) -> None:
    target = panel_of(dashboard, "Temperature")["targets"][0]
    target["expr"] = "coldiron:gpu_power_watts * on (host) coldiron:gpu_power_watts"


def wrong_column(dashboard: Any) -> None:
    panel = panel_of(dashboard, "GPUs by user")
    panel["transformations"][1]["options"]["include"]["names"][0] = "person"


def column_of_no_question(dashboard: Any) -> None:
    panel = panel_of(dashboard, "GPUs by user")
    panel["transformations"][1]["options"]["include"]["names"][-1] = "Value #C"


@pytest.mark.parametrize(
    ("plant", "title", "said"),
    [
        (wrong_metric, "Temperature", "has no answer"),
        (wrong_label_in_selector, "Temperature", "has no answer"),
        (wrong_label_by_which_is_summed, "Temperature", "no answer has label host"),
        (wrong_syntax, "Temperature", "parse error"),
        (variable_that_is_not_there, "Temperature", "has no answer"),
        (several_to_several, "Temperature", "many"),
        (wrong_column, "GPUs by user", "no answer has label person"),
        (column_of_no_question, "GPUs by user", "no question gives column Value #C"),
    ],
)
def test_a_planted_broken_panel_is_caught(
    prometheus: Prometheus, plant: Callable[[Any], None], title: str, said: str
) -> None:
    broken = copy.deepcopy(FOUND["gpu"])
    plant(broken)
    faults = lasting(prometheus, "gpu", broken)
    assert [fault.panel for fault in faults] == [title]
    assert said in faults[0].why


def test_a_panel_that_says_so_may_be_empty_on_a_healthy_site_and_no_other(prometheus: Prometheus) -> None:
    dashboard: Any = copy.deepcopy(FOUND["gpu"])
    del panel_of(dashboard, "Temperature")["fieldConfig"]["defaults"]["noValue"]
    for title in ("Clocks", "Temperature"):
        target = panel_of(dashboard, title)["targets"][0]
        target["expr"] = (
            target["expr"]
            .replace("coldiron:gpu_clock_sm_mhz", "gone")
            .replace("coldiron:gpu_temperature_celsius", "gone")
        )
    assert {fault.panel for fault in lasting(prometheus, "gpu", dashboard)} == {"Clocks", "Temperature"}
    faults = lasting(prometheus, "gpu", dashboard, all_answered=False)
    assert [fault.panel for fault in faults] == ["Temperature"]


def test_a_choice_without_values_is_said(prometheus: Prometheus) -> None:
    dashboard: Any = copy.deepcopy(FOUND["node"])
    dashboard["templating"]["list"][-1]["query"] = 'label_values(up{job="nobody"}, instance)'
    faults = metrics(prometheus, {"node": dashboard})
    assert len(faults) == 1
    assert "the choice node has no value" in faults[0].why


def test_a_server_that_is_away_answers_no_panel() -> None:
    faults = metrics(Prometheus(Source("http://127.0.0.1:9")), {"gpu": FOUND["gpu"]})
    assert [fault.panel for fault in faults] == ["choices"]


def value(server: Prometheus, expr: str) -> dict[tuple[str, ...], float]:
    return {tuple(sorted(sample.labels.values())): sample.value for sample in server.query(expr)}


def test_a_bmc_counts_the_same_by_ipmi_and_by_redfish(prometheus: Prometheus) -> None:
    def asked(title: str, at: int = 0) -> dict[tuple[str, ...], float]:
        expr: str = panel_of(FOUND["power"], title)["targets"][at]["expr"]
        return value(prometheus, expr.replace("$rack", ".*").replace("$node", ".*"))

    assert asked("Hottest air") == {(): 26}
    assert asked("BMCs away") == {(): 0}
    assert asked("Power and heat") == {("gpu01", "r1"): 5430, ("gpu03", "r2"): 6100}
    assert asked("Power and heat", 1) == {("gpu01", "r1"): 24, ("gpu03", "r2"): 26}
    assert asked("Power and heat", 2) == {("gpu01", "r1"): 1200, ("gpu03", "r2"): 900}


def test_gpus_are_their_jobs_and_those_that_are_held_and_idle_are_counted(prometheus: Prometheus) -> None:
    def asked(title: str, ref: str = "A") -> str:
        targets = panel_of(FOUND["gpu"], title)["targets"]
        found: str = next(one["expr"] for one in targets if one["refId"] == ref).replace("$node", ".*")
        return found

    jobs = value(prometheus, asked("GPUs in jobs"))
    assert ("0", "4711", "ada", "gpu01", "vision") in jobs
    assert jobs["1", "gpu03", "several", "several", "several"] == 97
    # gpu01's four GPUs are recorded as idle; of gpu03's two in jobs one is.
    assert value(prometheus, asked("Held and idle, by node")) == {("gpu01",): 4, ("gpu03",): 1}
    assert value(prometheus, asked("Busy without a job")) == {(): 0}
    efficiency = panel_of(FOUND["slurm"], "Efficiency")["targets"][0]["expr"].replace("$partition", ".*")
    assert value(prometheus, efficiency)["speech",] == pytest.approx(48.5, abs=0.1)
