"""The driver keeps to the declared caps and clocks, and drift is put right."""

from __future__ import annotations

import json

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import gpu_power


@pytest.fixture
def cards(host):
    """What the driver says, asked anew each time."""

    def ask(words):
        answer = host.run(" ".join(["%s"] * len(words)), *words)
        return answer.rc, answer.stdout, answer.stderr

    return lambda: gpu_power.read_cards(ask)


def test_every_gpu_is_as_declared(cards, opts):
    found = cards()
    assert found
    assert [step.why for step in gpu_power.plan(found, opts["__gpu_power_wanted"]) if step.why] == []
    for card in found:
        wanted = float(opts["gpu_power_cap_watts"]) or card.usual
        assert card.watts == pytest.approx(wanted, abs=0.5)
        assert card.persistence == opts["gpu_power_persistence"]


def test_a_boot_sets_it_before_jobs_start(host):
    unit = host.service("coldiron-gpu-power")
    assert unit.is_enabled
    assert unit.is_running
    assert (
        "slurmd.service" in host.check_output("systemctl show -p Before --value coldiron-gpu-power").split()
    )


def test_the_units_set_what_is_declared(host, opts):
    written = json.loads(host.file("/etc/coldiron/gpu-power.json").content_string)
    assert written == opts["__gpu_power_wanted"]


def test_drift_is_looked_for(host, opts):
    timer = host.service("coldiron-gpu-power-drift.timer")
    assert timer.is_enabled
    assert timer.is_running
    shown = host.check_output("systemctl show -p TimersMonotonic coldiron-gpu-power-drift.timer")
    minutes, seconds = divmod(opts["gpu_power_drift_seconds"], 60)
    span = " ".join([f"{minutes}min"] * bool(minutes) + [f"{seconds}s"] * bool(seconds))
    assert f"OnUnitActiveUSec={span} " in shown


@pytest.mark.acts
def test_drift_is_put_right(host, cards, opts):
    timer, service = "coldiron-gpu-power-drift.timer", "coldiron-gpu-power-drift.service"
    runs = host.service(timer).is_running
    # Its own look, at any moment, would be taken for the one that is asked for.
    host.check_output("systemctl stop %s %s", timer, service)
    try:
        first = cards()[0]
        host.run_test("nvidia-smi -i 0 -pl %s", f"{first.least:g}")
        assert cards()[0].watts == pytest.approx(first.least)
        host.run_expect([0], f"systemctl start {service}")
        assert cards()[0].watts == pytest.approx(first.watts)
    finally:
        if runs:
            host.check_output("systemctl start %s", timer)


def test_what_a_card_cannot_have_is_refused(host):
    check = "/usr/bin/python3 -I -S /usr/lib/coldiron/gpu_power.py check /dev/stdin"
    wanted = json.dumps({"persistence": True, "cap_watts": 99999, "clocks": {}})
    answer = host.run(f"echo '{wanted}' | {check}")
    assert answer.rc == 1
    assert "GPU 1 takes caps from " in answer.stderr
