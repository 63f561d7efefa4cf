"""One exporter runs as nobody in particular, and what it serves is what the driver says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from coldiron.testing import asking

UNIT = "coldiron-gpu-exporter.service"
DIRECTORY = "/etc/coldiron/gpu-exporter"
SMI = "nvidia-smi --format=csv,noheader,nounits --query-gpu="
SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


def address(opts):
    return opts["gpu_exporter_address"], int(opts["gpu_exporter_port"])


@pytest.fixture
def ask(host, opts):
    """Ask the exporter on its own node: with the node's certificate, where only who has one of the authority's may."""
    where = ":".join(map(str, address(opts)))
    authority = str(opts["gpu_exporter_tls_client_ca"]) or None
    pair = (f"{DIRECTORY}/certificate.pem", f"{DIRECTORY}/key.pem") if authority else None

    def ask(known=True, scheme="https" if opts["gpu_exporter_tls_certificate"] else "http"):
        url = f"{scheme}://{where}/metrics"
        return asking.answered(host, url, authority=authority, client=pair if known else None)

    return ask


@pytest.fixture
def scrape(ask, eventually):
    """What the exporter serves, read on its own node: {metric: {uuid: value}}, and each metric's labels."""

    def read():
        status, text = ask()
        return text if status == 200 else ""

    return lambda: samples(eventually(read, seconds=30))


def samples(text) -> list[tuple[str, dict[str, str], float]]:
    return [(name, dict(LABEL.findall(labels)), float(value)) for name, labels, value in SAMPLE.findall(text)]


def by_uuid(found, metric) -> dict[str, float]:
    return {labels["uuid"]: value for name, labels, value in found if name == metric}


def cards(host, *fields) -> Iterator[list[str]]:
    for line in host.check_output(SMI + ",".join(("uuid", *fields))).splitlines():
        yield [word.strip() for word in line.split(",")]


def test_the_exporter_runs_and_a_boot_starts_it(host, eventually):
    unit = host.service(UNIT)
    assert unit.is_enabled
    assert eventually(lambda: unit.is_running, seconds=20)


def test_it_runs_as_a_user_who_may_do_nothing_else(host, eventually):
    pid = eventually(lambda: int(host.check_output("systemctl show -p MainPID --value %s", UNIT)))
    status = host.file(f"/proc/{pid}/status").content_string
    number = str(host.user("gpu-exporter").uid)
    assert re.search(r"^Uid:\s+(.*)$", status, re.MULTILINE)[1].split() == [number] * 4
    assert number != "0"
    assert re.search(r"^CapEff:\s+(\w+)$", status, re.MULTILINE)[1].strip("0") == ""
    assert host.user("gpu-exporter").shell == "/usr/sbin/nologin"


def test_it_is_heard_where_it_is_declared_and_nowhere_else(host, opts, scrape):
    assert scrape()
    where, port = address(opts)
    lines = host.check_output("ss -Hltn").splitlines()
    assert [line.split()[3] for line in lines if line.split()[3].endswith(f":{port}")] == [f"{where}:{port}"]


def test_nobody_reads_without_a_certificate_of_the_authority(opts, ask, scrape, eventually):
    if not opts["gpu_exporter_tls_client_ca"]:
        return
    assert scrape()

    def refusal():
        status, why = ask(known=False)
        assert status == 0, why
        # The connection may be reset before the reason is read.
        return "CERTIFICATE_REQUIRED" in why.upper().replace(" ", "_")

    assert eventually(refusal, seconds=20)
    assert ask(known=False, scheme="http")[0] != 200


def test_it_serves_what_the_driver_says(host, opts, scrape):
    if opts["gpu_exporter_program"] != "nvitop":
        return
    found = scrape()
    for uuid, name, total, limit, temperature in cards(
        host, "name", "memory.total", "power.limit", "temperature.gpu"
    ):
        assert by_uuid(found, "gpu_memory_total_MiB")[uuid] == pytest.approx(float(total), abs=1)
        assert by_uuid(found, "gpu_power_limit_W")[uuid] == pytest.approx(float(limit), abs=0.5)
        assert by_uuid(found, "gpu_temperature_C")[uuid] == pytest.approx(float(temperature), abs=5)
        seen = next(labels for _, labels, _ in found if labels.get("uuid") == uuid)
        assert (seen["hostname"], seen["devicename"]) == (opts["gpu_exporter_host"], name)


def test_errors_of_memory_and_xids_are_told_of(host, opts, scrape, eventually):
    if opts["gpu_exporter_program"] != "nvitop":
        return
    uuids = {uuid for (uuid,) in cards(host)}
    for metric in ("gpu_ecc_uncorrected_errors", "gpu_row_remap_failure", "gpu_xid"):
        assert eventually(lambda metric=metric: uuids <= set(by_uuid(scrape(), metric)), seconds=60), metric


@pytest.mark.acts
def test_another_temperature_power_and_xid_are_seen(host, opts, scrape, eventually):
    """Only on cards that can be told what to be: those of the virtual rack."""
    if opts["gpu_exporter_program"] != "nvitop" or not host.file("/etc/coldiron/simulated-gpu").exists:
        return
    uuid = next(cards(host))[0]
    assert eventually(lambda: uuid in by_uuid(scrape(), "gpu_xid"), seconds=60)
    host.check_output("simulated-gpu fault 0 hot")
    host.check_output("simulated-gpu fault 0 xid94")
    try:
        (_, said, draw) = next(cards(host, "temperature.gpu", "power.draw"))
        assert float(said) > 85
        wait = 3 * int(opts["gpu_exporter_interval_seconds"]) + 5
        eventually(lambda: by_uuid(scrape(), "gpu_temperature_C")[uuid] == float(said), seconds=wait)
        assert by_uuid(scrape(), "gpu_power_usage_W")[uuid] == pytest.approx(float(draw), rel=0.1)
        eventually(lambda: by_uuid(scrape(), "gpu_xid")[uuid] == 94, seconds=wait)
    finally:
        host.check_output("simulated-gpu fault 0 --clear")


def test_dcgm_is_asked_for_the_declared_fields(host, opts, scrape):
    if opts["gpu_exporter_program"] != "dcgm":
        return
    assert host.service("nvidia-dcgm").is_running
    # NVIDIA's own unit would serve the same as root, on every address.
    assert not host.service("nvidia-dcgm-exporter").is_running
    assert host.check_output("systemctl is-enabled nvidia-dcgm-exporter || true").strip() == "masked"
    found = scrape()
    wanted = {one["field"] for one in opts["gpu_exporter_counters"] if one["type"] != "label"}
    # A card need not know every field, and knows most.
    assert len(wanted & {name for name, _, _ in found}) * 2 > len(wanted)
    written = host.file("/etc/coldiron/gpu-exporter/counters.csv").content_string.splitlines()
    fields = [line.split(",")[0] for line in written if not line.startswith("#")]
    assert fields == [one["field"] for one in opts["gpu_exporter_counters"]]
    assert {labels["hostname"] for _, labels, _ in found if "hostname" in labels} == {
        opts["gpu_exporter_host"]
    }


def test_nobody_else_writes_what_it_runs_or_reads_its_key(host, opts):
    folder = host.file("/etc/coldiron/gpu-exporter")
    assert (folder.user, folder.group, folder.mode) == ("root", "gpu-exporter", 0o750)
    if opts["gpu_exporter_program"] == "nvitop":
        for path in ("/usr/lib/coldiron/gpu_exporter.py", "/opt/coldiron/gpu-exporter/bin/nvitop-exporter"):
            assert host.file(path).user == "root"
            assert not host.file(path).mode & 0o022


def test_nvitop_s_packages_are_the_listed_ones(host, opts):
    if opts["gpu_exporter_program"] != "nvitop":
        return
    listed = re.findall(r"^([\w-]+)==(\S+)", opts["__gpu_exporter_requirements"], re.MULTILINE)
    said = host.check_output("/opt/coldiron/gpu-exporter/bin/python3 -I -m pip list --format=freeze")
    have = dict(line.lower().replace("_", "-").split("==") for line in said.splitlines() if "==" in line)
    for name, version in listed:
        assert have[name] == version
