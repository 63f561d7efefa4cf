"""Each file in bad/ is wrong on the lines that say so, and nowhere else; each file in near/ is not wrong at all."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from coldiron.inventory import InventoryError, load
from coldiron.inventory.source import MAX_BYTES
from coldiron.plan import Finding, Severity
from coldiron.plan.checks import CHECKS
from coldiron.plan.codes import pages
from coldiron.plan.design import Design, run
from coldiron.plan.findings import of_inventory
from tests.plan.cases import BASES, line_of

HERE = Path(__file__).parent
BAD = sorted((HERE / "bad").glob("*.yml"))
NEAR = sorted((HERE / "near").glob("*.yml"))
MARK = re.compile(r"# <- ((?:[A-Z]{2}\d{3} ?)+)$")


def found(file: Path) -> list[Finding]:
    """What the plan says of a file without its inventory's variables."""
    try:
        return run(Design(load(file)), CHECKS)
    except InventoryError as error:
        return [of_inventory(finding) for finding in error.findings]


def marks(text: str) -> list[tuple[int, str]]:
    """(line, code) of each mark."""
    return sorted(
        (number, code)
        for number, line in enumerate(text.splitlines(), 1)
        if (mark := MARK.search(line))
        for code in mark[1].split()
    )


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_what_is_wrong_is_found_where_it_stands_and_nothing_else(file: Path) -> None:
    refused = [finding for finding in found(file) if finding.severity is Severity.REFUSE]
    expected = marks(file.read_text())
    assert expected
    assert sorted({(line_of(finding), finding.code) for finding in refused}) == expected, "\n".join(
        map(str, refused)
    )
    for finding in refused:
        assert str(finding).isprintable()
        assert finding.code in pages()


@pytest.mark.parametrize("file", NEAR, ids=lambda file: file.stem)
def test_a_near_miss_is_no_fault(file: Path) -> None:
    assert [str(finding) for finding in found(file) if finding.severity is not Severity.ADVICE] == []


def test_nothing_in_a_file_is_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found(HERE / "bad" / "traps.yml")
    assert list(tmp_path.iterdir()) == []


def write(tmp_path: Path, data: bytes) -> Path:
    file = tmp_path / "cluster.yml"
    file.write_bytes(data)
    return file


SOUND = (HERE / "base" / "node.yml").read_bytes()
OTHERS = {
    "UTF-16": (SOUND.decode().encode("utf-16"), "CI002", 1),
    "Latin-1": (SOUND + "# Zürich\n".encode("latin-1"), "CI002", SOUND.count(b"\n") + 1),
    "a NUL": (SOUND + b"# \0\n", "CI002", SOUND.count(b"\n") + 1),
    "a terminal's escape": (SOUND + b"# \x1b[2J\n", "CI002", SOUND.count(b"\n") + 1),
    "empty": (b"", "CI001", 0),
    "comments only": (b"# later\n", "CI001", 0),
    "a list": (b"- head01\n", "CI001", 1),
    "one word": (b"hopper\n", "CI001", 1),
    "a vault file": (b"$ANSIBLE_VAULT;1.1;AES256\n6162\n", "CI003", 1),
    "a program": (b"\x7fELF\x02\x01\x01\0", "CI002", 1),
    "one line too many": (SOUND + b"#" * MAX_BYTES, "CI001", 0),
}


@pytest.mark.parametrize(("data", "code", "line"), OTHERS.values(), ids=OTHERS.keys())
def test_a_file_that_is_no_text(tmp_path: Path, data: bytes, code: str, line: int) -> None:
    (finding,) = found(write(tmp_path, data))
    assert (finding.code, line_of(finding)) == (code, line)
    assert str(finding).isprintable()


def test_a_file_over_the_limit_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It has no blocks on the disk: whoever read it would need all the memory there is.
    file = write(tmp_path, SOUND)
    with file.open("r+b") as handle:
        handle.truncate(1 << 40)

    def read(*words: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr("coldiron.inventory.source.parse", read)
    (finding,) = found(file)
    assert finding.code == "CI001"
    assert f"at most {MAX_BYTES}" in finding.what


def test_a_directory_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "cluster.yml").mkdir()
    (finding,) = found(tmp_path / "cluster.yml")
    assert finding.code == "CI001"
    assert "directory" in finding.what


def test_a_file_that_waits_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cluster.yml")
    (finding,) = found(tmp_path / "cluster.yml")
    assert finding.code == "CI001"


def test_every_code_of_the_offline_plan_is_tried_from_both_sides() -> None:
    """A page's examples are a wrong file and a near miss; policy needs variables, and has tests of its own."""
    offline = [page for page in pages().values() if page.family in {*BASES, "CI"}]
    marked = {code for file in BAD for _, code in marks(file.read_text())} | {
        code for _, code, _ in OTHERS.values()
    }
    policy = {code for code in pages() if re.fullmatch(r"CV2\d\d", code)}
    wrong = {page.code for page in offline if page.wrong} | marked | policy
    right = {page.code for page in offline if page.right} | policy
    assert {page.code for page in offline} - wrong == set()
    assert {page.code for page in offline} - right == set()
