"""What a node's own collectors make of files and tools' answers that are texts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import node_metrics as metrics


def node(root: Path, answers: Mapping[str, str] | None = None, **config: Any) -> metrics.Node:
    def run(words: Sequence[str]) -> str | None:
        line = " ".join(words)
        return next((said for part, said in (answers or {}).items() if part in line), None)

    return metrics.Node(root, run, config)


def files(root: Path, texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def values(samples: Any) -> dict[tuple[str, ...], float]:
    return {(one.name, *one.labels.values()): one.value for one in samples}


def test_a_bare_node_has_no_metric_of_what_it_lacks(tmp_path: Path) -> None:
    for name in ("mce", "pcie", "infiniband", "raid", "munge", "clock", "log_queue"):
        text, trouble = metrics.collect(name, metrics.COLLECTORS["often"][name], node(tmp_path))
        assert trouble is None
        assert f'coldiron_collector_success{{collector="{name}"}} 1\n' in text
        assert "coldiron_" not in text.replace("coldiron_collector_", "")
    assert list(metrics.smart(node(tmp_path))) == []


def test_an_nvme_disk_tells_its_wear(tmp_path: Path) -> None:
    log = {
        "critical_warning": 1,
        "available_spare": 8,
        "available_spare_threshold": 10,
        "percentage_used": 103,
        "data_units_written": 2,
        "media_errors": 4,
        "unsafe_shutdowns": 5,
    }
    said = {
        "device": {"protocol": "NVMe"},
        "model_name": 'Fast "One"',
        "serial_number": "S1",
        "smart_status": {"passed": False},
        "temperature": {"current": 71},
        "power_on_time": {"hours": 900},
        "nvme_smart_health_information_log": log,
    }
    listed = {"devices": [{"name": "/dev/nvme0n1", "type": "nvme", "protocol": "NVMe"}]}
    answers = {"--scan-open": json.dumps(listed), "/dev/nvme0n1": json.dumps(said)}
    samples = list(metrics.smart(node(tmp_path, answers)))
    found = values(samples)
    assert found["coldiron_disk_healthy", "nvme0n1"] == 0
    assert found["coldiron_disk_temperature_celsius", "nvme0n1"] == 71
    assert found["coldiron_nvme_percentage_used_ratio", "nvme0"] == 1.03
    assert found["coldiron_nvme_available_spare_ratio", "nvme0"] == 0.08
    assert found["coldiron_nvme_critical_warning", "nvme0"] == 1
    assert found["coldiron_nvme_data_written_bytes_total", "nvme0"] == 1024000
    assert r'model="Fast \"One\""' in metrics.render(samples)


def test_an_ata_disk_tells_its_sectors(tmp_path: Path) -> None:
    table = [
        {"id": 5, "raw": {"value": 7 + (3 << 32)}, "when_failed": "now"},
        {"id": 197, "raw": {"value": 2}, "when_failed": ""},
        {"id": 9, "raw": {"value": 1}, "when_failed": "past"},
    ]
    said = {"model_name": "Old", "ata_smart_attributes": {"table": table}, "smart_status": {"passed": True}}
    found = values(metrics.disk_samples({"name": "/dev/sda", "type": "sat"}, said))
    assert found["coldiron_disk_reallocated_sectors", "sda"] == 7
    assert found["coldiron_disk_pending_sectors", "sda"] == 2
    assert found["coldiron_disk_attributes_failing", "sda"] == 1
    assert found["coldiron_disk_healthy", "sda"] == 1


def test_a_disk_that_sleeps_or_has_no_smart_is_left_out() -> None:
    assert list(metrics.disk_samples({"name": "/dev/sdb", "type": "scsi"}, {"device": {}})) == []


def test_a_disk_that_hangs_does_not_hide_the_others(tmp_path: Path) -> None:
    listed = {"devices": [{"name": "/dev/sda", "type": "sat"}, {"name": "/dev/sdb", "type": "sat"}]}

    def run(words: Sequence[str]) -> str | None:
        if "--scan-open" in words:
            return json.dumps(listed)
        if "/dev/sda" in words:
            raise subprocess.TimeoutExpired(words, 20)
        return json.dumps({"model_name": "Other", "smart_status": {"passed": True}})

    text, trouble = metrics.collect("smart", metrics.smart, metrics.Node(tmp_path, run, {}))
    assert trouble is not None
    assert 'coldiron_collector_success{collector="smart"} 0' in text
    assert 'coldiron_disk_healthy{device="sdb"} 1' in text


def pci(root: Path, device: str, **texts: str) -> None:
    real = "sys/devices/pci0000:00/0000:00:01.0/" + device
    files(root, {f"{real}/{name}": text for name, text in texts.items()})
    link = root / "sys/bus/pci/devices" / device
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(root / real)


def test_a_narrow_link_is_told_and_a_narrow_slot_is_none(tmp_path: Path) -> None:
    files(
        tmp_path,
        {
            "sys/devices/pci0000:00/0000:00:01.0/max_link_width": "16",
            "sys/devices/pci0000:00/0000:00:01.0/max_link_speed": "16.0 GT/s PCIe",
        },
    )
    pci(
        tmp_path,
        "0000:01:00.0",
        **{"class": "0x030200", "vendor": "0x10de", "current_link_width": "8", "max_link_width": "16"},
        current_link_speed="2.5 GT/s PCIe",
        max_link_speed="32.0 GT/s PCIe",
        aer_dev_fatal="Undefined 0\nTOTAL_ERR_FATAL 3\n",
    )
    pci(tmp_path, "0000:02:00.0", **{"class": "0x060400", "current_link_width": "4", "max_link_width": "16"})
    card = ("0000:01:00.0", "gpu", "0x10de", "")
    assert values(metrics.pcie(node(tmp_path))) == {
        ("coldiron_pcie_link_width", *card): 8,
        ("coldiron_pcie_link_width_max", *card): 16,
        ("coldiron_pcie_link_speed_gtps", *card): 2.5,
        ("coldiron_pcie_link_speed_max_gtps", *card): 16,
        ("coldiron_pcie_aer_errors_total", "0000:01:00.0", "gpu", "fatal"): 3,
    }


def test_memory_modules_machine_checks_arrays_and_ports(tmp_path: Path) -> None:
    files(
        tmp_path,
        {
            "proc/interrupts": "  0:  1 2 timer\nMCE:   1    2   Machine check exceptions\nMCP: 9 9 polls\n",
            "sys/devices/system/edac/mc/mc1/dimm3/dimm_label": "CPU1_DIMM_B2\n",
            "sys/devices/system/edac/mc/mc1/dimm3/dimm_ce_count": "12\n",
            "sys/devices/system/edac/mc/mc1/dimm3/dimm_ue_count": "0\n",
            "sys/block/md0/md/degraded": "1",
            "sys/block/md0/md/level": "raid1",
            "sys/block/md0/md/mismatch_cnt": "128",
            "sys/block/md0/md/sync_action": "recover",
            "sys/block/md0/md/sync_completed": "50 / 200",
            "sys/block/md1/md/level": "raid0",
            "sys/class/infiniband/mlx5_0/ports/1/link_layer": "Ethernet",
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence": "4",
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/lifespan": "12",
        },
    )
    here = node(tmp_path)
    assert values([*metrics.mce(here), *metrics.raid(here), *metrics.infiniband(here)]) == {
        ("coldiron_machine_check_exceptions_total",): 3,
        ("coldiron_memory_corrected_errors_total", "CPU1_DIMM_B2", "1"): 12,
        ("coldiron_memory_uncorrected_errors_total", "CPU1_DIMM_B2", "1"): 0,
        ("coldiron_raid_degraded", "md0", "raid1"): 1,
        ("coldiron_raid_mismatches", "md0"): 128,
        ("coldiron_raid_sync_ratio", "md0", "recover"): 0.25,
        ("coldiron_infiniband_link_layer", "mlx5_0", "1", "Ethernet"): 1,
        ("coldiron_infiniband_hw_counter_total", "mlx5_0", "1", "out_of_sequence"): 4,
    }


@pytest.mark.parametrize(
    ("running", "kernels", "flag", "due"),
    [
        ("6.12.9-amd64", ["6.12.9-amd64"], False, 0),
        ("6.12.9-amd64", ["6.12.9-amd64", "6.12.10-amd64"], False, 1),
        ("6.12.48+deb13-amd64", ["6.12.48+deb13-amd64", "6.12.57+deb13-amd64"], False, 1),
        ("6.12.10-amd64", ["6.12.10-amd64", "6.12.9-amd64"], False, 0),
        ("6.12.9-amd64", ["6.12.9-amd64", "6.13.1-rt-amd64"], False, 0),
        ("6.12.9-amd64", ["6.12.9-amd64"], True, 1),
        # The kernel of a container's host is none of its own.
        ("6.18.4-host", ["6.12.9-amd64", "6.19.9-amd64"], False, 0),
    ],
)
def test_a_newer_kernel_waits_for_a_boot(
    tmp_path: Path, running: str, kernels: list[str], flag: bool, due: float
) -> None:
    files(
        tmp_path, {"proc/sys/kernel/osrelease": running, **{f"boot/vmlinuz-{name}": "" for name in kernels}}
    )
    if flag:
        files(tmp_path, {"run/reboot-required": ""})
    assert values(metrics.reboot(node(tmp_path))) == {("coldiron_reboot_required",): due}


def test_image_driver_and_holds(tmp_path: Path) -> None:
    record = {"deployed": "2026-11-22T10:00:00Z", "image": {"sha256": "ab", "class": "gpu-debian-13"}}
    files(
        tmp_path,
        {
            "etc/coldiron/deployed.json": json.dumps(record),
            "proc/sys/kernel/osrelease": "6.12.9-amd64\n",
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Rel\n",
            "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.105.08": "",
            "var/lib/dpkg/status": "Package: a\nStatus: hold ok installed\n\nStatus: install ok installed\n",
        },
    )
    assert values(metrics.software(node(tmp_path))) == {
        ("coldiron_kernel_info", "6.12.9-amd64"): 1,
        ("coldiron_node_image_info", "gpu-debian-13", "ab", "2026-11-22T10:00:00Z"): 1,
        ("coldiron_nvidia_driver_info", "580.95.05", "580.105.08"): 1,
        ("coldiron_packages_held",): 1,
    }


def test_the_clock_is_as_chrony_says(tmp_path: Path) -> None:
    follows = (
        "0A4D1401,10.77.20.1,11,1795351365.46,0.000002261,-0.1,0.1,-0.005,-0.000,0.019,0.1,0.1,65.0,Normal\n"
    )
    assert values(metrics.clock(node(tmp_path, {"chronyc": follows}))) == {
        ("coldiron_clock_synchronised",): 1,
        ("coldiron_clock_offset_seconds",): -0.000002261,
    }
    nobody = "00000000,,0,0.0,0.0,0.0,0.0,-0.005,-0.000,0.019,1.0,1.0,0.0,Not synchronised\n"
    for said in (nobody, "silent\n", "506 Cannot talk to daemon\n"):
        assert values(metrics.clock(node(tmp_path, {"chronyc": said}))) == {
            ("coldiron_clock_synchronised",): 0
        }
    assert list(metrics.clock(node(tmp_path, {"chronyc": ""}))) == []


def test_munge_and_certificates(tmp_path: Path) -> None:
    assert values(metrics.munge(node(tmp_path, {"munge": "works\n"}))) == {("coldiron_munge_works",): 1}
    assert values(metrics.munge(node(tmp_path, {"munge": "broken\n"}))) == {("coldiron_munge_works",): 0}
    files(tmp_path, {"etc/a.pem": ""})
    said = {"openssl": "notAfter=Jan  2 03:04:05 2027 GMT\nsubject=CN=head01\n"}
    here = node(tmp_path, said, certificates=["/etc/a.pem", "/etc/none.pem"])
    expected = {("coldiron_certificate_not_after_seconds", "/etc/a.pem", "CN=head01"): 1798859045}
    assert values(metrics.certificates(here)) == expected
    with pytest.raises(ValueError, match="no certificate"):
        list(metrics.certificates(node(tmp_path, {"openssl": "nonsense"}, certificates=["/etc/a.pem"])))


def test_lines_that_wait_for_the_log_server(tmp_path: Path) -> None:
    conf = 'ruleset(name="ship" queue.size="500000"\n queue.fullDelayMark="400000")\n'
    files(tmp_path, {"etc/coldiron/log-shipper/rsyslog.conf": conf})
    limit = {("coldiron_log_shipper_queue_limit_messages",): 400000.0}
    here = node(tmp_path)
    assert values(metrics.log_queue(here)) == {("coldiron_log_shipper_queue_messages",): 0.0, **limit}
    # As rsyslog 8.2504 wrote it.
    written = "<OPB:1:qqueue:1:\n+iQueueSize:2:4:8187:\n+tVars.disk.sizeOnDisk:2:7:7398216:\n>End\n.\n"
    files(tmp_path, {"var/lib/coldiron-log-shipper/ship.qi": written})
    assert values(metrics.log_queue(here)) == {("coldiron_log_shipper_queue_messages",): 8187.0, **limit}


def test_every_collector_runs_whatever_one_of_them_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: metrics.Node) -> metrics.Samples:
        raise OSError("no such luck")
        yield

    place = tmp_path / "out"
    place.mkdir()
    (place / "coldiron-munge.prom").write_text("old 1\n")
    monkeypatch.setitem(metrics.COLLECTORS["often"], "mce", broken)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"directory": str(place), "collectors": ["mce", "raid"]}))
    assert metrics.main("often", str(tmp_path), str(config)) == 1
    assert "mce: OSError: no such luck" in capsys.readouterr().err
    assert sorted(path.name for path in place.iterdir()) == ["coldiron-mce.prom", "coldiron-raid.prom"]
    assert 'coldiron_collector_success{collector="mce"} 0' in (place / "coldiron-mce.prom").read_text()


def test_every_collector_has_a_choice_in_the_role() -> None:
    import yaml

    root = Path(__file__).resolve().parents[3]
    spec = yaml.safe_load((root / "roles/node_exporter/meta/argument_specs.yml").read_text())
    choices = spec["argument_specs"]["main"]["options"]["node_exporter_checks"]["choices"]
    assert set(choices) == {name for group in metrics.COLLECTORS.values() for name in group}
