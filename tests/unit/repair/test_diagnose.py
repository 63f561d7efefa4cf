"""What the evidence says: lines in the shapes that the tools print, each with one that looks alike and is harmless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldiron.errors import ColdironError
from coldiron.repair import diagnose
from coldiron.repair.diagnose import KINDS, QUOTED, Quote, Severity, judge, kind_of, load, read
from coldiron.repair.machine import Outcome

H, S, U, N = "hardware", "software", "unclear", ""

# Kind of evidence, line, what it says (nothing: it is passed over), by which rule.
LINES = [
    (
        "dmesg",
        "[ 9.1] NVRM: Xid (PCI:0000:8a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        H,
        "xid-79",
    ),
    (
        "journal",
        "Nov 01 03:04:05 gpu02 kernel: NVRM: Xid (PCI:0000:0f:00): 64, pid=57530, Row Remapper Error",
        H,
        "xid-64",
    ),
    (
        "dmesg",
        "NVRM: Xid (PCI:0000:01:00): 48, pid=812, An uncorrectable double bit error (DBE)",
        U,
        "xid-48",
    ),
    ("dmesg", "NVRM: Xid (PCI:0000:01:00): 95, pid=812, Uncontained", U, "xid-95"),
    ("dmesg", "NVRM: Xid (PCI:0000:59:00): 74, pid=1, NVLink: fatal error detected on link 3", U, "xid-74"),
    (
        "dmesg",
        "NVRM: Xid (PCI:0000:59:00): 119, pid=1, Timeout after 6s of waiting for RPC response",
        S,
        "xid-gsp",
    ),
    ("dmesg", "NVRM: Xid (PCI:0000:59:00): 155, pid=1", U, "xid-other"),
    # The application's own: never a ticket, whatever words stand in the line.
    (
        "dmesg",
        "NVRM: Xid (PCI:0000:01:00): 31, pid=79, name=python3, MMU Fault: FAULT_PDE ACCESS_TYPE_READ",
        N,
        "",
    ),
    ("dmesg", "NVRM: Xid (PCI:0000:01:00): 13, pid=64, Graphics SM Warp Exception", N, ""),
    ("dmesg", "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping", N, ""),
    ("dmesg", "NVRM: Xid (PCI:0000:10:1c): 94, pid=1896, Contained: SM (0x1)", N, ""),
    ("dmesg", "job 79 asked what Xid 79 means", N, ""),
    ("nvidia", "        Remapping Failure Occurred        : Yes", H, "gpu-remap-failed"),
    ("nvidia", "        Remapping Failure Occurred        : No", N, ""),
    ("nvidia", "        Pending                           : Yes", N, ""),
    (
        "dmesg",
        "[77.6] EDAC MC3: 1 UE memory read error on CPU_SrcID#0_MC#3_Chan#0_DIMM#0 (channel:0 slot:0)",
        H,
        "edac-ue",
    ),
    (
        "dmesg",
        "[77.6] EDAC MC3: 1 CE memory read error on CPU_SrcID#0_MC#3_Chan#0_DIMM#0 (channel:0 slot:0)",
        N,
        "",
    ),
    ("dmesg", "[77.6] EDAC MC3: 0 UE memory read error on DIMM_A1", N, ""),
    (
        "dmesg",
        "[1.0] EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000",
        N,
        "",
    ),
    ("dmesg", "mce: Uncorrected hardware memory error in user-access at 29b8cf5000", H, "mce-memory"),
    ("dmesg", "{1}[Hardware Error]: It has been corrected by h/w and requires no further action", N, ""),
    (
        "dmesg",
        "pcieport 0000:00:01.4: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        H,
        "aer-fatal",
    ),
    (
        "dmesg",
        "pcieport 0000:00:01.4: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Physical",
        H,
        "aer-fatal",
    ),
    (
        "dmesg",
        "pcieport 0000:00:01.4: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction",
        U,
        "aer-non-fatal",
    ),
    (
        "dmesg",
        "pcieport 0000:02:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)",
        N,
        "",
    ),
    ("dmesg", "critical medium error, dev sda, sector 1953120 op 0x0:(READ) flags 0x0", H, "disk-medium"),
    ("dmesg", "sd 3:0:0:0: [sda] tag#14 Sense Key : Medium Error [current]", H, "disk-medium"),
    ("dmesg", "sd 3:0:0:0: [sda] tag#14 Sense Key : Recovered Error [current]", N, ""),
    ("dmesg", "nvme nvme2: Disabling device after reset failure: -19", H, "nvme-gone"),
    (
        "dmesg",
        "nvme nvme2: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
        U,
        "nvme-reset",
    ),
    ("dmesg", "nvme nvme0: Shutdown timeout set to 8 seconds", N, ""),
    (
        "dmesg",
        "[17342.0] EXT4-fs error (device sda1): ext4_journal_start_sb: Detected aborted journal",
        S,
        "ext4-error",
    ),
    ("dmesg", "EXT4-fs (sda2): re-mounted. Opts: errors=remount-ro", N, ""),
    ("dmesg", "EXT4-fs (sda2): recovery complete", N, ""),
    ("dmesg", "XFS (dm-0): Corruption detected. Unmount and run xfs_repair", S, "xfs-corrupt"),
    ("dmesg", "XFS (dm-0): Mounting V5 Filesystem", N, ""),
    (
        "dmesg",
        "blk_update_request: I/O error, dev sdb, sector 1953120 op 0x0:(READ) flags 0x0",
        U,
        "io-error",
    ),
    ("dmesg", "I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0", N, ""),
    ("dmesg", "Buffer I/O error on dev sdb1, logical block 244139, async page read", N, ""),
    ("sel", "   4 | 02/10/2026 | 14:25:12 | Memory #0x48 | Uncorrectable ECC | Asserted", H, "sel-memory"),
    ("sel", "   1 | 02/10/2026 | 14:23:05 | Memory #0x48 | Correctable ECC | Asserted", N, ""),
    ("sel", "   1 | 02/10/2026 | 14:23:05 | Memory #0x48 | Uncorrectable ECC | Deasserted", N, ""),
    ("sel", "   5 | 02/10/2026 | 14:23:05 | Processor #0x10 | IERR | Asserted", H, "sel-processor"),
    ("sel", "   5 | 02/10/2026 | 14:23:05 | Processor #0x10 | Presence detected | Asserted", N, ""),
    (
        "sel",
        "   3 | 09/29/2026 | 03:11:42 | Power Supply #0xc8 | Failure detected | Asserted",
        H,
        "sel-power",
    ),
    (
        "sel",
        "  32 | 01/27/2022 | 22:54:22 | Power Supply #0xc8 | Power Supply AC lost | Asserted",
        U,
        "sel-mains",
    ),
    ("sel", "   2 | 09/29/2026 | 03:11:42 | Power Supply #0xc8 | Presence detected | Asserted", N, ""),
    ("sel", "   5 | 10/07/2026 | 06:30:12 | Drive Slot Bay4 | Drive Fault | Asserted", H, "sel-drive"),
    ("sel", "   5 | 10/07/2026 | 06:30:12 | Drive Slot Bay4 | Drive Present | Asserted", N, ""),
    (
        "sel",
        "   2 | 10/05/2026 | 02:14:31 | Fan #0x41 | Lower Non-recoverable going low | Asserted",
        U,
        "sel-threshold",
    ),
    ("sel", "   2 | 10/05/2026 | 02:14:31 | Fan #0x41 | Lower Non-recoverable going high | Asserted", N, ""),
    ("sel", "   2 | 10/05/2026 | 02:14:31 | Fan #0x41 | Lower Non-critical going low | Asserted", N, ""),
    ("sel", "   9 | 03/11/2025 | 16:36:00 | System Event | Timestamp Clock Sync | Asserted", N, ""),
    (
        "sensors",
        "FAN3             | 0.000      | RPM        | nr    | 300.000   | 500.000   | 700.000   | na",
        H,
        "sensor-fan-stopped",
    ),
    (
        "sensors",
        "SYS_FAN 1        | 0          | RPM        | cr    | 300.000   | 500.000   | 700.000   | na",
        H,
        "sensor-fan-stopped",
    ),
    (
        "sensors",
        "FAN3             | 8400.000   | RPM        | ok    | 300.000   | 500.000   | 700.000   | na",
        N,
        "",
    ),
    (
        "sensors",
        "FAN4             | na         | RPM        | na    | 300.000   | 500.000   | 700.000   | na",
        N,
        "",
    ),
    (
        "sensors",
        "CPU1 Temp        | 98.000     | degrees C  | cr    | 0.000     | 0.000     | 0.000     | 90.000",
        U,
        "sensor-limit",
    ),
    (
        "sensors",
        "CPU1 Temp        | 88.000     | degrees C  | nc    | 0.000     | 0.000     | 0.000     | 85.000",
        N,
        "",
    ),
]


@pytest.mark.parametrize(("kind", "line", "says", "rule"), LINES, ids=lambda value: str(value)[:60])
def test_a_line(kind: str, line: str, says: str, rule: str) -> None:
    found = judge({f"{kind}.txt": f"a line before\n{line}\n"})
    if not says:
        assert found.evidence == ()
        assert found.verdict is Severity.UNCLEAR
        return
    (evidence,) = found.evidence
    assert (evidence.rule, evidence.severity, found.verdict) == (rule, says, says)
    assert evidence.quotes == (Quote(f"{kind}.txt", 2, line.strip()),)


def nvme(warning: int, passed: bool) -> dict[str, Any]:
    return {
        "smartctl": {"version": [7, 4], "exit_status": 0 if passed else 8},
        "device": {"name": "/dev/nvme0", "type": "nvme", "protocol": "NVMe"},
        "smart_status": {"passed": passed, "nvme": {"value": warning}},
        "nvme_smart_health_information_log": {
            "critical_warning": warning,
            "temperature": 41,
            "media_errors": 0,
        },
    }


def ata(passed: bool, when_failed: str, prefailure: bool) -> dict[str, Any]:
    attribute = {
        "id": 5,
        "name": "Reallocated_Sector_Ct",
        "value": 133,
        "thresh": 140,
        "when_failed": when_failed,
    }
    attribute["flags"] = {"value": 51, "string": "PO--CK ", "prefailure": prefailure}
    return {
        "device": {"name": "/dev/sda", "type": "sat", "protocol": "ATA"},
        "smart_status": {"passed": passed},
        "ata_smart_attributes": {
            "table": [{"id": 1, "when_failed": "", "flags": {"prefailure": True}}, attribute]
        },
    }


@pytest.mark.parametrize(
    ("data", "rules"),
    [
        (nvme(0, True), []),
        (nvme(4, False), ["nvme-critical"]),
        (nvme(9, False), ["nvme-critical"]),
        # Heat alone is no broken disk, though smartctl calls the disk failed for it.
        (nvme(2, False), ["nvme-hot"]),
        (nvme(True, True), []),
        (ata(True, "", True), []),
        (ata(False, "", True), ["smart-failing"]),
        (ata(True, "now", True), ["smart-attribute"]),
        (ata(True, "past", True), []),
        # An attribute that only tells of age.
        (ata(True, "now", False), []),
        ({"smart_status": {"passed": 0}}, []),
        # smartctl without the right to look says nothing of the disk.
        (
            {
                "smartctl": {
                    "exit_status": 2,
                    "messages": [{"string": "Permission denied", "severity": "error"}],
                }
            },
            [],
        ),
    ],
)
def test_a_disk(data: dict[str, Any], rules: list[str]) -> None:
    found = judge({"smart-sda.json": json.dumps(data, indent=2)})
    assert [one.rule for one in found.evidence] == rules
    assert found.unread == ()


def test_a_field_is_quoted_with_its_line() -> None:
    text = json.dumps(ata(True, "now", True), indent=2)
    (evidence,) = judge({"smart-sda.json": text}).evidence
    (quote,) = evidence.quotes
    assert quote.text == '"when_failed": "now",'
    assert text.split("\n")[quote.line - 1].strip() == quote.text
    # On one line the field alone is quoted.
    (evidence,) = judge({"smart-sda.json": json.dumps(ata(False, "", True))}).evidence
    assert str(evidence.quotes[0]) == 'smart-sda.json:1: "passed": false'


def entry(message: str, severity: str = "Critical", **more: Any) -> dict[str, Any]:
    return {"Id": "7", "EntryType": "SEL", "Severity": severity, "Message": message} | more


@pytest.mark.parametrize(
    ("one", "rule"),
    [
        (entry("An uncorrectable memory error was detected at DIMM_A2."), "redfish-hardware"),
        (entry("Power supply 2 has failed."), "redfish-hardware"),
        (entry("The system board watchdog expired."), "redfish-critical"),
        (entry("Power supply 2 has failed.", Resolved=True), ""),
        (entry("Power supply 2 has failed.", Resolved=False), "redfish-hardware"),
        (entry("A correctable memory error was detected.", "Warning"), ""),
        (entry("An uncorrectable error was cleared.", "OK"), ""),
        (entry("Power supply 2 has failed.", Created="2026-10-01T00:00:00Z"), "redfish-hardware"),
        # Before the time that is asked for; the last one without a zone.
        (entry("Power supply 2 has failed.", Created="2026-09-30T23:59:59+00:00"), ""),
        (entry("Power supply 2 has failed.", Created="2026-09-30T23:59:59"), ""),
    ],
)
def test_a_redfish_entry(one: dict[str, Any], rule: str) -> None:
    first = 1790812800.0  # 2026-10-01T00:00:00Z
    found = judge(
        {"redfish-sel.json": json.dumps({"Members": [entry("fine", "OK"), one]}, indent=1)}, since=first
    )
    assert [evidence.rule for evidence in found.evidence] == ([rule] if rule else [])


PSU = "   3 | 09/29/2026 | 03:11:42 | Power Supply #0xc8 | Failure detected | Asserted"


@pytest.mark.parametrize(
    ("later", "severity"),
    [
        ("   4 | 09/29/2026 | 03:11:43 | Power Supply #0xc8 | Failure detected | Deasserted", None),
        (
            "   4 | 09/29/2026 | 03:11:43 | Power Supply #0xc9 | Failure detected | Deasserted",
            Severity.HARDWARE,
        ),
        (
            "   4 | 09/29/2026 | 03:11:43 | Power Supply #0xc8 | Predictive failure | Deasserted",
            Severity.HARDWARE,
        ),
        ("SEL has no more entries", Severity.HARDWARE),
    ],
)
def test_an_event_that_was_taken_back(later: str, severity: Severity | None) -> None:
    found = judge({"sel.txt": f"{PSU}\n{later}\n"})
    assert [one.severity for one in found.evidence] == ([severity] if severity else [])
    # One that comes again after it was taken back counts.
    assert judge({"sel.txt": f"{PSU}\n{later}\n{PSU}\n"}).verdict is Severity.HARDWARE


def test_a_memory_error_is_not_taken_back() -> None:
    line = " 4 | 02/10/2026 | 14:25:12 | Memory #0x48 | Uncorrectable ECC | "
    assert judge({"sel.txt": f"{line}Asserted\n{line}Deasserted\n"}).verdict is Severity.HARDWARE


def test_a_log_outlives_the_parts() -> None:
    since = 1790812800.0  # 2026-10-01T00:00:00Z
    assert judge({"sel.txt": PSU}, since).evidence == ()
    assert judge({"sel.txt": PSU.replace("09/29", "10/01")}, since).verdict is Severity.HARDWARE
    # Without a time nobody can say that it is old.
    assert judge({"sel.txt": PSU.replace("09/29/2026", "Pre-Init  ")}, since).verdict is Severity.HARDWARE
    assert judge({"sel.txt": PSU.replace("| 03:11:42", "|")}, since).verdict is Severity.HARDWARE


MEDIUM = "critical medium error, dev sda, sector 8 op 0x0:(READ)"
EXT4 = "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0"
RESET = "nvme nvme2: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10"


@pytest.mark.parametrize(
    ("lines", "verdict", "outcome", "reason"),
    [
        (
            [EXT4, RESET, MEDIUM],
            H,
            Outcome.HARDWARE,
            "open a ticket: the disk cannot read or write its medium (dmesg.txt:3: ",
        ),
        ([RESET, EXT4], S, Outcome.OK, "a new image helps: a file system is damaged; a new one helps"),
        ([RESET], U, Outcome.UNCLEAR, "unclear: an NVMe disk did not answer for a while"),
        ([], U, Outcome.UNCLEAR, "nothing in the evidence says what is wrong (1 of 7 kinds gathered)"),
    ],
)
def test_the_worst_decides(lines: list[str], verdict: str, outcome: Outcome, reason: str) -> None:
    found = judge({"dmesg.txt": "\n".join(lines)})
    assert (found.verdict, found.outcome) == (verdict, outcome)
    assert found.reason.startswith(reason)
    assert found.reason.endswith(", and 2 more") == (len(lines) == 3)
    assert "\n" not in found.reason


def test_a_flood_is_counted() -> None:
    (evidence,) = judge({"dmesg.txt": f"{MEDIUM}\n" * 1000}).evidence
    assert evidence.count == 1000
    assert [quote.line for quote in evidence.quotes] == list(range(1, QUOTED + 1))


def test_what_is_not_what_its_name_says() -> None:
    found = judge(
        {"smart-sda.json": "smartctl: command not found", "redfish.json": "[" * 200_000, "dmesg.txt": ""}
    )
    assert found.unread == ("redfish.json", "smart-sda.json")
    assert found.missing == ("journal", "nvidia", "smart", "sel", "redfish", "sensors")
    assert found.outcome is Outcome.UNCLEAR


def test_a_quote_is_short_and_printable() -> None:
    (evidence,) = judge({"dmesg.txt": f"\x1b[31m{MEDIUM}\x00" + "x" * 1000}).evidence
    text = evidence.quotes[0].text
    assert text.isprintable()
    assert len(text) == 300
    assert text.endswith("…")


def test_a_bundle_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dmesg.txt").write_bytes(b"x" * 60 + b"\n" + b"fine\n" * 20 + MEDIUM.encode() + b"\xff\n")
    (tmp_path / "deeper").mkdir()
    assert read(tmp_path)["dmesg.txt"].endswith("�\n")
    # Of a log that is too long the end is read, and its lines keep their numbers.
    whole = judge(read(tmp_path)).evidence
    monkeypatch.setattr(diagnose, "LONGEST_FILE", 100)
    assert judge(read(tmp_path)).evidence == whole
    assert whole[0].quotes[0].line == 22
    with pytest.raises(ColdironError, match="the evidence cannot be read"):
        read(tmp_path / "nowhere")


def test_a_file_that_is_no_evidence() -> None:
    assert kind_of("smart-nvme0n1.json") == "smart"
    assert kind_of("sel") == "sel"
    with pytest.raises(ColdironError, match=r"notes\.txt: this is no kind of evidence"):
        judge({"notes.txt": ""})


def test_every_rule_has_a_source_and_is_tried_here() -> None:
    assert len({rule.id for rule in load()}) == len(load())
    assert all(rule.source.startswith("https://") and rule.means for rule in load())
    assert {kind for rule in load() for kind in rule.files} == set(KINDS)
    text = Path(__file__).read_text(encoding="utf-8")
    assert [
        rule.id for rule in load() if rule.severity is not Severity.HARMLESS and f'"{rule.id}"' not in text
    ] == []


@pytest.mark.parametrize(
    "change",
    [
        {"patern": "x"},
        {"files": ["dmesg", "nonsense"]},
        {"pattern": None},
        {"field": "a.b"},
        {"equals": 1, "bits": 1},
    ],
)
def test_a_rule_that_is_not_whole(change: dict[str, Any]) -> None:
    rule = {
        "id": "x",
        "files": ["dmesg"],
        "pattern": "x",
        "severity": "unclear",
        "means": "x",
        "source": "https://x",
    }
    rule = {key: value for key, value in (rule | change).items() if value is not None}
    with pytest.raises(ValueError, match="the rule x is not whole"):
        diagnose._rule(rule)


def test_a_threshold() -> None:
    rule = diagnose._rule(
        {
            "id": "x",
            "files": ["smart"],
            "field": "n",
            "above": 3,
            "severity": "unclear",
            "means": "x",
            "source": "y",
        }
    )
    for value, seen in ((3, 0), (4, 1), ('"4"', 0), ("true", 0)):
        assert len(judge({"smart.json": f'{{"n": {value}}}'}, rules=[rule]).evidence) == seen


@given(st.dictionaries(st.sampled_from([f"{kind}.x" for kind in KINDS]), st.text(max_size=200)))
def test_whatever_is_gathered_is_judged_alike_each_time(files: dict[str, str]) -> None:
    found = judge(files)
    assert judge(dict(reversed(files.items()))) == found
    assert found.outcome in (Outcome.OK, Outcome.UNCLEAR, Outcome.HARDWARE)


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False)
)
trees = st.recursive(
    leaves, lambda tree: st.lists(tree, max_size=3) | st.dictionaries(st.text(max_size=4), tree, max_size=3)
)


def flat(data: object, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], object]]:
    if isinstance(data, dict):
        return [leaf for key, value in data.items() for leaf in flat(value, (*path, key))]
    if isinstance(data, list):
        return [leaf for key, value in enumerate(data) for leaf in flat(value, (*path, key))]
    return [(path, data)]


@given(trees, st.sampled_from([None, 0, 1]), st.booleans())
def test_the_fields_of_any_json(data: object, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(data, indent=indent, ensure_ascii=ascii_only)
    found = diagnose.fields(text)
    assert [(one.path, one.value) for one in found] == flat(data)
    lines = text.split("\n")
    for one in found:
        assert json.dumps(one.value, ensure_ascii=ascii_only) in lines[one.line - 1]
