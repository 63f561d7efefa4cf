"""Write what node_exporter does not know of a node into files that it serves: disks, links, RAID, boots, versions.

    python3 -I node_metrics.py often        # what is read in a moment
    python3 -I node_metrics.py seldom       # what wakes disks or starts programs

Role node_exporter installs this file as it is, and timers run it. A tool or a part that is not there means that its
metrics are not there either; a collector that fails says so in coldiron_collector_success and keeps none of its old
values. Each collector's file is replaced whole. What it is to do is said in ``/etc/coldiron/node-metrics.json``.
"""

from __future__ import annotations

import calendar
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

CONFIG = "/etc/coldiron/node-metrics.json"
#: Seconds that a tool may take; a disk that hangs must not hold up the others.
PATIENCE = 20

#: Kind and meaning of every metric. A name that ends in _total counts up since boot or since the part was made.
METRICS: dict[str, tuple[str, str]] = {
    "coldiron_collector_success": ("gauge", "Whether the collector's last run worked."),
    "coldiron_collector_seconds": ("gauge", "How long the collector's last run took."),
    "coldiron_collector_timestamp_seconds": ("gauge", "When the collector last ran."),
    "coldiron_disk_info": ("gauge", "A disk that smartctl knows."),
    "coldiron_disk_healthy": ("gauge", "The disk's own judgement, 0 where it foresees its failure."),
    "coldiron_disk_temperature_celsius": ("gauge", "The disk's temperature."),
    "coldiron_disk_power_on_hours_total": ("counter", "Hours that the disk has run."),
    "coldiron_disk_reallocated_sectors": ("gauge", "Sectors that the disk has replaced."),
    "coldiron_disk_pending_sectors": ("gauge", "Sectors that the disk could not read and has not replaced."),
    "coldiron_disk_uncorrectable_sectors": ("gauge", "Sectors that the disk has lost."),
    "coldiron_disk_attributes_failing": ("gauge", "SMART attributes at or below their threshold."),
    "coldiron_nvme_percentage_used_ratio": ("gauge", "Wear; 1 is the life that the maker rated."),
    "coldiron_nvme_available_spare_ratio": ("gauge", "Spare blocks that are left."),
    "coldiron_nvme_available_spare_threshold_ratio": ("gauge", "Spare blocks at which the disk warns."),
    "coldiron_nvme_critical_warning": ("gauge", "The disk's warnings as bits; 0 is well."),
    "coldiron_nvme_media_errors_total": ("counter", "Reads and writes whose data was lost."),
    "coldiron_nvme_unsafe_shutdowns_total": ("counter", "Losses of power without a shutdown."),
    "coldiron_nvme_data_written_bytes_total": ("counter", "Bytes written."),
    "coldiron_machine_check_exceptions_total": (
        "counter",
        "Machine check exceptions of all processors since boot.",
    ),
    "coldiron_memory_corrected_errors_total": ("counter", "Corrected errors of a memory module since boot."),
    "coldiron_memory_uncorrected_errors_total": (
        "counter",
        "Uncorrected errors of a memory module since boot.",
    ),
    "coldiron_pcie_link_width": ("gauge", "Lanes of the device's link now."),
    "coldiron_pcie_link_width_max": ("gauge", "Lanes that both the device and the port above it have."),
    "coldiron_pcie_link_speed_gtps": ("gauge", "GT/s of the device's link now."),
    "coldiron_pcie_link_speed_max_gtps": ("gauge", "GT/s that both the device and the port above it can do."),
    "coldiron_pcie_aer_errors_total": ("counter", "Errors that the device has reported (AER) since boot."),
    "coldiron_infiniband_hw_counter_total": ("counter", "One of the port's counters in hw_counters."),
    "coldiron_infiniband_link_layer": ("gauge", "What the port's link layer is."),
    "coldiron_raid_degraded": ("gauge", "Disks that the array lacks."),
    "coldiron_raid_mismatches": ("gauge", "Sectors that differed in the array's last check."),
    "coldiron_raid_sync_ratio": ("gauge", "How far the array's resync, recovery or check is."),
    "coldiron_reboot_required": ("gauge", "Whether something waits for a boot."),
    "coldiron_node_image_info": ("gauge", "The image that the node was installed from."),
    "coldiron_kernel_info": ("gauge", "The kernel that runs."),
    "coldiron_nvidia_driver_info": ("gauge", "NVIDIA's module that is loaded, and its library on the disk."),
    "coldiron_packages_held": ("gauge", "Packages that upgrades leave alone."),
    "coldiron_log_shipper_queue_messages": ("gauge", "Lines that wait on the disk to be sent."),
    "coldiron_log_shipper_queue_limit_messages": ("gauge", "Lines at which the shipper reads no further."),
    "coldiron_clock_synchronised": (
        "gauge",
        "Whether chrony follows a server, or serves its own time on purpose.",
    ),
    "coldiron_clock_offset_seconds": (
        "gauge",
        "How far the clock is from what chrony follows; ahead is positive.",
    ),
    "coldiron_munge_works": ("gauge", "Whether a credential made here can be read here."),
    "coldiron_certificate_not_after_seconds": ("gauge", "When the certificate ends."),
}


class Sample(NamedTuple):
    """One value with its labels."""

    name: str
    value: float
    labels: Mapping[str, str]


class Node(NamedTuple):
    """Where the collectors look: the root directory, how tools are run, and what is configured."""

    root: Path
    run: Callable[[Sequence[str]], str | None]
    config: Mapping[str, Any]

    def read(self, *parts: str) -> str:
        """A file's text without the white space around it; empty where there is none, or it cannot be read."""
        try:
            return self.root.joinpath(*parts).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    def number(self, *parts: str) -> float | None:
        """The number that a file begins with, or None."""
        found = re.match(r"-?\d+(\.\d+)?", self.read(*parts))
        return float(found[0]) if found else None

    def paths(self, pattern: str) -> list[Path]:
        """The paths below the root that ``pattern`` matches, sorted."""
        return sorted(self.root.glob(pattern))


Samples = Iterator[Sample]


def run_tool(words: Sequence[str]) -> str | None:
    """What a tool prints, whatever its exit status; None where there is no such tool. Raises TimeoutExpired."""
    if shutil.which(words[0]) is None:
        return None
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        errors="replace", timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.stdout


# --- disks


def smart(node: Node) -> Samples:
    """What smartctl says of every disk; a sleeping one is not woken."""
    listed = node.run(["smartctl", "--json", "--scan-open"])
    if listed is None:
        return
    trouble = None
    for disk in json.loads(listed or "{}").get("devices") or []:
        words = ["smartctl", "--json", "--nocheck=standby", "-iHA", "-d", disk["type"], disk["name"]]
        try:
            said = json.loads(node.run(words) or "{}")
        except (subprocess.TimeoutExpired, ValueError) as error:
            # The others are looked at all the same.
            trouble = error
            continue
        yield from disk_samples(disk, said)
    if trouble is not None:
        raise trouble


ATA_ATTRIBUTES = {
    5: "coldiron_disk_reallocated_sectors",
    197: "coldiron_disk_pending_sectors",
    198: "coldiron_disk_uncorrectable_sectors",
}


def disk_samples(disk: Mapping[str, str], said: Mapping[str, Any]) -> Samples:
    """What smartctl's JSON ``said`` of a disk means."""
    device = {"device": Path(disk["name"]).name}
    protocol = str((said.get("device") or disk).get("protocol", "")).lower()
    if not said.get("model_name") and not said.get("scsi_model_name") and not said.get("smart_status"):
        return
    about = {
        **device,
        "model": said.get("model_name") or said.get("scsi_model_name") or "",
        "serial": said.get("serial_number") or "",
        "protocol": protocol,
    }
    yield Sample("coldiron_disk_info", 1, about)
    if "passed" in (said.get("smart_status") or {}):
        yield Sample("coldiron_disk_healthy", float(said["smart_status"]["passed"]), device)
    for name, part, key in (
        ("coldiron_disk_temperature_celsius", "temperature", "current"),
        ("coldiron_disk_power_on_hours_total", "power_on_time", "hours"),
    ):
        if key in (said.get(part) or {}):
            yield Sample(name, float(said[part][key]), device)
    table = (said.get("ata_smart_attributes") or {}).get("table")
    if table is not None:
        for row in table:
            if row["id"] in ATA_ATTRIBUTES:
                # The raw value may carry more in its upper bytes.
                yield Sample(ATA_ATTRIBUTES[row["id"]], float(row["raw"]["value"] & 0xFFFFFFFF), device)
        failing = sum(row.get("when_failed") == "now" for row in table)
        yield Sample("coldiron_disk_attributes_failing", float(failing), device)
    log = said.get("nvme_smart_health_information_log")
    if log:
        yield from nvme_samples(re.sub(r"n\d+$", "", device["device"]), log)
    lost = sum(
        kind.get("total_uncorrected_errors", 0)
        for kind in (said.get("scsi_error_counter_log") or {}).values()
    )
    if said.get("scsi_error_counter_log"):
        yield Sample("coldiron_disk_uncorrectable_sectors", float(lost), device)


NVME = {
    "percentage_used": ("coldiron_nvme_percentage_used_ratio", 0.01),
    "available_spare": ("coldiron_nvme_available_spare_ratio", 0.01),
    "available_spare_threshold": ("coldiron_nvme_available_spare_threshold_ratio", 0.01),
    "critical_warning": ("coldiron_nvme_critical_warning", 1),
    "media_errors": ("coldiron_nvme_media_errors_total", 1),
    "unsafe_shutdowns": ("coldiron_nvme_unsafe_shutdowns_total", 1),
    # The standard counts in thousands of 512 bytes.
    "data_units_written": ("coldiron_nvme_data_written_bytes_total", 512000),
}


def nvme_samples(controller: str, log: Mapping[str, Any]) -> Samples:
    """What an NVMe disk's health log means."""
    for key, (name, unit) in NVME.items():
        if key in log:
            yield Sample(name, round(log[key] * unit, 6), {"device": controller})


def raid(node: Node) -> Samples:
    """The kernel's own arrays."""
    for array in node.paths("sys/block/md*/md"):
        name = array.parent.name
        missing = node.number(str(array), "degraded")
        if missing is None:
            continue
        yield Sample(
            "coldiron_raid_degraded", missing, {"array": name, "level": node.read(str(array), "level")}
        )
        mismatches = node.number(str(array), "mismatch_cnt")
        if mismatches is not None:
            yield Sample("coldiron_raid_mismatches", mismatches, {"array": name})
        done = re.match(r"(\d+) / (\d+)", node.read(str(array), "sync_completed"))
        if done and int(done[2]):
            action = node.read(str(array), "sync_action")
            yield Sample(
                "coldiron_raid_sync_ratio", int(done[1]) / int(done[2]), {"array": name, "action": action}
            )


# --- memory and links


def mce(node: Node) -> Samples:
    """Machine checks, and errors by memory module; node_exporter knows the latter by controller only."""
    counted = re.search(r"^\s*MCE:((?:\s+\d+)+)", node.read("proc/interrupts"), re.MULTILINE)
    if counted:
        yield Sample("coldiron_machine_check_exceptions_total", float(sum(map(int, counted[1].split()))), {})
    for module in node.paths("sys/devices/system/edac/mc/mc*/dimm[0-9]*") + node.paths(
        "sys/devices/system/edac/mc/mc*/rank[0-9]*"
    ):
        labels = {
            "dimm": node.read(str(module), "dimm_label") or module.name,
            "controller": module.parent.name[2:],
        }
        for file, name in (
            ("dimm_ce_count", "coldiron_memory_corrected_errors_total"),
            ("dimm_ue_count", "coldiron_memory_uncorrected_errors_total"),
        ):
            value = node.number(str(module), file)
            if value is not None:
                yield Sample(name, value, labels)


#: Classes of PCI devices whose links are looked at: three bytes, of which the first two count.
PCI_CLASSES = {"0300": "gpu", "0302": "gpu", "0200": "nic", "0207": "nic", "0280": "nic", "0108": "nvme"}


def pcie(node: Node) -> Samples:
    """Links of GPUs, network cards and NVMe disks against what both ends can do."""
    for device in node.paths("sys/bus/pci/devices/*"):
        kind = PCI_CLASSES.get(node.read(str(device), "class")[2:6])
        width = node.number(str(device), "current_link_width")
        if kind is None or not width:
            continue
        labels = {
            "device": device.name,
            "class": kind,
            "vendor": node.read(str(device), "vendor"),
            "name": next((found.name for part in ("infiniband", "net", "nvme")
                          for found in sorted((device / part).glob("*"))), ""),
        }  # fmt: skip
        port = device.resolve().parent
        yield Sample("coldiron_pcie_link_width", width, labels)
        for metric, now, most in (
            ("coldiron_pcie_link_width", None, "max_link_width"),
            ("coldiron_pcie_link_speed", "current_link_speed", "max_link_speed"),
        ):
            unit = "_gtps" if now else ""
            value = node.number(str(device), now) if now else None
            if value is not None:
                yield Sample(metric + unit, value, labels)
            ends = [node.number(str(end), most) for end in (device, port)]
            known = [end for end in ends if end]
            if known:
                yield Sample(f"{metric}_max{unit}", min(known), labels)
        for severity in ("correctable", "nonfatal", "fatal"):
            total = re.search(
                r"^TOTAL_ERR_\w+ (\d+)$", node.read(str(device), f"aer_dev_{severity}"), re.MULTILINE
            )
            if total:
                about = {"device": device.name, "class": kind, "severity": severity}
                yield Sample("coldiron_pcie_aer_errors_total", float(total[1]), about)


def infiniband(node: Node) -> Samples:
    """Counters of the cards themselves, of which node_exporter reads none; RoCE's are here alone."""
    for port in node.paths("sys/class/infiniband/*/ports/*"):
        labels = {"device": port.parents[1].name, "port": port.name}
        layer = node.read(str(port), "link_layer")
        if layer:
            yield Sample("coldiron_infiniband_link_layer", 1, {**labels, "layer": layer})
        for file in sorted((port / "hw_counters").glob("*")):
            value = None if file.name == "lifespan" else node.number(str(file))
            if value is not None:
                yield Sample("coldiron_infiniband_hw_counter_total", value, {**labels, "counter": file.name})


# --- versions


def _natural(text: str) -> list[Any]:
    return [
        (1, int(word), "") if word.isdigit() else (0, 0, word) for word in re.findall(r"\d+|[^\d]+", text)
    ]


def reboot(node: Node) -> Samples:
    """Whether the distribution asks for a boot, or a newer kernel than the running one lies in /boot."""
    running = node.read("proc/sys/kernel/osrelease")
    kernels = [path.name[len("vmlinuz-"):] for path in node.paths("boot/vmlinuz-*")]  # fmt: skip
    # One beside a kernel of another flavour is no upgrade of it.
    flavour = re.sub(r"^[\d.]+(-\d+)?", "", re.sub(r"\+deb\d+\w*", "", running))
    newer = [
        name
        for name in kernels
        if re.sub(r"^[\d.]+(-\d+)?", "", re.sub(r"\+deb\d+\w*", "", name)) == flavour
        and _natural(name) > _natural(running)
    ]
    asked = any((node.root / path).exists() for path in ("run/reboot-required", "var/run/reboot-required"))
    yield Sample("coldiron_reboot_required", float(asked or (running in kernels and bool(newer))), {})


def software(node: Node) -> Samples:
    """The image that the node is of, its kernel, its NVIDIA driver, and how many packages are held."""
    yield Sample("coldiron_kernel_info", 1, {"release": node.read("proc/sys/kernel/osrelease")})
    text = node.read("etc/coldiron/deployed.json")
    if text:
        record = json.loads(text)
        image = record["image"]
        labels = {"image": image["class"], "digest": image["sha256"], "deployed": record["deployed"]}
        yield Sample("coldiron_node_image_info", 1, labels)
    module = re.search(r"Kernel Module.*?(\d+\.\d+(?:\.\d+)?)", node.read("proc/driver/nvidia/version"))
    if module:
        libraries = [
            path.name.split(".so.")[1]
            for pattern in ("usr/lib/*/libnvidia-ml.so.*.*", "usr/lib/*/nvidia/current/libnvidia-ml.so.*.*",
                            "usr/lib64/libnvidia-ml.so.*.*")
            for path in node.paths(pattern)
        ]  # fmt: skip
        labels = {"version": module[1], "library": max(libraries, key=_natural, default="")}
        yield Sample("coldiron_nvidia_driver_info", 1, labels)
    status = node.read("var/lib/dpkg/status")
    if status:
        held = len(re.findall(r"^Status: hold ", status, re.MULTILINE))
        yield Sample("coldiron_packages_held", float(held), {})


def munge(node: Node) -> Samples:
    """Whether munged makes and reads a credential; only where munge is."""
    said = node.run(["sh", "-c", "command -v munge >/dev/null || exit 0; munge -n | unmunge >/dev/null && echo works"
                     " || echo broken"])  # fmt: skip
    if said and said.strip():
        yield Sample("coldiron_munge_works", float(said.strip() == "works"), {})


def clock(node: Node) -> Samples:
    """Whether the clock follows anybody, as chrony says it; only where chrony is.

    The kernel's own word of it is the host's in a container.
    """
    said = node.run(["sh", "-c", "command -v chronyc >/dev/null || exit 0; chronyc -n -c tracking 2>/dev/null"
                     " || echo silent"])  # fmt: skip
    if not said or not said.strip():
        return
    # Reference, address, stratum, its time, how far behind the clock is, ..., and last what is known of leap seconds.
    words = said.strip().split(",")
    followed = len(words) > 12 and words[-1] != "Not synchronised"
    yield Sample("coldiron_clock_synchronised", float(followed), {})
    if followed:
        yield Sample("coldiron_clock_offset_seconds", -float(words[4]), {})


def log_queue(node: Node) -> Samples:
    """How many lines wait in the queue of role log_shipper, as rsyslog itself writes it down after each of them."""
    limit = re.search(r'queue\.fullDelayMark="(\d+)"', node.read("etc/coldiron/log-shipper/rsyslog.conf"))
    if limit is None:
        return
    # rsyslog's own notation: name:type:length:value. Before the first line there is no such file.
    waiting = re.search(
        r"^\+iQueueSize:\d+:\d+:(\d+):", node.read("var/lib/coldiron-log-shipper/ship.qi"), re.MULTILINE
    )
    yield Sample("coldiron_log_shipper_queue_messages", float(waiting[1]) if waiting else 0.0, {})
    yield Sample("coldiron_log_shipper_queue_limit_messages", float(limit[1]), {})


def certificates(node: Node) -> Samples:
    """When the declared certificates end; of a file with several, the first."""
    for path in node.config.get("certificates") or []:
        if not node.root.joinpath(str(path).lstrip("/")).exists():
            continue
        words = ["openssl", "x509", "-noout", "-enddate", "-subject", "-nameopt", "RFC2253", "-in", str(path)]
        said = node.run(words)
        if said is None:
            return
        end = re.search(r"^notAfter=(.*)$", said, re.MULTILINE)
        subject = re.search(r"^subject=\s*(.*)$", said, re.MULTILINE)
        if end is None:
            raise ValueError(f"{path} is no certificate")
        seconds = _seconds(end[1])
        labels = {"path": str(path), "subject": subject[1] if subject else ""}
        yield Sample("coldiron_certificate_not_after_seconds", seconds, labels)


def _seconds(text: str) -> float:
    return float(calendar.timegm(time.strptime(text.strip(), "%b %d %H:%M:%S %Y %Z")))


#: Collectors by how often they run.
COLLECTORS: dict[str, dict[str, Callable[[Node], Samples]]] = {
    "often": {
        "mce": mce,
        "pcie": pcie,
        "infiniband": infiniband,
        "raid": raid,
        "munge": munge,
        "clock": clock,
        "log_queue": log_queue,
    },
    "seldom": {"smart": smart, "reboot": reboot, "software": software, "certificates": certificates},
}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def render(samples: Sequence[Sample]) -> str:
    """The samples as node_exporter's textfile collector reads them, those of one metric together."""
    lines = []
    for name in dict.fromkeys(sample.name for sample in samples):
        kind, what = METRICS[name]
        lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
        for sample in samples:
            if sample.name == name:
                words = ",".join(f'{key}="{_escaped(str(value))}"' for key, value in sample.labels.items())
                value = int(sample.value) if sample.value == int(sample.value) else sample.value
                lines.append(f"{name}{{{words}}} {value}" if words else f"{name} {value}")
    return "\n".join(lines) + "\n"


def collect(name: str, collector: Callable[[Node], Samples], node: Node) -> tuple[str, str | None]:
    """The text of a collector's file, and what went wrong."""
    begin, found, trouble = time.monotonic(), [], None
    try:
        for sample in collector(node):
            found.append(sample)
    except Exception as error:  # whatever it is, the other collectors are to run
        trouble = f"{name}: {type(error).__name__}: {error}"
    labels = {"collector": name}
    about = [
        Sample("coldiron_collector_success", float(trouble is None), labels),
        Sample("coldiron_collector_seconds", round(time.monotonic() - begin, 3), labels),
        Sample("coldiron_collector_timestamp_seconds", round(time.time()), labels),
    ]
    return render([*found, *about]), trouble


def write(file: Path, text: str) -> None:
    """Replace a file whole; everybody may read it."""
    temporary = file.with_suffix(f".{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(0o644)
        temporary.replace(file)
    finally:
        if temporary.exists():
            temporary.unlink()


def main(group: str, root: str = "/", config: str = CONFIG) -> int:
    """Run the collectors of ``group`` that are wanted; returns 1 where one failed."""
    wanted = json.loads(Path(config).read_text(encoding="utf-8"))
    node = Node(Path(root), run_tool, wanted)
    status = 0
    for name, collector in COLLECTORS[group].items():
        file = Path(wanted["directory"]) / f"coldiron-{name}.prom"
        if name not in wanted["collectors"]:
            if file.exists():
                file.unlink()
            continue
        text, trouble = collect(name, collector, node)
        write(file, text)
        if trouble is not None:
            print(trouble, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
