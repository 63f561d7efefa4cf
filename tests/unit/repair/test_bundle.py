"""The bundle: what was gathered, what it says, and the text of the ticket."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from coldiron.errors import ColdironError
from coldiron.repair import bundle
from coldiron.repair.diagnose import Severity

XID = "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus."


def plain(text: str) -> str:
    return text


def test_hardware_has_a_ticket_that_quotes_the_evidence(tmp_path: Path) -> None:
    place = bundle.place(tmp_path, "gpu02", 0.0)
    assert place == tmp_path / "gpu02" / "19700101T000000Z"
    bundle.begin(place)
    found = bundle.gather(
        place,
        {"dmesg.txt": f"fine\n{XID}\n{XID}\n", "nvidia.txt": ""},
        {"node": "gpu02", "serial": "123"},
        plain,
    )
    assert found.verdict is Severity.HARDWARE
    ticket = (place / bundle.TICKET).read_text()
    assert ticket.startswith("Hardware fault: gpu02: a GPU has fallen off the bus")
    assert "serial: 123" in ticket
    assert f"dmesg.txt:2: {XID}" in ticket
    assert "(2 in all)" in ticket
    findings = (place / bundle.FINDINGS).read_text()
    assert findings.startswith("verdict: hardware")
    assert "not gathered: journal, nvidia" in findings
    # What is empty is no evidence.
    assert [path.name for path in (place / bundle.EVIDENCE).iterdir()] == ["dmesg.txt"]
    assert stat.S_IMODE((place / bundle.EVIDENCE / "dmesg.txt").stat().st_mode) == 0o600


def test_secrets_are_masked_also_in_what_others_wrote(tmp_path: Path) -> None:
    evidence = bundle.begin(tmp_path / "b")
    (evidence / "sensors.txt").write_text("Fan1 hunter2\n")
    (evidence / "smart-sda.json").write_text("no json")
    found = bundle.gather(
        tmp_path / "b",
        {"journal-0.txt": "login with hunter2\n"},
        {},
        lambda text: text.replace("hunter2", "***"),
    )
    assert "hunter2" not in "".join(path.read_text() for path in tmp_path.rglob("*.*") if path.is_file())
    assert found.verdict is Severity.UNCLEAR
    assert not (tmp_path / "b" / bundle.TICKET).exists()
    text = (tmp_path / "b" / bundle.FINDINGS).read_text()
    assert "no rule fits" in text
    assert "not readable: smart-sda.json" in text


def test_an_earlier_try_leaves_nothing(tmp_path: Path) -> None:
    (bundle.begin(tmp_path) / "dmesg.txt").write_text(XID)
    assert list(bundle.begin(tmp_path).iterdir()) == []


def test_what_is_no_evidence_is_refused(tmp_path: Path) -> None:
    bundle.begin(tmp_path)
    with pytest.raises(ColdironError, match="no kind of evidence"):
        bundle.gather(tmp_path, {"passwd": "x"}, {}, plain)


def test_a_bundle_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ColdironError, match="cannot be kept"):
        bundle.begin(tmp_path / "file")
    bundle.begin(tmp_path / "b")
    (tmp_path / "b" / bundle.FINDINGS).mkdir()
    with pytest.raises(ColdironError, match="cannot be kept"):
        bundle.gather(tmp_path / "b", {}, {}, plain)
