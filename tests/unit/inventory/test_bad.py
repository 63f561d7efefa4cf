"""Every file in bad/ is wrong as its header says, on the line that it says, and in no other way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import InventoryError, load

BAD = sorted((Path(__file__).parent / "bad").glob("*.yml"))
EXPECT = re.compile(r"# expect (\d+): (.*)")


def test_there_are_files() -> None:
    assert len(BAD) > 100


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_findings_are_those_of_the_header(file: Path) -> None:
    expected = [(int(m.group(1)), m.group(2)) for m in EXPECT.finditer(file.read_text())]
    with pytest.raises(InventoryError) as caught:
        load(file)
    findings = caught.value.findings
    assert isinstance(caught.value, ColdironError)
    assert caught.value.exit_code == ExitCode.USAGE
    shown = "\n".join(str(finding) for finding in findings)
    assert [finding.line for finding in findings] == [line for line, _ in expected], shown
    for finding, (line, text) in zip(findings, expected, strict=True):
        assert text in finding.text, f"line {line}: {finding.text}"
    for finding in findings:
        # A reader can click on it, and it is one line.
        assert re.match(rf".*{re.escape(file.name)}:\d+: \S", str(finding))
        assert "\n" not in str(finding)
        assert re.search(r" \[CI\d{3}\]$", str(finding)), "every finding has a code that can be explained"
        assert str(finding) in caught.value.message
