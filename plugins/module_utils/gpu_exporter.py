"""Run nvitop-exporter, and tell beside its metrics what it does not ask the driver for: errors of memory, and Xids.

Role gpu_exporter installs this file as it is, beside nvitop-exporter in an environment of its own; it takes the
options of that. Metrics have nvitop's labels: hostname, index, devicename, uuid. Processes are left out: command lines
are their users' own, and who has which GPU is Slurm's to tell.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

LABELS = ("hostname", "index", "devicename", "uuid")
#: NVML's nvmlEventTypeXidCriticalError, and how long one wait for it lasts.
XID_EVENT, WAIT_MILLISECONDS = 8, 5000
#: How long after the driver gave no answer it is asked again.
AGAIN_SECONDS = 30.0
#: The Xid of a GPU that fell off the bus, whether the driver could still say so or not.
LOST = 79
#: NVML's numbers of a memory error's kinds, and of the counter since the driver was loaded.
CORRECTED, UNCORRECTED, VOLATILE = 0, 1, 0
METRICS = {
    "gpu_ecc_corrected_errors": "Corrected memory errors since the driver was loaded.",
    "gpu_ecc_uncorrected_errors": "Uncorrected memory errors since the driver was loaded.",
    "gpu_row_remap_pending": "Whether a memory row waits to be remapped.",
    "gpu_row_remap_failure": "Whether remapping of rows has failed.",
    "gpu_xid": "The last error (Xid) since the exporter has run, 0 for none.",
}


class Card(NamedTuple):
    """One GPU as NVML knows it."""

    handle: Any
    index: int
    name: str
    uuid: str


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def cards(nvml: Any) -> list[Card]:
    """The GPUs that answer."""
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            name, uuid = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle)
        except nvml.NVMLError:
            continue
        found.append(Card(handle, index, _text(name), _text(uuid)))
    return found


def is_lost(nvml: Any, card: Card) -> bool:
    """Whether the driver says that the GPU is lost; no other error says that."""
    try:
        nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(card.index))
    except nvml.NVMLError_GpuIsLost:
        return True
    except nvml.NVMLError:
        pass
    return False


def _address(handle: Any) -> int | None:
    """What tells one of NVML's handles from another."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def readings(nvml: Any, card: Card) -> Iterator[tuple[str, float]]:
    """What one GPU says of its memory; nothing of what it does not know."""
    for metric, kind in (
        ("gpu_ecc_corrected_errors", CORRECTED),
        ("gpu_ecc_uncorrected_errors", UNCORRECTED),
    ):
        try:
            yield metric, float(nvml.nvmlDeviceGetTotalEccErrors(card.handle, kind, VOLATILE))
        except nvml.NVMLError:
            continue
    try:
        _, _, pending, failed = nvml.nvmlDeviceGetRemappedRows(card.handle)
    except nvml.NVMLError:
        return
    yield "gpu_row_remap_pending", float(bool(pending))
    yield "gpu_row_remap_failure", float(bool(failed))


class Xids:
    """The last Xid of each GPU, by its UUID, since this object has been listening."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self.last: dict[str, int] = {}
        # Every GPU that ever answered: one that fell off the bus is asked for its name in vain.
        self.known: dict[str, Card] = {}

    def listen(self) -> None:
        """Listen until the driver gives no answer any more, or a GPU none. Raises NVMLError then."""
        events = self.nvml.nvmlEventSetCreate()
        try:
            for card in cards(self.nvml):
                self.nvml.nvmlDeviceRegisterEvents(card.handle, XID_EVENT, events)
                self.last.setdefault(card.uuid, 0)
                self.known[card.uuid] = card
            while True:
                self.take(events)
        finally:
            self.nvml.nvmlEventSetFree(events)

    def take(self, events: Any) -> None:
        """Wait once, and keep what came."""
        try:
            event = self.nvml.nvmlEventSetWait_v2(events, WAIT_MILLISECONDS)
        except self.nvml.NVMLError_Timeout:
            return
        place = _address(event.device)
        for card in self.known.values():
            if _address(card.handle) == place:
                self.last[card.uuid] = int(event.eventData)

    def mark_lost(self) -> None:
        """Note who is lost: the driver may answer a wait with that instead of with the Xid."""
        for card in self.known.values():
            if is_lost(self.nvml, card):
                self.last[card.uuid] = LOST

    def keep_listening(self) -> None:
        """Listen for as long as the exporter runs."""
        while True:
            try:
                self.listen()
            except self.nvml.NVMLError as error:
                print(f"gpu_exporter: no Xids: {error}", file=sys.stderr, flush=True)
                self.mark_lost()
            time.sleep(AGAIN_SECONDS)


class Collector:
    """What prometheus_client asks at each scrape."""

    def __init__(self, nvml: Any, family: Any, hostname: str, xids: Xids) -> None:
        self.nvml, self.family, self.hostname, self.xids = nvml, family, hostname, xids

    def collect(self) -> Iterator[Any]:
        """One family for each metric, with a sample for each GPU that says something."""
        families = {name: self.family(name, about, labels=LABELS) for name, about in METRICS.items()}
        for card in cards(self.nvml):
            labels = (self.hostname, str(card.index), card.name, card.uuid)
            for metric, value in readings(self.nvml, card):
                families[metric].add_metric(labels, value)
        # A GPU that answers nothing any more is the very one whose Xid is wanted.
        for card in list(self.xids.known.values()):
            labels = (self.hostname, str(card.index), card.name, card.uuid)
            families["gpu_xid"].add_metric(labels, float(self.xids.last[card.uuid]))
        yield from families.values()


def hostname_of(words: Sequence[str]) -> str:
    """The value of nvitop-exporter's --hostname."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--hostname", default="")
    return str(parser.parse_known_args(words)[0].hostname)


def main() -> int:
    """Run nvitop-exporter with one collector more."""
    import nvitop
    import pynvml
    from nvitop_exporter import cli
    from prometheus_client import REGISTRY
    from prometheus_client.core import GaugeMetricFamily

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        print(f"gpu_exporter: the driver does not answer: {error}", file=sys.stderr)
        return 1
    nvitop.Device.processes = lambda _: {}
    xids = Xids(pynvml)
    threading.Thread(target=xids.keep_listening, daemon=True).start()
    REGISTRY.register(Collector(pynvml, GaugeMetricFamily, hostname_of(sys.argv[1:]), xids))
    return int(cli.main())


if __name__ == "__main__":
    sys.exit(main())
