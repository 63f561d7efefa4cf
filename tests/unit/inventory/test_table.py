"""The CSV of single nodes: what it says counts, what is wrong is told on its line, and nothing is lost on the way."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldiron.inventory import Cluster, InventoryError, load
from coldiron.inventory.source import Document
from coldiron.inventory.table import COLUMNS, MAX_BYTES, read_rows, written

CLUSTER = """\
plugin: coldiron.cluster.cluster
name: hopper
domain: hopper.internal
racks: [{name: "r[01-02]"}]
networks:
  cluster: {subnet: 10.99.0.0/24}
  bmc: {subnet: 10.98.0.0/24}
  storage: {subnet: 10.97.0.0/24}
nodes_csv: nodes.csv
nodes:
  - {name: head01, kind: head, address: 10.99.0.1}
  - name: gpu[01-04]
    kind: gpu
    address: 10.99.0.11
    addresses: {storage: 10.97.0.11}
    bmc: {address: 10.98.0.11}
    rack: r[01-02]
    u: 10
    hardware: {cores_per_socket: 8, memory_gib: 64, height_u: 4, gpus: {type: h100, count: 4}}
    overrides:
      gpu03: {serial: S3}
"""
Write = Callable[..., Path]


@pytest.fixture
def inventory(tmp_path: Path) -> Write:
    """Writes cluster.yml and nodes.csv into a directory and returns it."""

    def _write(table: str | bytes | None, cluster: str = CLUSTER) -> Path:
        (tmp_path / "cluster.yml").write_text(cluster)
        if table is not None:
            (tmp_path / "nodes.csv").write_bytes(table.encode() if isinstance(table, str) else table)
        return tmp_path

    return _write


def told(directory: Path) -> list[str]:
    """What is wrong, each with its file's name and line."""
    with pytest.raises(InventoryError) as caught:
        load(directory)
    for finding in caught.value.findings:
        assert "\n" not in str(finding)
        assert re.search(r" \[CI\d{3}\]$", str(finding))
    return [f"{Path(one.path).name}:{one.line}: {one.text}" for one in caught.value.findings]


def seen(cluster: Cluster) -> list[tuple[object, ...]]:
    """All that a row of the table can say, of each node."""
    keys = "name address mac serial bmc_address bmc_mac rack u addresses".split()  # noqa: SIM905
    return [tuple(getattr(node, key) for key in keys) for node in cluster.nodes]


def test_a_row_stands_above_the_range_and_below_an_override(inventory: Write) -> None:
    table = "name,serial,mac,bmc_mac,bmc_address,rack,u,address,address_storage\n" + (
        "gpu01,S1,52-54-00-AA-00-01,52:54:00:bb:00:01,,r02,30,10.99.0.77,10.97.0.77\ngpu03,X3,,,10.98.0.99,,20,,\n"
    )
    cluster = load(inventory(table))
    first, third = cluster.node("gpu01"), cluster.node("gpu03")
    assert (first.serial, first.mac, first.bmc_mac) == ("S1", "52:54:00:aa:00:01", "52:54:00:bb:00:01")
    assert (str(first.bmc_address), first.rack, first.u) == ("10.98.0.11", "r02", 30)
    assert (str(first.address), str(first.addresses["storage"])) == ("10.99.0.77", "10.97.0.77")
    # What the file itself says of one node wins.
    assert (third.serial, str(third.bmc_address), third.rack, third.u) == ("S3", "10.98.0.99", "r02", 20)
    assert cluster.node("gpu02").serial is None


@pytest.mark.parametrize(
    "table",
    [
        b"\xef\xbb\xbfname,serial\r\ngpu01,S1\r\n",
        b"name;serial\r\ngpu01;S1\r\n;;\r\n\r\n",
        b"sep=;\r\nName;SERIAL;\r\ngpu01; S1 ;\r\n",
        b"serial\tname\nS1\tgpu01",
        b'"name","serial"\n"gpu01","S1"\n',
        b"name,serial,u\ngpu01,S1\n",
    ],
    ids=["excel-utf8", "semicolons", "sep", "tabs", "quotes", "short-row"],
)
def test_what_spreadsheets_write_is_understood(inventory: Write, table: bytes) -> None:
    assert load(inventory(table)).node("gpu01").serial == "S1"


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        (None, "cluster.yml:9: nodes.csv is not there; take this line out"),
        ("", "nodes.csv:1: the file is empty"),
        ("name,seriall\n", "nodes.csv:1: unknown column `seriall`; did you mean `serial`?"),
        ("name,address_cluster\n", "nodes.csv:1: unknown column `address_cluster`; did you mean"),
        ("name,serial,serial\n", "nodes.csv:1: the column `serial` is there twice"),
        ("name,,serial\n", "nodes.csv:1: column 2 has no name"),
        ("serial,mac\nS1,x\n", "nodes.csv:1: there is no column `name`"),
        ("name,serial\ngpu01,S1,x\n", "nodes.csv:2: 3 values for 2 columns"),
        ("name,serial\n,S1\n", "nodes.csv:2: the row names no node"),
        ("name,serial\n\ngpu01,S1\ngpu01,S2\n", "nodes.csv:4: gpu01 has a row on line 3 already"),
        ("name,serial\ngpu[01-02],S1\n", "nodes.csv:2: `gpu[01-02]` is a range; write one row a node"),
        ("name,serial\ngpu05,S1\n", "nodes.csv:2: there is no node `gpu05`; did you mean `gpu0"),
        ("name,mac\ngpu01,52:54\n", 'nodes.csv:2: `mac`: `52:54` is no MAC address; write six hex pairs'),
        ("name,bmc_mac\ngpu01,x\n", "nodes.csv:2: `bmc_mac`: `x` is no MAC address"),
        ("name,address\ngpu01,10.99.0\n", "nodes.csv:2: `address`: `10.99.0` is no IPv4 address"),
        ("name,address\ngpu01,10.1.0.1\n", "nodes.csv:2: 10.1.0.1 is outside 10.99.0.0/24"),
        ("name,address\ngpu01,10.99.0.[1-2]\n", "nodes.csv:2: `address`: `10.99.0.[1-2]` is a range or a list"),
        ("name,address\ngpu01,10.99.0.1\n", "nodes.csv:2: address 10.99.0.1 is taken in"),
        ("name,address_storage\ngpu01,10.97\n", "nodes.csv:2: `address_storage`: `10.97` is no IPv4 address"),
        ("name,rack\ngpu01,r03\n", "nodes.csv:2: there is no rack `r03`; did you mean `r0"),
        ("name,u\ngpu01,high\n", "nodes.csv:2: `u`: `high` is no unit of a rack"),
        ("name,serial\ngpu01,1.66022E+12\n", "nodes.csv:2: `serial`: `1.66022E+12` is a serial turned into a number"),
        ("name,serial\ngpu01,S1\ngpu02,S1\n", "nodes.csv:3: serial S1 is taken on line 2 already"),
        ('name,serial\ngpu01,"S1\n', "nodes.csv:2: this row cannot be read (a quote is not closed)"),
        (b"\xff\xfen\x00a\x00", "nodes.csv:1: the file is UTF-16"),
        (b"name,serial\ngpu01,M\xfcller\n", "nodes.csv:2: byte 0xfc is not UTF-8"),
        (b"name,serial\ngpu01,\x00\n", "nodes.csv:2: control character \\x00"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_on_its_line(inventory: Write, table: str | bytes | None, wanted: str) -> None:
    found = told(inventory(table))
    assert len(found) == 1, found
    assert wanted in found[0].replace("/nodes.csv is", "nodes.csv is") or wanted in re.sub(
        r"\S*/nodes\.csv", "nodes.csv", found[0]
    )


def test_other_faults_of_the_file_are_told_too(inventory: Write) -> None:
    found = told(inventory("name,serial\ngpu01,S1\ngpu09,S2\n", CLUSTER.replace("kind: gpu", "kind: gpuu")))
    # That there is no gpu09 is not sure while the groups are wrong.
    assert [line.split(": ")[0] for line in found] == ["cluster.yml:13"]


def test_a_place_outside_the_directory_is_refused(inventory: Write) -> None:
    found = told(inventory(None, CLUSTER.replace("nodes.csv", "/etc/passwd")))
    assert "must lie beside cluster.yml" in found[0]


def test_a_directory_and_a_huge_file_are_refused(inventory: Write, tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").mkdir()
    assert "is a directory" in told(inventory(None))[0]
    (tmp_path / "nodes.csv").rmdir()
    with (tmp_path / "nodes.csv").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert "has more than 8 MiB" in told(inventory(None))[0]


def test_a_pipe_is_refused_and_not_waited_for(inventory: Write, tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "nodes.csv")
    assert "is not a regular file" in told(inventory(None))[0]


def test_what_is_written_changes_nothing(inventory: Write) -> None:
    table = "name,serial,mac,u\ngpu01,S1,52:54:00:aa:00:01,30\ngpu04,S4,,\n"
    before = load(inventory(table))
    text = written(before)
    assert text.splitlines()[0] == ",".join([*COLUMNS, "address_storage"])
    assert len(text.splitlines()) == 6
    # Without the overrides too: the table holds what they said.
    after = load(inventory(text, CLUSTER.replace("    overrides:\n      gpu03: {serial: S3}\n", "")))
    assert seen(after) == seen(before)
    assert written(after) == text


ROWS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 0xFFFF), st.booleans(), st.integers(1, 40)),
    unique_by=(lambda row: row[0], lambda row: row[1]),
    max_size=4,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS)
def test_written_and_read_again_is_the_same(inventory: Write, rows: list[tuple[int, int, bool, int]]) -> None:
    lines = [
        f"gpu{number:02},52:54:00:00:{mac >> 8:02x}:{mac & 255:02x},{'' if blank else f's,{mac}'!r},{unit}"
        for number, mac, blank, unit in rows
    ]
    table = "name,mac,serial,u\n" + "".join(line.replace("'", '"') + "\n" for line in lines)
    plain = CLUSTER.replace("    overrides:\n      gpu03: {serial: S3}\n", "")
    before = load(inventory(table, plain))
    assert seen(load(inventory(written(before), plain))) == seen(before)


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet="name,;\t\"\r\n\x00serialu01 =[]'é")
    | st.binary(max_size=60).map(lambda b: b.decode("latin-1"))
)
def test_whatever_it_holds_is_read_or_told(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.mktemp("csv") / "nodes.csv"
    file.write_bytes(b"name,serial,u,mac\n" + text.encode("utf-8", "surrogatepass"))
    document = Document("cluster.yml", lines={("nodes_csv",): 3})
    rows = read_rows(file, document, ["cluster"])
    assert all(path in document.elsewhere for path, _ in rows.values())
    for finding in document.findings:
        assert "\n" not in str(finding)
        assert finding.line <= text.count("\n") + text.count("\r") + 3


def test_ten_thousand_rows_take_their_share_of_memory_only(inventory: Write) -> None:
    cluster = CLUSTER.replace("gpu[01-04]", "gpu[00001-10000]").replace("10.99.0.0/24", "10.99.0.0/16")
    cluster = cluster.replace("10.97.0.0/24", "10.97.0.0/16").replace("10.98.0.0/24", "10.98.0.0/16")
    cluster = cluster.replace("    rack: r[01-02]\n    u: 10\n", "").split("    overrides:")[0]
    table = "name,serial\n" + "".join(f"gpu{number:05},S{number}\n" for number in range(1, 10_001))
    found = load(inventory(table, cluster))
    assert found.node("gpu10000").serial == "S10000"
    assert len({node.serial for node in found.nodes}) == 10_001
