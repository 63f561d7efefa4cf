"""What is told beside nvitop's metrics, by an NVML that is a text; the options that cannot stand together."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import gpu_exporter as exporter


class NVMLError(Exception):
    """As pynvml's."""


class Timeout(NVMLError):
    """As pynvml's."""


class Lost(NVMLError):
    """As pynvml's."""


@dataclass
class Nvml:
    """A driver with some GPUs; ``events`` are (index, Xid) that are told one after the other."""

    count: int = 2
    lost: tuple[int, ...] = ()
    ecc: bool = True
    rows: tuple[int, int, int, int] = (0, 0, 0, 0)
    events: list[Any] = field(default_factory=list)
    freed: int = 0
    NVMLError = NVMLError
    NVMLError_Timeout = Timeout
    NVMLError_GpuIsLost = Lost

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.lost:
            raise Lost("lost")
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA H100"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        if not self.ecc:
            raise NVMLError("not supported")
        return 10 * handle + kind

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:
        return self.rows

    def nvmlEventSetCreate(self) -> str:
        return "set"

    def nvmlEventSetFree(self, events: str) -> None:
        self.freed += 1

    def nvmlDeviceRegisterEvents(self, handle: int, kind: int, events: str) -> None:
        assert (kind, events) == (8, "set")

    def nvmlEventSetWait_v2(self, events: str, milliseconds: int) -> Any:
        if not self.events:
            raise NVMLError("the driver is gone")
        event = self.events.pop(0)
        if isinstance(event, NVMLError):
            self.lost = (1,)
            raise event
        if event is None:
            raise Timeout
        return SimpleNamespace(device=event[0], eventData=event[1])


class Family:
    """As prometheus_client's."""

    def __init__(self, name: str, about: str, labels: tuple[str, ...]) -> None:
        self.name, self.labels, self.samples = name, labels, []  # type: ignore[var-annotated]

    def add_metric(self, labels: tuple[str, ...], value: float) -> None:
        assert len(labels) == len(self.labels)
        self.samples.append((labels, value))


def scraped(nvml: Nvml, xids: exporter.Xids) -> dict[str, dict[str, float]]:
    collector = exporter.Collector(nvml, Family, "gpu01", xids)
    return {
        family.name: {labels[3]: value for labels, value in family.samples} for family in collector.collect()
    }


def test_each_gpu_tells_of_its_memory_with_nvitops_labels():
    nvml = Nvml(rows=(1, 2, 1, 0))
    found = scraped(nvml, exporter.Xids(nvml))
    assert found["gpu_ecc_corrected_errors"] == {"GPU-0": 0.0, "GPU-1": 10.0}
    assert found["gpu_ecc_uncorrected_errors"] == {"GPU-0": 1.0, "GPU-1": 11.0}
    assert found["gpu_row_remap_pending"] == {"GPU-0": 1.0, "GPU-1": 1.0}
    assert found["gpu_row_remap_failure"] == {"GPU-0": 0.0, "GPU-1": 0.0}
    assert found["gpu_xid"] == {}
    assert exporter.LABELS == ("hostname", "index", "devicename", "uuid")


def test_what_a_gpu_does_not_know_is_not_told():
    nvml = Nvml(ecc=False, lost=(0,))
    found = scraped(nvml, exporter.Xids(nvml))
    assert found["gpu_ecc_corrected_errors"] == {}
    assert found["gpu_row_remap_failure"] == {"GPU-1": 0.0}


def test_the_last_xid_of_each_gpu_is_kept():
    nvml = Nvml(events=[None, (1, 31), (1, 79)])
    xids = exporter.Xids(nvml)
    with pytest.raises(NVMLError, match="gone"):
        xids.listen()
    assert nvml.freed == 1
    assert scraped(nvml, xids)["gpu_xid"] == {"GPU-0": 0.0, "GPU-1": 79.0}


def test_a_gpu_that_fell_off_the_bus_is_told_though_it_answers_nothing():
    """Its Xid comes as an event, and it does not answer for its UUID then; or the wait itself fails."""
    for told in ((1, 79), Lost("GPU is lost")):
        nvml = Nvml(events=[told])
        xids = exporter.Xids(nvml)
        with pytest.raises(NVMLError):
            xids.listen()
        nvml.lost = (1,)
        xids.mark_lost()
        assert scraped(nvml, xids)["gpu_xid"] == {"GPU-0": 0.0, "GPU-1": 79.0}
        assert scraped(nvml, xids)["gpu_row_remap_failure"] == {"GPU-0": 0.0}


def test_no_other_error_is_a_lost_gpu(monkeypatch):
    nvml = Nvml(events=[])
    xids = exporter.Xids(nvml)
    with pytest.raises(NVMLError):
        xids.listen()
    monkeypatch.setattr(nvml, "nvmlDeviceGetName", lambda _: (_ for _ in ()).throw(NVMLError("unknown")))
    xids.mark_lost()
    assert xids.last == {"GPU-0": 0, "GPU-1": 0}


def test_a_driver_that_comes_back_keeps_what_was_seen():
    nvml = Nvml(events=[(0, 48)])
    xids = exporter.Xids(nvml)
    for _ in range(2):
        with pytest.raises(NVMLError):
            xids.listen()
    assert xids.last == {"GPU-0": 48, "GPU-1": 0}


def test_the_nodes_name_is_nvitops_own_option():
    assert exporter.hostname_of(["--port", "9400", "--hostname", "gpu01", "--interval", "5"]) == "gpu01"
    assert exporter.hostname_of([]) == ""
