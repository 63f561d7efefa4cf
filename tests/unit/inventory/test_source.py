"""Files that are no cluster.yml at all, and what the reader makes of sound YAML."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from coldiron.inventory import InventoryError, load
from coldiron.inventory.findings import SHOWN_AT_MOST, did_you_mean, nearest, shown
from coldiron.inventory.source import MAX_BYTES, parse, read

Write = Callable[[str | bytes], Path]


def only_finding(path: Path) -> str:
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert len(caught.value.findings) == 1
    return str(caught.value.findings[0])


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        (b"", 0, "the file is empty"),
        (b" \n\t\n", 0, "the file is empty"),
        (b"# nothing\n", 0, "only comments"),
        (b"---\n", 2, "cluster.yml is a mapping"),
        ("plugin: x\n".encode("utf-16"), 1, "UTF-16"),
        (b"a: 1\nb: \xff\n", 2, "byte 0xff is not UTF-8"),
        (b"a: 1\nb: \x00\n", 2, "control character \\x00"),
        (b"a: 1\n\nb: \x1b[31m\n", 3, "control character \\x1b"),
        (b"$ANSIBLE_VAULT;1.1;AES256\n3361\n", 1, "this is an ansible-vault file"),
        (b"\n$ANSIBLE_VAULT;1.2;AES256;x\n3361\n", 1, "this is an ansible-vault file"),
        (b"x" * (MAX_BYTES + 1), 0, "bytes are too many"),
        (b'a: "\\ud800"\n', 1, "not YAML"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_no_document(write: Write, content: bytes, line: int, says: str) -> None:
    finding = only_finding(write(content))
    assert says in finding
    assert (f"cluster.yml:{line}: " in finding) if line else ("cluster.yml: " in finding)
    finding.encode()


def test_size_is_looked_at_before_the_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yml"
    with file.open("wb") as handle:
        handle.truncate(1 << 40)
    started = time.process_time()
    assert "bytes are too many" in only_finding(file)
    assert time.process_time() - started < 30


def test_what_is_not_a_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yml"
    file.mkdir()
    assert "this is a directory" in only_finding(file)
    assert "no such file" in only_finding(tmp_path / "none.yml")
    assert "no file name" in only_finding(Path("a\0b"))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "not a regular file" in only_finding(pipe)
    assert "cannot be read: " in only_finding(tmp_path / ("x" * 300))


def test_windows_line_ends_and_byte_order_mark(write: Write, sound: str) -> None:
    text = sound.replace("\n", "\r\n")
    assert load(write(b"\xef\xbb\xbf" + text.encode())).name == "hopper"


def test_lines_are_those_of_the_file(sound: str) -> None:
    document = parse(sound, "cluster.yml")
    lines = sound.splitlines()
    assert document.findings == []
    for path, line in document.lines.items():
        if path and isinstance(path[-1], str):
            assert f"{path[-1]}:" in lines[line - 1]
    assert document.line(("networks", "cluster", "nothing", 3)) == document.line(("networks", "cluster"))


@pytest.mark.parametrize("text", ["~", "null", "Null", "true", "False", "7", "-7", "1.5", "-1.5e+3", ".5"])
def test_plain_values_are_yaml_s_own(text: str) -> None:
    document = parse(f"a: {text}\n", "cluster.yml")
    assert document.findings == []
    assert document.data == {"a": yaml.safe_load(text)}


@pytest.mark.parametrize(
    "text", ["'on'", '"52:54:00:12:34:56"', "!!str 010", "52:54:00:ab:34:56", "2024-01-01", "="]
)
def test_text_stays_text(text: str) -> None:
    document = parse(f"a: {text}\n", "cluster.yml")
    assert document.findings == []
    assert document.data == {"a": text.removeprefix("!!str ").strip("'\"")}


def test_anchors_and_merges(write: Write, sound: str) -> None:
    shared = sound.replace("    hardware: {", "    hardware: &big {") + (
        "  - name: gpu05\n    kind: gpu\n    address: 10.99.0.20\n    hardware: *big\n"
        "  - name: gpu06\n    kind: gpu\n    address: 10.99.0.21\n    hardware:\n"
        "      <<: *big\n      memory_gib: 128\n"
    )
    cluster = load(write(shared))
    assert cluster.node("gpu05").hardware == cluster.node("gpu01").hardware
    changed = cluster.node("gpu06").hardware
    assert changed is not None
    assert (changed.cores_per_socket, changed.memory_gib) == (8, 128)
    # Its last line is its own, not that of the anchor it uses.
    assert (cluster.node("gpu05").line, cluster.node("gpu05").last_line) == (19, 22)


def test_merge_of_several() -> None:
    text = "a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc:\n  <<: [*a, *b]\n  z: 3\n"
    assert parse(text, "cluster.yml").data == yaml.safe_load(text)


def test_reads_alike_without_libyaml(monkeypatch: pytest.MonkeyPatch, sound: str) -> None:
    fast = parse(sound, "cluster.yml")
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    slow = parse(sound, "cluster.yml")
    assert (slow.data, slow.lines) == (fast.data, fast.lines)
    for text in ("a: b: c\n", "a:\n\t- b\n", "a\nb: 1\n", 'a: "b\n', "a: [b\nc: d\n", "a: *b\n", "a: %b\n"):
        with pytest.raises(InventoryError) as caught:
            parse(text, "cluster.yml")
        assert caught.value.findings


def test_a_bomb_of_aliases_costs_little() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    started = time.process_time()
    with pytest.raises(InventoryError, match="aliases make more than"):
        parse("\n".join(lines) + "\n", "cluster.yml")
    assert time.process_time() - started < 60


def test_a_chain_of_merges_is_bounded() -> None:
    lines = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40)]
    with pytest.raises(InventoryError, match=r"deep|values"):
        parse("\n".join(lines) + "\n", "cluster.yml")


def test_many_findings_are_counted_and_cut(write: Write, sound: str) -> None:
    with pytest.raises(InventoryError) as caught:
        load(write(sound + "".join(f"key_{n:04}: 1\n" for n in range(300))))
    assert len(caught.value.findings) == 300
    assert caught.value.message.startswith("300 things to mend before anything runs\n")
    assert f"and {300 - SHOWN_AT_MOST} more" in caught.value.message


def test_values_are_quoted_short_and_printable() -> None:
    assert shown("a\nb\x1b") == "a\\nb\\x1b"
    assert len(shown("x" * 500)) < 100
    assert shown(12) == "12"


def test_nearest() -> None:
    assert nearest("ADRESS", ["address", "name"]) == "address"
    assert nearest("colour", ["address", "name"]) is None
    assert did_you_mean("x", []) == "there is none to choose from"
    assert did_you_mean("zzz", [f"node{n}" for n in range(60)]).endswith(", ...")


def test_findings_name_the_file_as_it_was_typed(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = write("nothing\n")
    monkeypatch.chdir(tmp_path)
    assert only_finding(file).startswith("cluster.yml:1: ")
    monkeypatch.chdir("/")
    assert read(file).path == str(file.relative_to("/"))
