"""Services around the exchange of a driver's modules: who is stopped, who is started, also where it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import pytest
from ansible_collections.coldiron.cluster.plugins.modules import gpu_driver

EXPORTER, DCGM, OLD = "coldiron-gpu-exporter.service", "nvidia-dcgm.service", "nvidia-dcgm-exporter.service"
POWER = "coldiron-gpu-power.service"


class FailedError(Exception):
    """The module's end."""


class Systemd:
    """A module whose commands are answered from a table; it keeps what was done."""

    def __init__(
        self, active: Sequence[str], masked: Sequence[str] = (), failing: Sequence[str] = ()
    ) -> None:
        self.params = {"modules_unit": "simulated-gpu.service", "services": [POWER, OLD, EXPORTER]}
        self.active, self.masked, self.failing = active, masked, failing
        self.done: list[str] = []

    def get_bin_path(self, name: str) -> str:
        return f"/usr/bin/{name}"

    def run_command(self, words: list[str]) -> tuple[int, str, str]:
        verb, unit = words[1], words[-1]
        if verb == "is-active":
            return (0, "active", "") if unit in self.active else (3, "inactive", "")
        if verb == "show":
            return 0, "masked" if unit in self.masked else "loaded", ""
        self.done.append(f"{verb} {unit.removesuffix('.service')}")
        return (1, "", "it does not") if self.done[-1] in self.failing else (0, "", "")

    def fail_json(self, **words: Any) -> NoReturn:
        raise FailedError(words["msg"])


def exchange(systemd: Systemd) -> list[str]:
    gpu_driver.Node(systemd).reload("stand-in")
    return systemd.done


def test_who_runs_is_stopped_and_started_again_and_nobody_else() -> None:
    assert exchange(Systemd([EXPORTER, POWER])) == [
        "stop coldiron-gpu-power", "stop coldiron-gpu-exporter", "restart simulated-gpu",
        "start coldiron-gpu-power", "start coldiron-gpu-exporter",
    ]  # fmt: skip


def test_a_unit_that_is_masked_stays_off() -> None:
    assert "nvidia-dcgm-exporter" not in " ".join(exchange(Systemd([DCGM, EXPORTER], masked=[OLD])))
    ran_on = exchange(Systemd([DCGM, OLD, EXPORTER], masked=[OLD]))
    assert "stop nvidia-dcgm-exporter" in ran_on
    assert "start nvidia-dcgm-exporter" not in ran_on
    assert ran_on[-2:] == ["start nvidia-dcgm", "start coldiron-gpu-exporter"]


def test_modules_that_stay_leave_the_services_running() -> None:
    systemd = Systemd([EXPORTER], failing=["restart simulated-gpu"])
    with pytest.raises(FailedError, match=r"^systemctl restart simulated-gpu\.service: it does not$"):
        exchange(systemd)
    assert systemd.done[-1] == "start coldiron-gpu-exporter"


def test_one_that_does_not_start_keeps_no_other_from_it() -> None:
    systemd = Systemd([DCGM, EXPORTER], failing=["start nvidia-dcgm"])
    with pytest.raises(FailedError, match=r"^systemctl start nvidia-dcgm\.service: it does not$"):
        exchange(systemd)
    assert systemd.done[-1] == "start coldiron-gpu-exporter"


def test_what_another_driver_s_package_brings_may_wait() -> None:
    """Role gpu_fabric brings the fabric manager that fits, and starts it."""
    fabric = "nvidia-fabricmanager"
    assert exchange(Systemd([f"{fabric}.service"], failing=[f"start {fabric}"]))[-1] == f"start {fabric}"
