"""What is read of a request: Alertmanager's version 4, and nothing that is bent into it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coldiron.errors import ColdironError
from coldiron.webhook.alerts import MOST_ALERTS, parse
from tests.unit.webhook.samples import STARTS, alert, message


def test_an_alert_is_read_and_what_is_new_in_it_passed_over() -> None:
    (found,) = parse(message(alert(somethingNew=[1]), notificationReason="new"))
    assert (found.status, found.name, found.labels["node"]) == ("firing", "GpuFellOff", "cpu01")
    assert found.key == f"1a30ba71cca2921f@{STARTS}"


def test_a_name_that_a_template_could_be_made_of_is_no_such_thing_any_more() -> None:
    (found,) = parse(message(alert(labels={"alertname": "{{ lookup('pipe', 'id') }}\nx" + "y" * 200})))
    assert found.name.startswith("?? lookup??pipe?? ?id?? ???x")
    assert len(found.name) == 100


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "model type"),
        (message(alert(), version="3"), "version: literal error"),
        (message(alert(), version=4), "version: literal error"),
        (message(alert(status="burning")), "alerts.0.status: literal error"),
        (message(alert(labels={"node": 7})), "alerts.0.labels: string type"),
        (message(alert(fingerprint="../../etc")), "alerts.0.fingerprint: string pattern mismatch"),
        (message(alert(startsAt="yesterday")), "alerts.0.startsAt: string pattern mismatch"),
        (message(alert(labels={f"a{n}": "b" for n in range(200)})), "alerts.0.labels: too long"),
        (message(*[alert()] * (MOST_ALERTS + 1)), "alerts: too long"),
        (message(alert(labels={"secret-canary": 7})), "alerts.0.labels: string type"),
    ],
)
def test_what_is_no_such_request_is_told_in_one_line(body: bytes, why: str) -> None:
    with pytest.raises(ColdironError) as refused:
        parse(body)
    assert refused.value.message == f"not what Alertmanager's webhook sends (version 4): {why}"


@pytest.mark.parametrize("field", ["version", "alerts"])
def test_what_is_missing_is_named(field: str) -> None:
    whole: dict[str, Any] = json.loads(message(alert()))
    del whole[field]
    with pytest.raises(ColdironError, match=f"{field}: is missing"):
        parse(json.dumps(whole).encode())
