"""What the overview makes of a Prometheus' answers."""

from __future__ import annotations

from typing import Any

import pytest

from coldiron.errors import ColdironError
from coldiron.status.client import Sample
from coldiron.status.overview import QUESTIONS, Overview, look
from coldiron.status.page import overview_page

NOW = 1_795_345_302.0
GPU = {"host": "gpu01", "gpu": "3", "uuid": "GPU-1", "model": "NVIDIA H200", "mig": "", "mig_profile": ""}


class Fake:
    """Answers queries out of a table, by the questions' names."""

    def __init__(self, answers: dict[str, Any], alerts: list[dict[str, Any]] | None = None) -> None:
        self.answers = answers
        self.raised = alerts or []
        self.asked = 0

    def query(self, expression: str) -> list[Sample]:
        self.asked += 1
        key = next(key for key, question in QUESTIONS.items() if question == expression)
        answer = self.answers.get(key, [])
        if isinstance(answer, Exception):
            raise answer
        return [Sample(labels, value) for labels, value in answer]

    def alerts(self) -> list[dict[str, Any]]:
        return self.raised

    def quiet(self) -> list[dict[str, str]]:
        return [{"alertname": "Hushed", "instance": "gpu01", "severity": "page", "cluster": "hopper"}]


def alert(
    name: str, node: str = "", severity: str = "page", state: str = "firing", **notes: str
) -> dict[str, Any]:
    labels = {"alertname": name, "severity": severity} | ({"instance": node} if node else {})
    return {
        "labels": labels,
        "annotations": notes,
        "state": state,
        "activeAt": "2026-11-22T10:01:42.123456789Z",
    }


def seen(fake: Fake, names: tuple[str, ...] = ("head01", "gpu01")) -> Overview:
    return look(fake, fake, "hopper", names, NOW)  # type: ignore[arg-type]


def test_nodes_come_in_the_inventorys_order_and_the_strange_ones_after() -> None:
    up = [({"instance": name}, 1.0) for name in ("gpu10", "gpu9", "gpu01")]
    nodes = [(node.name, node.up) for node in seen(Fake({"up": up})).nodes]
    assert nodes == [
        ("head01", None),
        ("gpu01", True),
        ("gpu9", True),
        ("gpu10", True),
    ]


def test_a_node_has_all_that_is_measured_of_it() -> None:
    on = {"instance": "gpu01"}
    answers = {
        "up": [(on, 0.0)],
        "kind": [({**on, "kind": "gpu", "rack": "a1"}, 1.0)],
        "busy": [(on, 0.5)],
        "disk": [(on, 0.97)],
        "slurm": [({"node": "gpu01", "state": "drained"}, 1.0)],
        "reason": [({"node": "gpu01", "reason": "Xid 79"}, NOW)],
        "users": [({"node": "gpu01", "job_id": "12", "user": "mira"}, 4.0)],
        "xid": [(GPU, 79.0)],
        "power": [(GPU, 300.0)],
        "jobs": [({"state": "running"}, 1.0)],
    }
    overview = seen(Fake(answers, [alert("Down", "gpu01"), alert("Watchdog", severity="none")]))
    node = overview.nodes[1]
    assert (node.kind, node.rack, node.busy, node.memory, node.disk) == ("gpu", "a1", 0.5, None, 0.97)
    assert (node.slurm, node.reason, node.jobs, node.wrong) == ("drained", "Xid 79", ["12 of mira: 4"], True)
    (gpu,) = node.gpus
    assert (gpu.number, gpu.xid, gpu.power, gpu.utilization) == ("3", 79, 300.0, None)
    assert overview.alive
    assert [told.name for told in overview.alerts] == ["Down"]
    assert overview.alerts[0].since == pytest.approx(NOW - 3600 + 0.123, abs=0.01)


def test_alerts_are_ordered_by_what_they_ask_of_a_person() -> None:
    raised = [
        alert("Hushed", "gpu01"),
        alert("Pends", state="pending"),
        alert("Note", severity="info"),
        alert("Ticket", severity="ticket"),
        alert("Page"),
    ]
    overview = seen(Fake({"up": [({"instance": "gpu01"}, 1.0)]}, raised))
    assert [told.name for told in overview.alerts] == ["Page", "Ticket", "Note", "Pends", "Hushed"]
    assert overview.alerts[-1].quiet
    assert not overview.nodes[1].wrong
    assert not overview.alive


def test_one_question_that_fails_is_said_and_all_that_fail_are_an_error() -> None:
    fake = Fake({"up": [({"instance": "gpu01"}, 1.0)], "jobs": ColdironError("no such function")})
    assert seen(fake).silent == ["no such function"]
    away = Fake(dict.fromkeys(QUESTIONS, ColdironError("Prometheus does not answer")))
    with pytest.raises(ColdironError, match="does not answer"):
        seen(away)
    # A server that is away is not waited for as often as there are questions.
    assert away.asked == 1


def test_a_page_without_anything_wrong_says_so_and_asks_for_nothing_from_outside() -> None:
    overview = seen(Fake({"up": [({"instance": name}, 1.0) for name in ("head01", "gpu01")]}))
    overview.alive = True
    page = overview_page(overview, "https://head01:9090")
    assert "2 of 2 nodes up, no alert" in page
    assert "No alert fires." in page
    assert 'class="good"' in page
    assert "<link" not in page
    assert "src=" not in page


def test_what_others_have_written_cannot_become_part_of_the_page() -> None:
    evil = "<script>alert(1)</script>"
    answers = {"up": [({"instance": evil}, 0.0)], "xid": [({**GPU, "host": evil, "model": evil}, 79.0)]}
    raised = [alert(evil, evil, summary=evil, description=evil, runbook="javascript:alert(1)")]
    page = overview_page(seen(Fake(answers, raised)), evil)
    assert evil not in page
    assert 'href="javascript' not in page
